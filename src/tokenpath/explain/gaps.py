"""Every gap on a device and the one cause it gets, from the launch chain of what ends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID
from tokenpath.capture.intervals import Int64s, Intervals, gaps
from tokenpath.capture.nesting import Int32s
from tokenpath.explain.activity import (
    ACTIVITIES,
    COPY,
    SYNCHRONIZE,
    UNTRACED,
    WAIT,
)
from tokenpath.explain.causes import CAUSE_NUMBER
from tokenpath.explain.host_timeline import Activity, HostTimeline
from tokenpath.explain.waits import HANDOVER_NS, Waits, previous_on_stream
from tokenpath.explain.work import MEMCPY, NO_LAUNCH, DeviceWork

MIN_LATENCY_SAMPLES = 20
"""Fewer launches onto an idle device than this say nothing about launch latency."""
DEFAULT_LATENCY_NS = 20_000
"""Bound on the way from call to device where the capture has too few samples: measured medians on
NVIDIA and AMD parts lie between 4 and 12 us."""
HELD_NS = 100_000
"""A gap within a launch from which on it is asked whether the graph has it at that place or the device was away. Time
slices of a device that processes share last about 2 ms; hand-overs within a graph about 1 us."""
MIN_REPLAYS = 3
"""Launches of the same nodes needed to tell."""
MAX_HELD_SHARE = 0.5
"""Share of them with such a gap above which it is the graph's own."""
MAX_LATENCY_NS = 50_000
"""A launch that takes longer than this on an idle device was held up by something."""

_HOST_CAUSE = np.array([CAUSE_NUMBER[key] for key in ACTIVITIES], np.int8)


@dataclass(frozen=True)
class Late:
    """Stretches of time in which the host had not launched what came next; one row a stretch."""

    rows: Int64s
    """Which rows of the caller's table they belong to."""
    call: Int32s
    """Row of the `api_call` that came late."""
    start: Int64s
    """When the device had nothing left that it could run."""
    end: Int64s
    """When the host had launched, or the device went on."""


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
    late: Late
    """The gaps in which the host was not ready."""

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


def find_gaps(work: DeviceWork, busy: Intervals, waits: Waits) -> Gaps:
    """The idle gaps of a device, each with its cause.

    Walks from the gap to the kernel that ends it, to the call that launched that kernel:
    the call came after the gap began -> the host was not ready, and what it did meanwhile names the
    cause; the call came before -> the kernel was queued, and what it was queued behind does.

    The host is not asked yet: gaps in `late` stay unattributed until `with_host_causes`.
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
    held = _held_by_chance(work, position, inside_launch & (end - start > HELD_NS))
    cause[held] = CAUSE_NUMBER["queued_unexplained"]
    _explain_queued(work, np.flatnonzero(is_queued), position, latency, waits, cause)
    rows = np.flatnonzero(is_late)
    late = Late(rows, work.call[position[rows]], start[rows], launch_in_gap[rows])
    label = np.full(len(start), -1, np.int32)
    return Gaps(start, end, cause, kernel, launch, queued_ns, label, (), late)


def with_host_causes(found: Gaps, host: HostTimeline, work: DeviceWork) -> Gaps:
    """The same gaps, the late ones with what the host was doing."""
    if len(found.late.rows) == 0:
        return found
    why = host_causes(host, work, found.late)
    cause, label = found.cause.copy(), found.label.copy()
    cause[found.late.rows] = why.cause
    label[found.late.rows] = why.label
    return replace(found, cause=cause, label=label, labels=why.labels)


def _ready(work: DeviceWork, position: Int64s, end: Int64s, latency_ns: int) -> Int64s:
    """When the host had launched what ends each gap.

    That is the start of the call, unless the call itself took long: then the host was at it (lazy
    loading of a module, a slow driver) until it returned or its work started. A copy that outlives the
    start of its work says nothing by its end: it may block the host until it is done.
    """
    call_start, call_end = work.launch_start[position], work.launch_end[position]
    is_blocking = (work.kind[position] == MEMCPY) & (call_end > end)
    is_long = (call_end - call_start > latency_ns) & ~is_blocking
    result: Int64s = np.where(is_long, np.minimum(call_end, end), call_start)
    return result


def _is_first_of_launch(work: DeviceWork) -> NDArray[np.bool_]:
    """Whether a piece of work is the first that its call launched (graphs launch many)."""
    first = np.ones(len(work.call), np.bool_)
    order = np.argsort(work.call, kind="stable")
    call = work.call[order]
    first[order[1:]] = (call[1:] != call[:-1]) | (call[1:] == NO_ID)
    return first


def _held_by_chance(work: DeviceWork, position: Int64s, is_long: NDArray[np.bool_]) -> Int64s:
    """Gaps before a node that starts at once in most other replays of its graph.

    A host node, a copy or a branch that the node waits for is there in every replay; another process on the
    device, or one that preempts, comes at any place. Nodes are the same by their place in the launch, its number of
    nodes, and their family.
    """
    rows = np.flatnonzero(is_long)
    if len(rows) == 0:
        return rows
    order = np.lexsort((work.start, work.call))
    call = work.call[order]
    first = np.flatnonzero(np.diff(call, prepend=call[0] - 1))
    count = np.diff(np.append(first, len(call)))
    place, size = np.empty(len(call), np.int64), np.empty(len(call), np.int64)
    place[order] = np.arange(len(call)) - np.repeat(first, count)
    size[order] = np.repeat(count, count)
    key = (size * (int(size.max()) + 1) + place) * (len(work.families) + 1) + work.family
    distinct, node = np.unique(key, return_inverse=True)
    node = node.reshape(-1)
    replays = np.bincount(node, minlength=len(distinct))
    at = node[position[rows]]
    held = np.bincount(at, minlength=len(distinct))
    by_chance = (replays >= MIN_REPLAYS) & (held <= MAX_HELD_SHARE * replays)
    result: Int64s = rows[by_chance[at]]
    return result


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
    # Counted from the end of the call: launching a large graph keeps the call itself busy. But a copy
    # that blocks its call until it is done had been handed over long before the call ends.
    is_blocking = (work.kind[kernel] == MEMCPY) & (work.launch_end[kernel] > work.start[kernel])
    launched = np.where(is_blocking, work.launch_start[kernel], work.launch_end[kernel])
    since_launch = work.start[kernel] - launched
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


@dataclass(frozen=True)
class HostCauses:
    """Why the host had not launched yet, one row a stretch of time."""

    cause: NDArray[np.int8]
    """Index into CAUSES."""
    label: Int32s
    """Index into `labels`; -1 for none."""
    labels: Sequence[str]
    """Names of host items."""


def host_causes(host: HostTimeline, work: DeviceWork, late: Late) -> HostCauses:
    """What the thread of each late launch was doing before it."""
    call, start, end = late.call, late.start, late.end
    activity = host.during(call, start, end)
    main = activity.main.copy()
    # A host that then mostly waits for work was not held up by the call: there was nothing to launch.
    held_up = main != WAIT
    main[held_up & (activity.at_start == SYNCHRONIZE)] = SYNCHRONIZE
    own_copy = (activity.at_start == COPY) & _awaited_own_copy(work, start, activity)
    main[held_up & own_copy] = COPY
    cause = _HOST_CAUSE[main]
    untraced = np.flatnonzero(main == UNTRACED)
    if len(untraced):
        silent = host.is_silent(call[untraced], start[untraced], end[untraced])
        cause[untraced[silent]] = CAUSE_NUMBER["no_work"]
    return HostCauses(cause, activity.label, activity.labels)


def _awaited_own_copy(work: DeviceWork, start: Int64s, activity: Activity) -> NDArray[np.bool_]:
    """Whether the work that ended when the gap began was launched by the call the host stood in."""
    by_end = np.argsort(work.end, kind="stable")
    last = np.searchsorted(work.end[by_end], start, side="right") - 1
    ended = by_end[np.maximum(last, 0)]
    own: NDArray[np.bool_] = (last >= 0) & (work.call[ended] == activity.at_start_row)
    return own & (activity.at_start_row >= 0)
