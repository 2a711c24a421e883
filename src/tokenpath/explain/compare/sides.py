"""Several runs of one side put together: steps as samples, parts as columns, work by role."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s
from tokenpath.explain.analysis import Analysis
from tokenpath.explain.compare.device import Detail, DeviceSide
from tokenpath.explain.compare.noise import MIN_SAMPLES

Float64s = NDArray[np.float64]


@dataclass(frozen=True)
class Pooled:
    """One side: the device steps of all its runs."""

    time_ns: dict[str, Int64s]
    """By part, one value a device and step."""
    phase: NDArray[np.object_]
    """Phase of each row."""
    group: Int64s
    """Equal for rows of one step on several devices, in order of time; of one run where there are many runs."""
    details: Sequence[Detail]
    """What the parts are made of, all runs together."""
    num_units: int
    """What means are taken over: device steps, or windows, or pieces of work."""
    has_steps: bool
    """Whether rows are steps."""
    is_cut: bool
    """Whether rows are samples: steps, or stretches from one run of a kernel to the next."""
    num_recordings: int
    """Windows: one a run and device."""

    @property
    def wall_ns(self) -> int:
        """All windows of all devices and runs."""
        return int(sum(int(column.sum()) for column in self.time_ns.values()))

    def column(self, parts: Sequence[str], phase: str | None) -> Int64s:
        """Time of some parts in each row, 0 in rows of other phases."""
        total = np.zeros(len(self.phase), np.int64)
        for part in parts:
            if part in self.time_ns:
                total += self.time_ns[part]
        return total if phase is None else np.where(self.phase == phase, total, 0)

    def samples(self, values: Int64s) -> Float64s:
        """Per unit: means over the devices of each step (over each run, where there are many), in order of time."""
        if not self.is_cut:
            return np.zeros(0)
        _, which = np.unique(self.group, return_inverse=True)
        means: Float64s = np.bincount(which, values) / np.bincount(which)
        # The first and the last stretch reach to the edges of the recording.
        inner = means if self.has_steps or len(means) < MIN_SAMPLES + 2 else means[1:-1]
        return inner * (len(self.phase) / self.num_units)

    def counts(self) -> dict[tuple[str, str], int]:
        """Pieces of work by part and kernel name."""
        found: dict[tuple[str, str], int] = defaultdict(int)
        for detail in self.details:
            if not detail.part.startswith("idle/"):
                found[detail.part, detail.name] += detail.count
        return found


def pool(runs: Sequence[DeviceSide]) -> Pooled:
    """The runs of one side together."""
    parts = sorted({part for run in runs for part in run.parts})
    num = [len(run.phase) for run in runs]
    columns = {
        part: np.concatenate(
            [
                run.time_ns[:, run.parts.index(part)]
                if part in run.parts
                else np.zeros(count, np.int64)
                for run, count in zip(runs, num, strict=True)
            ]
        )
        for part in parts
    }
    of_run = np.repeat(np.arange(len(runs)), num)
    step = np.concatenate([run.step for run in runs])
    by_run = len(runs) >= MIN_SAMPLES
    group = of_run if by_run else of_run * (int(step.max(initial=0)) + 1) + step
    return Pooled(
        columns,
        np.concatenate([run.phase for run in runs]),
        group.astype(np.int64),
        [detail for run in runs for detail in run.details],
        sum(num),
        all(run.has_steps for run in runs),
        all(run.is_cut for run in runs) or by_run,
        sum(run.num_devices for run in runs),
    )


MIN_ANCHORS = 4
"""A kernel that ran less often on a side measures no amount of work."""
NUM_CANDIDATES = 9
"""Kernels that are asked how much work there was."""
SAME_RATIO = 0.03
"""Kernels whose counts have ratios so close (logarithms) ran for the same reason."""
MAX_SPREAD = 0.35
"""A kernel comes regularly when its distances vary by less than this share of their mean."""


@dataclass(frozen=True)
class Anchor:
    """A kernel whose runs measure the work of recordings without steps."""

    name: str
    """Its name."""
    is_regular: bool
    """Whether it comes so regularly that the stretches between its runs are samples of one thing."""


def anchor(first: Pooled, second: Pooled, analyses: Sequence[Analysis]) -> Anchor | None:
    """A kernel that measures the work of both sides; None where none ran often enough on both.

    Of those with most time and with the ratio of counts that is typical of them (engines that choose kernels
    by timing them do not always choose the same), the one that comes most regularly.
    """
    time: dict[tuple[str, str], int] = defaultdict(int)
    for detail in (*first.details, *second.details):
        if detail.part.startswith("compute/"):
            time[detail.part, detail.name] += detail.total_ns
    one, two = first.counts(), second.counts()
    shared = [key for key in time if min(one.get(key, 0), two.get(key, 0)) >= MIN_ANCHORS]
    shared = sorted(shared, key=lambda key: (-time[key], key))[:NUM_CANDIDATES]
    if not shared:
        return None
    ratios = {key: float(np.log(two[key] / one[key])) for key in shared}
    usual = sorted(ratios.values())[(len(ratios) - 1) // 2]
    typical = [key for key in shared if abs(ratios[key] - usual) <= SAME_RATIO]
    spread = {key: max(_spread(analysis, key[1]) for analysis in analyses) for key in typical}
    best = min(typical, key=lambda key: (spread[key], -time[key], key))
    return Anchor(best[1], spread[best] <= MAX_SPREAD)


def _spread(analysis: Analysis, name: str) -> float:
    """Variation of the time between runs of a kernel, over its mean; the largest of all devices."""
    codes, names = analysis.capture.codes("kernel", "name")
    if name not in names:
        return float("inf")
    found = 0.0
    for device in analysis.devices:
        work = device.work
        mine = (codes[work.row] == names.index(name)) & work.in_window()
        between = np.diff(np.unique(work.start[mine])).astype(np.float64)
        found = max(found, float(between.std() / between.mean()) if len(between) > 1 else np.inf)
    return found


def by_recording(side: Pooled) -> Pooled:
    """The same with means taken over windows."""
    return replace(side, num_units=side.num_recordings)
