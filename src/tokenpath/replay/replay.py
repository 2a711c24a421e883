"""A measured run that can be timed again under what-ifs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import Int64s
from tokenpath.core.units import INT64_MAX
from tokenpath.replay.change import WhatIf
from tokenpath.replay.graph import Graph, build_graph
from tokenpath.replay.loops import retime
from tokenpath.replay.places import Places, Weights
from tokenpath.replay.weights import changed_weights

MIN_STEPS = 3
"""With fewer steps than this their variance says nothing."""
_STUDENT_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""Two-sided 95 % quantiles of Student's t for 1 to 10 degrees of freedom; beyond, 2.23 falls to 1.96."""


@dataclass(frozen=True)
class DeviceWindow:
    """The stretch of a device's time that counts as its wall."""

    device_id: int
    """Row of `device`."""
    start_ns: int
    """Start on the capture's clock."""
    end_ns: int
    """End."""
    step_starts_ns: Int64s
    """Starts of its steps within the window, in order; empty for none."""


@dataclass(frozen=True)
class Retimed:
    """A run under a what-if."""

    label: str
    """What was changed."""
    measured_ns: Sequence[int]
    """Measured wall of each device's window."""
    wall_ns: Sequence[int]
    """Its wall under the what-if."""
    step_gain_ns: Sequence[Int64s]
    """For each device how much shorter each step is; empty without steps."""

    @property
    def gain_ns(self) -> int:
        """How much shorter the walls are, summed over devices; negative when they are longer."""
        return sum(self.measured_ns) - sum(self.wall_ns)

    @property
    def interval_ns(self) -> tuple[int, int] | None:
        """The gain with what it varies from step to step, 95 %; None with fewer than MIN_STEPS steps.

        Steps are taken as alike and independent: half-width t * s * sqrt(n), devices added up (they are
        anything but independent).
        """
        half = 0.0
        for gains in self.step_gain_ns:
            if len(gains) < MIN_STEPS:
                return None
            half += _student(len(gains) - 1) * float(gains.std(ddof=1)) * len(gains) ** 0.5
        if not self.step_gain_ns:
            return None
        return round(self.gain_ns - half), round(self.gain_ns + half)


def _student(degrees: int) -> float:
    if degrees <= len(_STUDENT_95):
        return _STUDENT_95[degrees - 1]
    return 1.96 + 2.7 / degrees


class Replay:
    """The graph of a capture and the windows in which time counts; the graph is built on first use."""

    def __init__(
        self,
        capture: Capture,
        windows: Sequence[DeviceWindow],
        shift_ns: Callable[[], Int64s] | None = None,
    ) -> None:
        """`shift_ns` tells, when the graph is built, what the clock of each row of `source` shows too much."""
        self._capture = capture
        self._shift_ns = shift_ns
        self.windows = windows

    @cached_property
    def graph(self) -> Graph:
        """The dependency graph."""
        return build_graph(self._capture, None if self._shift_ns is None else self._shift_ns())

    @cached_property
    def places(self) -> Places:
        """Where rows of the capture stand in it."""
        return Places(self.graph)

    def times(self, changed: Weights | None = None) -> Int64s:
        """The time of every point, as measured or with these weights."""
        graph = self.graph
        weight, delay, base = graph.weight, graph.delay, graph.base
        if changed is not None:
            weight, delay, base = changed.weight, changed.delay, changed.base
        time = np.empty_like(graph.time)
        retime(graph.num_points)(graph.order, graph.first, graph.source, weight, base, delay, time)
        return time

    def is_exact(self) -> bool:
        """Self-check: timed again without any change, every point is where it was measured."""
        return bool((self.times() == self.graph.time).all())

    def what_if(self, what_if: WhatIf) -> Retimed:
        """Time the run again under a change."""
        changed = changed_weights(self.places, what_if)
        return self.retimed(what_if.label, self.times(changed), changed.is_gone)

    def retimed(self, label: str, time: Int64s, is_gone: NDArray[np.bool_]) -> Retimed:
        """What new times of all points mean for walls and steps."""
        measured, walls, gains = [], [], []
        for device in self.in_windows:
            wall, steps = device.measure(time, is_gone)
            measured.append(device.window.end_ns - device.window.start_ns)
            walls.append(wall)
            gains.append(steps)
        return Retimed(label, measured, walls, gains)

    @cached_property
    def in_windows(self) -> Sequence[InWindow]:
        """The work of each window."""
        graph = self.graph
        found = []
        for window in self.windows:
            work = graph.measured.work
            here = np.flatnonzero(work.device == window.device_id)
            origin = graph.measured.origin_ns
            if len(here):
                origin += int(graph.measured.shift_ns[work.source[here[0]]])
            low, high = window.start_ns - origin, window.end_ns - origin
            start, end = work.start[here], work.end[here]
            inside = here[(start < high) & ((end > low) | (start >= low))]
            starts = window.step_starts_ns - origin
            step = np.searchsorted(starts, work.start[inside], side="right") - 1
            found.append(InWindow(graph, window, inside, step, len(starts)))
        return found


class InWindow:
    """The work of one device within its window."""

    def __init__(
        self, graph: Graph, window: DeviceWindow, work: Int64s, step: Int64s, num_steps: int
    ) -> None:
        """`step` is the step in which each piece of work starts, -1 before the first."""
        self.window = window
        self.work = work
        self._step = step
        self._num_steps = num_steps
        self._starts, self._ends = graph.work_start[work], graph.work_end[work]
        self._nothing_gone = np.zeros(len(graph.measured.work), np.bool_)
        self._measured = self._moments(graph.time, self._nothing_gone)

    def _moments(
        self, time: Int64s, is_gone: NDArray[np.bool_]
    ) -> tuple[int, int, NDArray[np.int64]]:
        """First start, last end, and the first start of each step; INT64_MAX for a step without work."""
        starts, ends = time[self._starts], time[self._ends]
        there = ~is_gone[self.work]
        steps = np.full(self._num_steps, INT64_MAX, np.int64)
        in_step = there & (self._step >= 0)
        np.minimum.at(steps, self._step[in_step], starts[in_step])
        if not there.any():
            at = int(starts.min()) if len(starts) else 0
            return at, at, steps
        return int(starts[there].min()), int(ends[there].max()), steps

    def measure(self, time: Int64s, is_gone: NDArray[np.bool_]) -> tuple[int, Int64s]:
        """The wall of the window, and how much shorter each of its steps is, under these times."""
        start, end, steps = self._moments(time, is_gone)
        was_start, was_end, were = self._measured
        # What the window holds beyond its first and last work stays as it was.
        wall = (
            (self.window.end_ns - self.window.start_ns)
            - (was_end - was_start)
            + max(end - start, 0)
        )
        known = np.flatnonzero((were != INT64_MAX) & (steps != INT64_MAX))
        now = np.append(steps[known], end)
        then = np.append(were[known], was_end)
        gains: Int64s = np.diff(then) - np.diff(now)
        return wall, gains if len(known) else gains[:0]

    def bounds(self, time: Int64s, is_gone: NDArray[np.bool_]) -> tuple[int, int]:
        """The time of its first start, and the point at which its last work ends."""
        there = np.flatnonzero(~is_gone[self.work])
        ends = self._ends[there]
        return int(time[self._starts[there]].min()), int(ends[np.argmax(time[ends])])
