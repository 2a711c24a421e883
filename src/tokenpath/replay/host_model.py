"""How well a step is foretold when its host times and delays come from a model fitted on the other steps.

Exact re-timing only shows that the graph is consistent. Here the times that a replay holds fixed (host time
between two recorded moments, and delays that nothing explains) are taken from elsewhere: for each step the mean
of the same moments in all other steps. What is left of the error says how much of a step the graph understands.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import Int64s
from tokenpath.core.units import INT64_MAX
from tokenpath.replay.edges import EdgeKind
from tokenpath.replay.places import Weights
from tokenpath.replay.replay import DeviceWindow, Replay

Float64s = NDArray[np.float64]
Int32s = NDArray[np.int32]

MIN_STEPS = 3
"""A model fitted on fewer than two other steps is none."""


@dataclass(frozen=True)
class HeldOut:
    """Steps of one device, foretold from all others."""

    device_id: int
    """Row of `device`."""
    measured_ns: Int64s
    """Length of each step, from its first work to that of the next (the last one to its end)."""
    foretold_ns: Int64s
    """The same with its host times and delays from the model."""
    modelled_ns: Int64s
    """Host time and delay of each step that came from the model, on all threads."""
    unmatched_ns: Int64s
    """Host time and delay of each step that no other step has the like of, and that stayed as measured."""

    @property
    def errors(self) -> Float64s:
        """Relative error of each step, signed."""
        return (self.foretold_ns - self.measured_ns) / np.maximum(self.measured_ns, 1)

    @property
    def span_error(self) -> float:
        """Relative error of all steps together, signed."""
        total = int(self.measured_ns.sum())
        return (int(self.foretold_ns.sum()) - total) / total if total else 0.0


def held_out_steps(
    capture: Capture, replay: Replay, window: DeviceWindow, step_ends_ns: int | None = None
) -> HeldOut | None:
    """Foretell each step of a device's window; None for fewer than MIN_STEPS steps.

    `step_ends_ns` is when the last step ends on the capture's clock; the end of the window by default.
    """
    starts = window.step_starts_ns
    if len(starts) < MIN_STEPS:
        return None
    graph = replay.graph
    work = graph.measured.work
    origin = graph.measured.origin_ns
    here = np.flatnonzero(work.device == window.device_id)
    if len(here):
        origin += int(graph.measured.shift_ns[work.source[here[0]]])
    end = window.end_ns if step_ends_ns is None else step_ends_ns
    edges = np.append(starts, end) - origin
    step_of_point = _step_of_points(replay, here, edges)
    model = _Model(capture, replay, step_of_point, len(starts))
    firsts = _first_work(replay, here, edges)
    measured = _lengths(graph.time, firsts)
    foretold, modelled, unmatched = np.zeros((3, len(starts)), np.int64)
    for step in range(len(starts)):
        changed, modelled[step], unmatched[step] = model.without(step)
        foretold[step] = _lengths(replay.times(changed), firsts)[step]
    return HeldOut(window.device_id, measured, foretold, modelled, unmatched)


def _step_of_points(replay: Replay, here: Int64s, edges: Int64s) -> Int32s:
    """The step that each point belongs to, -1 for none: work by its start, calls by the work that follows."""
    graph = replay.graph
    work, calls = graph.measured.work, graph.measured.calls
    step = np.full(graph.num_points, -1, np.int32)
    inside = np.searchsorted(edges, work.start[here], side="right") - 1
    inside = np.where(inside >= len(edges) - 1, -1, inside)
    step[graph.work_start[here]] = inside
    step[graph.work_end[here]] = inside
    of_call = np.full(len(calls), -1, np.int32)
    launched = here[work.call[here] >= 0]
    launched = launched[::-1]
    of_call[work.call[launched]] = step[graph.work_start[launched]]
    # Calls that launch nothing belong to what their thread launches next.
    known = of_call >= 0
    place = np.where(known, np.arange(len(calls)), len(calls))
    following = np.minimum.accumulate(place[::-1])[::-1]
    found = following < len(calls)
    source = np.minimum(following, max(len(calls) - 1, 0))
    if len(calls):
        same = found & (calls.thread[source] == calls.thread)
        of_call = np.where(same, of_call[source], -1).astype(np.int32)
    step[graph.call_start] = of_call
    step[graph.call_end] = of_call
    return step


def _first_work(replay: Replay, here: Int64s, edges: Int64s) -> Int64s:
    """Points at which the first work of each step starts, and that at which the last work of all ends."""
    graph = replay.graph
    work = graph.measured.work
    place = np.searchsorted(work.start[here], edges[:-1], side="left")
    inside = here[(work.start[here] >= edges[0]) & (work.start[here] < edges[-1])]
    last = inside[np.argmax(work.end[inside])]
    return np.append(graph.work_start[here[place]], graph.work_end[last]).astype(np.int64)


def _lengths(time: Int64s, firsts: Int64s) -> Int64s:
    lengths: Int64s = np.diff(time[firsts])
    return lengths


class _Model:
    """Mean host times and delays by what they lie between, of all steps but one."""

    def __init__(
        self, capture: Capture, replay: Replay, step_of_point: Int32s, num_steps: int
    ) -> None:
        graph = replay.graph
        self._replay = replay
        host = np.concatenate(
            (replay.places.edges[EdgeKind.HOST], replay.places.edges[EdgeKind.THREAD])
        )
        self._edges = host[step_of_point[graph.target[host]] >= 0]
        self._edge_step = step_of_point[graph.target[self._edges]]
        label = _labels(capture, replay)
        between = _codes(label[graph.source[self._edges]], label[graph.target[self._edges]])
        self._edge_means = _LeaveOneOut(
            [
                between,
                label[graph.target[self._edges]],
            ],
            graph.weight[self._edges],
            self._edge_step,
            num_steps,
        )
        self._points = np.flatnonzero((step_of_point >= 0) & (np.diff(graph.first) > 0))
        self._point_step = step_of_point[self._points]
        self._point_means = _LeaveOneOut(
            [label[self._points]], graph.delay[self._points], self._point_step, num_steps
        )

    def without(self, step: int) -> tuple[Weights, int, int]:
        """Weights with that step's host times and delays from all others; modelled and unmatched time."""
        graph = self._replay.graph
        weight, delay = graph.weight.copy(), graph.delay.copy()
        chosen = np.flatnonzero(self._edge_step == step)
        value, known = self._edge_means.without(step, chosen)
        edges = self._edges[chosen]
        unmatched = int(graph.weight[edges[~known]].sum())
        modelled = int(graph.weight[edges[known]].sum())
        weight[edges[known]] = value[known]
        chosen = np.flatnonzero(self._point_step == step)
        value, known = self._point_means.without(step, chosen)
        points = self._points[chosen]
        unmatched += int(graph.delay[points[~known]].sum())
        modelled += int(graph.delay[points[known]].sum())
        delay[points[known]] = value[known]
        gone = np.zeros(len(graph.measured.work), np.bool_)
        return Weights(weight, delay, gone, graph.base), modelled, unmatched


class _LeaveOneOut:
    """Means by key over all steps but one; where a key is new, those of a coarser key."""

    def __init__(self, keys: list[Int64s], values: Int64s, step: Int32s, num_steps: int) -> None:
        self._codes: list[Int64s] = []
        self._sums: list[tuple[Float64s, Float64s]] = []
        for key in keys:
            _, code = np.unique(key, return_inverse=True)
            code = code.reshape(-1)
            size = int(code.max()) + 1 if len(code) else 0
            cell = code * num_steps + step
            total = np.bincount(cell, weights=values, minlength=size * num_steps).astype(np.float64)
            count = np.bincount(cell, minlength=size * num_steps).astype(np.float64)
            self._codes.append(code)
            self._sums.append((total.reshape(size, num_steps), count.reshape(size, num_steps)))

    def without(self, step: int, rows: Int64s) -> tuple[Int64s, NDArray[np.bool_]]:
        """Mean for each row over other steps, and whether there is one."""
        value = np.zeros(len(rows))
        known = np.zeros(len(rows), np.bool_)
        for code, (total, count) in zip(self._codes, self._sums, strict=True):
            others = count.sum(axis=1) - count[:, step]
            mean = (total.sum(axis=1) - total[:, step]) / np.maximum(others, 1)
            mine = code[rows]
            new = ~known & (others[mine] > 0)
            value[new] = mean[mine[new]]
            known |= new
        return np.rint(value).astype(np.int64), known


def _labels(capture: Capture, replay: Replay) -> Int64s:
    """What each point is: start or end, name of its call or work, and the operator around it."""
    graph = replay.graph
    work, calls = graph.measured.work, graph.measured.calls
    label = np.full(graph.num_points, INT64_MAX, np.int64)
    op_codes, _ = capture.codes("op", "name")
    for points, table, rows in (
        ((graph.call_start, graph.call_end), "api_call", calls.row),
        ((graph.work_start, graph.work_end), "kernel", work.row),
    ):
        if len(rows) == 0:
            continue
        names, _ = capture.codes(table, "name")
        op = capture.ids(table, "op_id")[rows]
        of_op = np.where(op >= 0, op_codes[np.maximum(op, 0)], -1) if len(op_codes) else op
        value = _codes(names[rows].astype(np.int64), of_op.astype(np.int64)) * 4
        kind = 2 if table == "kernel" else 0
        for is_end, at in enumerate(points):
            label[at] = value + kind + is_end
    return label


def _codes(left: Int64s, right: Int64s) -> Int64s:
    """One number for each pair."""
    _, first = np.unique(left, return_inverse=True)
    _, second = np.unique(right, return_inverse=True)
    width = int(second.max()) + 1 if len(second) else 1
    result: Int64s = first.reshape(-1).astype(np.int64) * width + second.reshape(-1)
    return result
