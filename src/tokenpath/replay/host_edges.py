"""Edges into host calls: what came before on the host, and the work that a call waits for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import Int64s
from tokenpath.core.units import INT64_MIN
from tokenpath.replay.edges import EdgeKind, EdgeList, Numbering, typical_ns
from tokenpath.replay.measured import Calls, Measured, Work
from tokenpath.replay.thread_edges import add_thread_order

Bools = NDArray[np.bool_]

_BASE_NS, _RETURN_NS = 2_000, 10_000
"""A wait for work that is done, and the way from its end back to the host, where samples lack."""
_MIN_POLL_NS, _MAX_POLL_BACK_NS, _POLL_SHARE = 200_000, 60_000, 10
"""A stretch that may be polling is at least so long, and its kernel ends at most so long, and a tenth of the
stretch, before it does."""
_MIN_QUEUE, _FULL_SHARE, _QUEUED_TIMES = 900, 0.97, 2
"""A queue of launches is full with no fewer than so many in it (CUDA has room for 1,024, and real captures stop at
967 to 1,022) and this share of the most that it ever held; a launch that stood still then takes longer than so many
usual ones."""


def add_host_edges(
    capture: Capture, measured: Measured, number: Numbering, edges: EdgeList
) -> Int64s:
    """Add the edges into calls; for each call the host time in it that is not waiting, -1 for all of it."""
    own_ns = np.full(2 * len(measured.calls), -1, np.int64)
    _add_waits(measured, number, edges, own_ns)
    polled = _add_polls(measured, number, edges, own_ns)
    _add_full_queues(measured, number, edges, own_ns)
    add_thread_order(capture, measured, own_ns, polled, edges)
    return own_ns[1::2]


def _add_waits(measured: Measured, number: Numbering, edges: EdgeList, own_ns: Int64s) -> None:
    """Edges from work to the calls that waited for it; their own time by point."""
    work, calls = measured.work, measured.calls
    call, awaited = _own_copies(work, calls)
    asked, sync_awaited = _awaited(measured)
    call = np.concatenate((call, asked))
    awaited = np.concatenate((awaited, sync_awaited))
    if len(call) == 0:
        return
    late_ns = calls.end[call] - work.end[awaited]
    waited = (work.end[awaited] > calls.start[call]) & (late_ns >= 0)
    call, awaited, late_ns = call[waited], awaited[waited], late_ns[waited]
    back_ns = np.full(int(calls.name.max(initial=0)) + 1, _RETURN_NS, np.int64)
    base_ns = np.full(len(back_ns), _BASE_NS, np.int64)
    has_waited = np.zeros(len(calls), np.bool_)
    has_waited[call] = True
    for name in np.unique(calls.name[call]).tolist():
        back_ns[name] = typical_ns(late_ns[calls.name[call] == name], _RETURN_NS)
        idle = (calls.name == name) & ~has_waited
        base_ns[name] = typical_ns((calls.end - calls.start)[idle], _BASE_NS)
    own_ns[number.call_end(call)] = np.minimum(
        base_ns[calls.name[call]], (calls.end - calls.start)[call]
    )
    weight = np.minimum(late_ns, back_ns[calls.name[call]])
    edges.add(number.work_end(awaited), number.call_end(call), weight, EdgeKind.RETURN)


def _add_polls(measured: Measured, number: Numbering, edges: EdgeList, own_ns: Int64s) -> Int64s:
    """Waits that are no call: the host polls memory that a kernel writes (DeepEP waits for its counts so).

    Seen as a long stretch without calls that ends right after the work that the call before it launched.
    Returns the calls after such stretches.
    """
    work, calls = measured.work, measured.calls
    if len(calls) < 2:
        return np.empty(0, np.int64)
    last_end = np.full(len(calls), INT64_MIN, np.int64)
    last_work = np.full(len(calls), -1, np.int64)
    known = np.flatnonzero(work.call >= 0)
    known = known[np.argsort(work.end[known], kind="stable")]
    last_end[work.call[known]] = work.end[known]
    last_work[work.call[known]] = known
    before = np.flatnonzero(calls.thread[1:] == calls.thread[:-1])
    gap = calls.start[before + 1] - calls.end[before]
    back = calls.start[before + 1] - last_end[before]
    polled = (gap >= _MIN_POLL_NS) & (back >= 0) & (last_end[before] > calls.end[before])
    polled &= (back <= _MAX_POLL_BACK_NS) & (back * _POLL_SHARE <= gap)
    before = before[polled]
    own_ns[number.call_start(before + 1)] = np.minimum(gap[polled], _BASE_NS)
    edges.add(
        number.work_end(last_work[before]),
        number.call_start(before + 1),
        back[polled],
        EdgeKind.RETURN,
    )
    return before + 1


def _add_full_queues(
    measured: Measured, number: Numbering, edges: EdgeList, own_ns: Int64s
) -> None:
    """Launches that stood still until the queue had room: they return when the work of an earlier one ends."""
    work, calls = measured.work, measured.calls
    by_end = np.argsort(work.end, kind="stable")
    by_end = by_end[work.call[by_end] >= 0]
    last = np.full(len(calls), -1, np.int64)
    last[work.call[by_end]] = by_end
    for source in np.unique(calls.source).tolist():
        launches = np.flatnonzero((last >= 0) & (calls.source == source))
        if len(launches) < _MIN_QUEUE:
            continue
        length = calls.end[launches] - calls.start[launches]
        ended = launches[np.argsort(work.end[last[launches]], kind="stable")]
        ends = work.end[last[ended]]
        done = np.searchsorted(ends, calls.end[launches], side="right")
        issued = np.searchsorted(np.sort(calls.end[launches]), calls.end[launches], side="right")
        back = calls.end[launches] - ends[np.maximum(done - 1, 0)]
        depth = issued - done
        is_deep = depth >= max(_MIN_QUEUE, int(_FULL_SHARE * depth.max()))
        usual = typical_ns(length[~is_deep], _BASE_NS)
        full = is_deep & (length > _QUEUED_TIMES * usual)
        full &= (done > 0) & (ends[np.maximum(done - 1, 0)] > calls.start[launches])
        full &= own_ns[number.call_end(launches)] < 0
        own_ns[number.call_end(launches[full])] = usual
        edges.add(
            number.work_end(last[ended[done[full] - 1]]),
            number.call_end(launches[full]),
            np.minimum(back[full], _RETURN_NS),
            EdgeKind.QUEUE,
        )


def _own_copies(work: Work, calls: Calls) -> tuple[Int64s, Int64s]:
    """Copies that had ended before their own call returned: the call waited for them."""
    at = np.flatnonzero(work.is_copy & (work.call >= 0))
    call = work.call[at].astype(np.int64)
    inside = (work.end[at] <= calls.end[call]) & (work.start[at] >= calls.start[call])
    return call[inside], at[inside]


def _awaited(measured: Measured) -> tuple[Int64s, Int64s]:
    """(call, work) for calls that may wait: on each stream the last work launched before, over by its end.

    A call that is there to wait, waits for all streams of its process's devices unless work of a stream goes
    on beyond it. Any other call (freeing memory) counts as waiting only when the device had run dry.
    """
    work, calls = measured.work, measured.calls
    asking = np.flatnonzero(calls.waits | calls.may_wait)
    if len(asking) == 0 or len(work) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    launched = np.where(work.call >= 0, calls.start[np.maximum(work.call, 0)], INT64_MIN)
    order = np.lexsort((work.end, work.stream))
    stream = work.stream[order]
    begin = np.flatnonzero(np.append(True, stream[1:] != stream[:-1]))
    until = np.append(begin[1:], len(stream))
    source_of_stream = work.source[order[begin]]
    calls_found: list[Int64s] = []
    work_found: list[Int64s] = []
    busy_after: list[tuple[Int64s, Bools]] = []
    for low, high, source in zip(begin, until, source_of_stream, strict=True):
        mine = asking[calls.source[asking] == source]
        rows = order[low:high]
        by_end = np.searchsorted(work.end[rows], calls.end[mine], side="right")
        launch = np.maximum.accumulate(launched[rows])
        by_launch = np.searchsorted(launch, calls.start[mine], side="left")
        place = np.minimum(by_end, by_launch) - 1
        known = place >= 0
        # Work of this stream launched before the call that was still to come after it.
        goes_on = by_launch > by_end
        busy_after.append((mine, goes_on))
        calls_found.append(mine[known])
        work_found.append(rows[place[known]])
    call, awaited = np.concatenate(calls_found), np.concatenate(work_found)
    not_dry = np.zeros(len(calls), np.bool_)
    for mine, goes_on in busy_after:
        not_dry[mine[goes_on]] = True
    # Only the work that ended last matters, unless it is a wait for the whole device.
    order = np.lexsort((work.end[awaited], call))
    call, awaited = call[order], awaited[order]
    is_last = np.append(call[1:] != call[:-1], True)[: len(call)]
    keep = is_last | (calls.waits[call] & ~not_dry[call])
    keep &= calls.waits[call] | ~not_dry[call]
    return call[keep], awaited[keep]
