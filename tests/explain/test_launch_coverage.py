"""Launches without kernels and kernels without launches: what is said, and what is withheld."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from explaining import GEMM, NCCL, absent, codes, notes, report_of, window_of

from ingest.traces import Trace
from tokenpath.api import explain
from tokenpath.core.report import Report, Severity, Trust


def busy(count: int, trace: Trace | None = None) -> Trace:
    """Kernels of 10 us one after the other, each with its launch; the first launch at 0."""
    trace = trace or Trace()
    for number in range(count):
        trace.launched(GEMM, launch_us=20 * number, start_us=20 * number + 8, dur_us=10)
    return trace


def coverage(report: Report) -> dict[str, int]:
    """The counts behind the notes."""
    told: Any = report.facts["launch_coverage"]
    return dict(told)


def replays(*num_nodes: int, graph_id: int | None = None) -> Trace:
    """Graph launches 100 us apart, each with this many recorded nodes."""
    trace = Trace()
    for number, count in enumerate(num_nodes):
        at = 100 * number
        trace.call("cudaGraphLaunch", at, 8, correlation=900 + number)
        for node in range(count):
            more = {} if graph_id is None else {"graph id": graph_id, "graph node id": node}
            trace.kernel(GEMM, at + 10 + 10 * node, 8, correlation=900 + number, **more)
    return trace


def test_a_complete_capture_has_no_notes(tmp_path: Path) -> None:
    report = report_of(busy(40), tmp_path)
    assert codes(report) == {"coarse-clock"}
    assert report.trust is Trust.GOOD


def test_under_recorded_graphs_withhold_idle(tmp_path: Path) -> None:
    report = report_of(replays(3, 0, 0, 3), tmp_path)
    (note,) = notes(report, "graph-under-recorded")
    assert note.severity is Severity.WITHHELD
    assert "2 of 4 graph replays recorded" in note.sentence
    assert report.funnel is None
    assert report.trust is Trust.UNUSABLE
    assert "2 of 4 graph replays recorded" in report.answer[0]
    assert report.facts["compute_absent"] is None
    assert not [table for table in report.tables if table.key in ("idle_causes", "worst_gaps")]
    assert not [f for f in report.findings if f.code in ("launch-bound", "graph-gaps", "no-work")]
    # What is there is still counted.
    assert window_of(report)["busy_ns"] == 6 * 8_000
    assert [table for table in report.tables if table.key == "kernels"]


def test_no_replay_recorded_at_all(tmp_path: Path) -> None:
    trace = busy(3).call("cudaGraphLaunch", 70, 8, correlation=900)
    trace.call("cudaGraphLaunch", 90, 8, correlation=901)
    report = report_of(trace, tmp_path)
    assert "0 of 2 graph replays recorded" in report.answer[0]
    assert report.funnel is None


def test_replays_recorded_in_part_are_a_warning(tmp_path: Path) -> None:
    report = report_of(replays(3, 2, 3, graph_id=7), tmp_path)
    (note,) = notes(report, "graph-partly-recorded")
    assert note.severity is Severity.WARNING
    assert "1 of 3 graph replays" in note.sentence
    assert report.funnel is not None
    assert report.trust is Trust.LIMITED


def test_complete_replays_of_graphs_of_different_size(tmp_path: Path) -> None:
    trace = replays(3, 3, graph_id=7)
    trace.call("cudaGraphLaunch", 300, 8, correlation=950)
    trace.kernel(GEMM, 310, 8, correlation=950, **{"graph id": 8, "graph node id": 1})
    assert codes(report_of(trace, tmp_path)) == {"coarse-clock"}


def test_hip_graphs_count_alike(tmp_path: Path) -> None:
    trace = Trace().call("hipGraphLaunch", 0, 8, correlation=1).kernel(GEMM, 10, 8, correlation=1)
    trace.call("hipGraphLaunch", 100, 8, correlation=2)
    trace.call("hipGraphLaunch", 200, 8, correlation=3).kernel(GEMM, 210, 8, correlation=3)
    assert "2 of 3 graph replays recorded" in report_of(trace, tmp_path).answer[0]


@pytest.mark.parametrize(
    ("at_us", "code", "counts"),
    [
        (-50, "dropped-head", (1, 0, 0)),
        (110, "kernel-not-in-file", (0, 1, 0)),
        (5000, "dropped-tail", (0, 0, 1)),
    ],
)
def test_where_a_launch_has_no_kernel(
    at_us: int, code: str, counts: tuple[int, int, int], tmp_path: Path
) -> None:
    trace = busy(40, Trace(base_time_ns=1_700_000_000_000_000_000))
    trace.launch(at_us, 4, correlation=5)
    report = report_of(trace, tmp_path)
    found = coverage(report)
    assert (found["num_head"], found["num_missing"], found["num_tail"]) == counts
    assert found["num_launches"] == 41
    assert code in codes(report)
    assert report.funnel is not None


def test_many_missing_kernels_withhold_idle(tmp_path: Path) -> None:
    trace = busy(40)
    for number in range(3):
        trace.launch(100 + 7 * number, 1, correlation=5 + number)
    report = report_of(trace, tmp_path)
    assert report.funnel is None
    assert "3 of 43 launches have no kernel" in report.answer[0]


def test_graph_launches_after_the_last_recorded_work_are_named(tmp_path: Path) -> None:
    """The profiler's buffers were full: the first replay is there, the other three are not."""
    report = report_of(replays(3, 0, 0, 0), tmp_path)
    (note,) = notes(report, "dropped-tail")
    assert "3" in note.sentence
    assert report.funnel is not None
    # The window holds what was covered, and nothing of the 300 us after it.
    assert window_of(report)["span_ns"] == 28_000


def test_graph_launches_before_the_first_recorded_work_are_named(tmp_path: Path) -> None:
    report = report_of(replays(0, 0, 3), tmp_path)
    (note,) = notes(report, "dropped-head")
    assert "2" in note.sentence
    assert window_of(report)["span_ns"] == 28_000


def test_the_edges_of_each_rank_are_its_own(tmp_path: Path) -> None:
    """Rank 1 starts to record device work late; that rank 0 recorded early changes nothing."""
    base = 1_700_000_000_000_000_000
    early = busy(40, Trace(rank=0, world_size=2, base_time_ns=base))
    late = Trace(rank=1, world_size=2, base_time_ns=base)
    for number in range(40):
        at = 20 * number
        late.launch(at, 4, correlation=1000 + number)
        if number >= 10:
            late.kernel(GEMM, at + 8, 10, correlation=1000 + number)
    files = [early.write(tmp_path / "rank0.json"), late.write(tmp_path / "rank1.json")]
    report = explain(files).report
    found = coverage(report)
    assert (found["num_head"], found["num_missing"], found["num_tail"]) == (10, 0, 0)
    assert report.funnel is not None


def test_calls_that_only_sound_like_launches(tmp_path: Path) -> None:
    trace = busy(40)
    for number, name in enumerate(("cudaLaunchHostFunc", "cudaStreamSynchronize", "cudaMalloc")):
        trace.call(name, 105 + number, 1, correlation=5 + number)
    report = report_of(trace, tmp_path)
    assert coverage(report)["num_launches"] == 40
    assert codes(report) == {"coarse-clock"}


def test_kernels_without_a_launch(tmp_path: Path) -> None:
    trace = busy(18).kernel(GEMM, 500, 10, correlation=1).kernel(NCCL, 600, 10)
    report = report_of(trace, tmp_path)
    (note,) = notes(report, "launch-not-in-file")
    assert "2 of 20 kernels and copies" in note.sentence
    assert "20.00 us" in note.sentence
    assert note.severity is Severity.WARNING
    assert absent(report, "idle")["launch_not_in_file"] == (500 - 358 + 600 - 510) * 1000


def test_few_kernels_without_a_launch_are_harmless(tmp_path: Path) -> None:
    report = report_of(busy(30).kernel(GEMM, 700, 10, correlation=1), tmp_path)
    (note,) = notes(report, "launch-not-in-file")
    assert note.severity is Severity.INFO
    assert report.trust is Trust.GOOD


def test_a_capture_without_host_side(tmp_path: Path) -> None:
    report = report_of(Trace().kernel(GEMM, 0, 10).kernel(GEMM, 40, 10), tmp_path)
    assert "missing-host-side" in codes(report)
    assert absent(report, "idle") == {"launch_not_in_file": 30_000}
    assert window_of(report)["busy_ns"] == 20_000


def test_a_capture_of_the_host_alone(tmp_path: Path) -> None:
    trace = Trace().op("aten::mm", 0, 100).frame("model.py(10): forward", 0, 120)
    report = report_of(trace, tmp_path)
    assert report.funnel is None
    assert codes(report) == {"no-device-work"}
    assert report.answer[0] == "No device work in this capture: it shows the host only."
    assert report.answer[1] == "aten::mm has the most self time: 100.00 us of 100.00 us (100.0 %)."
    assert report.trust is Trust.LIMITED
    assert report.facts["devices"] == []
    assert [table.key for table in report.tables] == ["kernels", "host"]


def test_launches_and_no_device_work_at_all(tmp_path: Path) -> None:
    report = report_of(Trace().launch(0, 4, correlation=1).launch(9, 4, correlation=2), tmp_path)
    assert "2 launches and no device work" in report.answer[0]
    assert report.funnel is None


def test_kernels_that_start_before_their_launch(tmp_path: Path) -> None:
    trace = busy(3).launched(GEMM, launch_us=90, start_us=85, dur_us=10)
    report = report_of(trace, tmp_path)
    (note,) = notes(report, "clock-skew")
    assert "1 kernels" in note.sentence or "1 kernel " in note.sentence
    assert report.trust is Trust.LIMITED
    assert report.funnel is not None
    assert report.funnel.residuals() == {}


@pytest.mark.parametrize("vendor", ["cuda", "hip"])
def test_launches_into_a_graph_that_is_being_captured_are_not_missing(
    vendor: str, tmp_path: Path
) -> None:
    trace = busy(5)
    trace.call(f"{vendor}StreamBeginCapture", 200, 2)
    for number in range(10):
        trace.launch(205 + 3 * number, 2, correlation=500 + number)
    trace.call(f"{vendor}StreamEndCapture", 250, 2)
    trace.launch(260, 2, correlation=600)
    trace.call(f"{vendor}GraphLaunch", 300, 8, correlation=900)
    for node in range(10):
        trace.kernel(GEMM, 310 + 10 * node, 9, correlation=900)
    report = report_of(trace, tmp_path)
    found = coverage(report)
    assert (found["num_captured"], found["num_launches"], found["num_missing"]) == (10, 6, 1)
    (note,) = notes(report, "graph-capture")
    assert note.severity is Severity.INFO
    assert "10 launches were recorded into a device graph, not run" in note.sentence


def test_a_driver_call_under_the_id_of_its_runtime_call_is_not_missing(tmp_path: Path) -> None:
    trace = Trace()
    for number in range(10):
        trace.launch(20 * number, 6, correlation=number)
        trace.call("cuLaunchKernel", 20 * number + 1, 4, correlation=number, category="cuda_driver")
        trace.kernel(GEMM, 20 * number + 10, 5, correlation=number)
    report = report_of(trace, tmp_path)
    assert codes(report) == {"coarse-clock"}
    assert report.funnel is not None
