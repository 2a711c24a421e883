"""What a host thread was doing at a time: the innermost recorded thing, API call, operator or frame."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.capture.compiled import compiled
from tokenpath.capture.intervals import Int64s, Intervals, covered, expand, union
from tokenpath.capture.nesting import Int32s, nesting_order

ACTIVITIES = (
    "host_untraced",
    "host_op",
    "host_api",
    "host_python",
    "host_wait",
    "host_allocator",
    "host_synchronize",
    "host_memcpy",
)
"""What a host thread can be doing; the keys are those of the causes."""
UNTRACED, OP, API, PYTHON, WAIT, ALLOCATOR, SYNCHRONIZE, COPY = range(8)

_SYNCHRONIZE = re.compile(r"synchron", re.IGNORECASE)
_COPY = re.compile(r"memcpy", re.IGNORECASE)
_ALLOCATOR = re.compile(
    r"malloc|(?:cuda|hip|cu)(?:mem|array)?(?:free|alloc)|hostalloc|hostfree|hostregister|hostunregister"
    r"|mem(?:alloc|create|map$|unmap|release|setaccess|addressreserve)",
    re.IGNORECASE,
)
_WAIT_FRAME = re.compile(
    r"threading\.py\(\d+\): (?:wait|acquire|join|_wait_for_tstate_lock)"
    r"|queues?\.py\(\d+\): (?:get|put|join)"
    r"|selectors\.py\(\d+\): select"
    r"|connection\.py\(\d+\): (?:wait|_?poll|recv\w*)"
    r"|zmq\S*\(\d+\): (?:recv\w*|poll)"
    r"|built-in method (?:acquire|poll|select|epoll_wait|recv\w*|accept|sleep|wait)\b"
    r"|lock_acquire|epoll",
    re.ASCII,
)


def is_synchronizing(name: str) -> bool:
    """Whether an API call of this name waits for the device."""
    return _SYNCHRONIZE.search(name) is not None


def activity_of_call(name: str) -> int:
    """The activity of being in an API call of this name."""
    if _SYNCHRONIZE.search(name):
        return SYNCHRONIZE
    if _COPY.search(name):
        return COPY
    return ALLOCATOR if _ALLOCATOR.search(name) else API


def activity_of_frame(name: str) -> int:
    """The activity of being in a Python frame of this name."""
    return WAIT if _WAIT_FRAME.search(name) else PYTHON


@dataclass(frozen=True)
class HostSegments:
    """Host time cut so that each piece has one innermost item; by thread, then time."""

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
    item: Int32s
    """Row of the item in its table."""
    labels: Sequence[str]
    """Names of items."""


@dataclass(frozen=True)
class Activity:
    """What the host did in each of a list of stretches of time."""

    main: NDArray[np.int8]
    """The activity with the most time, index into ACTIVITIES."""
    main_ns: Int64s
    """Its time."""
    label: Int32s
    """Index into `labels` of the item with the most time of that activity; -1 for none."""
    at_start: NDArray[np.int8]
    """The activity at the very start of the stretch."""
    at_start_item: Int32s
    """Row of the item at the start, in its table; -1 for none."""
    labels: Sequence[str]
    """Names of items."""


def activity_during(segments: HostSegments, thread: Int32s, start: Int64s, end: Int64s) -> Activity:
    """What each thread did from `start` to `end`, one row a stretch."""
    num = len(thread)
    by_activity = np.zeros((num, len(ACTIVITIES)), np.int64)
    label = np.full(num, -1, np.int32)
    at_start = np.zeros(num, np.int8)
    at_start_item = np.full(num, -1, np.int32)
    pairs: list[tuple[Int64s, Int64s, Int64s]] = []
    for number in np.unique(thread):
        low = int(np.searchsorted(segments.thread, number, side="left"))
        high = int(np.searchsorted(segments.thread, number, side="right"))
        if low == high:
            continue
        rows = np.flatnonzero(thread == number)
        seg_start, seg_end = segments.start[low:high], segments.end[low:high]
        first = np.searchsorted(seg_end, start[rows], side="right")
        last = np.searchsorted(seg_start, end[rows], side="left")
        here = np.minimum(first, len(seg_start) - 1)
        inside = (seg_start[here] <= start[rows]) & (start[rows] < seg_end[here])
        at_start[rows[inside]] = segments.activity[low + here[inside]]
        at_start_item[rows[inside]] = segments.item[low + here[inside]]
        index, segment = expand(first, last)
        row = rows[index]
        length = np.minimum(seg_end[segment], end[row]) - np.maximum(seg_start[segment], start[row])
        np.add.at(by_activity, (row, segments.activity[low + segment]), length)
        pairs.append((row, low + segment, length))
    by_activity[:, UNTRACED] += (end - start) - by_activity.sum(axis=1)
    main = by_activity.argmax(axis=1).astype(np.int8)
    if pairs:
        row, segment, length = (np.concatenate(columns) for columns in zip(*pairs, strict=True))
        of_main = segments.activity[segment] == main[row]
        row, segment, length = row[of_main], segment[of_main], length[of_main]
        order = np.lexsort((length, row))
        row, segment = row[order], segment[order]
        last_of_row = np.flatnonzero(np.append(row[1:] != row[:-1], len(row) > 0))
        label[row[last_of_row]] = segments.label[segment[last_of_row]]
    main_ns = by_activity[np.arange(num), main]
    return Activity(main, main_ns, label, at_start, at_start_item, segments.labels)


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
        return _cut_into_segments(self._capture, np.unique(self.thread_of_call), self._interest)

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
                recorded = union(
                    self._capture.int64(table, "start_ns"), self._capture.int64(table, "end_ns")
                )
                silent &= covered(start, end, recorded) == 0
        return silent


def _touches(start: Int64s, end: Int64s, interest: Intervals) -> NDArray[np.bool_]:
    """Whether each row touches the interest; may say yes for a row that only comes close.

    Time is cut into equal bins, so a million rows cost a few array operations and no search.
    """
    if len(interest) == 0:
        return np.zeros(len(start), np.bool_)
    low, high = int(interest.start[0]), int(interest.end[-1])
    shift = max((high - low).bit_length() - 16, 0)
    # How many bins up to each one hold interest: differences say whether a stretch of bins does.
    first, last = (interest.start - low) >> shift, (interest.end - low) >> shift
    edges = np.zeros(((high - low) >> shift) + 3, np.int64)
    np.add.at(edges, first, 1)
    np.add.at(edges, last + 1, -1)
    before = np.concatenate(([0], np.cumsum(np.cumsum(edges) > 0)))
    begin = (np.clip(start, low, high) - low) >> shift
    until = (np.clip(end, low, high) - low) >> shift
    touching: NDArray[np.bool_] = before[until + 1] > before[begin]
    touching &= (end >= low) & (start <= high)
    return touching


def _cut_into_segments(capture: Capture, threads: Int32s, interest: Intervals) -> HostSegments:
    """The segments of these threads from the items that touch `interest`."""
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
        rows = np.flatnonzero(wanted[thread] & _touches(start, end, interest))
        start, end = start[rows], end[rows]
        codes, names = capture.codes(table, "name")
        activity = [_activity(table, name) for name in names]
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
        nothing = np.empty(0, np.int64)
        ids = nothing.astype(np.int32)
        return HostSegments(ids, nothing, nothing, nothing.astype(np.int8), ids, ids, labels)
    thread, start, end, activity_of, label, row = (
        np.concatenate(columns) for columns in zip(*parts, strict=True)
    )
    order = nesting_order(thread, start, end)
    size = 2 * len(order) + 1
    seg_start, seg_end = np.empty(size, np.int64), np.empty(size, np.int64)
    seg_item = np.empty(size, np.int64)
    count = _flatten(len(order))(
        order, thread, start, end, seg_start, seg_end, seg_item, np.empty(len(order), np.int64)
    )
    item = seg_item[:count]
    return HostSegments(
        thread[item],
        seg_start[:count].copy(),
        seg_end[:count].copy(),
        activity_of[item],
        label[item],
        row[item],
        labels,
    )


def _activity(table: str, name: str) -> int:
    if table == "op":
        return OP
    return activity_of_call(name) if table == "api_call" else activity_of_frame(name)


@compiled
def _flatten(
    order: Int64s,
    group: Int32s,
    start: Int64s,
    end: Int64s,
    seg_start: Int64s,
    seg_end: Int64s,
    seg_item: Int64s,
    stack: Int64s,
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
