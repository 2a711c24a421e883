"""Interval algebra on columns of int64 nanoseconds.

Intervals are half open; an empty one (`start == end`) covers nothing. Everything here is exact integer
arithmetic and knows nothing of GPUs. A slow obvious version of each function is in its test.

Times may lie anywhere in int64. A length may then exceed int64: `Intervals.total` is exact all the same,
and a function that returns lengths as int64 raises OverflowError rather than wrap. It cannot come to that
where all times lie in -2**62 .. 2**62 (1970 +- 146 years).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.units import INT64_MAX

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
        """Summed length, exact even where it exceeds int64."""
        # Disjoint intervals of int64 times sum to less than 2**64, so uint64 holds every step.
        return int((self.end - self.start).view(np.uint64).sum())


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
    # After i+1 starts comes a hole if i+1 ends come before the next start. So the starts and the ends can
    # be sorted apart, which takes no index arrays.
    start, end = _sorted(start), _sorted(end)
    is_first = np.empty(len(start), np.bool_)
    is_first[0] = True
    np.greater(start[1:], end[:-1], out=is_first[1:])
    first = np.flatnonzero(is_first)
    return Intervals(start[first], end[np.append(first[1:], len(start)) - 1])


def _sorted(values: Int64s) -> Int64s:
    # Stable means timsort here: fast on the sorted runs that captures consist of.
    return np.sort(values, kind="stable") if (values[1:] < values[:-1]).any() else values


def clip(start: Int64s, end: Int64s, low: int, high: int) -> tuple[Int64s, Int64s]:
    """The same rows cut to `low` .. `high`; rows outside become empty, none is removed.

    Reversed rows become empty too, as does every row where `high <= low`.
    """
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
    start = np.concatenate((np.array([low], np.int64), a.end[keep]))
    end = np.concatenate((a.start[keep], np.array([high], np.int64)))
    real = end > start
    return Intervals(start[real], end[real])


def difference(a: Intervals, b: Intervals) -> Intervals:
    """Where `a` is and `b` is not."""
    if len(a) == 0 or len(b) == 0:
        return a
    return intersection(a, gaps(b, int(a.start[0]), int(a.end[-1])))


def overlap_count(start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """How many intervals are open at a time: `(at, count)`, count holds from its `at` to the next.

    One `at` for each distinct start or end of a non-empty interval, in order; the last count is 0.
    """
    real = end > start
    start, end = np.sort(start[real]), np.sort(end[real])
    edges = np.sort(np.concatenate((start, end)), kind="stable")
    is_last = np.ones(len(edges), np.bool_)
    np.not_equal(edges[1:], edges[:-1], out=is_last[:-1])
    at = edges[is_last]
    count: Int64s = np.searchsorted(start, at, side="right") - np.searchsorted(
        end, at, side="right"
    )
    return at, count


def covered(start: Int64s, end: Int64s, by: Intervals) -> Int64s:
    """For each row, how much of it lies in `by`; 0 for empty and reversed rows.

    OverflowError when `by` covers 2**63 ns or more.
    """
    if len(by) == 0:
        return np.zeros(len(start), np.int64)
    if by.total > INT64_MAX:
        raise OverflowError(f"the intervals cover {by.total} ns, more than int64 holds")
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
