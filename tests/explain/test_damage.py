"""Times that cannot be: impossible ends, overlaps on one stream, lost and broken events."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from explaining import GEMM, cells, codes, device, notes, report_of, window_of

from ingest.traces import Trace
from tokenpath.core.report import Severity, Trust


def corrupt(**more: int) -> Trace:
    """Ten kernels of 10 us every 20 us; the third claims to end after 50 s."""
    trace = Trace()
    for number in range(10):
        at = 20 * number
        length = 50_000_000 if number == 2 else 10
        trace.launched(GEMM, launch_us=at, start_us=at + 8, dur_us=length, **more)
    return trace


def test_an_impossible_end_is_cut_at_the_next_start(tmp_path: Path) -> None:
    report = report_of(corrupt(), tmp_path)
    (note,) = notes(report, "impossible-duration")
    assert note.severity is Severity.WARNING
    assert note.details["num_kernels"] == 1
    # Nine kernels of 10 us and one of 20, within 190 us.
    assert (window_of(report)["span_ns"], window_of(report)["busy_ns"]) == (190_000, 110_000)
    assert report.funnel is not None
    assert report.funnel.residuals() == {}
    # The whole file stays as the file has it.
    assert device(report)["whole_file"]["span_ns"] == 50_000_040_000
    (kernels,) = cells(report, "kernels")
    assert kernels["total_ns"] == 110_000
    assert report.timeline is not None
    assert report.timeline.end_ns - report.timeline.start_ns == 190_000
    assert sum(report.timeline.lanes[0].busy_ns[0]) == 110_000


def test_steps_are_not_filled_by_an_impossible_end(tmp_path: Path) -> None:
    trace = corrupt()
    for number in range(5):
        trace.range(f"ProfilerStep#{number}", 40 * number, 39)
    report = report_of(trace, tmp_path)
    steps = cells(report, "steps")
    assert [step["busy_ns"] for step in steps] == [20_000, 30_000, 20_000, 20_000, 20_000]
    (funnel,) = report.step_funnels
    rows = {row.key: row.duration_ns for row in funnel.rows}
    assert rows["wall"] == 5 * 30_000
    assert (rows["busy"], rows["idle"]) == (110_000, 40_000)


def test_a_long_kernel_beside_others_on_other_streams_is_possible(tmp_path: Path) -> None:
    trace = Trace().kernel(GEMM, 0, 5000, stream=20)
    for number in range(10):
        trace.kernel(GEMM, 20 * number, 10)
    report = report_of(trace, tmp_path)
    assert "impossible-duration" not in codes(report)
    assert window_of(report)["busy_ns"] == 5_000_000


def test_a_long_node_beside_others_of_its_graph_is_possible(tmp_path: Path) -> None:
    trace = Trace().call("cudaGraphLaunch", 0, 10, correlation=5)
    trace.kernel(GEMM, 20, 5000, correlation=5)
    for number in range(10):
        trace.kernel(GEMM, 40 + 20 * number, 10, correlation=5)
    report = report_of(trace, tmp_path)
    assert "impossible-duration" not in codes(report)
    assert window_of(report)["busy_ns"] == 5_000_000


def test_dependent_launch_overlaps_are_kept_and_counted(tmp_path: Path) -> None:
    """A kernel starts 300 ns before the one before it on its stream ends."""
    trace = Trace()
    for number in range(5):
        trace.kernel(GEMM, Decimal("0.123") + 10 * number, Decimal("10.300"))
    report = report_of(trace, tmp_path)
    (note,) = notes(report, "same-stream-overlap")
    assert note.severity is Severity.INFO
    assert "programmatic dependent launch" in note.sentence
    assert note.details["num_overlaps"] == 4
    assert note.details["total_ns"] == 4 * 300
    assert note.details["longest_ns"] == 300
    assert window_of(report)["busy_ns"] == 50_300
    assert "impossible-duration" not in codes(report)


def test_overlaps_of_a_coarse_clock_are_rounding(tmp_path: Path) -> None:
    trace = Trace().kernel(GEMM, 0, 11).kernel(GEMM, 10, 11).kernel(GEMM, 40, 5)
    report = report_of(trace, tmp_path)
    (note,) = notes(report, "same-stream-overlap")
    assert "rounding to microseconds" in note.sentence
    assert note.details["num_overlaps"] == 1
    assert "coarse-clock" in codes(report)


def test_long_overlaps_of_a_coarse_clock_are_not_called_rounding(tmp_path: Path) -> None:
    trace = Trace().kernel(GEMM, 0, 19).kernel(GEMM, 10, 11)
    (note,) = notes(report_of(trace, tmp_path), "same-stream-overlap")
    assert "rounding" not in note.sentence


def test_work_in_order_does_not_overlap(tmp_path: Path) -> None:
    trace = Trace().kernel(GEMM, 0, 10).kernel(GEMM, 10, 10).kernel(GEMM, 5, 10, stream=20)
    assert "same-stream-overlap" not in codes(report_of(trace, tmp_path))


def test_many_broken_times_withhold_idle(tmp_path: Path) -> None:
    trace = Trace()
    for number in range(20):
        trace.kernel(GEMM, 20 * number, -5 if number in (4, 9) else 10)
    report = report_of(trace, tmp_path)
    (note,) = notes(report, "lost-events")
    assert note.severity is Severity.WITHHELD
    assert note.details["num_events"] == 2
    assert report.funnel is None
    assert report.answer[0].startswith("Cannot tell how busy the device was: idle unreliable")


def test_few_broken_times_are_a_warning(tmp_path: Path) -> None:
    trace = Trace()
    for number in range(200):
        trace.kernel(GEMM, 20 * number, -5 if number == 4 else 10)
    report = report_of(trace, tmp_path)
    (note,) = notes(report, "lost-events")
    assert note.severity is Severity.WARNING
    assert report.trust is Trust.LIMITED
    assert window_of(report)["busy_ns"] == 199 * 10_000


def test_what_is_withheld_is_withheld_for_steps_too(tmp_path: Path) -> None:
    """Idle of a step is idle: where the capture does not support the one, it has no other."""
    trace = Trace()
    for number in range(4):
        at = 100 * number
        trace.range(f"execute_context_0(0)_generation_{number + 1}({number + 1})", at, 90)
        trace.call("cudaGraphLaunch", at + 1, 8, correlation=900 + number)
        if number != 2:
            trace.kernel(GEMM, at + 10, 8, correlation=900 + number)
            trace.kernel(GEMM, at + 30, 8, correlation=900 + number)
    trace.launched(GEMM, launch_us=500, start_us=510, dur_us=5)
    report = report_of(trace, tmp_path)
    assert report.funnel is None
    assert not report.step_funnels
    assert all(step["idle_share"] is None for step in cells(report, "steps"))
    assert report.window is not None
    assert "idle" not in report.window.reason


def test_several_processes_in_one_file(tmp_path: Path) -> None:
    trace = Trace(pid=1, tid=1).launched(GEMM, launch_us=0, start_us=10, dur_us=5)
    trace.pid, trace.tid = 2, 2
    trace.call("cudaLaunchKernel", 20, 4, correlation=77).kernel(GEMM, 30, 5, correlation=77)
    (note,) = notes(report_of(trace, tmp_path), "several-processes")
    assert note.details["num_processes"] == 2


def test_one_stray_time_centuries_away(tmp_path: Path) -> None:
    trace = Trace()
    for number in range(30):
        trace.launched(GEMM, launch_us=20 * number, start_us=20 * number + 8, dur_us=10)
    trace.kernel(GEMM, 9 * 10**15, 10)
    report = report_of(trace, tmp_path)
    assert window_of(report)["span_ns"] == 9 * 10**18 + 10_000 - 8_000
    assert window_of(report)["busy_ns"] == 310_000
    assert report.funnel is not None
    assert report.funnel.residuals() == {}
    assert report.timeline is not None
    (lane,) = report.timeline.lanes
    assert sum(map(sum, lane.busy_ns)) == 310_000


def test_kernels_at_time_zero_are_lost_not_counted_as_the_start(tmp_path: Path) -> None:
    """Full profiler buffers leave ts 0 and dur 0 among times since 1970."""
    trace = Trace()
    for number in range(200):
        trace.kernel(GEMM, 1_712_209_971_000_000 + 20 * number, 10)
    trace.kernel(GEMM, 0, 0).kernel(GEMM, 0, 10)
    report = report_of(trace, tmp_path)
    assert window_of(report)["span_ns"] == 199 * 20_000 + 10_000
    (note,) = notes(report, "lost-events")
    assert note.details["num_events"] == 2
