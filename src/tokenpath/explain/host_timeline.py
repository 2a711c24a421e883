"""What host threads were doing at a time: the innermost recorded thing, API call, operator or frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.capture.compiled import compiled
from tokenpath.capture.intervals import Int64s, Intervals, covered, union
from tokenpath.capture.nesting import Int32s, nesting_order
from tokenpath.explain.activity import ACTIVITIES, UNTRACED, activity_of

_BIN_BITS = 18
"""Interest is looked up in at most twice this power of two bins of time."""
_BLOCK_ROWS = 1 << 18
"""Rows looked at in one go, so that what is in between stays in the cache."""


@dataclass(frozen=True)
class HostItems:
    """Operators, API calls and frames of some threads, one row each."""

    thread: Int32s
    """Row of `thread`."""
    start: Int64s
    """Start."""
    end: Int64s
    """End."""
    activity: NDArray[np.int8]
    """Index into ACTIVITIES."""
    label: Int32s
    """Index into `labels`."""
    row: Int32s
    """Row in its table."""
    labels: Sequence[str]
    """Names of items."""


@dataclass(frozen=True)
class HostSegments:
    """Host time cut so that each piece has one innermost item; by thread, then time."""

    items: HostItems
    """What the pieces are pieces of."""
    start: Int64s
    """Start."""
    end: Int64s
    """End."""
    item: Int32s
    """Index into `items`."""
    first_of_thread: dict[int, tuple[int, int]]
    """For each thread where its pieces begin and end."""


@dataclass(frozen=True)
class Activity:
    """What the host did in each of a list of stretches of time."""

    main: NDArray[np.int8]
    """The activity with the most time, index into ACTIVITIES."""
    label: Int32s
    """Index into `labels`: the longest piece of that activity; -1 for none."""
    at_start: NDArray[np.int8]
    """The activity at the very start of the stretch."""
    at_start_row: Int32s
    """Row, in its table, of the item at the start; -1 for none."""
    labels: Sequence[str]
    """Names of items."""


class HostTimeline:
    """What the launching threads were doing whenever the host was late for some device.

    Built on first use: captures whose devices never wait for the host do not pay for it.
    """

    def __init__(self, capture: Capture, interest: Intervals) -> None:
        """`interest` holds all time that will be asked for."""
        self._capture = capture
        self._interest = interest

    @cached_property
    def thread_of_call(self) -> Int32s:
        """Thread of every row of `api_call`."""
        return self._capture.ids("api_call", "thread_id")

    @cached_property
    def threads_with_frames(self) -> Int32s:
        """Threads of which Python frames are recorded."""
        if self._capture.num_rows("frame") == 0:
            return np.empty(0, np.int32)
        seen = np.zeros(self._capture.num_rows("thread"), np.bool_)
        seen[self._capture.ids("frame", "thread_id")] = True
        return np.flatnonzero(seen).astype(np.int32)

    @cached_property
    def segments(self) -> HostSegments:
        """The host time of the launching threads, cut into pieces with one innermost item each."""
        threads = np.unique(self.thread_of_call)
        return cut_into_segments(host_items(self._capture, threads, self._interest))

    def during(self, call: Int32s, start: Int64s, end: Int64s) -> Activity:
        """What the thread of each launching call did from `start` to `end`."""
        return activity_during(self.segments, self.thread_of_call[call], start, end)

    def is_silent(self, call: Int32s, start: Int64s, end: Int64s) -> NDArray[np.bool_]:
        """Whether no thread has anything recorded in each stretch, although frames are recorded.

        Without Python frames of the launching thread, silence only means that nothing was traced.
        """
        silent = np.isin(self.thread_of_call[call], self.threads_with_frames)
        for table in ("api_call", "op", "frame") if silent.any() else ():
            if self._capture.num_rows(table):
                began = self._capture.int64(table, "start_ns")
                ended = self._capture.int64(table, "end_ns")
                rows = _touching(began, ended, union(start, end))
                silent &= covered(start, end, union(began[rows], ended[rows])) == 0
        return silent


def activity_during(segments: HostSegments, thread: Int32s, start: Int64s, end: Int64s) -> Activity:
    """What each thread did from `start` to `end`, one row a stretch."""
    items = segments.items
    num = len(thread)
    first, last = np.zeros(num, np.int64), np.zeros(num, np.int64)
    for number in np.unique(thread):
        low, high = segments.first_of_thread.get(int(number), (0, 0))
        rows = np.flatnonzero(thread == number)
        first[rows] = low + np.searchsorted(segments.end[low:high], start[rows], side="right")
        last[rows] = low + np.searchsorted(segments.start[low:high], end[rows], side="left")
    by_activity = np.zeros((num, len(ACTIVITIES)), np.int64)
    longest = np.zeros((num, len(ACTIVITIES)), np.int64)
    longest_item = np.full((num, len(ACTIVITIES)), -1, np.int32)
    _tally(int((last - first).sum()))(
        start, end, first, last, segments.start, segments.end, segments.item, items.activity,
        by_activity, longest, longest_item,
    )  # fmt: skip
    by_activity[:, UNTRACED] += (end - start) - by_activity.sum(axis=1)
    main = by_activity.argmax(axis=1).astype(np.int8)
    item = longest_item[np.arange(num), main]
    at_start = np.zeros(num, np.int8)
    at_start_row = np.full(num, -1, np.int32)
    here = np.flatnonzero(last > first)
    here = here[segments.start[first[here]] <= start[here]]
    item_here = segments.item[first[here]]
    at_start[here], at_start_row[here] = items.activity[item_here], items.row[item_here]
    label = np.full(num, -1, np.int32)
    label[item >= 0] = items.label[item[item >= 0]]
    return Activity(main, label, at_start, at_start_row, items.labels)


@compiled
def _tally(
    start: Int64s,
    end: Int64s,
    first: Int64s,
    last: Int64s,
    seg_start: Int64s,
    seg_end: Int64s,
    seg_item: Int32s,
    activity: NDArray[np.int8],
    by_activity: Int64s,
    longest: Int64s,
    longest_item: Int32s,
) -> None:
    for i in range(len(start)):
        for segment in range(first[i], last[i]):
            item = seg_item[segment]
            kind = activity[item]
            length = min(seg_end[segment], end[i]) - max(seg_start[segment], start[i])
            by_activity[i, kind] += length
            if length > longest[i, kind]:
                longest[i, kind] = length
                longest_item[i, kind] = item


def _touching(start: Int64s, end: Int64s, interest: Intervals) -> Int64s:
    """Rows that overlap the interest.

    Time is first cut into equal bins, which rules most of millions of rows out with a few array
    operations; only the rest is searched for.
    """
    if len(interest) == 0:
        return np.empty(0, np.int64)
    low, high = int(interest.start[0]), int(interest.end[-1])
    shift = max((high - low).bit_length() - _BIN_BITS, 0)
    edges = np.zeros(((high - low) >> shift) + 3, np.int32)
    np.add.at(edges, (interest.start - low) >> shift, 1)
    np.add.at(edges, ((interest.end - low) >> shift) + 1, -1)
    # How many bins before each one hold interest: a difference says whether a stretch of bins does.
    before = np.zeros(len(edges) + 1, np.int32)
    np.cumsum(np.cumsum(edges) > 0, out=before[1:])
    found = []
    for block in range(0, len(start), _BLOCK_ROWS):
        begin = (np.clip(start[block : block + _BLOCK_ROWS], low, high) - low) >> shift
        until = (np.clip(end[block : block + _BLOCK_ROWS], low, high) - low) >> shift
        found.append(np.flatnonzero(before[until + 1] > before[begin]) + block)
    rows = np.concatenate(found) if found else np.empty(0, np.int64)
    first = np.searchsorted(interest.end, start[rows], side="right")
    last = np.searchsorted(interest.start, end[rows], side="left")
    return rows[last > first]


def host_items(capture: Capture, threads: Int32s, interest: Intervals) -> HostItems:
    """What is recorded on these threads and overlaps `interest`; outer tables first."""
    wanted = np.zeros(max(capture.num_rows("thread"), 1), np.bool_)
    wanted[threads] = True
    parts: list[tuple[Int32s, Int64s, Int64s, NDArray[np.int8], Int32s, Int32s]] = []
    labels: list[str] = []
    # Outer tables first: of two equal intervals the earlier row is the outer one.
    for table in ("frame", "op", "api_call"):
        if capture.num_rows(table) == 0:
            continue
        thread = capture.ids(table, "thread_id")
        start, end = capture.int64(table, "start_ns"), capture.int64(table, "end_ns")
        rows = _touching(start, end, interest)
        rows = rows[wanted[thread[rows]]]
        start, end = start[rows], end[rows]
        codes, names = capture.codes(table, "name")
        activity = [activity_of(table, name) for name in names]
        code = codes[rows]
        parts.append(
            (
                thread[rows],
                start,
                end,
                np.array(activity or [0], np.int8)[code],
                code + len(labels),
                rows.astype(np.int32),
            )
        )
        labels += names
    if not parts:
        none = np.empty(0, np.int64)
        ids = none.astype(np.int32)
        return HostItems(ids, none, none, none.astype(np.int8), ids, ids, labels)
    thread, start, end, activities, label, row = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    return HostItems(thread, start, end, activities, label, row, labels)


def cut_into_segments(items: HostItems) -> HostSegments:
    """The time of each thread, cut into pieces with one innermost item each."""
    order = nesting_order(items.thread, items.start, items.end)
    size = 2 * len(order) + 1
    seg_start, seg_end = np.empty(size, np.int64), np.empty(size, np.int64)
    seg_item = np.empty(size, np.int32)
    stack = np.empty(len(order), np.int32)
    count = _flatten(len(order))(
        order, items.thread, items.start, items.end, seg_start, seg_end, seg_item, stack
    )
    # Pages of the arrays beyond `count` were never touched, so a view costs no memory.
    item = seg_item[:count]
    thread = items.thread[item]
    begin = np.flatnonzero(np.append(True, thread[1:] != thread[:-1])[: len(thread)])
    bounds = zip(begin.tolist(), [*begin[1:].tolist(), count], strict=True) if count else ()
    first_of_thread = {int(thread[low]): (low, high) for low, high in bounds}
    return HostSegments(items, seg_start[:count], seg_end[:count], item, first_of_thread)


@compiled
def _flatten(
    order: Int64s,
    group: Int32s,
    start: Int64s,
    end: Int64s,
    seg_start: Int64s,
    seg_end: Int64s,
    seg_item: Int32s,
    stack: Int32s,
) -> int:
    count = 0
    depth = 0
    now = 0
    for i in range(len(order) + 1):
        is_last = i == len(order)
        row = 0 if is_last else order[i]
        while depth > 0:
            top = stack[depth - 1]
            if not is_last and group[top] == group[row] and end[top] > start[row]:
                break
            if end[top] > now:
                seg_start[count] = now
                seg_end[count] = end[top]
                seg_item[count] = top
                count += 1
                now = end[top]
            depth -= 1
        if is_last:
            break
        if depth > 0 and start[row] > now:
            seg_start[count] = now
            seg_end[count] = start[row]
            seg_item[count] = stack[depth - 1]
            count += 1
        now = start[row]
        stack[depth] = row
        depth += 1
    return count
