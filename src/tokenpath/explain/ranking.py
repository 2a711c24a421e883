"""Which fix first: replayed gain times confidence over effort, and what several fixes bring together."""

from __future__ import annotations

from collections.abc import Sequence

from tokenpath.core.finding import Finding, Kind
from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.gains import Fix, Gains
from tokenpath.replay.change import joined
from tokenpath.replay.replay import Replay, Retimed

EFFORT_WEIGHT = {"setting": 1.0, "code": 1.25, "kernel": 1.5, "hardware": 2.0}
"""By what the gain of a fix is divided. Close together on purpose: effort decides between gains that are alike,
it does not put a small gain before one twice as large."""
ABSTENTION_CONFIDENCE = 0.5
"""Share of the time of an abstention by which it stands among the costs: what held the device is not known, so
neither is what would come back; even odds that something can be done about it. Where the capture cannot say why most
of the lost time was lost, that is what to look into first, before a fix that is worth little."""
UNKNOWN_CONFIDENCE = 0.9
"""Confidence of findings whose method gives none."""
EFFORT_OF_CODE = {
    "launch-bound": "setting",
    "synchronisation-stall": "code",
    "blocking-copy": "code",
    "allocator-stall": "setting",
    "host-wait": "code",
    "exposed-communication": "code",
    "exposed-copy": "code",
    "graph-gaps": "kernel",
    "stream-handover": "kernel",
}
"""Effort of findings that name none."""
MAX_FIXES = 12
"""So many fixes are timed together."""
_COLUMNS = (
    TableColumn("fix", "fix", Unit.TEXT),
    TableColumn("gain_ns", "alone", Unit.NS),
    TableColumn("added_ns", "after those above", Unit.NS),
    TableColumn("wall_ns", "wall then", Unit.NS),
    TableColumn("effort", "effort", Unit.TEXT),
    TableColumn("what_if", "what was changed", Unit.TEXT, is_key_figure=False),
)


def score(finding: Finding) -> float:
    """What findings are ranked by: gain, times confidence, over the weight of the effort.

    An abstention has no gain; half of its time stands for it.
    """
    if finding.kind is Kind.ABSTENTION:
        return ABSTENTION_CONFIDENCE * (finding.duration_ns or 0)
    confidence = UNKNOWN_CONFIDENCE if finding.confidence is None else finding.confidence
    return (finding.gain_ns or 0) * confidence / EFFORT_WEIGHT[effort_of(finding)]


def effort_of(finding: Finding) -> str:
    """What the fix takes."""
    return finding.effort or EFFORT_OF_CODE.get(finding.code, "code")


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Costs and abstentions about time by score, then all others as they were."""
    scored = [f for f in findings if f.kind is Kind.COST or score(f) > 0]
    others = [f for f in findings if not (f.kind is Kind.COST or score(f) > 0)]
    # Stable: equal scores keep the order of gain, duration and code.
    return [*sorted(scored, key=lambda finding: -score(finding)), *others]


def joint_table(replay: Replay, fixes: Sequence[Fix]) -> ShownTable | None:
    """The fixes by rank, each with what it adds to those before it; None for fewer than two.

    Fixes that remove the same time do not count it twice: each row is one more change in one joint replay.
    """
    if len(fixes) < 2:
        return None
    by_score = sorted(fixes, key=lambda fix: -score(fix.finding))[:MAX_FIXES]
    rows: list[Sequence[Cell]] = []
    together: Retimed | None = None
    before = 0
    for count, fix in enumerate(by_score, start=1):
        together = (
            fix.alone
            if count == 1
            else replay.what_if(joined("together", [f.what_if for f in by_score[:count]]))
        )
        gain = together.gain_ns
        rows.append(
            (
                fix.finding.code
                if fix.finding.scope is None
                else f"{fix.finding.code} ({fix.finding.scope})",
                fix.alone.gain_ns,
                gain - before,
                sum(together.wall_ns),
                effort_of(fix.finding),
                fix.what_if.label,
            )
        )
        before = gain
    wall = sum(by_score[0].alone.measured_ns)
    total = sum(fix.alone.gain_ns for fix in by_score)
    note = (
        f"Together {format_duration(before)} ({format_percent(before, wall)}); "
        f"one by one they sum to {format_duration(total)}. Walls of all devices summed."
    )
    return ShownTable("fixes", "Fixes, one after the other", _COLUMNS, rows, len(rows), note)


def not_worth(gains: Gains) -> list[str]:
    """One phrase for each finding whose fix brings next to nothing."""
    return [
        f"{finding.code} ({format_duration(finding.duration_ns or 0)} seen, "
        f"{format_duration(max(retimed.gain_ns, 0))} replayed: beside the critical path)"
        for finding, retimed in gains.dismissed
    ]
