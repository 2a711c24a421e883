"""Edges between the points of host threads: each in its own order, or behind the thread it stood still for.

No profiler records that one thread waited for another. A thread that has nothing recorded for a while in which
another thread of its process is at work, as the forward thread while autograd runs the backward pass, is taken
to have waited for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.capture.intervals import Int64s, Intervals, covered, union
from tokenpath.replay.edges import EdgeKind, EdgeList, Numbering
from tokenpath.replay.measured import Measured

Int32s = NDArray[np.int32]

MIN_STILL_NS = 50_000
"""Shorter stretches without anything recorded are host time like any other."""
_OWN_SHARE, _OTHER_SHARE = 0.2, 0.5
"""A thread stood still if it was at work for at most this share of a stretch, another for at least that."""
_CALLED_NS = 200_000
"""A thread that was called goes to work so soon after the last thing recorded on the one that called it."""
_BETWEEN_NS = 20_000
"""Recorded work is taken to go on for this long after each item."""


@dataclass(frozen=True)
class _Points:
    """Points of calls by (thread, time)."""

    point: Int64s
    time: Int64s
    thread: Int32s


def add_thread_order(
    capture: Capture, measured: Measured, own_ns: Int64s, polled: Int64s, edges: EdgeList
) -> None:
    """Add edges into calls from what came before on the host.

    `own_ns` is the host time up to each point of a call that comes after waiting, -1 for the others; before
    the calls `polled` the thread waited without a call.
    """
    calls = measured.calls
    number = Numbering(len(calls), len(measured.work))
    at = np.arange(len(calls))
    time = np.concatenate((calls.start, calls.end))
    point = np.concatenate((number.call_start(at), number.call_end(at)))
    thread = np.concatenate((calls.thread, calls.thread))
    order = np.lexsort((point, time, thread))
    points = _Points(point[order], time[order], thread[order])
    same = np.flatnonzero(points.thread[1:] == points.thread[:-1])
    is_still = np.zeros(len(same), np.bool_)
    threads = np.unique(calls.thread)
    if len(threads) > 1:
        is_still = _add_handovers(capture, measured, points, same, threads, polled, edges)
        is_still &= own_ns[points.point[same + 1]] < 0
    same = same[~is_still]
    source, target = points.point[same], points.point[same + 1]
    weight = points.time[same + 1] - points.time[same]
    # Of a wait, only the thread's own time counts on the way to its end.
    waiting = own_ns[target] >= 0
    weight = np.where(waiting, np.minimum(weight, own_ns[target]), weight)
    edges.add(source, target, weight, EdgeKind.HOST)


def _add_handovers(
    capture: Capture,
    measured: Measured,
    points: _Points,
    same: Int64s,
    threads: Int32s,
    polled: Int64s,
    edges: EdgeList,
) -> NDArray[np.bool_]:
    """Edges to threads that stood still, from those that worked meanwhile; which of `same` they replace."""
    is_still = np.zeros(len(same), np.bool_)
    process = _process_of_thread(capture)
    low = np.searchsorted(points.thread, threads, side="left")
    high = np.searchsorted(points.thread, threads, side="right")
    at_work = {thread: _at_work(capture, measured, thread, polled) for thread in threads.tolist()}
    for mine, begin, until in zip(threads.tolist(), low.tolist(), high.tolist(), strict=True):
        others = [
            (other, int(first), int(last))
            for other, first, last in zip(threads.tolist(), low, high, strict=True)
            if other != mine and process[other] == process[mine]
        ]
        if not others:
            continue
        rows = np.flatnonzero((same >= begin) & (same < until))
        length = points.time[same[rows] + 1] - points.time[same[rows]]
        # Between an end and a start: within a call the thread is in the call.
        between = (points.point[same[rows]] % 2 == 1) & (points.point[same[rows] + 1] % 2 == 0)
        rows = rows[(length >= MIN_STILL_NS) & between]
        start, end = points.time[same[rows]], points.time[same[rows] + 1]
        own = covered(start, end, at_work[mine])
        best, who = np.zeros(len(rows), np.int64), np.full(len(rows), -1)
        for place, (other, _, _) in enumerate(others):
            share = covered(start, end, at_work[other])
            who = np.where(share > best, place, who)
            best = np.maximum(best, share)
        still = (own <= _OWN_SHARE * (end - start)) & (best >= _OTHER_SHARE * (end - start))
        still |= _was_called(points, others, at_work, who, best, own, start, end)
        for place, (_, first, last) in enumerate(others):
            chosen = rows[still & (who == place)]
            at = (
                first
                + np.searchsorted(points.time[first:last], points.time[same[chosen] + 1], "right")
                - 1
            )
            known = at >= first
            chosen, at = chosen[known], at[known]
            fits = points.time[at] >= points.time[same[chosen]]
            chosen, at = chosen[fits], at[fits]
            target = same[chosen] + 1
            edges.add(
                points.point[at],
                points.point[target],
                points.time[target] - points.time[at],
                EdgeKind.THREAD,
            )
            is_still[chosen] = True
        _add_first(points, begin, others, edges)
    return is_still


def _was_called(
    points: _Points,
    others: list[tuple[int, int, int]],
    at_work: dict[int, Intervals],
    who: Int64s,
    best: Int64s,
    own: Int64s,
    start: Int64s,
    end: Int64s,
) -> NDArray[np.bool_]:
    """Whether another thread worked right up to the end of a stretch that is silent on all threads otherwise.

    The thread it waited for had been waiting itself, for data or a request, of which nothing is recorded.
    """
    result = np.zeros(len(start), np.bool_)
    for place, (other, first, last) in enumerate(others):
        mine = np.flatnonzero((who == place) & (best >= MIN_STILL_NS))
        if len(mine) == 0:
            continue
        everyone = at_work[other]
        for third, _, _ in others:
            if third != other:
                everyone = union(
                    np.concatenate((everyone.start, at_work[third].start)),
                    np.concatenate((everyone.end, at_work[third].end)),
                )
        recorded = covered(start[mine], end[mine], everyone) + own[mine]
        at = first + np.searchsorted(points.time[first:last], end[mine], "right") - 1
        before = points.time[np.maximum(at, 0)]
        is_near = (at >= first) & (before >= start[mine]) & (end[mine] - before <= _CALLED_NS)
        result[mine] = (
            is_near & (own[mine] <= _OWN_SHARE * recorded) & (best[mine] >= _OTHER_SHARE * recorded)
        )
    return result


def _add_first(
    points: _Points, begin: int, others: list[tuple[int, int, int]], edges: EdgeList
) -> None:
    """The first moment of a thread comes after whatever another thread did last before it."""
    best = -1
    for _, first, last in others:
        at = first + int(np.searchsorted(points.time[first:last], points.time[begin], "left")) - 1
        if at >= first and (best < 0 or points.time[at] > points.time[best]):
            best = at
    if best >= 0:
        edges.add(
            points.point[[best]],
            points.point[[begin]],
            points.time[[begin]] - points.time[[best]],
            EdgeKind.THREAD,
        )


def _process_of_thread(capture: Capture) -> list[object]:
    table = capture["thread"]
    sources = table["source_id"].to_pylist()
    return list(zip(sources, table["pid"].to_pylist(), strict=True))


def _at_work(capture: Capture, measured: Measured, thread: int, polled: Int64s) -> Intervals:
    """When something is recorded on a thread: its outermost operators, its calls, what lies between, and polls."""
    rows = np.flatnonzero(
        (capture.ids("op", "thread_id") == thread) & (capture.ids("op", "parent_op_id") == NO_ID)
    )
    shift = measured.origin_ns
    if len(rows):
        shift += int(measured.shift_ns[capture.ids("op", "source_id")[rows[0]]])
    starts = capture.int64("op", "start_ns")[rows] - shift
    ends = capture.int64("op", "end_ns")[rows] - shift
    calls = measured.calls
    mine = np.flatnonzero(calls.thread == thread)
    waits = polled[calls.thread[polled] == thread]
    return union(
        np.concatenate((starts, calls.start[mine], calls.end[waits - 1])),
        np.concatenate((ends, calls.end[mine] + _BETWEEN_NS, calls.start[waits])),
    )
