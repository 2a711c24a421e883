"""Steps: what the labels of engines say, and which step a kernel belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingest.traces import Trace
from tokenpath.api import load
from tokenpath.capture.capture import Capture
from tokenpath.stitch.steps import StepLabel, read_label

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("ProfilerStep#12", StepLabel("profiler")),
        (
            "execute_context_1(512)_generation_0(0)",
            StepLabel("vllm", "prefill", 1, 512, 0, 0),
        ),
        (
            "execute_context_0(0)_generation_32(32)",
            StepLabel("vllm", "decode", 0, 0, 32, 32),
        ),
        (
            "execute_context_2(700)_generation_5(5)",
            StepLabel("vllm", "mixed", 2, 700, 5, 5),
        ),
        (
            "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)",
            StepLabel("vllm", "decode", 0, 0, 32, 32, 55086),
        ),
        (
            (
                "execute_15360_context_15(sq15360sk15360sqsq15728640sqsk15728640)"
                "_generation_0(sq0sk0sqsq0sqsk0)"
            ),
            StepLabel("vllm", "prefill", 15, 15360, 0, 0, 0),
        ),
        ("step[DECODE bs=32]", StepLabel("sglang", "decode", 0, 0, 32, 32)),
        ("step[DECODE bs=32 g_sq=32]", StepLabel("sglang", "decode", 0, 0, 32, 32)),
        ("step[EXTEND bs=15 toks=15360]", StepLabel("sglang", "prefill", 15, 15360, 0, 0)),
        ("step[MIXED bs=9 c=1 g=8]", StepLabel("sglang", "mixed")),
        ("prefill[bs=2 tok=900 ctx=[1, 2]]", StepLabel("atom", "prefill", 2, 900, 0, 0)),
        ("decode[bs=117/128 tok=117 d=0]", StepLabel("atom", "decode", 0, 0, 117, 117)),
    ],
)
def test_labels(name: str, label: StepLabel) -> None:
    assert read_label(name) == label


LONG = "9" * 30
"""A number that no 64 bits hold, as a damaged label may have."""


@pytest.mark.parametrize(
    ("name", "label"),
    [
        (f"step[DECODE bs={LONG}]", StepLabel("sglang", "decode", 0, 0)),
        (f"step[EXTEND bs=15 toks={LONG}]", StepLabel("sglang", "prefill", 15, None, 0, 0)),
        (f"prefill[bs=2 tok={LONG}]", StepLabel("atom", "prefill", 2, None, 0, 0)),
        (
            f"execute_context_{LONG}({LONG})_generation_2(sq2sk{LONG})",
            StepLabel("vllm", "mixed", None, None, 2, 2, None),
        ),
    ],
)
def test_numbers_too_long_are_unknown(name: str, label: StepLabel, tmp_path: Path) -> None:
    assert read_label(name) == label
    (step,) = steps(linked(Trace().range(name, 0, 100), tmp_path))
    assert (step["phase"], step["num_decode_tokens"]) == (label.phase, label.num_decode_tokens)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "aten::mm",
        "execute_model",
        "execute_context_x(1)_generation_2(3)",
        "my step[DECODE bs=1]",
        "forward",
        "nccl:all_reduce",
        "capture_32_decode",
        "execute_context_٣(1)_generation_2(3)",
    ],
)
def test_names_that_are_no_steps(name: str) -> None:
    assert read_label(name) is None


def steps(capture: Capture) -> list[dict[str, Any]]:
    """The rows of `step`."""
    rows: list[dict[str, Any]] = capture["step"].to_pylist()
    return rows


def of_kernel(capture: Capture) -> list[str | None]:
    """The label of each kernel's step, by start time."""
    rows = capture["kernel"].select(["start_ns", "step_id"]).to_pylist()
    names = [row["name"] for row in steps(capture)]
    ordered = sorted(rows, key=lambda row: row["start_ns"])
    return [None if row["step_id"] is None else names[row["step_id"]] for row in ordered]


def linked(trace: Trace, tmp_path: Path) -> Capture:
    """The trace, read and linked."""
    return load([trace.write(tmp_path / "trace.json")])


def test_the_launch_decides_not_the_time_of_the_kernel(tmp_path: Path) -> None:
    trace = Trace().range("ProfilerStep#0", 0, 100).range("ProfilerStep#1", 100, 100)
    trace.launched(GEMM, launch_us=5, start_us=150, dur_us=10)
    trace.launched(GEMM, launch_us=110, start_us=300, dur_us=10)
    trace.launched(GEMM, launch_us=250, start_us=400, dur_us=10)
    trace.kernel(GEMM, 50, 10, correlation=1)
    capture = linked(trace, tmp_path)
    assert of_kernel(capture) == [None, "ProfilerStep#0", "ProfilerStep#1", None]


def test_a_launch_at_the_edge_belongs_to_the_step_that_begins(tmp_path: Path) -> None:
    trace = Trace().range("ProfilerStep#0", 0, 100).range("ProfilerStep#1", 100, 100)
    trace.launched(GEMM, launch_us=0, start_us=20, dur_us=10)
    trace.launched(GEMM, launch_us=100, start_us=120, dur_us=10)
    trace.launched(GEMM, launch_us=200, start_us=220, dur_us=10)
    assert of_kernel(linked(trace, tmp_path)) == ["ProfilerStep#0", "ProfilerStep#1", None]


def test_a_short_step_within_a_long_one_does_not_hide_the_rest_of_it(tmp_path: Path) -> None:
    trace = Trace().range("step[DECODE bs=8]", 0, 100).range("step[DECODE bs=1]", 20, 10, tid=101)
    for launch_us in (5, 25, 60):
        trace.launched(GEMM, launch_us=launch_us, start_us=100 + launch_us, dur_us=2)
    assert of_kernel(linked(trace, tmp_path)) == [
        "step[DECODE bs=8]",
        "step[DECODE bs=1]",
        "step[DECODE bs=8]",
    ]


def test_all_nodes_of_a_graph_belong_to_the_step_of_its_launch(tmp_path: Path) -> None:
    trace = Trace().range("step[DECODE bs=8]", 0, 30).call("cudaGraphLaunch", 5, 8, correlation=3)
    for start_us in (20, 40, 60):
        trace.kernel(GEMM, start_us, 10, correlation=3)
    assert of_kernel(linked(trace, tmp_path)) == ["step[DECODE bs=8]"] * 3


def test_the_engine_is_the_one_that_wrote_its_own_labels(tmp_path: Path) -> None:
    """SGLang can write vLLM's label around its own: it is one step, and SGLang's."""
    trace = Trace().range("execute_context_0(0)_generation_8(8)", 0, 100)
    trace.range("step[DECODE bs=8]", 10, 80).range("ProfilerStep#0", 0, 200)
    (step,) = steps(linked(trace, tmp_path))
    assert (step["engine"], step["phase"]) == ("sglang", "decode")
    assert (step["start_ns"], step["end_ns"]) == (0, 100_000)


def test_engine_labels_go_before_profiler_steps(tmp_path: Path) -> None:
    trace = Trace().range("ProfilerStep#0", 0, 200).range("step[EXTEND bs=2 toks=64]", 10, 80)
    (step,) = steps(linked(trace, tmp_path))
    assert (step["engine"], step["num_prefill_tokens"]) == ("sglang", 64)


def test_the_copy_of_a_label_on_the_device_is_no_step(tmp_path: Path) -> None:
    trace = Trace().range("ProfilerStep#0", 0, 100).device_range("ProfilerStep#0", 20, 90)
    assert len(steps(linked(trace, tmp_path))) == 1


def test_steps_are_in_order_whatever_the_order_of_the_file(tmp_path: Path) -> None:
    trace = Trace().range("ProfilerStep#2", 200, 100).range("ProfilerStep#0", 0, 100)
    trace.range("ProfilerStep#1", 100, 100)
    found = steps(linked(trace, tmp_path))
    assert [step["name"] for step in found] == [f"ProfilerStep#{number}" for number in range(3)]
    assert [step["start_ns"] for step in found] == [0, 100_000, 200_000]


def test_steps_of_another_rank_are_not_mine(tmp_path: Path) -> None:
    base = 1_700_000_000_000_000_000
    one = Trace(rank=0, base_time_ns=base).range("ProfilerStep#0", 0, 100)
    one.launched(GEMM, launch_us=5, start_us=20, dur_us=10)
    other = Trace(rank=1, base_time_ns=base)
    other.launched(GEMM, launch_us=5, start_us=21, dur_us=10)
    capture = load([one.write(tmp_path / "rank0.json"), other.write(tmp_path / "rank1.json")])
    assert of_kernel(capture) == ["ProfilerStep#0", None]


def test_no_steps(tmp_path: Path) -> None:
    capture = linked(Trace().launched(GEMM, launch_us=5, start_us=20, dur_us=10), tmp_path)
    assert steps(capture) == []
    assert of_kernel(capture) == [None]
