"""The loops over points and edges, compiled where there are many."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.compiled import compiled
from tokenpath.capture.intervals import Int64s

Int32s = NDArray[np.int32]
Int8s = NDArray[np.int8]

CUT_NS = -(2**61)
"""Weight of an edge that does not count: no time that a capture may hold outweighs it."""
PDL_NS = 5_000
"""Kernels of one stream may overlap this long by programmatic dependent launch; measured overlaps are below
1 us. Longer ones are work that runs side by side under one stream number."""


@compiled
def fill_by_target(target: Int32s, first: Int64s, position: Int64s) -> None:
    """Where each edge goes when edges stand by target; `first` has one entry more than there are points."""
    for e in range(len(target)):
        first[target[e] + 1] += 1
    for v in range(len(first) - 1):
        first[v + 1] += first[v]
    for e in range(len(target)):
        position[e] = first[target[e]]
        first[target[e]] += 1
    for v in range(len(first) - 1, 0, -1):
        first[v] = first[v - 1]
    first[0] = 0


@compiled
def order_points(
    first: Int64s, source: Int32s, weight: Int64s, order: Int32s, state: Int8s, stack: Int64s
) -> int:
    """A topological order close to the order of the points; edges that close a circle are cut.

    Returns how many were cut. `stack` holds a point and the edge it stands at, for each level.
    """
    count = 0
    num_cut = 0
    for root in range(len(state)):
        if state[root] != 0:
            continue
        depth = 1
        stack[0] = root
        stack[1] = first[root]
        state[root] = 1
        while depth > 0:
            v = stack[2 * depth - 2]
            e = stack[2 * depth - 1]
            if e == first[v + 1]:
                state[v] = 2
                order[count] = v
                count += 1
                depth -= 1
                continue
            stack[2 * depth - 1] = e + 1
            u = source[e]
            if weight[e] <= -(2**60):
                continue
            if state[u] == 0:
                state[u] = 1
                stack[2 * depth] = u
                stack[2 * depth + 1] = first[u]
                depth += 1
            elif state[u] == 1:
                weight[e] = -(2**61)
                num_cut += 1
    return num_cut


@compiled
def settle_delays(
    first: Int64s, source: Int32s, weight: Int64s, time: Int64s, base: Int64s, delay: Int64s
) -> int:
    """Shorten edges to what was measured, cut those that run backwards, and keep the rest as delay.

    `base` becomes the measured time of points without a predecessor, and 0 for all others. Returns how many
    edges were cut.
    """
    num_cut = 0
    for v in range(len(time)):
        bound = -(2**61)
        for e in range(first[v], first[v + 1]):
            slack = time[v] - time[source[e]]
            if weight[e] <= -(2**60):
                continue
            if weight[e] > slack:
                if slack < 0:
                    weight[e] = -(2**61)
                    num_cut += 1
                    continue
                weight[e] = slack
            if time[source[e]] + weight[e] > bound:
                bound = time[source[e]] + weight[e]
        if bound < 0:
            base[v] = time[v]
            delay[v] = 0
        else:
            base[v] = 0
            delay[v] = time[v] - bound
    return num_cut


@compiled
def retime(
    order: Int32s,
    first: Int64s,
    source: Int32s,
    weight: Int64s,
    base: Int64s,
    delay: Int64s,
    time: Int64s,
) -> None:
    """The time of every point: the latest of what it waits for, and its delay."""
    for i in range(len(order)):
        v = order[i]
        bound = base[v]
        for e in range(first[v], first[v + 1]):
            at = time[source[e]] + weight[e]
            bound = max(at, bound)
        time[v] = bound + delay[v]


@compiled
def walk_back(
    at: int,
    until_ns: int,
    first: Int64s,
    source: Int32s,
    weight: Int64s,
    time: Int64s,
    points: Int32s,
    edges: Int64s,
) -> int:
    """The critical path to a point, latest first, back to a time; how many points it has.

    `edges[i]` is the edge that leads to `points[i]`, -1 for a point that nothing binds.
    """
    count = 0
    v = at
    while True:
        best = -1
        bound = -(2**60)
        for e in range(first[v], first[v + 1]):
            if time[source[e]] + weight[e] > bound:
                bound = time[source[e]] + weight[e]
                best = e
        points[count] = v
        edges[count] = best
        count += 1
        if best < 0 or time[v] <= until_ns:
            return count
        v = source[best]


@compiled
def before_on_stream(
    stream: Int64s, start: Int64s, end: Int64s, recent: Int64s, result: Int32s
) -> None:
    """For work sorted by (stream, start), the work before each on its stream: the last that had ended.

    `recent` is working memory; of work that runs side by side as many as it holds are looked at.
    """
    size = len(recent)
    count = 0
    for i in range(len(start)):
        if i == 0 or stream[i] != stream[i - 1]:
            count = 0
        best = -1
        for k in range(min(count, size)):
            j = recent[(count - 1 - k) % size]
            over = end[j] - start[i]
            # An overlap counts as a hand-over only when most of the earlier work lies before.
            if (over <= 0 or (over <= 5_000 and 2 * over < end[j] - start[j])) and (
                best < 0 or end[j] > end[best]
            ):
                best = j
        result[i] = best
        recent[count % size] = i
        count += 1
