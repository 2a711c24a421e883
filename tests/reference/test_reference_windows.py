"""What a user is told about the reference captures: windows, artefacts, communication, launches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from captures import Explained, explained, facts, funnel_row, idle_percent

from tokenpath.api import convert, explain, load
from tokenpath.core.report import Note, Severity, Trust
from tokenpath.export import json

pytestmark = pytest.mark.timeout(300)

INFERENCE = "tracelens/inference/"
VLLM_DECODE = INFERENCE + "vllm_decode_full/graph_execution.json.gz"
SGLANG_DECODE = INFERENCE + "sglang_decode/sglang_Qwen3-8B_decode.json.gz"
SGLANG_EXTEND = INFERENCE + "sglang_prefilldecode/sglang_Qwen3-8B_prefilldecode.json.gz"
GRAPH_CAPTURE = (
    INFERENCE + "vllm_decode_full/capture_traces/"
    "graph_capture_rank_0.1773709742341309550.pt.trace.json.gz"
)
H100_QWEN = "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
MI300_QWEN = "tracelens/mi300/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
MI300_RESNET = "tracelens/mi300/resnet_act_checkpoint.json.gz"
TRACEMAP = "vllm_tracemap/1_h100_1000isl_10osl_32con.pt.trace.json.gz"
DEEPSEEK = "deepseek/train.json.gz"
RESNET_0 = "kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz"
RESNET_4 = "kineto/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz"

DLRM_IDLE_US = (6419, 6428, 7046, 8145, 8887, 9121, 7051, 8308)
DLRM_OVERLAP_PERCENT = (4.50, 2.47, 7.88, 3.31, 0.56, 0.64, 7.56, 9.51)
DLRM_IDLE_PERCENT = (49.34, 34.28, 62.08, 43.20, 53.57, 55.64, 61.80, 75.75)


def notes(found: Explained, code: str) -> list[Note]:
    """The notes of a code."""
    return [note for note in found.report.notes if note.code == code]


@pytest.mark.parametrize(
    ("name", "percent", "wall_ns"),
    [
        (VLLM_DECODE, 0.237, 10_743_181),
        (SGLANG_DECODE, 6.52, 10_450_292),
        (SGLANG_EXTEND, 0.243, 494_001_673),
        (TRACEMAP, 10.877, 261_903_041),
        (H100_QWEN, 8.067, 49_652_832),
        (MI300_QWEN, 8.544, 47_085_800),
        (DEEPSEEK, 0.385, 129_012_000),
        (RESNET_0, 39.43, 996_477_000),
        (RESNET_4, 23.35, 801_550_000),
    ],
)
def test_idle_that_the_answer_is_about(
    name: str, percent: float, wall_ns: int, traces: Path
) -> None:
    report = explained(traces, name).report
    assert report.funnel is not None
    assert report.funnel.wall_ns == wall_ns
    digits = len(str(percent).partition(".")[2])
    assert round(idle_percent(report), digits) == percent
    assert report.trust is not Trust.UNUSABLE


def test_whole_mi300_resnet_and_its_steps(traces: Path) -> None:
    found = explained(traces, MI300_RESNET)
    assert round(idle_percent(found.whole), 3) == 2.964
    assert facts(found.whole)["window"]["span_ns"] == 86_567_708
    assert facts(found.whole)["window"]["communication_ns"] == 71_516_523
    assert facts(found.whole)["window"]["exposed_communication_ns"] == 55_371_257
    # By default the marked steps are looked at; the whole file's numbers stand beside them.
    assert facts(found.report)["whole_file"] == facts(found.whole)["whole_file"]
    assert found.report.window is not None
    assert found.report.window.name == "steps 0:3"


@pytest.mark.parametrize(
    ("name", "gap_ns", "whole_ns", "before"),
    [
        (SGLANG_DECODE, 463_295_405, 473_749_943, "463.30 ms"),
        (SGLANG_EXTEND, 493_283_729, 987_288_887, "493.28 ms"),
    ],
)
def test_gap_of_a_split_capture_is_suspected_and_left_out(
    name: str, gap_ns: int, whole_ns: int, before: str, traces: Path
) -> None:
    found = explained(traces, name)
    (note,) = notes(found, "split-artefact")
    assert note.severity is Severity.WARNING
    assert note.details["duration_ns"] == gap_ns
    assert note.details["is_proven"] is False
    assert note.details["is_left_out"] is True
    assert before in note.sentence
    assert facts(found.report)["whole_file"]["span_ns"] == whole_ns
    assert found.report.trust is Trust.LIMITED


def test_both_parts_of_the_split_capture_prove_the_gap(traces: Path) -> None:
    found = explained(traces, SGLANG_DECODE, SGLANG_EXTEND)
    proven = [note for note in notes(found, "split-artefact") if note.details["is_proven"]]
    (note,) = proven
    assert note.details["duration_ns"] == 463_295_405
    share: Any = note.details["covered_share"]
    assert round(100 * share, 3) == 99.996
    assert "99.996%" in note.sentence
    # One device, and between the end of prefill and the start of decode 17.7 us.
    work = facts(found.report)
    assert work["whole_file"]["num_kernels"] == 558 + 534
    absent: Any = found.report.facts["compute_absent"]
    assert absent["idle_ns"]["event_wait"] == 17_707
    assert facts(found.report)["window"]["span_ns"] == 504_469_672


def test_order_of_the_two_parts_does_not_matter(traces: Path) -> None:
    one = explained(traces, SGLANG_DECODE, SGLANG_EXTEND)
    other = explained(traces, SGLANG_EXTEND, SGLANG_DECODE)
    assert one.report.funnel == other.report.funnel
    assert one.devices == other.devices


def test_a_converted_capture_gives_the_same_report(traces: Path, tmp_path: Path) -> None:
    for number, name in enumerate((SGLANG_DECODE, H100_QWEN)):
        convert([traces / name], tmp_path / str(number))
        again = explain([tmp_path / str(number)]).report
        assert json.render(again) == json.render(explained(traces, name).report)


def test_sglang_is_not_called_vllm(traces: Path) -> None:
    for name, phase in ((SGLANG_DECODE, "decode"), (SGLANG_EXTEND, "prefill")):
        assert explained(traces, name).report.headline.startswith(f"SGLang {phase} ")
    assert explained(traces, VLLM_DECODE).report.headline.startswith("vLLM decode ")


def test_full_graph_decode(traces: Path) -> None:
    found = explained(traces, VLLM_DECODE)
    assert found.devices[2]["graph_launched_gpu_events"] == 421
    assert facts(found.report)["window"]["communication_ns"] == 0
    assert found.report.trust is Trust.GOOD
    assert not [finding for finding in found.report.findings if finding.code == "launch-bound"]


def test_h100_tensor_parallel(traces: Path) -> None:
    found = explained(traces, TRACEMAP)
    # 24.20 ms by the reference's rule, of which 21,503 ns only mention all_reduce.
    window = facts(found.report)["window"]
    assert window["communication_ns"] == 24_198_994 - 21_503
    assert window["exposed_communication_ns"] == 24_198_866 - 21_503
    custom = [
        name for name in found.communication_ns_by_name if "cross_device_reduce_1stage" in name
    ]
    assert sum(found.communication_ns_by_name[name] for name in custom) == 7_428_151
    (overlap,) = notes(found, "same-stream-overlap")
    assert overlap.details["num_overlaps"] == 148
    assert "programmatic dependent launch" in overlap.sentence
    assert round(int(str(overlap.details["total_ns"])) / 1000, 1) == 17.0
    assert found.num_replays == 729
    assert found.devices[0]["graph_launched_gpu_events"] == 8667


def test_h100_qwen_kernels_without_a_launch_stay_counted(traces: Path) -> None:
    found = explained(traces, H100_QWEN)
    (note,) = notes(found, "launch-not-in-file")
    assert (note.details["num_unlaunched"], note.details["num_work"]) == (509, 1707)
    assert funnel_row(found.report, "launch_not_in_file").duration_ns > 0


def test_deepseek_communication_is_called_dispatcher(traces: Path) -> None:
    found = explained(traces, DEEPSEEK)
    window = facts(found.report)["window"]
    assert window["communication_ns"] == 113_440_000
    assert window["exposed_communication_ns"] == 4_186_000
    (finding,) = [f for f in found.report.findings if f.code == "dispatcher-communication"]
    assert finding.duration_ns == 113_440_000
    assert finding.details["num_kernels"] == 36
    assert "not network time" in finding.sentence
    by_name = found.communication_ns_by_name
    for part, duration_ns in (
        ("::combine<", 49_448_000),
        ("::cached_notify<", 23_610_000),
        ("::dispatch<", 31_004_000),
        ("::notify_dispatch<", 8_968_000),
    ):
        assert sum(ns for name, ns in by_name.items() if part in name) == duration_ns


def test_launches_into_a_graph_are_not_called_lost(traces: Path) -> None:
    """The capture of a graph, before any replay of it: 421 of 428 launches did not run."""
    found = explained(traces, GRAPH_CAPTURE)
    (note,) = notes(found, "graph-capture")
    assert note.details["num_launches"] == 421
    assert found.report.trust is Trust.GOOD
    assert round(idle_percent(found.report), 2) == 99.95


def test_dlrm_ranks_one_by_one(dlrm: Sequence[Path]) -> None:
    for rank, path in enumerate(dlrm):
        found = explained(path.parent, path.name)
        device = facts(found.whole, rank)
        window = device["window"]
        idle = window["span_ns"] - window["busy_ns"]
        assert idle == DLRM_IDLE_US[rank] * 1000
        assert device["whole_file"]["span_ns"] == window["span_ns"]
        assert round(100 * idle / window["span_ns"], 2) == DLRM_IDLE_PERCENT[rank]
        # The peer counts no memset as overlap; on rank 3 one runs beside a collective.
        beside = found.beside_compute_ns[rank]
        assert round(100 * beside / window["communication_ns"], 2) == DLRM_OVERLAP_PERCENT[rank]
        hidden = window["communication_ns"] - window["exposed_communication_ns"]
        assert hidden - beside == (10_000 if rank == 3 else 0)


def test_dlrm_as_one_run_of_eight_ranks(dlrm: Sequence[Path]) -> None:
    report = explain(load([dlrm[0].parent])).report
    assert report.funnel is not None
    assert funnel_row(report, "idle").duration_ns == sum(DLRM_IDLE_US) * 1000
    devices: Any = report.facts["devices"]
    assert [device["rank"] for device in devices] == list(range(8))
    assert len(report.device_funnels) == 8
    for rank, funnel in enumerate(report.device_funnels):
        assert funnel.title.startswith(f"rank {rank} ")
        (idle,) = [row for row in funnel.rows if row.key == "idle"]
        assert idle.duration_ns == DLRM_IDLE_US[rank] * 1000
        assert funnel.residuals() == {}
