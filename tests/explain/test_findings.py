"""Findings: which one a cause becomes, what it is worth, where it can be seen; and the first sentences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cases import (
    Case,
    collective_wait,
    communication_order,
    event_wait,
    host_allocator,
    host_api,
    host_memcpy,
    host_op,
    host_python,
    host_synchronize,
    host_untraced,
    host_wait,
    launch_latency,
    launch_not_in_file,
    memcpy_order,
    no_work,
    queued_unexplained,
)
from explaining import GEMM, NCCL, explained, report_of

from ingest.traces import Trace
from tokenpath.core.finding import Finding, Kind
from tokenpath.core.report import Report

IDLE: list[tuple[Callable[[], Case], str]] = [
    (host_op, "launch-bound"),
    (host_api, "launch-bound"),
    (host_python, "launch-bound"),
    (host_untraced, "launch-bound"),
    (launch_latency, "launch-bound"),
    (host_synchronize, "synchronisation-stall"),
    (host_memcpy, "blocking-copy"),
    (host_allocator, "allocator-stall"),
    (host_wait, "host-wait"),
    (no_work, "no-work"),
    (event_wait, "event-wait"),
    (collective_wait, "collective-wait"),
    (queued_unexplained, "queued-unexplained"),
    (launch_not_in_file, "launch-unknown"),
]


REPLAYED = {
    *("launch-bound", "synchronisation-stall", "blocking-copy", "allocator-stall", "host-wait"),
}
"""Codes whose fix is replayed."""


def finding(report: Report, code: str) -> Finding:
    """The largest finding of a code: copies have one for the idle time and one for themselves."""
    found = [item for item in report.findings if item.code == code]
    assert len(found) <= (2 if code == "blocking-copy" else 1)
    return max(found, key=lambda item: item.duration_ns or 0)


@pytest.mark.parametrize(("case", "code"), IDLE, ids=lambda part: getattr(part, "__name__", part))
def test_the_finding_of_a_cause(case: Callable[[], Case], code: str, tmp_path: Path) -> None:
    expected = case()
    result = explained(expected.trace, tmp_path)
    found = finding(result.report, code)
    wall = result.analysis.wall_ns
    (duration,) = expected.idle.values()
    assert found.duration_ns == duration
    assert found.share == duration / wall
    is_known = code not in ("queued-unexplained", "launch-unknown")
    assert found.kind is (Kind.COST if is_known else Kind.ABSTENTION)
    if not is_known:
        assert (found.gain_ns, found.gain_method) == (None, None)
    elif code in REPLAYED:
        # What is left of host time keeps the device waiting: these runs have little work to wait for.
        assert found.gain_method == "replayed"
        assert found.gain_ns is not None
        assert 0 < found.gain_ns <= duration
        assert found.details["expected_wall_ns"] == wall - found.gain_ns
    else:
        assert (found.gain_ns, found.gain_method) == (duration, "ceiling")
    assert found.falsifier
    assert found.fix
    # The evidence is the kernels that end the gaps.
    (evidence,) = found.evidence
    ends = set(result.analysis.devices[0].gaps.end.tolist())
    starts = result.capture["kernel"]["start_ns"].to_pylist()
    assert evidence.rows
    assert {starts[row] for row in evidence.rows} <= ends
    assert evidence.num_rows == len(result.analysis.devices[0].gaps.end)
    idle_codes = {code for _, code in IDLE}
    assert {f.code for f in result.report.findings if f.code in idle_codes} == {code}


@pytest.mark.parametrize(
    ("case", "code", "gain_ns", "method"),
    [
        # As long as a small message takes, and compute needs what it brings.
        (communication_order, "exposed-communication", 0, "ceiling"),
        # Beside compute of 10 us the copy itself is what takes longest.
        (memcpy_order, "exposed-copy", 10_000, "replayed"),
    ],
)
def test_what_runs_alone_is_a_cost(
    case: Callable[[], Case], code: str, gain_ns: int, method: str, tmp_path: Path
) -> None:
    result = explained(case().trace, tmp_path)
    found = finding(result.report, code)
    assert (found.duration_ns, found.gain_ns, found.gain_method) == (40_000, gain_ns, method)
    (evidence,) = found.evidence
    starts = result.capture["kernel"]["start_ns"].to_pylist()
    assert [starts[row] for row in evidence.rows] == [110_000]


def back_to_back(num: int, gap_us: float) -> Trace:
    """Kernels of 10 us launched long before, `gap_us` apart, the first of them followed by one 9 us later."""
    trace, at = Trace().launched(GEMM, launch_us=0, start_us=100, dur_us=10), 119.0
    for number in range(num):
        trace.launched(GEMM, launch_us=1 + number, start_us=at, dur_us=10)
        at += 10 + gap_us
    return trace


def test_of_gaps_between_queued_kernels_only_what_is_above_the_usual_one_is_claimed(
    tmp_path: Path,
) -> None:
    found = finding(report_of(back_to_back(6, 2), tmp_path), "stream-handover")
    assert (found.duration_ns, found.gain_ns) == (7_000, 7_000)
    assert found.details["normal_gap_ns"] == 2_000
    assert found.evidence[0].num_rows == 1


def replays(held: dict[int, int]) -> Trace:
    """Eight replays of a graph of four nodes 1 us apart; before node `held[replay]` the device stands for 2 ms."""
    trace, at = Trace(), 300.0
    for replay in range(8):
        trace.call("cudaGraphLaunch", 10.0 * replay, 8, correlation=100 + replay)
        for node in range(4):
            at += 2_000 if held.get(replay) == node else 1
            trace.kernel(GEMM, at, 50, correlation=100 + replay)
            at += 50
        at += 2
    return trace


def test_gaps_that_a_graph_has_in_every_replay_are_its_own(tmp_path: Path) -> None:
    codes = [f.code for f in report_of(replays(dict.fromkeys(range(8), 2)), tmp_path).findings]
    assert "graph-gaps" in codes
    assert "queued-unexplained" not in codes


def test_a_graph_held_here_and_there_cannot_be_explained_and_that_comes_first(
    tmp_path: Path,
) -> None:
    report = report_of(replays({1: 2, 4: 1, 6: 3}), tmp_path)
    first = report.findings[0]
    assert (first.code, first.kind, first.gain_ns) == (
        "queued-unexplained",
        Kind.ABSTENTION,
        None,
    )
    assert first.duration_ns == 6_000_000
    assert "graph-gaps" not in [f.code for f in report.findings]


def test_findings_are_ranked_by_what_a_fix_would_bring(tmp_path: Path) -> None:
    trace = Trace().launched(GEMM, launch_us=0, start_us=10, dur_us=1000)
    trace.launched(NCCL, launch_us=5, start_us=1010, dur_us=200)
    trace.launched(GEMM, launch_us=8, start_us=1210, dur_us=1000)
    trace.op("aten::linear", 2205, 110).launched(GEMM, launch_us=2300, start_us=2310, dur_us=10)
    trace.call("cudaMemcpyAsync", 2302, 4, correlation=3).memcpy(2320, 300, correlation=3)
    trace.launched(GEMM, launch_us=2307, start_us=2620, dur_us=400)
    report = report_of(trace, tmp_path)
    costs = [(f.code, f.gain_ns) for f in report.findings if f.kind is Kind.COST]
    assert costs == [
        ("exposed-copy", 299_000),
        # Of the gap of 100 us the launch call stays.
        ("launch-bound", 90_000),
    ]
    # The host launches no sooner when communication is hidden.
    assert [text.split(" ")[0] for text in report.dismissed] == ["exposed-communication"]
    assert report.answer[1].startswith("Hiding or removing copies would bring back about 299.00 us")


def test_costs_below_half_a_per_cent_are_named_and_not_ranked(tmp_path: Path) -> None:
    trace = Trace().launched(GEMM, launch_us=0, start_us=10, dur_us=100_000)
    trace.launched(GEMM, launch_us=5, start_us=100_018, dur_us=10)
    report = report_of(trace, tmp_path)
    assert report.findings == ()
    assert report.dismissed == ("stream-handover (3.00 us)",)
    assert report.answer == (
        "The GPU was busy 100.0 % of the time.",
        "Nothing seen here is worth fixing: the time is in the kernels themselves.",
    )


def test_the_answer_names_the_main_cause(tmp_path: Path) -> None:
    report = report_of(host_op().trace, tmp_path)
    assert report.answer[0] == (
        "The GPU waited 83.3 % of the time, nearly all of it for the host to launch the next kernel."
    )
    assert report.answer[1].startswith("Capturing the repeated part in device graphs would bring")


def test_time_without_a_known_cause_is_not_called_time_in_kernels(tmp_path: Path) -> None:
    """No host side at all: 30 of 50 us idle, and nothing says why."""
    report = report_of(Trace().kernel(GEMM, 0, 10).kernel(GEMM, 40, 10), tmp_path)
    first, second = report.answer
    assert first.startswith("The GPU waited 60.0 % of the time, nearly all of it for launches that")
    assert "in the kernels themselves" not in second
    assert "60.0 %" in second
    assert "does not say" in second


def test_a_small_known_cost_does_not_hide_a_large_unknown(tmp_path: Path) -> None:
    trace = Trace().launched(GEMM, launch_us=0, start_us=10, dur_us=10)
    trace.launched(GEMM, launch_us=14, start_us=25, dur_us=10)
    trace.kernel(GEMM, 100, 10)
    report = report_of(trace, tmp_path)
    assert "5.00 us (5.0 %)" in report.answer[1]
    assert "65.0 %" in report.answer[1]
    assert "nothing else" not in report.answer[1]


def test_exposed_communication_of_a_busy_device_is_said_first(tmp_path: Path) -> None:
    report = report_of(communication_order().trace, tmp_path)
    assert report.answer[0].startswith("The GPU was busy 100.0 % of the time, 66.7 % of it in comm")
