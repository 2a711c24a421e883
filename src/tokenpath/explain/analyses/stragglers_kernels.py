"""The same kernels on several devices: who is slower at equal work, and who has more of it.

Kernels are matched by role, so that their names may differ: two devices that ran the same families in the
same order ran the same program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import Int64s
from tokenpath.explain.analyses.stragglers_arrivals import Arrivals, median_of_others
from tokenpath.explain.analysis import Analysis
from tokenpath.explain.work import COMPUTE

DATA_DEPENDENT = frozenset(
    {"moe", "attention", "attention_prefill", "attention_decode", "ssm", "index", "sort"}
)
"""Families whose time at equal grids depends on what the data is: expert loads, lengths of sequences."""


_NOISE = 0.01
ENOUGH = 0.95
"""When so much of the compute time has counterparts, no other way to match is tried."""


@dataclass(frozen=True)
class AgainstOthers:
    """One device's compute against the typical other device's."""

    num_kernels: int
    """Kernels that have a counterpart on another device."""
    matched_ns: int
    """Their time."""
    reference_ns: int
    """That of their counterparts."""
    fixed_ns: int
    """Time of those whose work is the same by grid and family."""
    fixed_reference_ns: int
    """That of their counterparts."""
    uniform_share: float
    """Of the time of equal work in families that take longer: the share in kernels that all take about so much
    longer. 1 for a slow device; less where only some kernels have more to do."""
    larger_ns: int
    """Excess of those with a larger grid than their counterparts."""
    unmatched_ns: int
    """Excess of time in stretches with other kernels than on the other devices."""
    excess_by_family_ns: dict[str, int]
    """Excess of matched kernels by family."""
    rows: Int64s
    """Rows of `kernel` of those that have a counterpart."""
    each_ns: Int64s
    """Time of each."""
    counterpart_ns: Int64s
    """That of its counterpart."""

    @property
    def excess_ns(self) -> int:
        """How much longer it computed in all."""
        return self.matched_ns - self.reference_ns + self.unmatched_ns

    @property
    def slowdown(self) -> float:
        """Time over the counterparts' at equal work; 1 where there is none."""
        return self.fixed_ns / self.fixed_reference_ns if self.fixed_reference_ns else 1.0


@dataclass(frozen=True)
class _Kernels:
    families: Sequence[str]
    device: Int64s
    stretch: Int64s
    ordinal: Int64s
    program: Int64s
    length: Int64s
    blocks: Int64s
    family: Int64s
    name: Int64s
    row: Int64s


def against_others(analysis: Analysis, arrivals: Arrivals) -> list[AgainstOthers]:
    """For each device of the analysis, its kernels against those of the others with the same role.

    A role is a place in a stretch in which devices ran the same families in the same order: the whole window,
    or a step, or what lies between two matched collectives, whichever first gives most kernels a counterpart.
    """
    kernels = _gather(analysis, arrivals, "window")
    role = _roles(kernels)
    for how in ("step", "collective"):
        matched = _matched_share(kernels, role)
        if matched < ENOUGH:
            others = _gather(analysis, arrivals, how)
            roles = _roles(others)
            if _matched_share(others, roles) > matched:
                kernels, role = others, roles
    num_roles = int(role.max()) + 1 if len(role) else 0
    shared = _is_shared(role)
    reference = median_of_others(role, kernels.length, num_roles)
    usual_blocks = median_of_others(role, kernels.blocks, num_roles)
    depends = np.array([name in DATA_DEPENDENT for name in kernels.families] or [False])
    fixed = shared & (kernels.blocks == usual_blocks) & ~depends[kernels.family]
    larger = shared & (kernels.blocks > usual_blocks)
    extra = _unmatched_excess(kernels, shared, len(analysis.devices))
    excess = kernels.length - reference
    found = []
    for number in range(len(analysis.devices)):
        mine = kernels.device == number
        chosen = mine & shared
        by_family = np.bincount(
            kernels.family[chosen], excess[chosen], minlength=len(kernels.families)
        )
        found.append(
            AgainstOthers(
                int(chosen.sum()),
                int(kernels.length[chosen].sum()),
                int(reference[chosen].sum()),
                int(kernels.length[mine & fixed].sum()),
                int(reference[mine & fixed].sum()),
                _uniform_share(kernels, reference, mine & fixed),
                int(excess[mine & larger].sum()),
                int(extra[number]),
                {
                    name: int(time)
                    for name, time in zip(kernels.families, by_family, strict=True)
                    if time
                },
                kernels.row[chosen],
                kernels.length[chosen],
                reference[chosen],
            )
        )
    return found


def _uniform_share(kernels: _Kernels, reference: Int64s, chosen: NDArray[np.bool_]) -> float:
    """Time in kinds of kernels that are slower by at least half of what their family is, over the family's."""
    if not chosen.any():
        return 1.0
    length, usual = kernels.length[chosen], reference[chosen]
    family = kernels.family[chosen]
    num = len(kernels.families)
    in_family = np.bincount(family, length, num) / np.maximum(np.bincount(family, usual, num), 1)
    mixed = (kernels.blocks[chosen] * 0x9E3779B1 + kernels.name[chosen]) * num + family
    _, first, kind = np.unique(mixed, return_index=True, return_inverse=True)
    time = np.bincount(kind, length)
    ratio = time / np.maximum(np.bincount(kind, usual), 1)
    above = in_family[family[first]]
    slower = above > 1 + _NOISE
    uniform = slower & (ratio - 1 >= (above - 1) / 2)
    return float(time[uniform].sum() / time[slower].sum()) if slower.any() else 1.0


def _roles(kernels: _Kernels) -> Int64s:
    """Equal numbers for kernels of one role."""
    mixed = (kernels.stretch * 0x9E3779B1 + kernels.program) * 0x85EBCA77 + kernels.ordinal
    _, role = np.unique(mixed, return_inverse=True)
    result: Int64s = role.astype(np.int64)
    return result


def _matched_share(kernels: _Kernels, role: Int64s) -> float:
    """Time of kernels with a counterpart over that of all."""
    length = int(kernels.length.sum())
    return int(kernels.length[_is_shared(role)].sum()) / length if length else 0.0


def _is_shared(role: Int64s) -> NDArray[np.bool_]:
    """Which kernels have a counterpart."""
    if len(role) == 0:
        return np.zeros(0, np.bool_)
    result: NDArray[np.bool_] = np.bincount(role)[role] >= 2
    return result


def _stretches(
    how: str, analysis: Analysis, arrivals: Arrivals, number: int, rows: Int64s
) -> Int64s:
    """The stretch of each of some kernels (places in the work) of a device, in order; -1 for none."""
    if how == "window":
        return np.zeros(len(rows), np.int64)
    device = analysis.devices[number]
    if how == "step":
        step = analysis.capture.ids("kernel", "step_id")[device.work.row[rows]]
        of_step = np.full(analysis.capture.num_rows("step") + 1, -1, np.int64)
        of_step[device.spans.step] = np.arange(len(device.spans.step))
        of_step[-1] = -1  # what NO_ID reads
        result: Int64s = of_step[step]
        return result
    parts = np.flatnonzero(arrivals.device == number)
    if len(parts) == 0:
        return np.full(len(rows), -1, np.int64)
    parts = parts[np.argsort(arrivals.collective[parts], kind="stable")]
    ends = np.maximum.accumulate(arrivals.end[parts])
    place = np.searchsorted(ends, device.work.start[rows], side="right")
    # Before the first collective the devices' recordings begin at different moments.
    inside = (place > 0) & (place < len(parts))
    return np.where(inside, arrivals.collective[parts][np.minimum(place, len(parts) - 1)], -1)


def _gather(analysis: Analysis, arrivals: Arrivals, how: str) -> _Kernels:
    """Compute kernels of all devices, each in its stretch."""
    grid = num_blocks(analysis.capture)
    names, _ = analysis.capture.codes("kernel", "name")
    columns: list[tuple[Int64s, ...]] = []
    for number, device in enumerate(analysis.devices):
        work = device.work
        rows = np.flatnonzero((work.kind == COMPUTE) & work.in_window())
        place = _stretches(how, analysis, arrivals, number, rows)
        rows, place = rows[place >= 0], place[place >= 0]
        if len(rows) == 0:
            continue
        order = np.argsort(place, kind="stable")
        rows, place = rows[order], place[order]
        first = np.flatnonzero(np.diff(place, prepend=-1))
        count = np.diff(np.append(first, len(place)))
        ordinal = np.arange(len(place)) - np.repeat(first, count)
        family = work.family[rows].astype(np.int64)
        # Position and family mixed into one number, summed over the stretch: equal programs, equal sums.
        mixed = (family + 1) * 0x9E3779B1 + (ordinal + 1) * (family + 3) * 0x85EBCA77
        program = np.repeat(np.add.reduceat(mixed, first), count)
        columns.append(
            (
                np.full(len(rows), number),
                place,
                ordinal,
                program,
                work.end[rows] - work.start[rows],
                grid[work.row[rows]],
                family,
                names[work.row[rows]].astype(np.int64),
                work.row[rows].astype(np.int64),
            )
        )
    families = analysis.devices[0].work.families
    if not columns:
        nothing = np.empty(0, np.int64)
        columns.append((nothing,) * 9)
    joined: list[Int64s] = [np.concatenate(part) for part in zip(*columns, strict=True)]
    return _Kernels(families, *joined)


def num_blocks(capture: Capture) -> Int64s:
    """Blocks of each kernel's grid, by row of `kernel`; 0 where unknown."""
    column = capture["kernel"]["grid"].combine_chunks()
    num = len(column)
    if num == 0 or column.null_count == num:
        return np.zeros(num, np.int64)
    # The numbers of NULL rows are NULL as well, and read as NaN.
    flat = np.nan_to_num(column.values.to_numpy(zero_copy_only=False))
    rows = flat.reshape(-1, 3)[column.offset : column.offset + num].astype(np.int64)
    known: NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return np.where(known, rows.prod(axis=1), 0)


def _unmatched_excess(kernels: _Kernels, shared: NDArray[np.bool_], num_devices: int) -> Int64s:
    """Time in stretches whose programs differ, over the typical other device's in the same stretch."""
    num_stretches = int(kernels.stretch.max(initial=-1)) + 1
    total = np.zeros((num_stretches, num_devices), np.int64)
    np.add.at(total, (kernels.stretch, kernels.device), kernels.length)
    differs = np.zeros((num_stretches, num_devices), np.bool_)
    differs[kernels.stretch[~shared], kernels.device[~shared]] = True
    stretch, device = np.nonzero(total)
    if len(stretch) == 0:
        return np.zeros(num_devices, np.int64)
    time = total[stretch, device]
    excess = time - median_of_others(stretch, time, num_stretches)
    excess[~differs[stretch, device]] = 0
    return np.bincount(device, excess, num_devices).astype(np.int64)
