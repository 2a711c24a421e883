"""Every gap on a device and the one cause it gets, from the launch chain of what ends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.capture.intervals import Int64s, Intervals, covered, gaps, union
from tokenpath.capture.nesting import Int32s
from tokenpath.explain.activity import (
    ACTIVITIES,
    COPY,
    SYNCHRONIZE,
    UNTRACED,
    WAIT,
    Activity,
    activity_during,
    host_segments,
)
from tokenpath.explain.causes import CAUSE_NUMBER
from tokenpath.explain.waits import HANDOVER_NS, Waits, previous_on_stream
from tokenpath.explain.work import NO_LAUNCH, DeviceWork

MIN_LATENCY_SAMPLES = 20
"""Fewer launches onto an idle device than this say nothing about launch latency."""
DEFAULT_LATENCY_NS = 20_000
"""Bound on the way from call to device where the capture has too few samples: measured medians on
NVIDIA and AMD parts lie between 4 and 12 us."""
MAX_LATENCY_NS = 50_000
"""A launch that takes longer than this on an idle device was held up by something."""

_HOST_CAUSE = np.array([CAUSE_NUMBER[key] for key in ACTIVITIES], np.int8)


@dataclass(frozen=True)
class Gaps:
    """The idle gaps of one device within its window; one row a gap."""

    start: Int64s
    """Start of the gap."""
    end: Int64s
    """End of the gap."""
    cause: NDArray[np.int8]
    """Index into CAUSES."""
    kernel: Int32s
    """Position in DeviceWork of what ends the gap; -1 when the window ends first."""
    launch_start: Int64s
    """Start of its launch, or NO_LAUNCH."""
    queued_ns: Int64s
    """How long it was launched and did not start, within the gap."""
    label: Int32s
    """Index into `labels`: what the host was in; -1 for none."""
    labels: Sequence[str]
    """Names of host items."""

    @property
    def duration_ns(self) -> Int64s:
        """Length of each gap."""
        return self.end - self.start


def launch_latency_bound_ns(work: DeviceWork) -> int:
    """How long a launch takes at most to reach an idle device: the 95th percentile, at most 50 us.

    From the launches issued while the device was idle; their kernels had nothing to wait for.
    """
    busy = work.busy()
    hole = gaps(busy, work.window_start_ns, work.window_end_ns)
    ends = np.searchsorted(work.start, hole.end, side="left")
    ends = np.minimum(ends, len(work.start) - 1)
    launch = work.launch_start[ends]
    late = (launch >= hole.start) & (launch <= hole.end)
    if late.sum() < MIN_LATENCY_SAMPLES:
        return DEFAULT_LATENCY_NS
    latency = (hole.end - launch)[late]
    return int(min(np.percentile(latency, 95, method="lower"), MAX_LATENCY_NS))


def find_gaps(capture: Capture, work: DeviceWork, busy: Intervals, waits: Waits) -> Gaps:
    """The idle gaps of a device, each with its cause.

    Walks from the gap to the kernel that ends it, to the call that launched that kernel:
    the call came after the gap began -> the host was not ready, and what it did meanwhile names the
    cause; the call came before -> the kernel was queued, and what it was queued behind does.
    """
    hole = gaps(busy, work.window_start_ns, work.window_end_ns)
    start, end = hole.start, hole.end
    position = np.searchsorted(work.start, end, side="left")
    # At the end of a window nothing may start; the next work then lies beyond.
    exists = position < len(work.start)
    position = np.minimum(position, len(work.start) - 1)
    kernel = np.where(exists, position, -1).astype(np.int32)
    launch = np.where(exists, work.launch_start[position], NO_LAUNCH)
    called = launch != NO_LAUNCH
    latency = launch_latency_bound_ns(work)
    ready = np.where(called, _ready(work, position, end, latency), end)
    launch_in_gap = np.clip(ready, start, end)
    host_ns = launch_in_gap - start
    queued_ns = end - launch_in_gap

    cause = np.full(len(start), CAUSE_NUMBER["unattributed"], np.int8)
    inside_launch = exists & called & ~_is_first_of_launch(work)[position]
    is_late = called & ~inside_launch & (host_ns > 0) & (host_ns >= queued_ns - latency)
    is_queued = called & ~inside_launch & ~is_late

    cause[~called] = CAUSE_NUMBER["launch_not_in_file"]
    cause[~exists] = CAUSE_NUMBER["no_work"]
    cause[inside_launch] = CAUSE_NUMBER["graph_internal"]
    _explain_queued(work, np.flatnonzero(is_queued), position, latency, waits, cause)
    label, labels = _explain_late(
        capture, work, np.flatnonzero(is_late), hole, position, launch_in_gap, cause
    )
    return Gaps(start, end, cause, kernel, launch, queued_ns, label, labels)


def _ready(work: DeviceWork, position: Int64s, end: Int64s, latency_ns: int) -> Int64s:
    """When the host had launched what ends each gap.

    That is the start of the call, unless the call itself took long and returned before its work
    started: then the host was at it (lazy loading of a module, a full launch queue) until it returned.
    A call that outlives the start of its work, such as a blocking copy, says nothing by its end.
    """
    call_start, call_end = work.launch_start[position], work.launch_end[position]
    is_long = (call_end - call_start > latency_ns) & (call_end <= end)
    result: Int64s = np.where(is_long, call_end, call_start)
    return result


def _is_first_of_launch(work: DeviceWork) -> NDArray[np.bool_]:
    """Whether a piece of work is the first that its call launched (graphs launch many)."""
    first = np.ones(len(work.call), np.bool_)
    order = np.argsort(work.call, kind="stable")
    call = work.call[order]
    first[order[1:]] = (call[1:] != call[:-1]) | (call[1:] == NO_ID)
    return first


def _explain_queued(
    work: DeviceWork,
    rows: Int64s,
    position: Int64s,
    latency_ns: int,
    waits: Waits,
    cause: NDArray[np.int8],
) -> None:
    """Causes of gaps that end with a kernel launched in time."""
    if len(rows) == 0:
        return
    kernel = position[rows]
    previous = previous_on_stream(work)[kernel]
    since = work.start[kernel] - np.where(
        previous >= 0, work.end[np.maximum(previous, 0)], NO_LAUNCH // 2
    )
    wait = waits.before(work, kernel)
    # Counted from the end of the call: launching a large graph keeps the call itself busy.
    since_launch = work.start[kernel] - work.launch_end[kernel]
    cause[rows] = np.select(
        [
            wait == Waits.COLLECTIVE,
            wait == Waits.EVENT,
            since_launch <= latency_ns,
            (previous >= 0) & (since <= max(HANDOVER_NS, latency_ns)),
        ],
        [
            CAUSE_NUMBER["collective_wait"],
            CAUSE_NUMBER["event_wait"],
            CAUSE_NUMBER["launch_latency"],
            CAUSE_NUMBER["stream_dependency"],
        ],
        CAUSE_NUMBER["queued_unexplained"],
    )


def _explain_late(
    capture: Capture,
    work: DeviceWork,
    rows: Int64s,
    hole: Intervals,
    position: Int64s,
    launch_in_gap: Int64s,
    cause: NDArray[np.int8],
) -> tuple[Int32s, Sequence[str]]:
    """Causes of gaps whose kernel was launched after they began: what the host was doing."""
    label = np.full(len(hole), -1, np.int32)
    if len(rows) == 0:
        return label, ()
    late = host_causes(
        capture, work, work.call[position[rows]], hole.start[rows], launch_in_gap[rows]
    )
    cause[rows] = late.cause
    label[rows] = late.label
    return label, late.labels


@dataclass(frozen=True)
class HostCauses:
    """Why the host had not launched yet, one row a stretch of time."""

    cause: NDArray[np.int8]
    """Index into CAUSES."""
    label: Int32s
    """Index into `labels`; -1 for none."""
    labels: Sequence[str]
    """Names of host items."""


def host_causes(
    capture: Capture, work: DeviceWork, call: Int32s, start: Int64s, end: Int64s
) -> HostCauses:
    """What the thread of each launching call was doing from `start` to `end`."""
    thread = capture.ids("api_call", "thread_id")[call]
    segments = host_segments(capture, np.unique(thread), union(start, end))
    activity = activity_during(segments, thread, start, end)
    main = activity.main.copy()
    # A host that then mostly waits for work was not held up by the call: there was nothing to launch.
    held_up = main != WAIT
    main[held_up & (activity.at_start == SYNCHRONIZE)] = SYNCHRONIZE
    own_copy = (activity.at_start == COPY) & _awaited_own_copy(work, start, activity)
    main[held_up & own_copy] = COPY
    cause = _HOST_CAUSE[main]
    untraced = np.flatnonzero(main == UNTRACED)
    if len(untraced):
        # Without Python frames of the thread, silence only means that nothing was traced.
        seen = np.isin(thread[untraced], np.unique(capture.ids("frame", "thread_id")))
        untraced = untraced[seen]
        silent = untraced[~_host_is_active(capture, start[untraced], end[untraced])]
        cause[silent] = CAUSE_NUMBER["no_work"]
    return HostCauses(cause, activity.label, activity.labels)


def _awaited_own_copy(work: DeviceWork, start: Int64s, activity: Activity) -> NDArray[np.bool_]:
    """Whether the work that ended when the gap began was launched by the call the host stood in."""
    by_end = np.argsort(work.end, kind="stable")
    last = np.searchsorted(work.end[by_end], start, side="right") - 1
    ended = by_end[np.maximum(last, 0)]
    own: NDArray[np.bool_] = (last >= 0) & (work.call[ended] == activity.at_start_item)
    return own & (activity.at_start_item >= 0)


def _host_is_active(capture: Capture, start: Int64s, end: Int64s) -> NDArray[np.bool_]:
    """Whether any thread has anything recorded in each stretch of time."""
    active = np.zeros(len(start), np.bool_)
    for table in ("api_call", "op", "frame"):
        if capture.num_rows(table):
            recorded = union(capture.int64(table, "start_ns"), capture.int64(table, "end_ns"))
            active |= covered(start, end, recorded) > 0
    return active
