"""Replayed gains in the report: what is kept, what is dismissed, and what fixes bring together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from explain.explaining import GEMM, cells, report_of, table
from ingest.traces import Trace
from tokenpath.api import explain
from tokenpath.cli.main import main
from tokenpath.core.errors import UsageError
from tokenpath.core.finding import Finding, Kind, Status
from tokenpath.explain import gains
from tokenpath.explain.analyses.contract import Options
from tokenpath.explain.gains import with_gain
from tokenpath.explain.ranking import ranked, score
from tokenpath.replay.replay import Retimed


def starved(num_steps: int = 6) -> Trace:
    """Steps whose kernels wait for the host, each ended by a synchronise."""
    trace = Trace()
    for number in range(num_steps):
        at = 10_000 * number
        trace.range(f"step[DECODE bs={number + 1}]", at, 9_000)
        for part in range(20):
            trace.launched(GEMM, launch_us=at + 100 * part, start_us=at + 100 * part + 8, dur_us=20)
        trace.call("cudaStreamSynchronize", at + 1_920, 20)
    return trace


def cost(
    code: str,
    gain_ns: int,
    *,
    effort: str | None = None,
    confidence: float | None = None,
    gain_interval_ns: tuple[int, int] | None = None,
) -> Finding:
    return Finding(
        code, "", Kind.COST, 0.1, "share", gain_ns, 0.1, gain_ns, "ceiling", Status.MEASURED,
        effort=effort, confidence=confidence, gain_interval_ns=gain_interval_ns,
    )  # fmt: skip


def test_a_fix_brings_what_the_run_would_save_and_says_the_wall_to_expect(tmp_path: Path) -> None:
    report = report_of(starved(), tmp_path)
    best = report.findings[0]
    assert (best.code, best.gain_method) == ("launch-bound", "replayed")
    assert best.gain_ns is not None
    # 19 gaps a step go; the pause between two steps is no launching.
    assert best.gain_ns == pytest.approx(6 * 19 * 79_000, rel=0.05)
    assert best.gain_interval_ns is not None
    low, high = best.gain_interval_ns
    assert low <= best.gain_ns <= high
    assert "would bring back about" in report.answer[1]


def test_copies_beside_the_critical_path_is_dismissed_with_its_reason(
    tmp_path: Path,
) -> None:
    trace = Trace()
    for number in range(4):
        at = 1_000 * number
        trace.op("aten::linear", at, 500).launched(
            GEMM, launch_us=at + 400, start_us=at + 410, dur_us=50
        )
        trace.call("cudaMemcpyAsync", at + 402, 4, correlation=90_000 + number)
        trace.memcpy(at + 461, 200, correlation=90_000 + number)
    trace.launched(GEMM, launch_us=4_400, start_us=4_410, dur_us=50)
    report = report_of(trace, tmp_path)
    assert "exposed-copy" not in [finding.code for finding in report.findings]
    (reason,) = [text for text in report.dismissed if text.startswith("exposed-copy")]
    assert "beside the critical path" in reason


def test_fixes_of_the_same_time_are_not_counted_twice(tmp_path: Path) -> None:
    trace = starved()
    for number in range(6):
        at = 10_000 * number + 1_950
        trace.call("cudaMemcpyAsync", at, 100, correlation=90_000 + number)
        trace.memcpy(at + 10, 80, correlation=90_000 + number)
    report = report_of(trace, tmp_path)
    rows = cells(report, "fixes")
    gains = [row["added_ns"] for row in rows]
    together = (
        sum(window["wall_ns"] for window in rows[:1]) + rows[0]["added_ns"] - rows[-1]["wall_ns"]
    )
    assert sum(gains) == together
    assert sum(gains) <= sum(row["gain_ns"] for row in rows)


def test_effort_and_confidence_decide_between_gains_that_are_alike() -> None:
    hard = cost("a", 100, effort="hardware")
    easy = cost("b", 90, effort="setting")
    unsure = cost("c", 110, effort="setting", confidence=0.3)
    large = cost("d", 300, effort="hardware")
    note = Finding("e", "", Kind.QUALITY, None, None, None, None, None, None, Status.MEASURED)
    assert [f.code for f in ranked([hard, note, easy, unsure, large])] == ["d", "b", "a", "c", "e"]
    assert score(easy) == pytest.approx(81)


def test_an_estimate_keeps_its_own_doubt_in_proportion() -> None:
    finding = cost("slow-link", 100, gain_interval_ns=(50, 200))
    shown = with_gain(finding, Retimed("", [1_000], [940], []), "faster")
    assert (shown.gain_ns, shown.gain_interval_ns) == (60, (30, 120))
    assert shown.details["expected_wall_ns"] == 940
    capped = with_gain(finding, Retimed("", [1_000], [700], []), "faster", 100)
    assert (capped.gain_ns, capped.gain_interval_ns) == (100, (50, 100))


def test_a_wait_that_may_be_needed_brings_at_least_what_was_seen_behind_it() -> None:
    shown = with_gain(cost("blocking-copy", 100), Retimed("", [1_000], [700], []), "no wait")
    assert (shown.gain_ns, shown.gain_interval_ns, shown.confidence) == (300, (100, 300), 0.6)
    shown = with_gain(cost("blocking-copy", 100), Retimed("", [1_000], [950], []), "no wait")
    assert (shown.gain_ns, shown.gain_interval_ns, shown.confidence) == (50, None, None)


def test_what_ifs_stand_in_the_report(tmp_path: Path) -> None:
    path = starved().write(tmp_path / "trace.json")
    options = Options(what_ifs=["graphs", "scale family=gemm 0.5"])
    report = explain([path], options=options).report
    rows = cells(report, "what_ifs")
    assert [row["what_if"] for row in rows] == [*options.what_ifs, "all together"]
    assert rows[0]["gain_low_ns"] <= rows[0]["gain_ns"] <= rows[0]["gain_high_ns"]
    assert rows[2]["gain_ns"] >= rows[0]["gain_ns"]
    assert table(report, "what_ifs").is_lead
    with pytest.raises(UsageError, match="scale TARGET FACTOR"):
        explain([path], options=Options(what_ifs=["faster please"]))


def test_the_command_takes_what_ifs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = starved().write(tmp_path / "trace.json")
    assert main(["explain", str(path), "--what-if", "graphs", "--what-if", "remove sync"]) == 0
    printed = capsys.readouterr().out
    assert "what if" in printed
    assert "all together" in printed
    # A slip of the pen is told before the trace is read.
    assert main(["explain", str(tmp_path / "none.json"), "--what-if", "faster please"]) == 2
    assert "scale TARGET FACTOR" in capsys.readouterr().err


def test_the_critical_path_stands_in_the_report(tmp_path: Path) -> None:
    report = report_of(starved(), tmp_path)
    rows = cells(report, "critical_path")
    assert rows[0]["part"] == "host"
    assert sum(row["share"] for row in rows) == pytest.approx(1)


def test_a_fix_brings_no_more_than_its_claim_is_left_with() -> None:
    left = Finding(
        code="straggler", sentence="", kind=Kind.COST, value=None, unit=None, duration_ns=40, share=None,
        gain_ns=30, gain_method="estimated", status=Status.MEASURED,
    )  # fmt: skip
    assert gains._most(left, 4) is None
    assert gains._most(replace(left, details={"explained_by_others_ns": 10}), 4) == 30
    # Idle time of one of four devices holds all four up at most.
    assert gains._most(replace(left, code="launch-bound"), 4) == 160
