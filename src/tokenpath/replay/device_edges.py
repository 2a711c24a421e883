"""Edges into device work: its launch, its stream, recorded events, and what it must have waited for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.capture.intervals import Int64s
from tokenpath.core.units import INT64_MIN
from tokenpath.replay.edges import EdgeKind, EdgeList, Numbering, typical_ns
from tokenpath.replay.loops import before_on_stream
from tokenpath.replay.measured import Calls, Measured, Work

Bools = NDArray[np.bool_]
Int32s = NDArray[np.int32]

_LAUNCH_NS, _HANDOVER_NS = 5_000, 1_000
"""Typical ways from call to device and between two kernels where a capture has too few samples: medians
measured on NVIDIA and AMD parts are 4 to 12 us and 0.7 to 1.5 us."""
MAX_INFERRED_NS = 10_000
"""Work that starts within this time after other work ended is taken to have waited for it."""
_LATE_SHARE = 10
"""It may start later when it had been held up for so many times that time."""
_QUEUED_NS = 2_500
"""Work that starts within this time after the work before it on its stream stood in the queue."""
_MIN_INFERRED_NS = 200
"""Delays below this need no explanation."""
_MIN_CROWDED_NS = 2_000
"""Delays below this are not looked at for want of room."""
_NUM_BESIDE = 32
"""Pieces of work that may run side by side under one stream number."""


@dataclass(frozen=True)
class Streams:
    """Order of work on streams."""

    before: Int32s
    """Position of the work that each one's stream had to end before it; -1 for none."""
    order: Int64s
    """Positions by (stream, start)."""


def streams_of(work: Work) -> Streams:
    """What each piece of work came behind on its stream."""
    order = np.argsort(work.stream, kind="stable")
    found = np.full(len(work), NO_ID, np.int32)
    before_on_stream(len(work))(
        work.stream[order],
        work.start[order],
        work.end[order],
        np.zeros(_NUM_BESIDE, np.int64),
        found,
    )
    before = np.full(len(work), NO_ID, np.int32)
    before[order] = np.where(found >= 0, order[np.maximum(found, 0)], NO_ID)
    return Streams(before, order)


def add_device_edges(
    capture: Capture, measured: Measured, number: Numbering, edges: EdgeList
) -> Streams:
    """Add all edges into starts of work, and those from start to end."""
    work, calls = measured.work, measured.calls
    streams = streams_of(work)
    at = np.arange(len(work))
    edges.add(number.work_start(at), number.work_end(at), work.end - work.start, EdgeKind.WORK)
    bound = np.full(len(work), INT64_MIN, np.int64)
    _add_launches(work, calls, streams, number, edges, bound)
    _add_stream_order(work, calls, streams, number, edges, bound)
    _add_events(capture, measured, number, edges, bound)
    _add_inferred(work, calls, number, edges, bound)
    _add_past_communication(work, streams, number, edges)
    return streams


def _add_launches(
    work: Work, calls: Calls, streams: Streams, number: Numbering, edges: EdgeList, bound: Int64s
) -> None:
    at = np.flatnonzero(work.call >= 0)
    if len(at) == 0:
        return
    # Of all that one call launched, the first on each stream waits for the call.
    key = work.call[at].astype(np.int64) * (int(work.stream.max()) + 1) + work.stream[at]
    _, first = np.unique(key, return_index=True)
    at = at[np.sort(first)]
    call = work.call[at].astype(np.int64)
    latency = work.start[at] - calls.start[call]
    real = latency >= 0
    at, call, latency = at[real], call[real], latency[real]
    kind = np.where(calls.is_graph[call], 2, np.where(work.is_copy[at], 1, 0))
    idle = calls.start[call] >= _busy_until(work)[at]
    typical = np.array(
        [typical_ns(latency[idle & (kind == number)], _LAUNCH_NS) for number in range(3)]
    )
    # Work that came right behind other work was queued: how much earlier its launch could have come is not
    # known, so it must not look as if the launch had held it.
    before = streams.before[at].astype(np.int64)
    since = work.start[at] - work.end[np.maximum(before, 0)]
    queued = (before >= 0) & (since <= _QUEUED_NS) & (calls.start[call] < work.end[before])
    weight = np.minimum(np.where(queued, latency - 1, latency), typical[kind])
    edges.add(number.call_start(call), number.work_start(at), weight, EdgeKind.LAUNCH)
    bound[at] = np.maximum(bound[at], calls.start[call] + weight)


def _busy_until(work: Work) -> Int64s:
    """When the work before each, on any stream of its device, was over."""
    result = np.full(len(work), INT64_MIN, np.int64)
    for device in np.unique(work.device):
        at = np.flatnonzero(work.device == device)
        result[at[1:]] = np.maximum.accumulate(work.end[at])[:-1]
    return result


def _add_stream_order(
    work: Work, calls: Calls, streams: Streams, number: Numbering, edges: EdgeList, bound: Int64s
) -> None:
    at = np.flatnonzero(streams.before >= 0)
    if len(at) == 0:
        return
    before = streams.before[at].astype(np.int64)
    since = work.start[at] - work.end[before]
    own = (work.call[at] == work.call[before]) & (work.call[at] >= 0)
    # Hand-over is what lies between two kernels that were both launched long before.
    launched = np.where(work.call[at] >= 0, _starts(calls, work.call[at]), INT64_MIN)
    queued = (since >= 0) & (launched < work.end[before] - 2 * _LAUNCH_NS)
    for inside, kind in ((False, EdgeKind.STREAM), (True, EdgeKind.GRAPH)):
        chosen = np.flatnonzero(own == inside)
        if len(chosen) == 0:
            continue
        handover = typical_ns(since[chosen[queued[chosen]]], _HANDOVER_NS)
        weight = np.minimum(since[chosen], handover)
        ahead = since[chosen] < 0
        later = chosen[~ahead]
        edges.add(
            number.work_end(before[later]), number.work_start(at[later]), weight[~ahead], kind
        )
        over = chosen[ahead]
        edges.add(
            number.work_start(before[over]),
            number.work_start(at[over]),
            work.start[at[over]] - work.start[before[over]],
            EdgeKind.OVERLAP,
        )
        bound[at[chosen]] = np.maximum(bound[at[chosen]], work.end[before[chosen]] + weight)


def _starts(calls: Calls, call: Int32s) -> Int64s:
    return calls.start[np.maximum(call, 0)] if len(calls) else np.zeros(len(call), np.int64)


def _add_events(
    capture: Capture, measured: Measured, number: Numbering, edges: EdgeList, bound: Int64s
) -> None:
    """Recorded waits: the next work launched onto the waiting stream, behind the last of the other one."""
    found = _recorded_waits(capture, measured)
    if found is None:
        return
    waiting, called, awaited, event_at = found
    work, calls = measured.work, measured.calls
    launched = np.where(work.call >= 0, _starts(calls, work.call), work.start)
    order = np.lexsort((launched, work.stream))
    stream, launch = work.stream[order], launched[order]
    target = _first_after(stream, launch, waiting, called)
    source = _first_after(stream, launch, awaited, event_at) - 1
    known = (target < len(order)) & (source >= 0)
    target, source = order[target[known]], order[source[known]]
    right = (work.stream[target] == waiting[known]) & (work.stream[source] == awaited[known])
    right &= work.end[source] <= work.start[target]
    target, source = target[right], source[right]
    since = work.start[target] - work.end[source]
    weight = np.minimum(since, typical_ns(since[since < MAX_INFERRED_NS], _HANDOVER_NS))
    edges.add(number.work_end(source), number.work_start(target), weight, EdgeKind.EVENT)
    np.maximum.at(bound, target, work.end[source] + weight)


def _first_after(stream: Int64s, launch: Int64s, at_stream: Int64s, at: Int64s) -> Int64s:
    """Position of the first row of each stream launched after a time; the position behind its last else."""
    # One sorted key for both parts: launch times are below 2**61 from the origin, so rank them first.
    times = np.unique(launch)
    width = len(times) + 1
    key = stream * width + np.searchsorted(times, launch)
    wanted = at_stream * width + np.searchsorted(times, at, side="right")
    result: Int64s = np.searchsorted(key, wanted, side="left")
    return result


def _recorded_waits(
    capture: Capture, measured: Measured
) -> tuple[Int64s, Int64s, Int64s, Int64s] | None:
    """Waiting stream, time of the wait call, awaited stream and time of the event record, one row a wait."""
    kinds, names = capture.codes("dependency", "kind")
    if "event_wait" not in names or len(measured.work) == 0:
        return None
    rows = np.flatnonzero(kinds == names.index("event_wait"))
    device = capture.ids("dependency", "device_id")[rows]
    waiting = capture.int64("dependency", "stream_id", NO_ID)[rows]
    awaited = capture.int64("dependency", "from_stream_id", NO_ID)[rows]
    shift = measured.origin_ns + measured.shift_ns[capture.ids("dependency", "source_id")[rows]]
    called = capture.int64("dependency", "start_ns")[rows] - shift
    record = capture.int64("dependency", "from_correlation_id", INT64_MIN)[rows]
    event_at = _record_times(capture, capture.ids("dependency", "source_id")[rows], record)
    event_at = np.where(event_at == INT64_MIN, called, event_at - shift)
    numbers = _stream_numbers(capture, measured.work)
    first, second = (_numbered(numbers, device, stream) for stream in (waiting, awaited))
    known = (first >= 0) & (second >= 0) & (first != second)
    return first[known], called[known], second[known], event_at[known]


def _numbered(numbers: dict[tuple[int, int], int], device: Int32s, stream: Int64s) -> Int64s:
    """The number of each (device, stream); NO_ID for those without work."""
    pairs, which = np.unique(np.stack((device, stream)), axis=1, return_inverse=True)
    found = [numbers.get((int(of), int(at)), NO_ID) for of, at in pairs.T]
    result: Int64s = np.array(found, np.int64)[which.reshape(-1)]
    return result


def _record_times(capture: Capture, source: Int32s, correlation: Int64s) -> Int64s:
    """Start of the call with a correlation id in a source; INT64_MIN for none."""
    result = np.full(len(correlation), INT64_MIN, np.int64)
    ids = capture.int64("api_call", "correlation_id", INT64_MIN)
    starts, sources = capture.int64("api_call", "start_ns"), capture.ids("api_call", "source_id")
    for number in np.unique(source):
        here = np.flatnonzero((sources == number) & (ids != INT64_MIN))
        at = np.flatnonzero((source == number) & (correlation != INT64_MIN))
        if len(here) == 0 or len(at) == 0:
            continue
        here = here[np.argsort(ids[here], kind="stable")]
        position = np.minimum(np.searchsorted(ids[here], correlation[at]), len(here) - 1)
        same = ids[here[position]] == correlation[at]
        result[at[same]] = starts[here[position[same]]]
    return result


def _stream_numbers(capture: Capture, work: Work) -> dict[tuple[int, int], int]:
    """The number of each (device, stream) that has work."""
    number, first = np.unique(work.stream, return_index=True)
    stream = capture.int64("kernel", "stream_id")[work.row[first]]
    device = work.device[first]
    return {(int(d), int(s)): int(n) for d, s, n in zip(device, stream, number, strict=True)}


def _add_inferred(
    work: Work, calls: Calls, number: Numbering, edges: EdgeList, bound: Int64s
) -> None:
    """Work that started late for no recorded reason, at the end of work of another stream of its device.

    Work that nothing else holds is put behind whatever ended last on its device, so that it moves along.
    """
    launched = np.where(work.call >= 0, _starts(calls, work.call), INT64_MIN)
    for device in np.unique(work.device):
        here = np.flatnonzero(work.device == device)
        late = here[work.start[here] - bound[here] > _MIN_INFERRED_NS]
        late = np.concatenate((late, here[bound[here] == INT64_MIN]))
        late = np.unique(late)
        if len(late) == 0:
            continue
        by_end = here[np.argsort(work.end[here], kind="stable")]
        position = np.searchsorted(work.end[by_end], work.start[late], side="right") - 1
        source = by_end[np.maximum(position, 0)]
        since = work.start[late] - work.end[source]
        is_bare = bound[late] == INT64_MIN
        before = (launched[source] <= launched[late]) | (launched[source] == INT64_MIN)
        fits = (position >= 0) & (source < late)
        fits &= is_bare | (
            ((since <= MAX_INFERRED_NS) | (since * _LATE_SHARE <= work.start[late] - bound[late]))
            & before
            & (work.stream[source] != work.stream[late])
            & (work.end[source] > bound[late])
        )
        target, source, since = late[fits], source[fits], since[fits]
        weight = np.minimum(since, _HANDOVER_NS)
        edges.add(number.work_end(source), number.work_start(target), weight, EdgeKind.INFERRED)
        bound[target] = np.maximum(bound[target], work.end[source] + weight)
        still_late = late[work.start[late] - bound[late] > _MIN_CROWDED_NS]
        _add_crowded(work, here, still_late, number, edges)


def _add_crowded(
    work: Work, here: Int64s, late: Int64s, number: Numbering, edges: EdgeList
) -> None:
    """Queued work that starts while work of another stream runs its last waves: it waited for room."""
    place = np.searchsorted(here, late)
    best = np.full(len(late), -1, np.int64)
    for back in range(1, _NUM_BESIDE):
        other = here[np.maximum(place - back, 0)]
        left = work.end[other] - work.start[late]
        length = work.end[other] - work.start[other]
        fits = (place >= back) & (left > 0) & (left * 4 <= length)
        fits &= work.stream[other] != work.stream[late]
        nearer = (best < 0) | (work.end[other] < work.end[np.maximum(best, 0)])
        best = np.where(fits & nearer, other, best)
    target, source = late[best >= 0], best[best >= 0]
    weight = work.start[target] - work.start[source]
    edges.add(number.work_start(source), number.work_start(target), weight, EdgeKind.CROWDED)


def _add_past_communication(
    work: Work, streams: Streams, number: Numbering, edges: EdgeList
) -> None:
    """For work behind communication or copies on its stream, the last that is neither."""
    order = streams.order
    other = work.is_communication | work.is_copy
    stream, is_other = work.stream[order], other[order]
    place = np.arange(len(order))
    last = np.maximum.accumulate(np.where(is_other, -1, place))
    previous = np.concatenate((np.array([-1]), last[:-1])) if len(order) else last
    behind = np.concatenate((np.array([False]), is_other[:-1])) if len(order) else is_other
    chosen = np.flatnonzero(behind & ~is_other & (previous >= 0))
    chosen = chosen[stream[previous[chosen]] == stream[chosen]]
    source, target = order[previous[chosen]], order[chosen]
    since = work.start[target] - work.end[source]
    right = since >= 0
    edges.add(
        number.work_end(source[right]),
        number.work_start(target[right]),
        np.minimum(since[right], _HANDOVER_NS),
        EdgeKind.PAST_COMMUNICATION,
    )
