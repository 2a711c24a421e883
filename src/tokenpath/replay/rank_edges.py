"""Collectives across ranks: they begin when the last rank has arrived, and then take their transfer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import Int64s
from tokenpath.core.units import INT64_MAX, INT64_MIN
from tokenpath.replay.edges import EdgeKind, EdgeList, Numbering
from tokenpath.replay.measured import Measured

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Collectives:
    """Matched collectives that several ranks took part in and waited for each other in."""

    work: Int64s
    """Position in Work of each part."""
    which: Int64s
    """Which collective it is a part of, from 0."""
    release: Int64s
    """When the last rank of each collective arrived."""
    transfer: Int64s
    """Shortest part of each collective."""

    def __len__(self) -> int:
        return len(self.release)


def collectives_of(capture: Capture, measured: Measured) -> Collectives:
    """The parts that ended after the last arrival; collectives with one such part are left out.

    A part that ended earlier did not wait (the root of a broadcast, or clocks that disagree) and keeps its
    own duration.
    """
    none = np.empty(0, np.int64)
    match = capture.int64("collective", "match", -1)
    kernel = capture.ids("collective", "kernel_id")
    rows = np.flatnonzero((match >= 0) & (kernel >= 0))
    if len(rows) == 0:
        return Collectives(none, none, none, none)
    work = measured.work
    place = np.full(capture.num_rows("kernel"), -1, np.int64)
    place[work.row] = np.arange(len(work))
    # Two rows may name one kernel, as host and device side of the same part.
    part, keep = np.unique(place[kernel[rows]], return_index=True)
    _, which = np.unique(match[rows][keep], return_inverse=True)
    which = which.reshape(-1)
    num = int(which.max()) + 1
    release = np.full(num, INT64_MIN, np.int64)
    np.maximum.at(release, which, work.start[part])
    waited = work.end[part] >= release[which]
    count = np.bincount(which[waited], minlength=num)
    chosen = waited & (count[which] >= 2)
    part, which = part[chosen], which[chosen]
    used, which = np.unique(which, return_inverse=True)
    which = which.reshape(-1)
    release = np.full(len(used), INT64_MIN, np.int64)
    np.maximum.at(release, which, work.start[part])
    transfer = np.full(len(used), INT64_MAX, np.int64)
    np.minimum.at(transfer, which, (work.end - work.start)[part])
    return Collectives(part, which, release, transfer)


def add_rank_edges(
    measured: Measured, found: Collectives, number: Numbering, edges: EdgeList
) -> None:
    """Edges from each rank's start to the release, and from there to each rank's end."""
    work, release = measured.work, found.release[found.which]
    edges.add(
        number.work_start(found.work),
        number.release(found.which),
        np.zeros(len(found.work), np.int64),
        EdgeKind.ARRIVE,
    )
    weight = np.minimum(found.transfer[found.which], work.end[found.work] - release)
    edges.add(number.release(found.which), number.work_end(found.work), weight, EdgeKind.TRANSFER)
