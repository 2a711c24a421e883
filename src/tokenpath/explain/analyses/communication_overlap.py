"""Compute beside communication against the same compute alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s, covered
from tokenpath.core.finding import Evidence, Finding, Kind
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.analyses.communication_calls import Calls
from tokenpath.explain.analyses.contract import Context, Proposal
from tokenpath.explain.analyses.stragglers_kernels import num_blocks
from tokenpath.explain.analysis import Analysis
from tokenpath.explain.work import COMMUNICATION, COMPUTE, DeviceWork
from tokenpath.replay.change import with_kernel_times

MIN_OVERLAP = 0.02
"""Below this share of the window under both compute and communication there is nothing to see."""
ALONE, BESIDE = 0.02, 0.5
"""A kernel ran alone below the first share of its time beside communication, beside it from the second on."""
MIN_EACH = 3
"""Kernels of one kind that must have run alone, and beside communication."""
MAX_SPREAD = 0.2
"""Kinds whose times alone differ by more than this (interquartile range over median) are left out."""
USUAL_SLOWDOWN = 1.05
"""Collectives take multiprocessors and memory bandwidth: so much is to be expected, and no gain."""
MIN_SLOWDOWN = 1.1
"""From this on both slow each other down more than that."""
_MAX_ROWS = 5


@dataclass(frozen=True)
class _Slowed:
    """Kernels beside communication that have their like alone."""

    row: Int64s
    length: Int64s
    alone: Int64s
    """Median time of their like alone."""


def contention(context: Context, calls: Calls) -> Proposal | None:
    """Compute kernels that take longer beside communication than alone."""
    analysis = context.analysis
    both = int((calls.length_ns - calls.exposed_ns).sum())
    if both < MIN_OVERLAP * analysis.wall_ns:
        return None
    found = [_slowed(analysis, device.work) for device in analysis.devices]
    row = np.concatenate([item.row for item in found])
    length = np.concatenate([item.length for item in found])
    alone = np.concatenate([item.alone for item in found])
    if len(row) < MIN_EACH or length.sum() < MIN_SLOWDOWN * alone.sum():
        return None
    excess = int(length.sum() - alone.sum())
    gain = int(length.sum() - USUAL_SLOWDOWN * alone.sum())
    factor = float(length.sum() / alone.sum())
    wall = analysis.wall_ns
    worst = np.argsort(alone - length, kind="stable")
    finding = Finding(
        code="communication-contention",
        sentence=(
            f"{len(row):,} compute kernels beside communication take {factor:.2f} times what the same "
            f"kernels take alone: {format_duration(excess)} more ({format_percent(excess, wall)} of the "
            "window)"
        ),
        kind=Kind.COST,
        value=factor,
        unit="times the kernels alone",
        duration_ns=excess,
        share=excess / wall,
        gain_ns=gain,
        gain_method="estimated",
        status=context.status,
        evidence=(Evidence("kernel", tuple(row[worst[:_MAX_ROWS]].tolist()), len(row)),),
        falsifier="the kernels take as long with the collectives put off until after them",
        fix=(
            "give collectives fewer multiprocessors (NCCL_MAX_CTAS, NCCL_NTHREADS) or copy engines and the "
            "switch (NVLS, symmetric memory); move them beside kernels bound by something else"
        ),
        details={"slowdown": factor, "num_kernels": len(row), "overlapped_ns": both},
        confidence=round(min(0.8, 0.5 + (factor - 1) / 2), 2),
        effort="setting",
    )
    usual = np.minimum(length, (USUAL_SLOWDOWN * alone).astype(np.int64))
    return Proposal(
        finding,
        lambda: with_kernel_times("compute not slowed by communication", row, length, usual),
    )


def _slowed(analysis: Analysis, work: DeviceWork) -> _Slowed:
    mine = np.flatnonzero((work.kind == COMPUTE) & work.in_window())
    length = work.end[mine] - work.start[mine]
    mine, length = mine[length > 0], length[length > 0]
    nothing = np.empty(0, np.int64)
    if len(mine) == 0:
        return _Slowed(nothing, nothing, nothing)
    beside = covered(work.start[mine], work.end[mine], work.busy(COMMUNICATION)) / length
    role = _roles(analysis, work.row[mine])
    is_alone = beside <= ALONE
    num = int(role.max()) + 1
    median, spread, count = _alone(role[is_alone], length[is_alone], num)
    usable = (count >= MIN_EACH) & (spread <= MAX_SPREAD)
    chosen = (beside >= BESIDE) & usable[role]
    usable &= np.bincount(role[chosen], minlength=num) >= MIN_EACH
    chosen &= usable[role]
    return _Slowed(work.row[mine[chosen]].astype(np.int64), length[chosen], median[role[chosen]])


def _alone(role: Int64s, length: Int64s, num: int) -> tuple[Int64s, NDArray[np.float64], Int64s]:
    """(median, interquartile range over it, count) of each role."""
    order = np.lexsort((length, role))
    ordered = length[order]
    count = np.bincount(role, minlength=num)
    first = np.cumsum(count) - count
    last = max(len(ordered) - 1, 0)
    if len(ordered) == 0:
        return np.zeros(num, np.int64), np.full(num, np.inf), count

    def at(quantile: float) -> Int64s:
        place = first + (np.maximum(count - 1, 0) * quantile).astype(np.int64)
        result: Int64s = ordered[np.minimum(place, last)]
        return result

    median = at(0.5)
    spread = (at(0.75) - at(0.25)) / np.maximum(median, 1)
    return median, spread, count


def _roles(analysis: Analysis, row: NDArray[np.int32]) -> Int64s:
    """Kernels of one number do the same: name, grid and shapes of the operator agree."""
    capture = analysis.capture
    name = capture.codes("kernel", "name")[0][row].astype(np.int64)
    blocks = num_blocks(capture)[row]
    shapes = np.full(len(row), -1, np.int64)
    if capture.num_rows("op"):
        op = capture.ids("kernel", "op_id")[row]
        of_op = capture.codes("op", "input_shapes")[0]
        shapes = np.where(op >= 0, of_op[np.maximum(op, 0)], -1).astype(np.int64)
    role = np.zeros(len(row), np.int64)
    for column in (name, blocks, shapes):
        _, number = np.unique(column, return_inverse=True)
        role = role * (int(number.max()) + 1) + number
        _, role = np.unique(role, return_inverse=True)
    return role
