"""The weights of a graph under a what-if."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s, union
from tokenpath.replay.change import HostChange, KernelChange, Rows, WhatIf
from tokenpath.replay.edges import EdgeKind
from tokenpath.replay.graph import Graph
from tokenpath.replay.loops import CUT_NS

Bools = NDArray[np.bool_]
Float64s = NDArray[np.float64]
Int32s = NDArray[np.int32]

_INTO_WORK = (
    EdgeKind.LAUNCH,
    EdgeKind.STREAM,
    EdgeKind.GRAPH,
    EdgeKind.EVENT,
    EdgeKind.INFERRED,
    EdgeKind.OVERLAP,
    EdgeKind.CROWDED,
)


@dataclass(frozen=True)
class Weights:
    """What `retime` is to use instead of the measured weights."""

    weight: Int64s
    """Weight of each edge."""
    delay: Int64s
    """Delay of each point."""
    is_gone: Bools
    """Which pieces of work are no longer there."""


class Places:
    """Where rows of a capture stand in a graph; made once, used by every what-if."""

    def __init__(self, graph: Graph) -> None:
        """Look up all points and edges once."""
        self.graph = graph
        work, calls = graph.measured.work, graph.measured.calls
        self.work_of_row = _inverse(work.row)
        self.call_of_row = _inverse(calls.row)
        self.work_of_point = np.full(graph.num_points, -1, np.int32)
        self.work_of_point[graph.work_start] = np.arange(len(work))
        self.work_of_point[graph.work_end] = np.arange(len(work))
        self.is_start = np.zeros(graph.num_points, np.bool_)
        self.is_start[graph.work_start] = True
        self.edges = {kind: graph.edges_of(kind) for kind in EdgeKind}
        self.thread_of_point = np.full(graph.num_points, -1, np.int32)
        self.thread_of_point[graph.call_start] = calls.thread
        self.thread_of_point[graph.call_end] = calls.thread

    def work(self, rows: Rows) -> Int64s:
        """Positions in Work of rows of `kernel`."""
        return _places(self.work_of_row, rows)

    def calls(self, rows: Rows) -> Int64s:
        """Positions in Calls of rows of `api_call`; those that neither launch nor wait have none."""
        return _places(self.call_of_row, rows)


def _inverse(row: Int32s) -> Int32s:
    result = np.full(int(row.max()) + 1 if len(row) else 0, -1, np.int32)
    result[row] = np.arange(len(row))
    return result


def _places(place_of_row: Int32s, rows: Rows) -> Int64s:
    known = rows[(rows >= 0) & (rows < len(place_of_row))]
    found = place_of_row[known].astype(np.int64)
    return found[found >= 0]


def changed_weights(places: Places, what_if: WhatIf) -> Weights:
    """The weights of a graph with a change applied."""
    graph = places.graph
    changed = Weights(
        graph.weight.copy(), graph.delay.copy(), np.zeros(len(graph.measured.work), np.bool_)
    )
    if what_if.is_balanced:
        balance(places, changed)
    if what_if.kernels:
        _scale_kernels(places, what_if.kernels, changed)
    for change in what_if.host:
        _shrink_host(places, change, changed)
    for rows in what_if.not_waiting:
        _stop_waiting(places, places.calls(rows), changed)
    for rows in what_if.hidden:
        _hide(places, places.work(rows), changed)
    for rows in what_if.prompt:
        start_promptly(places, places.work(rows), changed)
    return changed


def _scale_kernels(places: Places, changes: Sequence[KernelChange], changed: Weights) -> None:
    factor = np.ones(len(changed.is_gone))
    for change in changes:
        known = np.flatnonzero((change.rows >= 0) & (change.rows < len(places.work_of_row)))
        at = places.work_of_row[change.rows[known]]
        if isinstance(change.factor, np.ndarray):
            factor[at] *= change.factor[known]
        else:
            factor[at] *= change.factor
        if change.with_launch:
            _without_launches(places, at.astype(np.int64), changed)
    scale_work(places, factor, changed)
    gone = np.flatnonzero(factor == 0.0)
    changed.is_gone[gone] = True
    start_promptly(places, gone, changed)


def scale_work(places: Places, factor: Float64s, changed: Weights) -> None:
    """Multiply the time of each piece of work by its factor."""
    graph = places.graph
    for kind in (EdgeKind.WORK, EdgeKind.TRANSFER):
        edges = places.edges[kind]
        of_edge = factor[places.work_of_point[graph.target[edges]]]
        changed.weight[edges] = np.rint(changed.weight[edges] * of_edge)
    ends = graph.work_end
    if changed.delay[ends].any():
        changed.delay[ends] = np.rint(changed.delay[ends] * factor)
    for kind in (EdgeKind.OVERLAP, EdgeKind.CROWDED):
        edges = places.edges[kind]
        work, before = graph.measured.work, places.work_of_point[graph.source[edges]]
        length = (work.end - work.start)[before]
        later = changed.weight[edges] + np.rint(length * (factor[before] - 1)).astype(np.int64)
        changed.weight[edges] = np.maximum(later, 0)


def _without_launches(places: Places, gone: Int64s, changed: Weights) -> None:
    """Take away the host time of launching these, where a call launched nothing else."""
    graph = places.graph
    work = graph.measured.work
    is_gone = np.zeros(len(work), np.bool_)
    is_gone[gone] = True
    num_calls = len(graph.call_start)
    of_call = work.call[work.call >= 0]
    total = np.bincount(of_call, minlength=num_calls)
    going = np.bincount(work.call[is_gone & (work.call >= 0)], minlength=num_calls)
    calls = (going > 0) & (going == total)
    into = places.edges[EdgeKind.HOST]
    target = graph.target[into]
    is_start, is_end = np.zeros(graph.num_points, np.bool_), np.zeros(graph.num_points, np.bool_)
    is_start[graph.call_start[calls]] = True
    is_end[graph.call_end[calls]] = True
    changed.weight[into[is_end[target]]] = 0
    # Before the call, as long as it takes as a rule from launch to launch: a long stretch held something else.
    launches = np.zeros(graph.num_points, np.bool_)
    launches[graph.call_start[total > 0]] = True
    usual = graph.weight[into[launches[target]]]
    most = int(np.median(usual)) if len(usual) else 0
    before = into[is_start[target]]
    changed.weight[before] = np.maximum(changed.weight[before] - most, 0)


def _shrink_host(places: Places, change: HostChange, changed: Weights) -> None:
    graph = places.graph
    origin = graph.measured.origin_ns
    edges = np.concatenate((places.edges[EdgeKind.HOST], places.edges[EdgeKind.THREAD]))
    thread = places.thread_of_point[graph.target[edges]]
    for number in np.unique(change.thread).tolist():
        rows = np.flatnonzero(change.thread == number)
        mine = edges[thread == number]
        if len(mine) == 0:
            continue
        shift = origin + _shift_of_thread(places, number)
        start, end = change.start_ns[rows] - shift, change.end_ns[rows] - shift
        factor = change.factor[rows] if isinstance(change.factor, np.ndarray) else change.factor
        at, gone = _taken(start, end, factor)
        begin, until = graph.time[graph.source[mine]], graph.time[graph.target[mine]]
        loss = np.interp(until, at, gone) - np.interp(begin, at, gone)
        # A call that waits keeps what of it is not host time.
        scale = np.minimum(1.0, graph.weight[mine] / np.maximum(until - begin, 1))
        loss = np.rint(loss * scale).astype(np.int64)
        changed.weight[mine] = np.maximum(changed.weight[mine] - loss, 0)


def _shift_of_thread(places: Places, thread: int) -> int:
    calls = places.graph.measured.calls
    source = calls.source[np.flatnonzero(calls.thread == thread)[0]]
    return int(places.graph.measured.shift_ns[source])


def _taken(start: Int64s, end: Int64s, factor: Float64s | float) -> tuple[Float64s, Float64s]:
    """Host time taken away up to a time, as a line with corners; stretches of one factor are merged."""
    if not isinstance(factor, np.ndarray):
        merged = union(start, end)
        start, end = merged.start, merged.end
        loss = (end - start) * (1.0 - factor)
    else:
        order = np.argsort(start, kind="stable")
        start, end, factor = start[order], end[order], factor[order]
        start = np.maximum(start, np.concatenate((start[:1], np.maximum.accumulate(end)[:-1])))
        end = np.maximum(start, end)
        loss = (end - start) * (1.0 - factor)
    total = np.cumsum(loss)
    at = np.column_stack((start, end)).ravel().astype(np.float64)
    gone = np.column_stack((total - loss, total)).ravel()
    return (at, gone) if len(at) else (np.zeros(1), np.zeros(1))


def _stop_waiting(places: Places, calls: Int64s, changed: Weights) -> None:
    graph = places.graph
    ends = np.zeros(graph.num_points, np.bool_)
    ends[graph.call_end[calls]] = True
    edges = places.edges[EdgeKind.RETURN]
    mine = edges[ends[graph.target[edges]]]
    changed.weight[mine] = CUT_NS
    changed.delay[graph.target[mine]] = 0


def _hide(places: Places, hidden: Int64s, changed: Weights) -> None:
    graph = places.graph
    is_hidden = np.zeros(len(changed.is_gone), np.bool_)
    is_hidden[hidden] = True
    for kind in _INTO_WORK[1:]:
        edges = places.edges[kind]
        source, target = (
            places.work_of_point[points[edges]] for points in (graph.source, graph.target)
        )
        changed.weight[edges[is_hidden[source] & ~is_hidden[target]]] = CUT_NS


def start_promptly(places: Places, work: Int64s, changed: Weights) -> None:
    """No launch latency, hand-over or delay before these."""
    if len(work) == 0:
        return
    graph = places.graph
    starts = np.zeros(graph.num_points, np.bool_)
    starts[graph.work_start[work]] = True
    for kind in _INTO_WORK[:-2]:
        edges = places.edges[kind]
        mine = edges[starts[graph.target[edges]]]
        changed.weight[mine] = np.minimum(changed.weight[mine], 0)
    changed.delay[graph.work_start[work]] = 0


def balance(places: Places, changed: Weights) -> None:
    """Let no rank take longer than the mean of all ranks for what lies between two collectives."""
    graph = places.graph
    found, work, calls = graph.collectives, graph.measured.work, graph.measured.calls
    if len(found) == 0:
        return
    # In the order of their release, so that the stretch before a collective has one number on all ranks.
    order = np.argsort(found.release, kind="stable")
    rank_of = np.empty(len(order), np.int64)
    rank_of[order] = np.arange(len(order))
    which = rank_of[found.which]
    sources = np.unique(work.source[found.work])
    length = np.full((len(sources), len(order)), np.nan)
    begins: list[Int64s] = []
    numbers: list[Int64s] = []
    for at, source in enumerate(sources.tolist()):
        mine = np.flatnonzero(work.source[found.work] == source)
        mine = mine[np.argsort(work.start[found.work[mine]], kind="stable")]
        start, end = work.start[found.work[mine]], work.end[found.work[mine]]
        length[at, which[mine[1:]]] = start[1:] - end[:-1]
        begins.append(end)
        numbers.append(which[mine])
    known = (~np.isnan(length)).sum(axis=0)
    total = np.nansum(length, axis=0)
    mean = np.where(known == len(sources), total / np.maximum(known, 1), np.nan)
    # Ranks that are faster than the mean arrive early and wait; to slow them down changes nothing.
    factor = np.minimum(mean / np.maximum(length, 1.0), 1.0)
    factor = np.where(np.isnan(factor), 1.0, factor)
    of_work = np.ones(len(work))
    is_part = np.zeros(len(work), np.bool_)
    is_part[found.work] = True
    hosts = places.edges[EdgeKind.HOST]
    source_of_point = np.full(graph.num_points, -1, np.int64)
    source_of_point[graph.call_start] = calls.source
    source_of_point[graph.call_end] = calls.source
    scale = np.ones(len(hosts))
    for at, source in enumerate(sources.tolist()):
        # Stretch i lies between the i-th collective of the rank and the next one.
        own = np.append(factor[at, numbers[at][1:]], 1.0)
        chosen = np.flatnonzero((work.source == source) & ~is_part)
        stretch = np.searchsorted(begins[at], work.start[chosen], side="right") - 1
        of_work[chosen] = np.where(stretch >= 0, own[np.maximum(stretch, 0)], 1.0)
        chosen = np.flatnonzero(source_of_point[graph.target[hosts]] == source)
        stretch = (
            np.searchsorted(begins[at], graph.time[graph.target[hosts[chosen]]], side="right") - 1
        )
        scale[chosen] = np.where(stretch >= 0, own[np.maximum(stretch, 0)], 1.0)
    scale_work(places, of_work, changed)
    changed.weight[hosts] = np.rint(changed.weight[hosts] * scale)
