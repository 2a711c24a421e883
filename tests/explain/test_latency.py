"""How long a launch takes to reach the device, learnt from the capture, and what long launches mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from explaining import GEMM, absent, report_of

from ingest.traces import Trace


def spaced(count: int, latency_us: int) -> Trace:
    """Kernels every 100 us, each launched this long before it starts, the device idle by then."""
    trace = Trace()
    for number in range(count):
        at = 100 * number
        trace.launched(GEMM, launch_us=at, start_us=at + latency_us, dur_us=10, launch_dur_us=2)
    return trace


def queued(trace: Trace, at_us: int) -> Trace:
    """After 30 us of work a kernel launched 15 us before it starts, with 5 us of nothing between."""
    trace.launched(GEMM, launch_us=at_us, start_us=at_us + 10, dur_us=30)
    return trace.launched(
        GEMM, launch_us=at_us + 30, start_us=at_us + 45, dur_us=5, launch_dur_us=2
    )


def test_without_samples_twenty_microseconds_are_latency(tmp_path: Path) -> None:
    report = report_of(queued(Trace(), 0), tmp_path)
    assert absent(report, "idle") == {"launch_latency": 5_000}


def test_the_capture_says_how_long_launches_take(tmp_path: Path) -> None:
    """25 launches onto an idle device took 6 us: one that took 13 was queued behind its stream."""
    report = report_of(queued(spaced(25, 6), 2500), tmp_path)
    assert absent(report, "idle")["stream_dependency"] == 5_000
    assert "launch_latency" not in absent(report, "idle")


def test_a_slow_device_makes_longer_ones_latency(tmp_path: Path) -> None:
    report = report_of(queued(spaced(25, 40), 2600), tmp_path)
    assert absent(report, "idle")["launch_latency"] == 5_000


def test_a_late_launch_explains_the_whole_gap(tmp_path: Path) -> None:
    """From idle to launch the host, from launch to start the way: one gap, one cause."""
    report = report_of(spaced(3, 6), tmp_path)
    assert absent(report, "idle") == {"host_untraced": 2 * 90_000}


@pytest.mark.parametrize(
    ("call_us", "cause"),
    # A call that itself took 500 us and then returned: the host was at it (lazy loading, full queue).
    [(500, "host_api"), (10, "queued_unexplained")],
)
def test_a_long_launch_call_is_the_host(call_us: int, cause: str, tmp_path: Path) -> None:
    trace = Trace().launched(GEMM, launch_us=0, start_us=10, dur_us=10)
    trace.launched(GEMM, launch_us=15, launch_dur_us=call_us, start_us=520, dur_us=10)
    assert absent(report_of(trace, tmp_path), "idle") == {cause: 500_000}


def test_a_call_that_outlives_its_work_is_not_when_the_host_was_ready(tmp_path: Path) -> None:
    """A blocking copy returns after the copy: it had been launched all the same when it was called."""
    trace = Trace().launched(GEMM, launch_us=0, start_us=10, dur_us=90)
    trace.call("cudaMemcpy", 20, 100, correlation=3).memcpy(103, 10, correlation=3)
    report = report_of(trace, tmp_path)
    assert absent(report, "idle") == {"stream_dependency": 3_000}


def test_work_that_starts_within_its_own_long_call_waited_for_the_call(tmp_path: Path) -> None:
    # The call begins while the device is busy and is still running when its kernel starts.
    trace = Trace().launched(GEMM, launch_us=0, start_us=10, dur_us=90)
    trace.launched(GEMM, launch_us=50, start_us=400, dur_us=10, launch_dur_us=400)
    report = report_of(trace, tmp_path)
    assert absent(report, "idle") == {"host_api": 300_000}
