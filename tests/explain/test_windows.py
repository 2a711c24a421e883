"""Which stretch of time is looked at: steps, times, steady state, and what it is called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from explaining import GEMM, cells, device, explained, report_of, rows_of, window_of

from ingest.traces import Trace
from tokenpath.api import WindowRequest
from tokenpath.core.errors import UsageError


def stepped(
    *lengths_us: int, label: str = "ProfilerStep#{}", devices: Sequence[int] = (0,)
) -> Trace:
    """Steps of these lengths: of each, one kernel from 10 us after its start to 10 us before its end."""
    trace = Trace()
    at = 0
    for number, length_us in enumerate(lengths_us):
        trace.range(label.format(number), at, length_us)
        for index in devices:
            trace.launched(
                GEMM, launch_us=at + 1, start_us=at + 10, dur_us=length_us - 20, device=index
            )
        at += length_us
    return trace


def test_marked_steps_are_the_window(tmp_path: Path) -> None:
    trace = stepped(100, 100, 100).kernel(GEMM, 1000, 10)
    report = report_of(trace, tmp_path)
    assert report.window is not None
    assert report.window.name == "steps 0:3"
    found = window_of(report)
    # From the first kernel of step 0 to the end of the last one of step 2; 1000 us is left out.
    assert (found["span_ns"], found["busy_ns"]) == (280_000, 240_000)
    assert device(report)["whole_file"]["span_ns"] == 1_000_000
    assert device(report)["whole_file"]["busy_ns"] == 250_000
    assert report.window.end_ns - report.window.start_ns == 280_000


def test_a_long_first_step_is_warm_up(tmp_path: Path) -> None:
    report = report_of(stepped(1000, 100, 100, 100, 100), tmp_path)
    assert report.window is not None
    assert report.window.name == "steady state: steps 1:5"
    assert "warm-up" in report.window.reason
    assert window_of(report)["span_ns"] == 380_000
    assert device(report)["whole_file"]["span_ns"] == 1_380_000


def test_a_first_step_of_twice_the_median_is_not_warm_up(tmp_path: Path) -> None:
    report = report_of(stepped(200, 100, 100, 100, 100), tmp_path)
    assert report.window is not None
    assert report.window.name == "steps 0:5"


def test_two_steps_have_no_steady_state(tmp_path: Path) -> None:
    report = report_of(stepped(100, 100), tmp_path)
    assert report.window is not None
    assert report.window.name == "whole capture"
    assert "2 steps" in report.window.reason


def test_without_steps_the_whole_capture_is_the_window(tmp_path: Path) -> None:
    report = report_of(Trace().kernel(GEMM, 5, 10).kernel(GEMM, 25, 10), tmp_path)
    assert report.window is not None
    assert report.window.name == "whole capture"
    assert "no steps are marked" in report.window.reason
    assert (report.window.start_ns, report.window.end_ns) == (5_000, 35_000)


@pytest.mark.parametrize(
    ("first", "end", "span_us", "busy_us"),
    # A window of steps ends where the next step's work begins; the last one with its own work.
    [(0, 1, 100, 80), (1, 3, 200, 160), (1, None, 280, 240), (None, 2, 200, 160), (3, 4, 80, 80)],
)
def test_named_steps(
    first: int | None, end: int | None, span_us: int, busy_us: int, tmp_path: Path
) -> None:
    request = WindowRequest(first_step=first, end_step=end)
    report = report_of(stepped(100, 100, 100, 100), tmp_path, request)
    found = window_of(report)
    assert (found["span_ns"], found["busy_ns"]) == (span_us * 1000, busy_us * 1000)
    assert report.window is not None
    assert report.window.name == f"steps {first or 0}:{4 if end is None else end}"
    assert report.window.reason.startswith("asked for")


@pytest.mark.parametrize(("first", "end"), [(4, None), (0, 5), (2, 2), (9, 12)])
def test_steps_that_are_not_there(first: int, end: int | None, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        report_of(stepped(100, 100, 100, 100), tmp_path, WindowRequest(first, end))
    assert "0:4" in str(caught.value)


def test_steps_of_a_capture_without_steps(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--from and --to"):
        report_of(Trace().kernel(GEMM, 0, 10), tmp_path, WindowRequest(0, 1))
    with pytest.raises(UsageError, match="leave out --steps"):
        report_of(Trace().op("aten::mm", 0, 10), tmp_path, WindowRequest(0, 1))


@pytest.mark.parametrize(
    ("from_us", "to_us", "busy_us", "idle_us"),
    [
        (None, None, 20, 90),
        (0, 110, 20, 90),
        (5, 105, 10, 90),
        (20, 60, 0, 40),
        (5, None, 15, 90),
        (None, 50, 10, 40),
    ],
)
def test_named_times(
    from_us: int | None, to_us: int | None, busy_us: int, idle_us: int, tmp_path: Path
) -> None:
    trace = Trace().kernel(GEMM, 1000, 10).kernel(GEMM, 1100, 10)
    request = WindowRequest(
        from_ns=None if from_us is None else from_us * 1000,
        to_ns=None if to_us is None else to_us * 1000,
    )
    rows = rows_of(report_of(trace, tmp_path, request))
    assert (rows["busy"], rows["idle"]) == (busy_us * 1000, idle_us * 1000)


@pytest.mark.parametrize(
    ("from_ns", "to_ns"), [(-1, None), (110_000, None), (None, 110_001), (5, 5), (9, 3)]
)
def test_times_that_are_not_there(from_ns: int | None, to_ns: int | None, tmp_path: Path) -> None:
    trace = Trace().kernel(GEMM, 1000, 10).kernel(GEMM, 1100, 10)
    with pytest.raises(UsageError) as caught:
        report_of(trace, tmp_path, WindowRequest(from_ns=from_ns, to_ns=to_ns))
    assert "110.00 us" in str(caught.value)


def test_times_of_a_capture_without_device_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds none"):
        report_of(Trace().op("aten::mm", 0, 10), tmp_path, WindowRequest(from_ns=0))


def test_a_step_is_where_its_launches_ran_not_where_its_range_was(tmp_path: Path) -> None:
    """The device lags: the kernels of each step run during the range of the next one."""
    trace = Trace()
    for number in range(4):
        trace.range(f"ProfilerStep#{number}", 100 * number, 100)
        trace.launched(GEMM, launch_us=100 * number + 1, start_us=100 * number + 120, dur_us=60)
    report = report_of(trace, tmp_path)
    steps = cells(report, "steps")
    assert [step["start_ns"] for step in steps] == [0, 100_000, 200_000, 300_000]
    assert [step["span_ns"] for step in steps] == [60_000] * 4


def test_the_table_and_funnel_of_steps(tmp_path: Path) -> None:
    trace = Trace()
    for number, (label, gap_us) in enumerate(
        [
            ("execute_context_2(64)_generation_0(0)", 5),
            ("execute_context_0(0)_generation_8(8)", 10),
            ("execute_context_0(0)_generation_9(9)", 20),
        ]
    ):
        at = 1000 * number
        trace.range(label, at, 900)
        trace.launched(GEMM, launch_us=at + 1, start_us=at + 10, dur_us=100)
        trace.launched(GEMM, launch_us=at + 2, start_us=at + 110 + gap_us, dur_us=100)
    report = report_of(trace, tmp_path)
    steps = cells(report, "steps")
    assert [step["phase"] for step in steps] == ["prefill", "decode", "decode"]
    assert [step["busy_ns"] for step in steps] == [200_000] * 3
    assert [step["span_ns"] for step in steps] == [205_000, 210_000, 220_000]
    assert [step["idle_share"] for step in steps] == pytest.approx([5 / 205, 10 / 210, 20 / 220])
    assert [step["num_prefill_tokens"] for step in steps] == [64, 0, 0]
    assert [step["num_decode_requests"] for step in steps] == [0, 8, 9]
    funnels = {funnel.title: funnel for funnel in report.step_funnels}
    assert set(funnels) == {"prefill steps", "decode steps"}
    assert funnels["prefill steps"].wall_ns == 205_000
    assert funnels["decode steps"].wall_ns == 430_000
    assert all(funnel.residuals() == {} for funnel in report.step_funnels)


def test_ranks_with_unequal_steps(tmp_path: Path) -> None:
    """One device ran seven steps, three of them warm-up; the other took part in three."""
    trace = stepped(2000, 2000, 2000, 100, 100, 100, 100)
    for number in range(3):
        at = 6000 + 100 * number
        trace.launched(GEMM, launch_us=at + 2, start_us=at + 10, dur_us=50, device=1)
    found = explained(trace, tmp_path)
    assert found.report.funnel is not None
    assert found.report.funnel.residuals() == {}
    assert window_of(found.report, 0)["span_ns"] == 380_000
    assert window_of(found.report, 1)["span_ns"] <= 250_000
