"""Which interval encloses which, and how much of each is its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.compiled import compiled
from tokenpath.capture.intervals import Int64s

Int32s = NDArray[np.int32]


def nesting_order(group: Int32s, start: Int64s, end: Int64s) -> Int64s:
    """Rows by group, then start, longest first, then row: parents before their children."""
    if _is_nesting_order(group, start, end):
        return np.arange(len(start))
    order = _time_order(start, end)
    by_group = group[order]
    if (by_group[1:] >= by_group[:-1]).all():
        return order
    # NumPy sorts 16-bit integers by radix, in one pass over the rows.
    low, high = int(by_group.min()), int(by_group.max())
    narrow = (by_group - low).astype(np.uint16) if high - low < 2**16 else by_group
    return order[np.argsort(narrow, kind="stable")]


def _is_nesting_order(group: Int32s, start: Int64s, end: Int64s) -> bool:
    in_time = (start[1:] > start[:-1]) | ((start[1:] == start[:-1]) & (end[1:] <= end[:-1]))
    return bool(((group[1:] > group[:-1]) | ((group[1:] == group[:-1]) & in_time)).all())


def _time_order(start: Int64s, end: Int64s) -> Int64s:
    """Rows by start, longest first, then row."""
    order = np.arange(len(start))
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
    in_order = start[order]
    is_tie = in_order[1:] == in_order[:-1]
    tie = np.flatnonzero(is_tie)
    if (end[order[tie + 1]] > end[order[tie]]).any():
        tied = np.flatnonzero(np.append(is_tie, False) | np.append(False, is_tie))
        rows = order[tied]
        # -end would overflow at the lowest int64; ~end orders the same way and cannot.
        order[tied] = rows[np.lexsort((~end[rows], start[rows]))]
    return order


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
    """How much of each interval lies in none of its children, given its `parents`.

    Never negative: where children overlap one another in part, the shared time is taken once, and what of
    a child lies outside its parent not at all. OverflowError for an interval of 2**63 ns or more.
    """
    own = end - start
    if (own[end > start] < 0).any():
        raise OverflowError("an interval is longer than int64 holds")
    own[end <= start] = 0
    order = np.flatnonzero(parent >= 0)
    if (start[order[1:]] < start[order[:-1]]).any():
        order = order[np.argsort(start[order], kind="stable")]
    _take_from_parents(len(order))(order, start, end, parent, start.copy(), own)
    return own


@compiled
def _take_from_parents(
    order: Int64s, start: Int64s, end: Int64s, parent: Int32s, reach: Int64s, own: Int64s
) -> None:
    """Children in order of start; `reach` is how far those seen so far cover each parent."""
    for i in range(len(order)):
        row = order[i]
        up = parent[row]
        begin = max(start[row], reach[up])
        until = min(end[row], end[up])
        if until > begin:
            own[up] -= until - begin
            reach[up] = until


def innermost(
    group: Int32s,
    start: Int64s,
    end: Int64s,
    parent: Int32s,
    at_group: Int32s,
    at_start: Int64s,
    at_end: Int64s,
) -> Int32s:
    """For each `at` interval the innermost of the given ones that contains it; -1 for none.

    Innermost means last in `nesting_order`; `parent` is what `parents` gave for the same intervals.
    """
    if len(start) == 0 or len(at_start) == 0:
        return np.full(len(at_start), -1, np.int32)
    order = nesting_order(group, start, end)
    position = search_grouped(group[order], start[order], at_group, at_start) - 1
    found = np.where(position >= 0, order[np.maximum(position, 0)], -1)
    found = np.where((found >= 0) & (group[found] == at_group), found, -1)
    outside = np.flatnonzero((found >= 0) & (end[found] < at_end))
    if len(outside):
        jump = np.arange(len(start), dtype=np.int32)
        _link_ancestors(len(start))(order, parent, jump, np.zeros(len(start), np.int32))
        _climb(len(outside))(outside, end, parent, jump, at_end, found)
    return found.astype(np.int32)


@compiled
def _link_ancestors(order: Int64s, parent: Int32s, jump: Int32s, depth: Int32s) -> None:
    """For each row an ancestor further up, such that any ancestor is O(log depth) links away.

    Without these links one deep call tree makes `innermost` quadratic. Myers, "An applicative random-access
    stack", Information Processing Letters 17 (1983); a root links to itself.
    """
    for i in range(len(order)):
        row = order[i]
        up = parent[row]
        if up >= 0:
            over = jump[up]
            depth[row] = depth[up] + 1
            if depth[up] - depth[over] == depth[over] - depth[jump[over]]:
                jump[row] = jump[over]
            else:
                jump[row] = up


@compiled
def _climb(
    outside: Int64s, end: Int64s, parent: Int32s, jump: Int32s, at_end: Int64s, found: Int64s
) -> None:
    """From `found` upwards to the first interval that ends no earlier than the `at` one."""
    for i in range(len(outside)):
        at = outside[i]
        row = found[at]
        while row >= 0 and end[row] < at_end[at]:
            # Ends only grow on the way up, so what fails after a jump fails on every row jumped over.
            over = jump[row]
            row = over if over != row and end[over] < at_end[at] else parent[row]
        found[at] = row


def search_grouped(group: Int32s, value: Int64s, at_group: Int32s, at_value: Int64s) -> Int64s:
    """Where each `at` would go, to the right of equals, in rows sorted by (group, value)."""
    result = np.empty(len(at_group), np.int64)
    # There are far fewer groups than rows: look each row up among the groups, not among the rows.
    is_first = np.ones(len(group) + 1, np.bool_)
    np.not_equal(group[1:], group[:-1], out=is_first[1:-1])
    edge = np.flatnonzero(is_first)
    distinct = group[edge[:-1]]
    begin = edge[np.searchsorted(distinct, at_group, side="left")]
    until = edge[np.searchsorted(distinct, at_group, side="right")]
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
