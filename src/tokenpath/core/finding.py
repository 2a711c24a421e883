"""A finding: one claim about a capture that can be checked."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


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


def rank(findings: Sequence[Finding]) -> list[Finding]:
    """Findings by what fixing them would bring, then by the time they explain, then by code."""
    return sorted(
        findings,
        key=lambda f: (-(f.gain_ns or 0), -(f.duration_ns or 0), f.code, f.scope or ""),
    )
