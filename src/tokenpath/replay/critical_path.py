"""The chain of waits that makes a window as long as it is, and what that chain consists of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import Int64s
from tokenpath.replay.edges import EdgeKind
from tokenpath.replay.loops import walk_back
from tokenpath.replay.places import Weights
from tokenpath.replay.replay import InWindow, Replay

Int32s = NDArray[np.int32]

HOST, LAUNCH, HANDOVER, WAIT, UNEXPLAINED, BEFORE, EDGE = (
    "host",
    "launch",
    "hand-over",
    "return of a wait",
    "unexplained delay",
    "before the recording",
    "edge of the window",
)
"""Parts of a path that are no device work: time on host threads; from a launch call to an idle device; between
one piece of work and the next; from the end of work back to the host that waited for it; what was measured
beyond all of these; what another thread or rank did before its recording began; the window beyond its first
and last work."""

_PART_OF_KIND = {
    EdgeKind.HOST: HOST,
    EdgeKind.THREAD: HOST,
    EdgeKind.RETURN: WAIT,
    EdgeKind.QUEUE: WAIT,
    EdgeKind.LAUNCH: LAUNCH,
    EdgeKind.STREAM: HANDOVER,
    EdgeKind.GRAPH: HANDOVER,
    EdgeKind.EVENT: HANDOVER,
    EdgeKind.INFERRED: HANDOVER,
    EdgeKind.PAST_COMMUNICATION: HANDOVER,
    EdgeKind.ARRIVE: "communication",
    EdgeKind.TRANSFER: "communication",
}

_OWN_TIME = (EdgeKind.WORK, EdgeKind.OVERLAP, EdgeKind.CROWDED)
"""Edges that are the time of the work that they come from."""


@dataclass(frozen=True)
class CriticalPath:
    """The path through one device's window; its parts add up to the wall."""

    device_id: int
    """Row of `device`."""
    wall_ns: int
    """Length of the window, and of the path."""
    parts_ns: Mapping[str, int]
    """Time by part: families of kernels, `memcpy`, `memset`, and the names above; largest first."""
    kernels: Int32s
    """Rows of `kernel` on the path, in order of time."""
    kernel_ns: Int64s
    """How much of the path each of them is."""
    calls: Int32s
    """Rows of `api_call` on the path, in order of time."""
    num_sources: int
    """Ranks that the path runs through."""

    @property
    def unexplained_share(self) -> float:
        """Share of the wall that no dependency explains and that a replay therefore holds fixed, 0 to 1."""
        return self.parts_ns.get(UNEXPLAINED, 0) / self.wall_ns if self.wall_ns else 0.0


def critical_path(
    capture: Capture, replay: Replay, device: InWindow, changed: Weights | None = None
) -> CriticalPath:
    """The critical path of one device's window, as measured or under changed weights."""
    graph = replay.graph
    time = graph.time if changed is None else replay.times(changed)
    weight = graph.weight if changed is None else changed.weight
    delay = graph.delay if changed is None else changed.delay
    is_gone = np.zeros(len(graph.measured.work), np.bool_) if changed is None else changed.is_gone
    wall, _ = device.measure(time, is_gone)
    if not (~is_gone[device.work]).any():
        none = np.empty(0, np.int32)
        parts = {EDGE: wall} if wall else {}
        return CriticalPath(
            device.window.device_id, wall, parts, none, none.astype(np.int64), none, 0
        )
    begin, last = device.bounds(time, is_gone)
    points = np.empty(graph.num_points, np.int32)
    edges = np.empty(graph.num_points, np.int64)
    count = walk_back(graph.num_points)(
        last, begin, graph.first, graph.source, weight, time, points, edges
    )
    points, edges = points[:count][::-1], edges[:count][::-1]
    until = np.maximum(time[points], begin)
    since = np.append(begin, until[:-1])
    length = np.maximum(until - since, 0)
    held = np.minimum(delay[points], length)
    before = np.where(edges < 0, length, 0)
    held = np.where(edges < 0, 0, held)
    parts = _parts(capture, replay, points, edges, length - held)
    parts[UNEXPLAINED], parts[BEFORE] = int(held.sum()), int(before.sum())
    parts[EDGE] = wall - int(length.sum())
    return CriticalPath(
        device.window.device_id,
        wall,
        dict(sorted(((k, v) for k, v in parts.items() if v), key=lambda item: -item[1])),
        *_rows(replay, points, edges, length - held),
    )


def _parts(
    capture: Capture, replay: Replay, points: Int32s, edges: Int64s, length: Int64s
) -> dict[str, int]:
    graph = replay.graph
    known = edges >= 0
    kinds = graph.kind[edges[known]]
    length, points, edges = length[known], points[known], edges[known]
    parts: dict[str, int] = {}
    by_kind = np.bincount(kinds, weights=length, minlength=len(EdgeKind))
    for kind, name in _PART_OF_KIND.items():
        parts[name] = parts.get(name, 0) + int(by_kind[kind])
    of_work = np.isin(kinds, _OWN_TIME)
    rows = _row_of_edge(replay, edges[of_work])
    kind_codes, kind_names = capture.codes("kernel", "kind")
    family_codes, families = capture.codes("kernel", "family")
    names = [*families, *kind_names]
    is_copy = np.isin(
        kind_codes[rows],
        [at for at, name in enumerate(kind_names) if name in ("memcpy", "memset", "communication")],
    )
    code = np.where(is_copy, kind_codes[rows] + len(families), family_codes[rows])
    for at, total in enumerate(np.bincount(code, weights=length[of_work])):
        if total:
            parts[names[at]] = parts.get(names[at], 0) + int(total)
    return parts


def _row_of_edge(replay: Replay, edges: Int64s) -> Int32s:
    """The row of `kernel` whose time an edge from its start is."""
    graph = replay.graph
    return graph.measured.work.row[replay.places.work_of_point[graph.source[edges]]]


def _rows(
    replay: Replay, points: Int32s, edges: Int64s, length: Int64s
) -> tuple[Int32s, Int64s, Int32s, int]:
    graph, places = replay.graph, replay.places
    kind = np.where(edges >= 0, graph.kind[np.maximum(edges, 0)], -1)
    work = np.isin(kind, (*_OWN_TIME, EdgeKind.TRANSFER))
    position = np.where(
        kind[work] == EdgeKind.TRANSFER,
        places.work_of_point[points[work]],
        places.work_of_point[graph.source[edges[work]]],
    )
    rows = graph.measured.work.row[position]
    call_of_point = np.full(graph.num_points, -1, np.int32)
    call_of_point[graph.call_start] = graph.measured.calls.row
    calls = call_of_point[points]
    return (
        rows,
        length[work],
        calls[calls >= 0],
        len(np.unique(graph.measured.work.source[position])),
    )
