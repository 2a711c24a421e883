"""Interval algebra on columns of int64 nanoseconds.

Intervals are half open; an empty one (`start == end`) covers nothing. Everything here is exact integer
arithmetic and knows nothing of GPUs. A slow obvious version of each function is in its test.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class Intervals:
    """Sorted, disjoint, non-touching, non-empty intervals: what `union` returns."""

    start: Int64s
    """First nanosecond of each."""
    end: Int64s
    """First nanosecond after each."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def total(self) -> int:
        """Summed length."""
        return int((self.end - self.start).sum())


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: Int64s, end: Int64s) -> Intervals:
    """The smallest set of disjoint intervals that covers the given ones.

    Intervals that touch are merged; empty or reversed ones cover nothing.
    """
    real = end > start
    if not real.all():
        start, end = start[real], end[real]
    if len(start) == 0:
        return EMPTY
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    is_first = np.empty(len(start), np.bool_)
    is_first[0] = True
    np.greater(start[1:], reach[:-1], out=is_first[1:])
    first = np.flatnonzero(is_first)
    return Intervals(start[first], reach[np.append(first[1:], len(start)) - 1])


def clip(start: Int64s, end: Int64s, low: int, high: int) -> tuple[Int64s, Int64s]:
    """The same rows cut to `low` .. `high`; rows outside become empty, none is removed."""
    clipped_start = np.clip(start, low, high)
    return clipped_start, np.maximum(np.clip(end, low, high), clipped_start)


def intersection(a: Intervals, b: Intervals) -> Intervals:
    """Where both are."""
    if len(a) == 0 or len(b) == 0:
        return EMPTY
    # For each interval of a, the run of b intervals that overlap it.
    low = np.searchsorted(b.end, a.start, side="right")
    high = np.searchsorted(b.start, a.end, side="left")
    left, right = expand(low, high)
    start = np.maximum(a.start[left], b.start[right])
    end = np.minimum(a.end[left], b.end[right])
    return Intervals(start, end)


def gaps(a: Intervals, low: int, high: int) -> Intervals:
    """The holes of `a` within `low` .. `high`, edges included."""
    if high <= low:
        return EMPTY
    keep = (a.end > low) & (a.start < high)
    start = np.concatenate(([low], a.end[keep])).astype(np.int64)
    end = np.concatenate((a.start[keep], [high])).astype(np.int64)
    real = end > start
    return Intervals(start[real], end[real])


def difference(a: Intervals, b: Intervals) -> Intervals:
    """Where `a` is and `b` is not."""
    if len(a) == 0 or len(b) == 0:
        return a
    return intersection(a, gaps(b, int(a.start[0]), int(a.end[-1])))


def overlap_count(start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """How many intervals are open at a time: `(at, count)`, count holds from its `at` to the next."""
    real = end > start
    edges = np.concatenate((start[real], end[real]))
    steps = np.concatenate(
        (np.ones(int(real.sum()), np.int64), -np.ones(int(real.sum()), np.int64))
    )
    if len(edges) == 0:
        return EMPTY.start, EMPTY.start
    order = np.argsort(edges, kind="stable")
    edges, steps = edges[order], steps[order]
    last = np.append(np.flatnonzero(edges[1:] != edges[:-1]), len(edges) - 1)
    return edges[last], np.cumsum(steps)[last]


def covered(start: Int64s, end: Int64s, by: Intervals) -> Int64s:
    """For each row, how much of it lies in `by`."""
    if len(by) == 0:
        return np.zeros(len(start), np.int64)
    before = np.concatenate(([0], np.cumsum(by.end - by.start)))
    length = _covered_until(end, by, before) - _covered_until(start, by, before)
    result: Int64s = np.maximum(length, 0)
    return result


def _covered_until(at: Int64s, by: Intervals, before: Int64s) -> Int64s:
    index = np.searchsorted(by.start, at, side="right")
    inside = np.minimum(at, by.end[np.maximum(index, 1) - 1]) - by.start[np.maximum(index, 1) - 1]
    full: Int64s = np.where(index == 0, 0, before[np.maximum(index, 1) - 1] + inside)
    return full


def expand(low: Int64s, high: Int64s) -> tuple[Int64s, Int64s]:
    """All pairs `(row, index)` with `low[row] <= index < high[row]`, row by row."""
    count = np.maximum(high - low, 0)
    row = np.repeat(np.arange(len(count)), count)
    offset = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    return row, np.repeat(low, count) + offset
