"""The weights of a graph under a what-if."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s, union
from tokenpath.replay.change import HostChange, KernelChange, WhatIf
from tokenpath.replay.edges import EdgeKind
from tokenpath.replay.loops import CUT_NS
from tokenpath.replay.places import Places, Weights
from tokenpath.replay.scale import level_ranks, scale_work

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


def changed_weights(places: Places, what_if: WhatIf) -> Weights:
    """The weights of a graph with a change applied."""
    graph = places.graph
    changed = Weights(
        graph.weight.copy(),
        graph.delay.copy(),
        np.zeros(len(graph.measured.work), np.bool_),
        graph.base.copy(),
    )
    level_ranks(places, what_if, changed)
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
        # What nothing holds moves by the time that its thread saves since the first moment of all.
        free = np.flatnonzero((places.thread_of_point == number) & (changed.base > 0))
        earlier = np.interp(graph.time[free], at, gone) - np.interp(0.0, at, gone)
        changed.base[free] = np.maximum(changed.base[free] - np.rint(earlier).astype(np.int64), 0)


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
