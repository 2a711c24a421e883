"""Device work and host time made longer or shorter, and ranks brought level with each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s
from tokenpath.replay.change import WhatIf
from tokenpath.replay.edges import EdgeKind
from tokenpath.replay.graph import Graph
from tokenpath.replay.places import Places, Weights

Float64s = NDArray[np.float64]


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


def level_ranks(places: Places, what_if: WhatIf, changed: Weights) -> None:
    """Let no rank take longer between two collectives than all ranks do in the mean, or the others as a rule.

    A rank is a device. Those that are faster arrive early and wait; to slow them down would change nothing.
    """
    graph = places.graph
    found, work = graph.collectives, graph.measured.work
    if len(found) == 0 or not (what_if.is_balanced or len(what_if.catching_up)):
        return
    # In the order of their release, so that the stretch before a collective has one number on all ranks.
    order = np.argsort(found.release, kind="stable")
    rank_of = np.empty(len(order), np.int64)
    rank_of[order] = np.arange(len(order))
    which = rank_of[found.which]
    devices = np.unique(work.device[found.work])
    length = np.full((len(devices), len(order)), np.nan)
    ends: list[Int64s] = []
    numbers: list[Int64s] = []
    for at, device in enumerate(devices.tolist()):
        mine = np.flatnonzero(work.device[found.work] == device)
        mine = mine[np.argsort(work.start[found.work[mine]], kind="stable")]
        start, end = work.start[found.work[mine]], work.end[found.work[mine]]
        length[at, which[mine[1:]]] = start[1:] - end[:-1]
        ends.append(end)
        numbers.append(which[mine])
    factor = _level(length, devices, what_if)
    of_work = np.ones(len(work))
    is_part = np.zeros(len(work), np.bool_)
    is_part[found.work] = True
    hosts = places.edges[EdgeKind.HOST]
    host_device = _device_of_points(graph)[graph.target[hosts]]
    scale = np.ones(len(hosts))
    for at, device in enumerate(devices.tolist()):
        # Stretch i lies between the i-th collective of the rank and the next one.
        own = np.append(factor[at, numbers[at][1:]], 1.0)
        chosen = np.flatnonzero((work.device == device) & ~is_part)
        of_work[chosen] = _of_stretch(ends[at], own, work.start[chosen])
        chosen = np.flatnonzero(host_device == device)
        scale[chosen] = _of_stretch(ends[at], own, graph.time[graph.target[hosts[chosen]]])
    scale_work(places, of_work, changed)
    changed.weight[hosts] = np.rint(changed.weight[hosts] * scale)


def _level(length: Float64s, devices: NDArray[np.int32], what_if: WhatIf) -> Float64s:
    """The factor on each rank's time before each collective; 1 where some rank's time is not known."""
    factor = np.ones(length.shape)
    whole = ~np.isnan(length).any(axis=0)
    times = np.maximum(length[:, whole], 1.0)
    if what_if.is_balanced:
        factor[:, whole] = np.minimum(times.mean(axis=0) / times, 1.0)
    late = np.isin(devices, what_if.catching_up)
    if late.any() and not late.all():
        usual = np.median(times[~late], axis=0)
        factor[np.ix_(late, whole)] = np.minimum(usual / times[late], 1.0)
    return factor


def _of_stretch(ends: Int64s, own: Float64s, at: Int64s) -> Float64s:
    stretch = np.searchsorted(ends, at, side="right") - 1
    result: Float64s = np.where(stretch >= 0, own[np.maximum(stretch, 0)], 1.0)
    return result


def _device_of_points(graph: Graph) -> Int64s:
    """The device that the thread of each call mostly launches on; -1 for none."""
    work, calls = graph.measured.work, graph.measured.calls
    result = np.full(graph.num_points, -1, np.int64)
    if len(calls) == 0 or not (work.call >= 0).any():
        return result
    known = work.call >= 0
    num_devices = int(work.device.max()) + 1
    cell = calls.thread[work.call[known]].astype(np.int64) * num_devices + work.device[known]
    size = (int(calls.thread.max()) + 1) * num_devices
    count = np.bincount(cell, minlength=size).reshape(-1, num_devices)
    of_thread = np.where(count.sum(axis=1) > 0, count.argmax(axis=1), -1)
    result[graph.call_start] = of_thread[calls.thread]
    result[graph.call_end] = of_thread[calls.thread]
    return result
