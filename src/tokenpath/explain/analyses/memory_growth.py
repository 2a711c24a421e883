"""Whether device memory grows step by step: from the allocator's events, else from its calls of the driver."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s
from tokenpath.core.finding import Evidence, Finding, Kind
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.activity import ALLOCATOR
from tokenpath.explain.analyses.contract import Context, Result
from tokenpath.explain.analyses.host_late import late_time
from tokenpath.explain.analysis import Analysis

MIN_SHARE = 0.005
"""Time in the allocator below this share of the window is not looked into."""
MIN_STEPS = 6
"""With fewer steps no slope is told."""
MIN_LINE = 0.8
"""Squared correlation with a straight line up to the peak."""
MIN_RISE = 0.5
"""The peak comes after so much of the steps: memory that is taken once at first is no growth."""
_TAKE = re.compile(r"(?:cuda|hip)Malloc(?!Host)|cuMemAlloc(?!Host)|cuMemCreate", re.IGNORECASE)
_GIVE = re.compile(r"(?:cuda|hip)Free(?!Host)|cuMemFree(?!Host)|cuMemRelease", re.IGNORECASE)


@dataclass(frozen=True)
class Growth:
    """A line through the memory at the steps."""

    per_step: float
    """Slope, bytes or segments a step."""
    interval: tuple[float, float]
    """95 % of it, by the scatter around the line."""
    num_steps: int
    """Steps up to the peak."""
    is_bytes: bool
    """Bytes of the allocator's events; else segments that the driver was asked for."""


def analyse(context: Context) -> Result:
    """One finding where the allocator costs time and memory grows with the steps."""
    finding = claim_growth(context)
    return Result() if finding is None else Result(findings=[finding])


def claim_growth(context: Context) -> Finding | None:
    """The time in the allocator, where memory grows step by step until it flushes."""
    late = late_time(context.analysis)
    if late is None:
        return None
    spent, pieces = np.zeros(len(late.start), np.int64), late.pieces
    inside = pieces.activity == ALLOCATOR
    np.add.at(spent, pieces.gap[inside], pieces.length[inside])
    # A gap that is mostly the allocator's is all its doing.
    spent = np.where(2 * spent >= late.end - late.start, late.end - late.start, spent)
    rows = np.flatnonzero(spent)
    spent = spent[rows]
    wall, total = context.analysis.wall_ns, int(spent.sum())
    if total < MIN_SHARE * wall:
        return None
    growth: Growth | None = find_growth(context.analysis)
    if growth is None:
        return None
    low, high = growth.interval
    unit = "MiB" if growth.is_bytes else "segments"
    scale = 2**20 if growth.is_bytes else 1
    longest = rows[np.argsort(-spent, kind="stable")][:5]
    return Finding(
        code="memory-growth",
        sentence=f"device memory grows by {growth.per_step / scale:,.1f} {unit} a step ({low / scale:,.1f} to "
        f"{high / scale:,.1f}) over {growth.num_steps:,} steps, and the allocator costs {format_duration(total)} "
        f"({format_percent(total, wall)} of the window) for it",
        kind=Kind.COST,
        value=total / wall,
        unit="share of the window",
        duration_ns=total,
        share=total / wall,
        gain_ns=total,
        gain_method="ceiling",
        status=context.status,
        evidence=(
            Evidence(
                "kernel",
                tuple(late.kernel[longest].tolist()),
                len(rows),
                "kernels that end the gaps",
            ),
        ),
        falsifier="with references dropped after each step memory grows as fast",
        fix="drop what is kept from step to step (losses with their graphs, lists of outputs, caches without a bound)",
        details={"per_step": growth.per_step, "unit": unit, "interval": [low, high]},
        part_of_ns=late.part_of_ns(rows, spent),
        confidence=0.8,
        effort="code",
    )


def find_growth(analysis: Analysis) -> Growth | None:
    """The growth of the first device with steps; None where memory does not grow."""
    edges = _edges(analysis)
    if len(edges) < MIN_STEPS:
        return None
    capture = analysis.capture
    if capture.num_rows("memory_event"):
        at = capture.int64("memory_event", "at_ns", -1)
        size = capture.int64("memory_event", "bytes")
        actions, names = capture.codes("memory_event", "action")
        moved = np.isin(actions, [n for n, name in enumerate(names) if name in ("alloc", "free")])
        rows = np.flatnonzero(moved & (at >= 0))
        found = _line(_at_edges(edges, at[rows], size[rows]), is_bytes=True)
        if found is not None:
            return found
    codes, names = capture.codes("api_call", "name")
    sign = np.array(
        [bool(_TAKE.search(name)) - bool(_GIVE.search(name)) for name in names] or [0], np.int64
    )[np.maximum(codes, 0)]
    rows = np.flatnonzero(sign != 0)
    at = capture.int64("api_call", "start_ns")[rows]
    return _line(_at_edges(edges, at, sign[rows]), is_bytes=False)


def _edges(analysis: Analysis) -> Int64s:
    """Starts of steps; of equal parts of the window where no steps are known."""
    device = max(analysis.devices, key=lambda item: len(item.spans.start))
    start = np.sort(device.spans.start)
    low, high = device.work.window_start_ns, device.work.window_end_ns
    start = start[(start >= low) & (start <= high)]
    return start if len(start) >= MIN_STEPS else np.linspace(low, high, 21)[1:].astype(np.int64)


def _at_edges(edges: Int64s, at: Int64s, change: Int64s) -> NDArray[np.float64]:
    order = np.argsort(at, kind="stable")
    level = np.concatenate(([0], np.cumsum(change[order])))
    return level[np.searchsorted(at[order], edges, "right")].astype(np.float64)


def _line(level: NDArray[np.float64], *, is_bytes: bool) -> Growth | None:
    peak = int(level.argmax()) + 1
    if peak < max(MIN_STEPS, MIN_RISE * len(level)):
        return None
    y, x = level[:peak], np.arange(peak, dtype=np.float64)
    if np.ptp(y) == 0:
        return None
    correlation = float(np.corrcoef(x, y)[0, 1])
    if correlation <= 0 or correlation**2 < MIN_LINE:
        return None
    slope = float(np.polyfit(x, y, 1)[0])
    error = slope * np.sqrt(max(1 / correlation**2 - 1, 0.0) / max(peak - 2, 1))
    return Growth(slope, (slope - 1.96 * error, slope + 1.96 * error), peak, is_bytes)
