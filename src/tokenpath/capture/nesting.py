"""Which interval encloses which, and how much of each is its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.compiled import compiled
from tokenpath.capture.intervals import Int64s

Int32s = NDArray[np.int32]


def nesting_order(group: Int32s, start: Int64s, end: Int64s) -> Int64s:
    """Rows by group, then start, longest first, then row: parents before their children."""
    if len(start) < 2:
        return np.arange(len(start))
    later = (group[1:] > group[:-1]) | (
        (group[1:] == group[:-1])
        & ((start[1:] > start[:-1]) | ((start[1:] == start[:-1]) & (end[1:] <= end[:-1])))
    )
    if later.all():
        return np.arange(len(start))
    # -end would overflow at the lowest int64; ~end orders the same way and cannot.
    return np.lexsort((~end, start, group))


def parents(group: Int32s, start: Int64s, end: Int64s) -> Int32s:
    """The innermost interval of the same group that contains each one; -1 for the outermost.

    Containing means starting no later and ending no earlier; of two equal intervals the one in the
    earlier row is the parent. An interval that overlaps another only in part is not its child.
    """
    order = nesting_order(group, start, end)
    parent = np.full(len(start), -1, np.int32)
    _parents(len(start))(order, group, end, parent, np.empty(len(start), np.int64))
    return parent


@compiled
def _parents(order: Int64s, group: Int32s, end: Int64s, parent: Int32s, stack: Int64s) -> None:
    depth = 0
    for i in range(len(order)):
        row = order[i]
        # Whatever ends before this row ends can contain neither it nor anything after it: later rows
        # start later, so this row contains all that the shorter one would. That keeps the stack
        # monotone, and the loop linear even where intervals overlap in part.
        while depth > 0 and (
            group[stack[depth - 1]] != group[row] or end[stack[depth - 1]] < end[row]
        ):
            depth -= 1
        if depth > 0:
            parent[row] = stack[depth - 1]
        stack[depth] = row
        depth += 1


def self_time(start: Int64s, end: Int64s, parent: Int32s) -> Int64s:
    """Length of each interval minus its children's, given its `parents`."""
    own = end - start
    child = np.flatnonzero(parent >= 0)
    np.subtract.at(own, parent[child], end[child] - start[child])
    return own


def innermost(
    group: Int32s,
    start: Int64s,
    end: Int64s,
    parent: Int32s,
    at_group: Int32s,
    at_start: Int64s,
    at_end: Int64s,
) -> Int32s:
    """For each `at` interval the innermost of the given ones that contains it; -1 for none."""
    if len(start) == 0 or len(at_start) == 0:
        return np.full(len(at_start), -1, np.int32)
    order = nesting_order(group, start, end)
    position = search_grouped(group[order], start[order], at_group, at_start) - 1
    found = np.where(position >= 0, order[np.maximum(position, 0)], -1)
    found = np.where((found >= 0) & (group[found] == at_group), found, -1)
    while True:
        outside = np.flatnonzero((found >= 0) & (end[found] < at_end))
        if len(outside) == 0:
            return found.astype(np.int32)
        found[outside] = parent[found[outside]]


def search_grouped(group: Int32s, value: Int64s, at_group: Int32s, at_value: Int64s) -> Int64s:
    """Where each `at` would go, to the right of equals, in rows sorted by (group, value)."""
    result = np.empty(len(at_group), np.int64)
    begin = np.searchsorted(group, at_group, side="left")
    until = np.searchsorted(group, at_group, side="right")
    _search(len(at_group))(value, begin, until, at_value, result)
    return result


@compiled
def _search(value: Int64s, begin: Int64s, until: Int64s, at_value: Int64s, result: Int64s) -> None:
    for i in range(len(at_value)):
        low = begin[i]
        high = until[i]
        while low < high:
            middle = (low + high) // 2
            if value[middle] <= at_value[i]:
                low = middle + 1
            else:
                high = middle
        result[i] = low
