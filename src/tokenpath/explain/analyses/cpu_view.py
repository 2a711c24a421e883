"""Captures without device work: what the main thread of each process did, and for how long."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.capture.intervals import (
    EMPTY,
    Int64s,
    Intervals,
    clip,
    covered,
    difference,
    intersection,
    union,
)
from tokenpath.capture.nesting import Int32s, parents
from tokenpath.core.finding import Evidence, Finding, Kind, Status
from tokenpath.explain.activity import OP
from tokenpath.explain.host_timeline import HostItems, HostSegments, cut_into_segments, host_items

MIN_SHARE = 0.02
"""Gain over the wall from which on a finding is made: a healthy program has smaller ones of every kind."""
_NATIVE = re.compile(r"^<|^nn\.Module: |^Python GC")
"""Frames that are no Python function of a file."""
_TABLES = ("frame", "op", "range")


@dataclass(frozen=True)
class Side:
    """The main thread of one process over the profiled steps."""

    capture: Capture
    """The linked capture."""
    source: int
    """Row of `source`."""
    rank: int | None
    """Rank in the job."""
    thread: int
    """Row of `thread`: the one with the most time in operators."""
    low: int
    """Start of the first profiled step, or of the first operator or frame."""
    high: int
    """End of the last one."""
    step_start: Int64s
    """Starts of the profiled steps, in order."""
    step_end: Int64s
    """Their ends."""

    @property
    def wall_ns(self) -> int:
        """Length of the window."""
        return self.high - self.low

    @cached_property
    def window(self) -> Intervals:
        """The window as an interval."""
        return Intervals(np.array([self.low], np.int64), np.array([self.high], np.int64))

    @cached_property
    def items(self) -> HostItems:
        """Operators and frames of the main thread that touch the window."""
        return host_items(self.capture, np.array([self.thread], np.int32), self.window)

    @cached_property
    def segments(self) -> HostSegments:
        """Its time, cut into pieces with one innermost item each."""
        return cut_into_segments(self.items)

    @cached_property
    def parent(self) -> Int32s:
        """The innermost item around each item; -1 for none."""
        items = self.items
        return parents(items.thread, items.start, items.end)

    @cached_property
    def has_op(self) -> NDArray[np.bool_]:
        """Whether an operator runs inside each item."""
        result: NDArray[np.bool_] = self.items.activity == OP
        around = np.unique(self.parent[result])
        while len(around := around[around >= 0]):
            fresh = around[~result[around]]
            result[fresh] = True
            around = np.unique(self.parent[fresh])
        return result

    @cached_property
    def function(self) -> Int32s:
        """The innermost Python function of a file that each item is or runs in; -1 for none."""
        native = np.array([bool(_NATIVE.search(text)) for text in self.items.labels] or [True])
        skip = native[self.items.label] | (self.items.activity == OP)
        result = np.arange(len(skip), dtype=np.int32)
        while (up := (result >= 0) & skip[np.maximum(result, 0)]).any():
            result[up] = self.parent[result[up]]
        return result

    def place(self) -> dict[str, str]:
        """The rank, where it is known."""
        return {} if self.rank is None else {"rank": str(self.rank)}

    def thread_name(self) -> str:
        """`pid/tid` of the main thread."""
        return thread_name(self.capture, self.thread)

    def named(self, names: re.Pattern[str], thread: int | None = None) -> Intervals:
        """Time within the window in frames, operators and ranges with such names."""
        starts, ends = [], []
        for table in _TABLES:
            rows = self.rows_named(table, names, thread)
            starts.append(self.capture.int64(table, "start_ns")[rows])
            ends.append(self.capture.int64(table, "end_ns")[rows])
        both = union(np.concatenate(starts), np.concatenate(ends))
        return intersection(both, self.window) if len(both) else EMPTY

    def rows_named(self, table: str, names: re.Pattern[str], thread: int | None = None) -> Int64s:
        """Rows of a table with such names on a thread, the main one by default."""
        if self.capture.num_rows(table) == 0:
            return np.empty(0, np.int64)
        codes, texts = self.capture.codes(table, "name")
        wanted = np.array([names.search(text) is not None for text in texts] or [False])
        mine = self.capture.ids(table, "thread_id") == (self.thread if thread is None else thread)
        return np.flatnonzero(mine & wanted[np.maximum(codes, 0)] & (codes >= 0))


def thread_name(capture: Capture, thread: int) -> str:
    """`pid/tid` of a row of `thread`."""
    row = capture["thread"].slice(thread, 1).to_pylist()[0]
    return f"{row['pid']}/{row['tid']}"


def sides(capture: Capture) -> list[Side]:
    """One for each source with operators, by rank."""
    result = []
    op_source = capture.ids("op", "source_id")
    op_thread = capture.ids("op", "thread_id")
    start, end = capture.int64("op", "start_ns"), capture.int64("op", "end_ns")
    is_outer = capture.ids("op", "parent_op_id") == NO_ID
    ranks = capture["source"]["rank"].to_pylist()
    for source in np.unique(op_source).tolist():
        mine = np.flatnonzero((op_source == source) & is_outer)
        busy = np.bincount(op_thread[mine], (end - start)[mine])
        thread = int(busy.argmax())
        steps = _steps(capture, source)
        low, high = (
            (int(steps[0].min()), int(steps[1].max()))
            if len(steps[0])
            else _extent(capture, thread)
        )
        if high > low:
            result.append(Side(capture, source, ranks[source], thread, low, high, *steps))
    return sorted(result, key=lambda side: (side.rank is None, side.rank or 0, side.source))


def _steps(capture: Capture, source: int) -> tuple[Int64s, Int64s]:
    if capture.num_rows("step") == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    mine = np.flatnonzero(capture.ids("step", "source_id") == source)
    start = capture.int64("step", "start_ns")[mine]
    order = np.argsort(start, kind="stable")
    return start[order], capture.int64("step", "end_ns")[mine][order]


def _extent(capture: Capture, thread: int) -> tuple[int, int]:
    """From the first operator of a thread to the end of its last one."""
    mine = capture.ids("op", "thread_id") == thread
    start = capture.int64("op", "start_ns")[mine]
    return int(start.min()), int(capture.int64("op", "end_ns")[mine].max())


@dataclass
class Host:
    """All sides, and the time of each that has found its cause."""

    sides: Sequence[Side]
    """One a process."""
    status: Status
    """How the numbers of the capture came to be."""
    spent: dict[int, Intervals]
    """By source: time that a finding has claimed."""

    @property
    def wall_ns(self) -> int:
        """The windows of all sides, summed."""
        return sum(side.wall_ns for side in self.sides)

    def left(self, side: Side, time: Intervals) -> Intervals:
        """What of some time of a side has no cause yet."""
        return difference(time, self.spent.get(side.source, EMPTY))

    def spend(self, side: Side, time: Intervals) -> None:
        """Note that this time has its cause."""
        before = self.spent.get(side.source, EMPTY)
        self.spent[side.source] = union(
            np.concatenate([before.start, time.start]), np.concatenate([before.end, time.end])
        )


def pieces_left(host: Host, side: Side) -> tuple[Int64s, Int64s, Int32s]:
    """Start, time left without a cause, and innermost item of the pieces of the main thread."""
    segments = side.segments
    start, end = clip(segments.start, segments.end, side.low, side.high)
    # `clip` keeps the rows: pieces outside the window have no length.
    length = np.maximum(end - start, 0)
    taken = covered(start, np.maximum(end, start), host.spent.get(side.source, EMPTY))
    return start, length - taken, segments.item


def cost(
    host: Host,
    code: str,
    sentence: str,
    gain_ns: int,
    *,
    duration_ns: int | None = None,
    fix: str,
    falsifier: str,
    confidence: float,
    effort: str,
    place: Mapping[str, str],
    evidence: tuple[str, Int64s] | None = None,
    details: Mapping[str, object] | None = None,
) -> Finding:
    """A claim on time of the profiled steps."""
    duration = gain_ns if duration_ns is None else duration_ns
    share = duration / host.wall_ns
    rows = (
        ()
        if evidence is None
        else (Evidence(evidence[0], tuple(evidence[1][:5].tolist()), len(evidence[1])),)
    )
    return Finding(
        code=code, sentence=sentence, kind=Kind.COST, value=share, unit="share of the window",
        duration_ns=duration, share=share, gain_ns=gain_ns, gain_method="estimated",
        status=host.status, evidence=rows, falsifier=falsifier, fix=fix, details=details or {},
        place=place, confidence=confidence, effort=effort,
    )  # fmt: skip
