"""`--fail-on CODE>LIMIT`: findings as a check in CI."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tokenpath.core.errors import UsageError
from tokenpath.core.report import Report
from tokenpath.core.units import format_duration, parse_duration_ns
from tokenpath.explain.pages import codes

IDLE = "idle"
"""Besides finding codes, the idle share of the window can be limited."""


@dataclass(frozen=True)
class Limit:
    """A code and what it may cost at most; exactly one of share and duration is set."""

    code: str
    """Finding code, or `idle`."""
    max_share: float | None
    """Share of the window, 0 to 1."""
    max_duration_ns: int | None
    """Time."""


def parse_limit(text: str) -> Limit:
    """`launch-bound>5%` or `exposed-communication>3ms`; UsageError for anything else."""
    match = re.fullmatch(r"\s*([a-z-]+)\s*>\s*(.+?)\s*", text)
    known = (*codes(), IDLE)
    if match is None or match[1] not in known:
        raise UsageError(
            f"{text!r} is not a check",
            where="--fail-on",
            allowed="CODE>5% or CODE>3ms with CODE one of " + ", ".join(known),
            next_step="quote it for the shell: --fail-on 'launch-bound>5%'",
        )
    code, limit = match[1], match[2]
    try:
        if limit.endswith("%"):
            share = float(limit[:-1]) / 100
            if not 0 <= share <= 1:
                raise ValueError(f"{limit!r} is not between 0% and 100%")
            return Limit(code, share, None)
        return Limit(code, None, parse_duration_ns(limit))
    except ValueError as error:
        raise UsageError(str(error), where=f"--fail-on {text}", allowed="5% or 3ms") from None


def broken_limits(limits: Sequence[Limit], report: Report) -> list[str]:
    """One sentence for each limit that the report breaks, or cannot be checked on it."""
    broken = []
    for limit in limits:
        if report.funnel is None:
            broken.append(f"{limit.code}: the capture does not support idle time")
            continue
        if limit.code == IDLE:
            duration = sum(row.duration_ns for row in report.funnel.rows if row.key == IDLE)
        else:
            duration = claimed_ns(report, limit.code)
        share = duration / report.funnel.wall_ns if report.funnel.wall_ns else 0.0
        if limit.max_share is not None and share > limit.max_share:
            broken.append(f"{limit.code} is {share:.2%}, allowed {limit.max_share:.2%}")
        if limit.max_duration_ns is not None and duration > limit.max_duration_ns:
            allowed = format_duration(limit.max_duration_ns)
            broken.append(f"{limit.code} is {format_duration(duration)}, allowed {allowed}")
    return broken


def claimed_ns(report: Report, code: str) -> int:
    """Time that a report claims under a code, also where it is too short for a finding."""
    claims = report.facts.get("claims")
    if not isinstance(claims, Sequence):
        return 0
    return sum(claim["duration_ns"] for claim in claims if claim["code"] == code)
