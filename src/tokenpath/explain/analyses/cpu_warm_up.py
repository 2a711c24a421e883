"""First steps of a program without a device that are far slower than all later ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenpath.capture.capture import NO_ID
from tokenpath.capture.intervals import Intervals, intersection
from tokenpath.core.finding import Finding
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.analyses.cpu_named import COMPILERS
from tokenpath.explain.analyses.cpu_view import Host, Side, cost

MIN_STEPS = 6
"""Fewer steps do not show what is usual."""
MIN_RATIO = 1.5
"""A leading step is cold when it takes so many times the median of the later steps ..."""
MIN_ABOVE = 1.2
"""... and so many times the longest of them."""


def warm_up(host: Host) -> Iterator[Finding]:
    """Finding `warm-up-included`; what is compiled in those steps is no recompilation."""
    total, most, ratio = 0, 0, 0.0
    for side in host.sides:
        count, excess, worst = _cold(side)
        if not count:
            continue
        total, most, ratio = total + excess, max(most, count), max(ratio, worst)
        edge = np.array([side.step_start[count]], np.int64)
        cold = Intervals(np.array([side.low], np.int64), edge)
        host.spend(side, intersection(side.named(COMPILERS), cold))
    if total:
        yield cost(
            host, "warm-up-included",
            f"the first {most} steps take up to {ratio:.1f} times the median of the later ones: "
            f"{format_duration(total)} ({format_percent(total, host.wall_ns)} of the window)",
            total, fix="warm up before the measurement starts, or leave the first steps out",
            falsifier="a run that has been warm for minutes shows the same first steps", confidence=0.85,
            effort="setting", place={},
        )  # fmt: skip


def _cold(side: Side) -> tuple[int, int, float]:
    """How many leading steps are cold, their time above the usual, and the largest ratio to it."""
    start, end = side.step_start, side.step_end
    if len(start) < MIN_STEPS or not _is_one_phase(side):
        return 0, 0, 0.0
    length = np.append(start[1:], end[-1]) - start
    later = length[len(length) // 3 :]
    usual = float(np.median(later))
    is_cold = (length >= MIN_RATIO * usual) & (length >= MIN_ABOVE * later.max())
    count = int(np.argmin(is_cold))
    if not 0 < count <= len(length) // 3:
        return 0, 0, 0.0
    return count, int(length[:count].sum() - count * usual), float(length[:count].max() / usual)


def _is_one_phase(side: Side) -> bool:
    """Whether no step says what it is: prefill and decode differ by nature."""
    codes, _ = side.capture.codes("step", "phase")
    mine = side.capture.ids("step", "source_id") == side.source
    return bool((codes[mine] == NO_ID).all())
