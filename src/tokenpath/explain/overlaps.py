"""Work of one stream that overlaps: programmatic dependent launch, rounding, or corrupt times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tokenpath.capture.capture import NO_ID
from tokenpath.capture.intervals import Int64s
from tokenpath.explain.work import DeviceWork

CORRUPT_NS = 1_000_000
"""A piece of work that reaches this far over at least MIN_COVERED later ones has no true end."""
MIN_COVERED = 3
"""How many later starts of its stream, launched by other calls, such work must cover."""
RESOLUTION_NS = 1_000
"""Overlaps up to this long come from rounding where all times are whole microseconds."""


@dataclass(frozen=True)
class Overlaps:
    """Same-stream overlaps of one device."""

    num_overlaps: int
    """Starts that lie before the end of the work before them on their stream."""
    total_ns: int
    """Summed length of those overlaps, corrupt ones left out."""
    longest_ns: int
    """The longest one, corrupt ones left out."""
    num_rounding: int
    """How many are within the clock's resolution."""
    corrupt: Int64s
    """Positions in DeviceWork of work with an impossible end."""
    cut_end: Int64s
    """For each corrupt one the start of the next work on its stream."""


def find_overlaps(work: DeviceWork, is_coarse: bool) -> Overlaps:
    """Overlaps between neighbours on each stream; `is_coarse` says that times are whole microseconds."""
    order = np.lexsort((work.start, work.stream))
    stream, start, end = work.stream[order], work.start[order], work.end[order]
    same = stream[1:] == stream[:-1]
    overlap = np.where(same, np.minimum(end[:-1], end[1:]) - start[1:], 0)
    reach = np.where(same, end[:-1] - start[1:], 0)
    candidates = np.flatnonzero(reach >= CORRUPT_NS)
    # How many later starts of the same stream lie within the work. Branches of one graph may run side by
    # side under one stream number, so work of the same launch proves nothing.
    last_of_stream = np.searchsorted(stream, stream[candidates], side="right")
    call = work.call[order]
    covered = np.zeros(len(candidates), np.int64)
    for index, (row, until) in enumerate(zip(candidates, last_of_stream, strict=True)):
        inside = slice(row + 1, row + 1 + np.searchsorted(start[row + 1 : until], end[row]))
        covered[index] = ((call[inside] != call[row]) | (call[inside] == NO_ID)).sum()
    corrupt = candidates[covered >= MIN_COVERED] if len(candidates) else candidates
    honest = (reach > 0) & ~np.isin(np.arange(len(reach)), corrupt)
    length = np.maximum(overlap[honest], 0)
    return Overlaps(
        num_overlaps=int((reach > 0).sum()),
        total_ns=int(length.sum()),
        longest_ns=int(length.max()) if len(length) else 0,
        num_rounding=int((length <= RESOLUTION_NS).sum()) if is_coarse else 0,
        corrupt=order[corrupt],
        cut_end=start[corrupt + 1],
    )


def without_corrupt_ends(work: DeviceWork, overlaps: Overlaps) -> DeviceWork:
    """The same work with impossible ends cut at the next start of their stream."""
    if len(overlaps.corrupt) == 0:
        return work
    end = work.end.copy()
    end[overlaps.corrupt] = overlaps.cut_end
    return replace(work, end=end, window_end_ns=int(end.max()))


def is_coarse_clock(works: Sequence[DeviceWork]) -> bool:
    """Whether all device times are whole microseconds."""
    return bool(works) and all(
        not (work.start % RESOLUTION_NS).any() and not (work.end % RESOLUTION_NS).any()
        for work in works
    )
