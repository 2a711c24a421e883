"""The kernel table, the host table and the longest gaps, against the slow and obvious version."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import slow
from explaining import GEMM, NCCL, cells, explained, report_of, table

from ingest.traces import Trace
from tokenpath.api import WindowRequest

SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float>()"


def many(seed: int, count: int = 300) -> Trace:
    """Kernels of three names on two streams, launched before, during and after one another."""
    chance = random.Random(seed)
    trace = Trace()
    ends = {7: 0, 20: 0}
    launch_us = 0
    for _ in range(count):
        launch_us += chance.randint(1, 12)
        stream = chance.choice((7, 20))
        start_us = max(ends[stream], launch_us + chance.randint(2, 9))
        dur_us = chance.randint(1, 40)
        ends[stream] = start_us + dur_us
        name = chance.choice((GEMM, SOFTMAX, NCCL))
        if chance.random() < 0.1:
            trace.kernel(name, start_us, dur_us, stream=stream)
        else:
            trace.launched(
                name, launch_us=launch_us, start_us=start_us, dur_us=dur_us, stream=stream
            )
    return trace


@pytest.mark.parametrize("seed", range(4))
def test_the_kernel_table_equals_the_slow_one(seed: int, tmp_path: Path) -> None:
    found = explained(many(seed), tmp_path)
    rows = cells(found.report, "kernels")
    (work,) = slow.works(found.capture).values()
    everything = sum(row.end - row.start for row in work)
    assert {row["name"] for row in rows} == {row.name for row in work}
    assert [row["total_ns"] for row in rows] == sorted(
        (row["total_ns"] for row in rows), reverse=True
    )
    for row in rows:
        mine = [other for other in work if other.name == row["name"]]
        lengths = [other.end - other.start for other in mine]
        launched = [other for other in mine if other.launch is not None]
        assert row["count"] == len(mine)
        assert row["total_ns"] == sum(lengths)
        assert row["mean_ns"] == sum(lengths) / len(mine)
        assert row["share"] == sum(lengths) / everything
        assert row["p50_ns"] == slow.percentile(lengths, 50)
        assert row["p99_ns"] == slow.percentile(lengths, 99)
        delays = [other.start - (other.launch or 0) for other in launched]
        assert row["p50_launch_delay_ns"] == slow.percentile(delays, 50)
        depths = [slow.queue_depth(other, work) for other in launched]
        assert row["p50_queue_depth"] == slow.percentile(depths, 50)


def test_percentiles_are_measured_values(tmp_path: Path) -> None:
    trace = Trace()
    for number in range(1, 101):
        trace.kernel(GEMM, 1000 * number, number)
    (row,) = cells(report_of(trace, tmp_path), "kernels")
    assert (row["p50_ns"], row["p99_ns"]) == (50_000, 99_000)
    (one,) = cells(report_of(Trace().kernel(GEMM, 0, 7), tmp_path), "kernels")
    assert (one["p50_ns"], one["p99_ns"], one["mean_ns"]) == (7_000, 7_000, 7_000)


def test_what_is_not_recorded_is_unknown_not_zero(tmp_path: Path) -> None:
    trace = Trace().kernel(GEMM, 0, 10, grid=None, block=None)
    (row,) = cells(report_of(trace, tmp_path), "kernels")
    for column in (
        "grid",
        "block",
        "registers_per_thread",
        "shared_memory_bytes",
        "occupancy_percent",
        "p50_launch_delay_ns",
        "p50_queue_depth",
    ):
        assert row[column] is None, column


def test_occupancy_fields_come_through(tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "registers per thread": 96,
        "shared memory": 49152,
        "est. achieved occupancy %": 31,
    }
    trace = Trace().kernel(GEMM, 0, 10, grid=(12, 8, 1), block=(256, 1, 1), **more)
    (row,) = cells(report_of(trace, tmp_path), "kernels")
    assert (row["grid"], row["block"]) == ("12x8x1", "256x1x1")
    assert (row["registers_per_thread"], row["shared_memory_bytes"]) == (96, 49152)
    assert row["occupancy_percent"] == 31


def test_the_table_of_a_window_counts_what_touches_it(tmp_path: Path) -> None:
    trace = Trace().kernel(GEMM, 0, 10).kernel(SOFTMAX, 20, 10).kernel(NCCL, 40, 10)
    report = report_of(trace, tmp_path, WindowRequest(from_ns=5_000, to_ns=25_000))
    assert {row["name"]: row["total_ns"] for row in cells(report, "kernels")} == {
        GEMM: 10_000,
        SOFTMAX: 10_000,
    }


@pytest.mark.parametrize("seed", range(3))
def test_the_host_table_equals_the_slow_one(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    trace = Trace().kernel(GEMM, 0, 5000)
    at = 0
    for _ in range(40):
        tid = chance.choice((100, 200))
        outer = chance.randint(40, 90)
        trace.op(chance.choice(("aten::linear", "aten::add")), at, outer, tid=tid)
        if chance.random() < 0.7:
            trace.op("aten::addmm", at + 5, 30, tid=tid)
            trace.launch(at + 10, chance.randint(1, 9), tid=tid)
            trace.call("cudaStreamIsCapturing", at + 20, 5, tid=tid)
        if chance.random() < 0.3:
            trace.call("cudaStreamSynchronize", at + outer - 4, 4, tid=tid)
        at += outer + chance.randint(0, 5)
    found = explained(trace, tmp_path)
    expected = slow.self_times(found.capture)
    rows = cells(found.report, "host")
    assert {row["name"]: row["self_ns"] for row in rows} == {
        name: sum(times) for name, times in expected.items()
    }
    assert {row["name"]: row["count"] for row in rows} == {
        name: len(times) for name, times in expected.items()
    }
    assert [row["self_ns"] for row in rows] == sorted(
        (row["self_ns"] for row in rows), reverse=True
    )
    waits = {row["name"] for row in rows if row["is_synchronizing"]}
    assert waits <= {"cudaStreamSynchronize"}
    # Every nanosecond that the host was in anything is the self time of one thing.
    spans = [
        (row["start_ns"], row["end_ns"], row["thread_id"])
        for name in ("op", "api_call")
        for row in found.capture[name].to_pylist()
    ]
    in_anything = sum(
        slow.length((start, end) for start, end, other in spans if other == thread)
        for thread in {thread for _, _, thread in spans}
    )
    assert sum(row["self_ns"] for row in rows) == in_anything


def test_launch_figures(tmp_path: Path) -> None:
    trace = Trace()
    for number in range(10):
        at = 100 * number
        trace.launched(GEMM, launch_us=at, launch_dur_us=3 + number, start_us=at + 20, dur_us=10)
    trace.call("cudaDeviceSynchronize", 960, 30).kernel(GEMM, 1010, 10)
    report = report_of(trace, tmp_path)
    figures: Any = report.facts["launches"]
    assert (figures["num_launches"], figures["num_kernels"]) == (10, 10)
    assert figures["launch_call_ns"] == sum(range(3, 13)) * 1000
    assert figures["p50_launch_call_ns"] == 7_000
    assert figures["launch_and_queue_ns"] == 10 * 20_000
    assert figures["launches_per_s"] == pytest.approx(10 / 1e-3)
    assert (figures["num_synchronizing"], figures["synchronizing_ns"]) == (1, 30_000)


def test_the_three_longest_gaps_of_a_cause(tmp_path: Path) -> None:
    trace = Trace()
    at = 0
    for gap_us in (30, 60, 50, 40, 70):
        trace.launched(GEMM, launch_us=at, start_us=at + 5, dur_us=10)
        trace.op("aten::linear", at + 8, gap_us + 8)
        at += 10 + gap_us
    trace.launched(SOFTMAX, launch_us=at, start_us=at + 5, dur_us=10)
    report = report_of(trace, tmp_path)
    gaps = cells(report, "worst_gaps")
    assert [gap["cause"] for gap in gaps] == ["host_op"] * 3
    assert [gap["duration_ns"] for gap in gaps] == [70_000, 60_000, 50_000]
    assert [gap["at_ns"] for gap in gaps] == [230_000, 50_000, 120_000]
    assert gaps[0]["kernel"] == SOFTMAX
    assert gaps[0]["before"] == GEMM
    assert gaps[0]["host"] == "aten::linear"
    assert table(report, "worst_gaps").num_rows_in_all == 3


def test_the_call_stack_of_the_late_launch(tmp_path: Path) -> None:
    trace = Trace().launched(GEMM, launch_us=0, start_us=10, dur_us=10)
    trace.frame("engine.py(5): step", 0, 200).frame("model.py(10): forward", 30, 120)
    trace.frame("other.py(1): elsewhere", 30, 120, tid=200).op("aten::linear", 100, 30)
    trace.frame("model.py(20): done", 151, 20)
    trace.launched(SOFTMAX, launch_us=110, start_us=120, dur_us=10)
    (gap,) = cells(report_of(trace, tmp_path), "worst_gaps")
    assert gap["cause"] == "host_python"
    assert gap["stack"].split("\n") == [
        "engine.py(5): step",
        "model.py(10): forward",
        "aten::linear",
    ]


def test_a_gap_without_a_launch_has_no_stack(tmp_path: Path) -> None:
    trace = Trace().frame("engine.py(5): step", 0, 200)
    trace.kernel(GEMM, 0, 10).kernel(GEMM, 120, 10)
    (gap,) = cells(report_of(trace, tmp_path), "worst_gaps")
    assert gap["stack"] is None
    assert gap["kernel_row"] == 1
