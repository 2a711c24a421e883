"""The first steps of a capture: what is cut away as warm-up or as an artefact, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from explain.explaining import GEMM, absent, report_of, window_of
from ingest.traces import Trace

DECODE = "execute_context_0(0)_generation_4(4)"
PREFILL = "execute_context_4(4096)_generation_0(0)"


@pytest.mark.parametrize(
    ("label", "window"), [(PREFILL, "steps 0:6"), (DECODE, "steady state: steps 1:6")]
)
def test_a_long_prefill_at_the_start_is_no_warm_up(tmp_path: Path, label: str, window: str) -> None:
    trace, at = Trace(), 0
    for name, dur in [(label, 5000)] + [(DECODE, 1000)] * 5:
        trace.range(name, at, 50)
        trace.launched(GEMM, launch_us=at + 10, start_us=at + 20, dur_us=dur)
        at += dur + 100
    report = report_of(trace, tmp_path)
    assert report.window is not None
    assert report.window.name == window


def first_step_in_two_parts(second_launch_us: int) -> Trace:
    """The first of five steps stands still for 1.12 ms; the smaller part of its work comes first."""
    trace, at = Trace(), 0
    for number in range(5):
        trace.range(DECODE, at, 1700)
        trace.launched(GEMM, launch_us=at + 10, start_us=at + 20, dur_us=300)
        launch, start = (second_launch_us, 1440) if number == 0 else (at + 30, at + 330)
        if number == 0 and launch > 1000:
            trace.call("cudaMalloc", at + 20, 1400, correlation=1)
        trace.launched(GEMM, launch_us=launch, start_us=start, dur_us=400)
        at += 1900
    return trace


def test_a_stall_of_the_host_in_the_first_step_stays_in_the_window(tmp_path: Path) -> None:
    report = report_of(first_step_in_two_parts(1430), tmp_path)
    assert window_of(report)["span_ns"] == (4 * 1900 + 730 - 20) * 1000
    assert absent(report, "idle")["host_allocator"] == 1_120_000


def test_a_part_that_had_been_launched_all_along_is_cut_off(tmp_path: Path) -> None:
    report = report_of(first_step_in_two_parts(30), tmp_path)
    assert window_of(report)["span_ns"] == (4 * 1900 + 730 - 1440) * 1000
