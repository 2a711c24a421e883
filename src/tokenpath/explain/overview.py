"""The overview timeline: each device and each launching thread in equal bins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenpath.capture.intervals import Int64s, Intervals, covered
from tokenpath.core.report import Timeline, TimelineLane
from tokenpath.explain.analysis import Analysis
from tokenpath.explain.work import COMMUNICATION, COMPUTE, MEMCPY, MEMSET

NUM_BINS = 240
"""Bins of the overview."""
MAX_DEVICES = 16
"""Devices drawn; the rest is in the tables."""


def overview(analysis: Analysis) -> Timeline | None:
    """Who had each device when, over the whole capture; None without device work."""
    devices = analysis.devices[:MAX_DEVICES]
    if not devices:
        return None
    works = [device.believable for device in devices]
    low = min(work.window_start_ns for work in works)
    high = max(work.window_end_ns for work in works)
    if high <= low:
        return None
    # Python's integers: one stray time makes the span too long to be multiplied in 64 bits.
    edges = np.array(
        [low + number * (high - low) // NUM_BINS for number in range(NUM_BINS + 1)], np.int64
    )
    lanes = []
    for work in works:
        compute = work.busy(COMPUTE, MEMSET)
        with_communication = work.busy(COMPUTE, MEMSET, COMMUNICATION)
        everything = work.busy()
        bins = [_binned(part, edges) for part in (compute, with_communication, everything)]
        lanes.append(
            TimelineLane(
                work.label,
                ("compute", "exposed communication", "exposed memcpy"),
                _rows((bins[0], bins[1] - bins[0], bins[2] - bins[1])),
            )
        )
        if (work.kind == COMMUNICATION).any():
            lanes.append(
                TimelineLane(
                    f"{work.label} communication",
                    ("communication",),
                    _rows((_binned(work.busy(COMMUNICATION), edges),)),
                )
            )
        if (work.kind == MEMCPY).any() and len(devices) == 1:
            lanes.append(
                TimelineLane(
                    f"{work.label} copies", ("memcpy",), _rows((_binned(work.busy(MEMCPY), edges),))
                )
            )
    return Timeline(
        start_ns=low,
        end_ns=high,
        window_start_ns=analysis.window.start_ns,
        window_end_ns=analysis.window.end_ns,
        lanes=lanes,
    )


def _binned(part: Intervals, edges: Int64s) -> Int64s:
    return covered(edges[:-1], edges[1:], part)


def _rows(parts: Sequence[Int64s]) -> list[list[int]]:
    return [part.tolist() for part in parts]
