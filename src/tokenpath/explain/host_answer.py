"""The answer for a capture without device work: what the host spent its time on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenpath.capture.capture import Capture
from tokenpath.core.finding import Finding, Kind
from tokenpath.core.report import ShownTable
from tokenpath.core.units import format_duration, format_percent


def host_answer(
    capture: Capture, host: ShownTable, findings: Sequence[Finding] = ()
) -> tuple[str, ...]:
    """The first cost among the ranked findings, then the operator with the most self time, and the steps."""
    first = "No device work in this capture: it shows the host only."
    for finding in findings:
        if finding.kind is Kind.COST:
            return (f"First: {finding.sentence}.", *host_answer(capture, host))
    names, own = [row[0] for row in host.rows], [row[3] for row in host.rows]
    self_ns = [value for value in own if isinstance(value, int)]
    total = sum(self_ns)
    if not total:
        return (first, "No operator or runtime call in it has a length either.")
    second = (
        f"{names[0]} has the most self time: {format_duration(self_ns[0])} of "
        f"{format_duration(total)} ({format_percent(self_ns[0], total)})."
    )
    steps = _steps(capture)
    return (first, second, steps) if steps else (first, second)


def _steps(capture: Capture) -> str:
    """How many steps of each phase, and how long they took on the host."""
    if capture.num_rows("step") == 0:
        return ""
    codes, names = capture.codes("step", "phase")
    length = capture.int64("step", "end_ns") - capture.int64("step", "start_ns")
    parts = []
    for code in np.unique(codes):
        mine = np.sort(length[codes == code])
        what = names[code] if code >= 0 else "unnamed"
        parts.append(
            f"{len(mine):,} {what} step{'s' if len(mine) > 1 else ''}, "
            f"p50 {format_duration(int(mine[(len(mine) - 1) // 2]))}"
        )
    return "On the host: " + "; ".join(parts) + "."
