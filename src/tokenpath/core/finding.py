"""A finding: one claim about a capture that can be checked."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace


class Status(enum.StrEnum):
    """How the number of a finding came to be."""

    MEASURED = "measured"
    ESTIMATED = "estimated"
    SIMULATED = "simulated"
    SYNTHETIC = "synthetic"


class Kind(enum.StrEnum):
    """What a finding is about."""

    COST = "cost"
    """Time that a fix could bring back."""
    QUALITY = "quality"
    """What the capture can and cannot support."""
    ABSTENTION = "abstention"
    """A question that the capture cannot answer, and what it would need."""


@dataclass(frozen=True)
class Evidence:
    """Where the claim can be seen."""

    table: str
    """Name of a capture table."""
    rows: tuple[int, ...]
    """Row numbers in that table, worst first; at most a few, as examples."""
    num_rows: int
    """How many rows the claim rests on in all."""
    query: str | None = None
    """What to run to see all of them."""


@dataclass(frozen=True)
class Finding:
    """One claim, its worth, its evidence, what would falsify it, and the fix."""

    code: str
    """Stable code, with a page: `launch-bound`, `exposed-communication`."""
    sentence: str
    """The claim in one sentence."""
    kind: Kind
    """Cost, quality or abstention."""
    value: float | None
    """The number behind the claim; None when there is none."""
    unit: str | None
    """Unit of `value`."""
    duration_ns: int | None
    """Time of the analysis window that the claim explains; None for a note without one."""
    share: float | None
    """`duration_ns` over the window, 0 to 1, both summed over devices."""
    gain_ns: int | None
    """What fixing it would bring; None when unknown."""
    gain_method: str | None
    """`ceiling` (cannot bring more), `replayed` or `estimated`."""
    status: Status
    """How the number came to be."""
    evidence: Sequence[Evidence] = ()
    """Where it can be seen."""
    falsifier: str = ""
    """What observation would prove the claim wrong."""
    fix: str = ""
    """What to do."""
    details: Mapping[str, object] = field(default_factory=dict)
    """Further numbers, JSON types only."""
    gain_interval_ns: tuple[int, int] | None = None
    """Confidence interval of `gain_ns`, when the method gives one."""
    scope: str | None = None
    """Which device or thread, when not all."""
    place: Mapping[str, str] = field(default_factory=dict)
    """Where the cause sits; keys of `PLACE_KEYS`, only those that are known."""
    part_of_ns: Mapping[str, int] = field(default_factory=dict)
    """Time that this claim explains more closely than a general one, by the code of that one.

    `settle` takes it off the general claim, so that no millisecond is claimed twice."""
    confidence: float | None = None
    """Probability that the cause is right, 0 to 1; None where the method gives none."""
    effort: str | None = None
    """What the fix takes: one of `EFFORTS`; None when unknown."""


PLACE_KEYS = (
    "rank",
    "device",
    "stream",
    "family",
    "kernel",
    "op",
    "thread",
    "function",
    "step_phase",
    "stage",
    "engine",
    "group",
    "request",
)
"""Keys of `Finding.place`: rank in the job, device label, stream number, kernel family and name, framework
operator, host thread as `pid/tid`, Python function without its folder, phase of the step, stage of a request,
data-parallel engine, process group, request id."""

EFFORTS = ("setting", "code", "kernel", "hardware")
"""Effort of a fix, the least first: change a setting, change program code, write a kernel, buy or repair."""


def settle(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, each general claim without the time that closer ones explain; input order kept.

    A general claim of which nothing is left goes away. Its gain shrinks by the same time, not below 0, and its
    interval with it. Several scopes of one code share the time in proportion to what they claim.
    """
    taken: dict[str, int] = {}
    for finding in findings:
        for code, duration_ns in finding.part_of_ns.items():
            taken[code] = taken.get(code, 0) + duration_ns
    claimed = {code: sum(f.duration_ns or 0 for f in findings if f.code == code) for code in taken}
    result = []
    for finding in findings:
        total = claimed.get(finding.code, 0)
        if not total or finding.duration_ns is None:
            result.append(finding)
            continue
        loss = min(finding.duration_ns, taken[finding.code] * finding.duration_ns // total)
        left = finding.duration_ns - loss
        if left > 0:
            result.append(_shrunk(finding, left, loss))
    return result


def _shrunk(finding: Finding, left_ns: int, loss_ns: int) -> Finding:
    interval = finding.gain_interval_ns
    scale = left_ns / finding.duration_ns if finding.duration_ns else 0.0
    return replace(
        finding,
        duration_ns=left_ns,
        share=None if finding.share is None else finding.share * scale,
        gain_ns=None if finding.gain_ns is None else max(0, finding.gain_ns - loss_ns),
        gain_interval_ns=None
        if interval is None
        else (max(0, interval[0] - loss_ns), max(0, interval[1] - loss_ns)),
        details={**finding.details, "explained_by_others_ns": loss_ns},
    )


def rank(findings: Sequence[Finding]) -> list[Finding]:
    """Findings by what fixing them would bring, then by the time they explain, then by code."""
    return sorted(
        findings,
        key=lambda f: (-(f.gain_ns or 0), -(f.duration_ns or 0), f.code, f.scope or ""),
    )
