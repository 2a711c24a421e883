"""The dependency graph of measured work: points of time, and what each cannot come before.

A point is the start or the end of a host call or of device work, or the moment at which the last rank has
arrived at a collective. Its time is the latest of (time of a point it waits for + weight of the edge), plus
its own delay: the part of what was measured that no edge explains. Delays are frozen, so timing the graph
again gives the measured times exactly; a what-if changes weights, never the measured times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import Int64s
from tokenpath.replay.device_edges import add_device_edges
from tokenpath.replay.edges import EdgeKind, EdgeList, Numbering
from tokenpath.replay.host_edges import add_host_edges
from tokenpath.replay.loops import CUT_NS, fill_by_target, order_points, settle_delays
from tokenpath.replay.measured import Measured, measure
from tokenpath.replay.rank_edges import Collectives, add_rank_edges, collectives_of

Int32s = NDArray[np.int32]
Integer = TypeVar("Integer", np.int8, np.int32, np.int64)


@dataclass(frozen=True)
class Graph:
    """Points in the order of their measured times, and edges by the point they lead to."""

    measured: Measured
    """What the points stand for."""
    collectives: Collectives
    """Collectives across ranks."""
    time: Int64s
    """Measured time of each point, from the origin."""
    first: Int64s
    """Where the edges into each point begin; one entry more than points."""
    source: Int32s
    """Point that each edge comes from."""
    target: Int32s
    """Point that each edge leads to."""
    weight: Int64s
    """How much later the target is at least; CUT_NS for an edge that the measurement contradicts."""
    kind: NDArray[np.int8]
    """EdgeKind of each edge."""
    base: Int64s
    """Measured time of points without a predecessor, 0 for all others."""
    delay: Int64s
    """What was measured beyond all edges."""
    order: Int32s
    """Points, each after all that it waits for."""
    num_cut: int
    """Edges that the measurement contradicts."""
    call_start: Int32s
    """Point at which each call of `measured.calls` starts."""
    call_end: Int32s
    """Point at which it ends."""
    work_start: Int32s
    """Point at which each piece of `measured.work` starts."""
    work_end: Int32s
    """Point at which it ends."""
    own_ns: Int64s
    """Host time of each call that is not waiting; -1 for calls that never waited."""

    @property
    def num_points(self) -> int:
        """Points of time."""
        return len(self.time)

    def edges_of(self, kind: EdgeKind) -> Int64s:
        """Edges of a kind, by number."""
        return np.flatnonzero(self.kind == int(kind))


def build_graph(capture: Capture, shift_ns: Int64s | None = None) -> Graph:
    """The graph of all device work and the host calls around it, of a linked capture.

    `shift_ns` is what the clock of each row of `source` shows too much against the others'.
    """
    measured = measure(capture, shift_ns)
    work, calls = measured.work, measured.calls
    number = Numbering(len(calls), len(work))
    edges = EdgeList()
    own_ns = add_host_edges(capture, measured, number, edges)
    add_device_edges(capture, measured, number, edges)
    collectives = collectives_of(capture, measured)
    add_rank_edges(measured, collectives, number, edges)
    time = np.empty(2 * (len(calls) + len(work)) + len(collectives), np.int64)
    time[0 : 2 * len(calls) : 2], time[1 : 2 * len(calls) : 2] = calls.start, calls.end
    low, high = 2 * len(calls), 2 * (len(calls) + len(work))
    time[low:high:2], time[low + 1 : high : 2] = work.start, work.end
    time[high:] = collectives.release
    by_time = np.argsort(time, kind="stable")
    place = np.empty(len(time), np.int32)
    place[by_time] = np.arange(len(time), dtype=np.int32)
    time = time[by_time]

    begin, until, weight, kind = edges.columns()
    if len(collectives):
        # The end of a part follows from the release, not from its own start.
        own = np.zeros(len(time), np.bool_)
        own[number.work_end(collectives.work)] = True
        kept = ~((kind == EdgeKind.WORK) & own[until])
        begin, until, weight, kind = begin[kept], until[kept], weight[kept], kind[kept]
    target = place[until]
    first = np.zeros(len(time) + 1, np.int64)
    position = np.empty(len(target), np.int64)
    fill_by_target(len(target))(target, first, position)
    source = _at(position, place[begin])
    target, weight, kind = _at(position, target), _at(position, weight), _at(position, kind)
    base, delay = np.zeros(len(time), np.int64), np.zeros(len(time), np.int64)
    settle = settle_delays(len(time))
    settle(first, source, weight, time, base, delay)
    order = np.empty(len(time), np.int32)
    if order_points(len(time))(
        first, source, weight, order,
        np.zeros(len(time), np.int8), np.empty(2 * len(time) + 2, np.int64),
    ):  # fmt: skip
        settle(first, source, weight, time, base, delay)
    at_call, at_work = np.arange(len(calls)), np.arange(len(work))
    return Graph(
        measured, collectives, time, first, source, target, weight, kind, base, delay, order,
        int((weight <= CUT_NS).sum()),
        place[number.call_start(at_call)], place[number.call_end(at_call)],
        place[number.work_start(at_work)], place[number.work_end(at_work)],
        own_ns,
    )  # fmt: skip


def _at(position: Int64s, values: NDArray[Integer]) -> NDArray[Integer]:
    """The values moved to these positions."""
    moved = np.empty_like(values)
    moved[position] = values
    return moved
