"""When each rank arrived at each matched collective, who was waited for, and who was late of its own accord."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s, covered
from tokenpath.explain.analysis import Analysis, DeviceResult
from tokenpath.explain.work import COMPUTE, MEMSET
from tokenpath.stitch.clocks import host_clocks

Float64s = NDArray[np.float64]
NO_CAUSE = -1
MIN_OWN_SHARE = 0.5
"""From this share of its lateness on, a rank is late of its own accord and not because it waited elsewhere."""


@dataclass(frozen=True)
class Arrivals:
    """Parts of collectives that several devices took part in, by collective and device."""

    collective: Int64s
    """Number of the collective of each part, from 0, in order of their ends."""
    device: Int64s
    """Position of the part's device among the devices of the analysis."""
    kernel: Int64s
    """Row of `kernel` of each part."""
    since: Int64s
    """On the device's own clock: when its last matched collective before this one had ended."""
    start: Int64s
    """On the device's own clock: when it arrived."""
    end: Int64s
    """On the device's own clock: when it left."""
    wait_ns: Int64s
    """How long it waited for the last to arrive, clocks aligned."""
    exposed_ns: Int64s
    """How much of that had no compute beside it."""
    late_ns: Int64s
    """How long after the typical other device it arrived; below 0 for early ones."""
    is_first: NDArray[np.bool_]
    """Whether it is the device's first matched collective, before which nothing is known of it."""
    num_collectives: int
    """How many collectives."""
    low_ns: Int64s
    """By device, on its own clock: since when all devices had left their first matched collective."""
    high_ns: Int64s
    """By device, on its own clock: until when none had left its last one."""
    residual_ns: int | None
    """How well the clocks agree after the alignment; None where all have one clock."""

    @property
    def own_ns(self) -> Int64s:
        """Time since the collective before, until the arrival."""
        result: Int64s = np.maximum(self.start - self.since, 0)
        return result


def find_arrivals(analysis: Analysis) -> Arrivals | None:
    """The parts in the window; None where fewer than two devices share a collective."""
    capture = analysis.capture
    match = capture.int64("collective", "match", -1)
    row_of_kernel = capture.ids("collective", "kernel_id")
    rows = np.flatnonzero((match >= 0) & (row_of_kernel >= 0))
    if len(rows) == 0 or len(analysis.devices) < 2:
        return None
    kernel = row_of_kernel[rows].astype(np.int64)
    number = np.full(capture.num_rows("device"), -1, np.int64)
    for position, result in enumerate(analysis.devices):
        number[result.work.device_id] = position
    device = number[capture.ids("kernel", "device_id")[kernel]]
    start = capture.int64("kernel", "start_ns")[kernel]
    end = capture.int64("kernel", "end_ns")[kernel]
    low = np.array([d.work.window_start_ns for d in analysis.devices])[np.maximum(device, 0)]
    high = np.array([d.work.window_end_ns for d in analysis.devices])[np.maximum(device, 0)]
    inside = (device >= 0) & (start >= low) & (end <= high)
    keys = match[rows]
    # A collective counts where at least two devices have it in their windows.
    values, which = np.unique(keys, return_inverse=True)
    inside &= (np.bincount(which, inside, len(values)) >= 2)[which]
    if not inside.any():
        return None
    kept = np.flatnonzero(inside)
    source = capture.ids("collective", "source_id")[rows[kept]]
    return _measure(
        analysis, match[rows[kept]], device[kept], kernel[kept], start[kept], end[kept], source
    )


def _measure(
    analysis: Analysis,
    match: Int64s,
    device: Int64s,
    kernel: Int64s,
    start: Int64s,
    end: Int64s,
    source: NDArray[np.int32],
) -> Arrivals:
    clocks = host_clocks(analysis.capture)
    aligned_start, aligned_end = start.copy(), end.copy()
    for clock in clocks:
        of_clock = np.isin(source, clock.sources)
        aligned_start[of_clock] = clock.corrected(start[of_clock])
        aligned_end[of_clock] = clock.corrected(end[of_clock])
    collective = _numbered(match, aligned_end)
    num = int(collective.max()) + 1
    last = np.full(num, np.iinfo(np.int64).min)
    np.maximum.at(last, collective, aligned_start)
    # Nobody waits longer than its own kernel runs, whatever the clocks say.
    wait = np.minimum(last[collective] - aligned_start, end - start)
    since, is_first = _since(device, start, end)
    exposed = np.zeros_like(wait)
    for position, result in enumerate(analysis.devices):
        mine = np.flatnonzero(device == position)
        if len(mine):
            work = result.work
            compute = work.busy(COMPUTE, MEMSET)
            exposed[mine] = wait[mine] - covered(start[mine], start[mine] + wait[mine], compute)
    return Arrivals(
        collective,
        device,
        kernel,
        since,
        start,
        end,
        wait,
        exposed,
        aligned_start - median_of_others(collective, aligned_start, num),
        is_first,
        num,
        *_common_time(device, end, aligned_end, len(analysis.devices)),
        max(clock.residual_ns for clock in clocks) if clocks else None,
    )


def _common_time(
    device: Int64s, end: Int64s, aligned: Int64s, num_devices: int
) -> tuple[Int64s, Int64s]:
    """The stretch between the first and last matched collectives of all devices, on each one's own clock."""
    first = np.full(num_devices, np.iinfo(np.int64).max)
    last = np.full(num_devices, np.iinfo(np.int64).min)
    np.minimum.at(first, device, aligned)
    np.maximum.at(last, device, aligned)
    there = first <= last
    low, high = int(first[there].max()), int(last[there].min())
    shift = np.zeros(num_devices, np.int64)
    shift[device] = aligned - end
    return low - shift, np.maximum(high, low) - shift


def _numbered(match: Int64s, end: Int64s) -> Int64s:
    values, which = np.unique(match, return_inverse=True)
    done = np.full(len(values), np.iinfo(np.int64).min)
    np.maximum.at(done, which, end)
    place = np.empty(len(values), np.int64)
    place[np.argsort(done, kind="stable")] = np.arange(len(values))
    return place[which]


def _since(device: Int64s, start: Int64s, end: Int64s) -> tuple[Int64s, NDArray[np.bool_]]:
    """When the device's matched collectives that started before had all ended, and whether there were none."""
    order = np.lexsort((end, start, device))
    is_first = np.zeros(len(start), np.bool_)
    since = start.copy()
    begin = np.flatnonzero(np.diff(device[order], prepend=-1))
    for low, high in zip(begin, [*begin[1:], len(order)], strict=True):
        rows = order[low:high]
        is_first[rows[0]] = True
        since[rows[1:]] = np.minimum(np.maximum.accumulate(end[rows])[:-1], start[rows[1:]])
    return since, is_first


def median_of_others(group: Int64s, values: Int64s, num_groups: int) -> Int64s:
    """For each row the lower median of the other rows of its group; its own value where it is alone."""
    order = np.lexsort((values, group))
    count = np.bincount(group, minlength=num_groups)
    first = np.cumsum(count) - count
    place = np.empty(len(values), np.int64)
    place[order] = np.arange(len(values)) - first[group[order]]
    others = count[group] - 1
    at = np.maximum(others - 1, 0) // 2
    # Leaving the row itself out moves everything behind it one place forward.
    at = np.where(place <= at, at + 1, at)
    at = np.where(others > 0, at, place)
    result: Int64s = values[order][first[group] + at]
    return result


def causes(arrivals: Arrivals) -> Int64s:
    """For each collective the part whose device was late of its own accord; NO_CAUSE where that began earlier.

    The last to arrive is the cause if most of its lateness arose since its collective before. If not, it had
    been kept waiting there, and that collective's cause is this one's too: victims are not blamed. What goes
    back to a device's first collective is a difference of the recordings' beginnings and has no cause.
    """
    num = arrivals.num_collectives
    order = np.lexsort((arrivals.late_ns, arrivals.collective))
    last = order[np.append(np.flatnonzero(np.diff(arrivals.collective[order])), len(order) - 1)]
    own = arrivals.own_ns
    excess = own - median_of_others(arrivals.collective, own, num)
    is_own = excess[last] >= MIN_OWN_SHARE * arrivals.late_ns[last]
    before = _before(arrivals)
    parent = np.arange(num)
    handed = ~is_own & (before[last] >= 0)
    parent[handed] = arrivals.collective[before[last[handed]]]
    root = np.where(is_own & ~arrivals.is_first[last], last, NO_CAUSE)
    for _ in range(num.bit_length()):
        parent = parent[parent]
    result: Int64s = root[parent]
    return result


def _before(arrivals: Arrivals) -> Int64s:
    """The part of the same device that ended last before each part began; -1 for none."""
    order = np.lexsort((arrivals.end, arrivals.start, arrivals.device))
    result = np.full(len(order), -1, np.int64)
    same = np.diff(arrivals.device[order]) == 0
    result[order[1:][same]] = order[:-1][same]
    # A collective that ends later cannot be what this one waited behind.
    earlier = result >= 0
    earlier[earlier] = (
        arrivals.collective[result[earlier]] < arrivals.collective[np.flatnonzero(earlier)]
    )
    return np.where(earlier, result, -1)


def rank_of(analysis: Analysis, device: DeviceResult) -> int | None:
    """The rank in the job of the file that holds a device."""
    source = analysis.capture.ids("device", "source_id")[device.work.device_id]
    rank = analysis.capture["source"]["rank"][int(source)].as_py()
    return None if rank is None else int(rank)
