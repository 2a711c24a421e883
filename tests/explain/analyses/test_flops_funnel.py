"""The funnel closes exactly, its parts are what they say, and unknown work is a part of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from docs.pages import read, rows
from explain.analyses.kernel_cases import ADD, GEMM, SGEMM, Run, columns, report_of
from ingest.traces import Trace
from tokenpath.explain.analyses.flops_funnel import LOSSES, STAGES

PEAK = 989.4e12
M, N, K = 4096, 4096, 4096
FLOPS = 2 * M * N * K


def parts(run: Run, folder: Path, price: float | None = None) -> dict[str, dict[str, float]]:
    folder.mkdir(exist_ok=True)
    return {row["part"]: row for row in columns(report_of(run, folder, price), "flops_funnel")}


def closes(table: dict[str, dict[str, float]], *keys: str) -> None:
    for key in keys:
        losses = sum(table[stage.label][key] for stage in LOSSES if stage.label in table)
        assert table["peak x time"][key] == pytest.approx(
            losses + table["useful tokens"][key], abs=1e-12
        ), key


def test_each_loss_has_its_time(tmp_path: Path) -> None:
    run = Run()
    run.kernel(GEMM, 250.0, op="aten::mm", dims=[[M, K], [K, N]])
    run.kernel(ADD, 100.0, op="aten::add", dims=[[M, N], [M, N], []])
    run.kernel(GEMM, 80.0, gap_us=50.0)
    table = parts(run, tmp_path, price=3.6)
    closes(table, "duration_ns", "peak_flops", "usd_per_hour")
    assert table["peak x time"]["duration_ns"] == 480_000
    assert table["device idle"]["duration_ns"] == 50_000
    assert table["other work"]["duration_ns"] == 100_000
    assert table["matrix kernels of unknown shapes"]["duration_ns"] == 80_000
    ideal = FLOPS / PEAK * 1e9
    assert table["useful tokens"]["duration_ns"] == pytest.approx(ideal, rel=1e-3)
    assert table["useful tokens"]["peak_flops"] == pytest.approx(FLOPS, rel=1e-3)
    assert table["slower than their roofline"]["duration_ns"] == pytest.approx(
        250_000 - ideal, rel=1e-3
    )
    assert table["peak x time"]["usd_per_hour"] == pytest.approx(3.6)
    assert table["device idle"]["usd_per_hour"] == pytest.approx(3.6 * 50 / 480)


def test_a_memory_bound_product_and_a_slower_type(tmp_path: Path) -> None:
    run = Run()
    run.kernel(GEMM, 30.0, op="aten::mm", dims=[[8, K], [K, N]])
    run.kernel(GEMM, 200.0, op="aten::mm", dims=[[M, K], [K, N]])
    run.kernel(SGEMM, 3000.0, op="aten::mm", dims=[[M, K], [K, N]], types=["float", "float"])
    table = parts(run, tmp_path)
    closes(table, "duration_ns", "peak_flops")
    moved = (8 * K + K * N + 8 * N) * 2 / 3.35e12 * 1e9
    assert table["waiting for memory"]["duration_ns"] == pytest.approx(
        moved - 2 * 8 * K * N / PEAK * 1e9, rel=0.02
    )
    assert table["slower number type"]["duration_ns"] == pytest.approx(
        FLOPS / 66.9e12 * 1e9 - FLOPS / PEAK * 1e9, rel=0.01
    )


def test_padding_is_not_useful(tmp_path: Path) -> None:
    run = Run().step("decode[bs=96/128 tok=96]")
    for _ in range(4):
        run.kernel(GEMM, 30.0, op="aten::mm", dims=[[128, K], [K, N]])
    table = parts(run, tmp_path)
    closes(table, "duration_ns", "peak_flops")
    share = table["padding"]["duration_ns"] / (
        table["padding"]["duration_ns"] + table["useful tokens"]["duration_ns"]
    )
    assert share == pytest.approx(32 / 128, rel=1e-3)
    assert "computed again" not in table


def test_drafts_are_a_part_of_their_own(tmp_path: Path) -> None:
    run = Run()
    for _ in range(3):
        run.kernel(GEMM, 250.0, op="aten::mm", dims=[[M, K], [K, N]])
        run.trace.range("gpu_model_runner: draft", run.host_us + 0.35, 0.3)
        run.kernel(GEMM, 70.0, op="aten::mm", dims=[[M // 4, K], [K, N]])
    table = parts(run, tmp_path)
    closes(table, "duration_ns", "peak_flops")
    draft, useful = (table[name]["peak_flops"] for name in ("draft model", "useful tokens"))
    assert draft / (draft + useful) == pytest.approx(0.2, rel=1e-3)


def test_ranks_add_up(tmp_path: Path) -> None:
    trace = Trace(rank=0, world_size=2)
    for device, length in ((0, 300), (1, 500)):
        trace.launched(
            GEMM,
            launch_us=10,
            start_us=100 + 50 * device,
            dur_us=length,
            device=device,
            stream=7 + device,
        )
    trace.head["deviceProperties"] = [
        {"id": number, "name": "NVIDIA H100 80GB HBM3", "numSms": 132} for number in (0, 1)
    ]
    run = Run(trace=trace)
    shown = columns(report_of(run, tmp_path), "flops_funnel")
    labels = list(dict.fromkeys(row["device"] for row in shown))
    assert len(labels) == 3
    for stage in STAGES:
        values = [row["duration_ns"] for row in shown if row["part"] == stage.label]
        if values:
            assert values[0] == values[1] + values[2]
    outside = [r["duration_ns"] for r in shown if r["part"] == "device outside its window"]
    assert outside == [300_000, 250_000, 50_000]


PIECES = st.tuples(
    st.sampled_from([GEMM, ADD, SGEMM]), st.integers(1, 400), st.booleans(), st.integers(0, 90)
)


@settings(max_examples=15, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=12))
def test_it_closes_whatever_runs(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[str, int, bool, int]]
) -> None:
    run = Run()
    for name, length, is_known, gap in pieces:
        op = ("aten::add" if name is ADD else "aten::mm") if is_known else None
        run.kernel(name, length, op=op, dims=[[512, 512], [512, 512]], gap_us=gap)
    table = parts(run, tmp_path_factory.mktemp("funnel"), price=2.0)
    closes(table, "duration_ns", "peak_flops", "usd_per_hour")
    assert all(row["duration_ns"] >= 0 and row["peak_flops"] >= 0 for row in table.values())


def test_an_unknown_part_has_no_funnel(tmp_path: Path) -> None:
    run = Run(trace=Trace(device_name="Experimental Accelerator"))
    run.kernel(GEMM, 30.0, op="aten::mm", dims=[[128, K], [K, N]])
    assert "flops_funnel" not in {table.key for table in report_of(run, tmp_path).tables}


def test_the_glossary_has_every_part() -> None:
    written = [row for row in rows(read("docs/glossary.md")) if len(row) == 2]
    assert [row for row in written if row[0].strip("`") in {stage.label for stage in STAGES}] == [
        [f"`{stage.label}`", stage.meaning] for stage in STAGES
    ]
