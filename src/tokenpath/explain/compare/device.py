"""The device side of one run: every nanosecond of each step in one part, and what the parts are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s, Intervals, clip, covered, difference, union
from tokenpath.explain.analysis import Analysis, DeviceResult
from tokenpath.explain.causes import CAUSES
from tokenpath.explain.work import COMMUNICATION, COMPUTE, MEMCPY, MEMSET, DeviceWork

COMPUTE_PREFIX, IDLE_PREFIX = "compute/", "idle/"
EXPOSED_COMMUNICATION, EXPOSED_MEMCPY, MEMSET_PART = "communication", "memcpy", "memset"
IDLE_WITHHELD = IDLE_PREFIX + "withheld"


@dataclass(frozen=True)
class Detail:
    """What a part is made of: kernels by role, gaps by what the host was in."""

    phase: str
    """Phase of the steps it was seen in."""
    part: str
    """The part."""
    name: str
    """Kernel name, or host item."""
    op: str
    """Framework operator that launched it; empty for unknown."""
    total_ns: int
    """Summed time."""
    count: int
    """How many."""


@dataclass(frozen=True)
class DeviceSide:
    """All device steps of one run."""

    parts: Sequence[str]
    """Names of the columns of `time_ns`."""
    time_ns: Int64s
    """One row a device and step, one column a part; each row adds up to the step's length."""
    phase: NDArray[np.object_]
    """Phase of each row; empty where unknown."""
    step: Int64s
    """Number of the step on its device."""
    details: Sequence[Detail]
    """What the parts are made of."""
    has_steps: bool
    """Whether the rows are steps."""
    is_cut: bool
    """Whether they are at least stretches from one run of a kernel to the next; else whole windows."""
    num_devices: int
    """Devices with work."""


def device_side(
    analysis: Analysis, *, by_steps: bool = True, anchor: str | None = None
) -> DeviceSide | None:
    """Cut the windows into steps and those into parts; None without device work.

    Without steps, or where they are not asked for, the windows are cut where the kernel `anchor` begins, if
    one is named.
    """
    devices = [device for device in analysis.devices if device.work.span_ns > 0]
    if not devices:
        return None
    phases = analysis.capture["step"]["phase"].to_pylist()
    is_withheld = analysis.quality.idle_withheld is not None
    cut = [_steps(device, phases if by_steps else None) for device in devices]
    has_steps = all(step.is_step for step in cut)
    is_cut = has_steps
    if not has_steps and anchor is not None:
        cut = [_stretches(analysis, device.work, anchor) for device in devices]
        is_cut = True
    columns: dict[str, list[Int64s]] = {}
    details: dict[tuple[str, str, str, str], list[int]] = {}
    for number, (device, steps) in enumerate(zip(devices, cut, strict=True)):
        for part, intervals in _parts(device, is_withheld).items():
            column = columns.setdefault(
                part, [np.zeros(len(other.start), np.int64) for other in cut]
            )
            column[number] = covered(steps.start, steps.end, intervals)
        _add_kernels(details, analysis, device.work, steps)
        if not is_withheld:
            _add_gaps(details, device, steps)
    return DeviceSide(
        tuple(columns),
        np.stack([np.concatenate(column) for column in columns.values()], axis=1),
        np.concatenate([steps.phase for steps in cut]),
        np.concatenate([np.arange(len(steps.start)) for steps in cut]),
        [Detail(*key, *value) for key, value in details.items()],
        has_steps,
        is_cut,
        len(devices),
    )


@dataclass(frozen=True)
class _Steps:
    start: Int64s
    end: Int64s
    phase: NDArray[np.object_]
    is_step: bool

    def phase_at(self, at: Int64s) -> NDArray[np.object_]:
        """Phase of the step in which a moment lies."""
        place = np.searchsorted(self.start, at, side="right") - 1
        result: NDArray[np.object_] = self.phase[np.clip(place, 0, len(self.phase) - 1)]
        return result


def _steps(device: DeviceResult, phases: Sequence[str | None] | None) -> _Steps:
    """The window from step to step: what lies between two belongs to the first."""
    low, high = device.work.window_start_ns, device.work.window_end_ns
    spans = device.spans
    inside = np.flatnonzero((spans.start >= low) & (spans.start < high))
    inside = inside[np.argsort(spans.start[inside], kind="stable")]
    if len(inside) == 0 or phases is None:
        return _Steps(np.array([low]), np.array([high]), np.array([""], object), False)
    start = spans.start[inside].copy()
    start[0] = low
    phase = np.array([phases[row] or "" for row in spans.step[inside].tolist()], object)
    return _Steps(start, np.append(start[1:], high), phase, True)


def _stretches(analysis: Analysis, work: DeviceWork, anchor: str) -> _Steps:
    """The window from run to run of a kernel; what comes before the first belongs to it."""
    names, texts = analysis.capture.codes("kernel", "name")
    low, high = work.window_start_ns, work.window_end_ns
    is_anchor = names[work.row] == (texts.index(anchor) if anchor in texts else -2)
    start = np.unique(work.start[is_anchor & (work.start >= low) & (work.start < high)])
    start = np.array([low]) if len(start) == 0 else np.append(low, start[1:])
    return _Steps(start, np.append(start[1:], high), np.full(len(start), "", object), False)


def _parts(device: DeviceResult, is_withheld: bool) -> dict[str, Intervals]:
    work, split = device.work, device.funnel.split
    found = {
        COMPUTE_PREFIX + name: intervals for name, intervals in _family_intervals(work).items()
    }
    found[MEMSET_PART] = split.memset
    found[EXPOSED_COMMUNICATION] = split.exposed_communication
    found[EXPOSED_MEMCPY] = split.exposed_memcpy
    gaps = device.gaps
    if is_withheld:
        found[IDLE_WITHHELD] = union(gaps.start, gaps.end)
    else:
        for number in np.unique(gaps.cause).tolist():
            mine = gaps.cause == number
            found[IDLE_PREFIX + CAUSES[number].key] = union(gaps.start[mine], gaps.end[mine])
    return found


def _family_intervals(work: DeviceWork) -> dict[str, Intervals]:
    """Compute by family, each instant in one: that of the family with most time (as in the funnel)."""
    chosen = work.kind == COMPUTE
    start, end = clip(
        work.start[chosen], work.end[chosen], work.window_start_ns, work.window_end_ns
    )
    family = work.family[chosen]
    unions = {code: union(start[family == code], end[family == code]) for code in np.unique(family)}
    found: dict[str, Intervals] = {}
    taken: Intervals | None = None
    for code in sorted(unions, key=lambda code: (-unions[code].total, work.families[code])):
        free = unions[code] if taken is None else difference(unions[code], taken)
        found[work.families[code]] = free
        taken = (
            free
            if taken is None
            else union(
                np.concatenate((taken.start, free.start)), np.concatenate((taken.end, free.end))
            )
        )
    return found


def _add_kernels(
    details: dict[tuple[str, str, str, str], list[int]],
    analysis: Analysis,
    work: DeviceWork,
    steps: _Steps,
) -> None:
    capture = analysis.capture
    rows = np.flatnonzero(work.in_window())
    start, end = clip(work.start[rows], work.end[rows], work.window_start_ns, work.window_end_ns)
    length = end - start
    if (~np.isin(work.kind[rows], (COMPUTE,))).any():
        # Communication and copies count where they run alone.
        for kind, above in (
            (COMMUNICATION, (COMPUTE, MEMSET)),
            (MEMCPY, (COMPUTE, MEMSET, COMMUNICATION)),
            (MEMSET, (COMPUTE,)),
        ):
            mine = work.kind[rows] == kind
            length[mine] -= covered(start[mine], end[mine], work.busy(*above))
    names, texts = capture.codes("kernel", "name")
    op = capture.ids("kernel", "op_id")[work.row[rows]]
    op_codes, op_texts = capture.codes("op", "name")
    of_op = np.where(op >= 0, op_codes[np.maximum(op, 0)] if len(op_codes) else -1, -1)
    phase_names, phase = np.unique(
        steps.phase_at(work.start[rows]).astype(str), return_inverse=True
    )
    key = np.stack(
        (phase, work.kind[rows], work.family[rows], names[work.row[rows]], of_op)
    ).astype(np.int64)
    groups, which = np.unique(key, axis=1, return_inverse=True)
    which = which.reshape(-1)
    total = np.bincount(which, length, groups.shape[1])
    count = np.bincount(which, minlength=groups.shape[1])
    for number, (at, kind, family, name, op_code) in enumerate(groups.T.tolist()):
        part = {
            COMPUTE: COMPUTE_PREFIX + work.families[family],
            COMMUNICATION: EXPOSED_COMMUNICATION,
            MEMCPY: EXPOSED_MEMCPY,
            MEMSET: MEMSET_PART,
        }[kind]
        op_name = op_texts[op_code] if op_code >= 0 else ""
        entry = details.setdefault((str(phase_names[at]), part, texts[name], op_name), [0, 0])
        entry[0] += int(total[number])
        entry[1] += int(count[number])


def _add_gaps(
    details: dict[tuple[str, str, str, str], list[int]], device: DeviceResult, steps: _Steps
) -> None:
    gaps = device.gaps
    phase = steps.phase_at(gaps.start)
    for number in np.unique(gaps.cause).tolist():
        for label in np.unique(gaps.label[gaps.cause == number]).tolist():
            mine = (gaps.cause == number) & (gaps.label == label)
            name = gaps.labels[label] if label >= 0 else ""
            for one in np.unique(phase[mine].astype(str)).tolist():
                chosen = mine & (phase == one)
                entry = details.setdefault(
                    (one, IDLE_PREFIX + CAUSES[number].key, name, ""), [0, 0]
                )
                entry[0] += int(gaps.duration_ns[chosen].sum())
                entry[1] += int(chosen.sum())
