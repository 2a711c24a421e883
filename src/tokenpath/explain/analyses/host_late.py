"""Idle time of devices for which the host was late, with the thread that was late and the general claim it is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s, Intervals, union
from tokenpath.capture.nesting import Int32s
from tokenpath.explain.activity import UNTRACED
from tokenpath.explain.analysis import Analysis
from tokenpath.explain.causes import CAUSES
from tokenpath.explain.findings import IDLE_CODES
from tokenpath.explain.host_timeline import HostSegments, cut_into_segments, host_items

_CODES = {cause: number for number, code in enumerate(IDLE_CODES) for cause in code.causes}
_CODE_OF_CAUSE = np.array([_CODES.get(cause.key, -1) for cause in CAUSES], np.int64)


@dataclass(frozen=True)
class Pieces:
    """Late time cut so that in each piece the thread was in one innermost item."""

    gap: Int64s
    """Which stretch of late time it lies in."""
    start: Int64s
    """Start."""
    end: Int64s
    """End."""
    item: Int32s
    """Index into the items of the segments; -1 outside anything recorded."""
    activity: NDArray[np.int8]
    """Index into ACTIVITIES."""

    @property
    def length(self) -> Int64s:
        """Length of each."""
        return self.end - self.start


@dataclass(frozen=True)
class LateTime:
    """Stretches of idle time, one row each, in the order of devices and time."""

    analysis: Analysis
    """What it was measured in."""
    start: Int64s
    """When the device had nothing left."""
    end: Int64s
    """When the host had launched."""
    whole: Int64s
    """Length of the idle gap."""
    thread: Int32s
    """Row of `thread` that launched at last."""
    code: Int64s
    """Index into IDLE_CODES: the general claim that has the gap."""
    kernel: Int32s
    """Row of `kernel` that ends the gap."""

    @property
    def total_ns(self) -> int:
        """All of it."""
        return int((self.end - self.start).sum())

    @cached_property
    def segments(self) -> HostSegments:
        """What the late threads were in, innermost."""
        threads = np.unique(self.thread)
        return cut_into_segments(host_items(self.analysis.capture, threads, self.times))

    @property
    def times(self) -> Intervals:
        """All late time."""
        return union(self.start, self.end)

    def part_of_ns(self, rows: Int64s, spent: Int64s) -> Mapping[str, int]:
        """Time spent in some of the stretches by the general claim that it is part of."""
        total = np.zeros(len(IDLE_CODES), np.int64)
        np.add.at(total, self.code[rows], spent)
        return {IDLE_CODES[at].code: int(total[at]) for at in np.flatnonzero(total)}

    @cached_property
    def pieces(self) -> Pieces:
        """The late time of each stretch, cut."""
        segments = self.segments
        gap, start, end, item = [], [], [], []
        for number in np.unique(self.thread).tolist():
            low, high = segments.first_of_thread.get(number, (0, 0))
            rows = np.flatnonzero(self.thread == number)
            begin = low + np.searchsorted(segments.end[low:high], self.start[rows], "right")
            until = low + np.searchsorted(segments.start[low:high], self.end[rows], "left")
            count = np.maximum(until - begin, 0)
            which = np.repeat(np.arange(len(rows)), count)
            at = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            at += np.repeat(begin, count)
            gap.append(rows[which])
            start.append(np.maximum(segments.start[at], self.start[rows][which]))
            end.append(np.minimum(segments.end[at], self.end[rows][which]))
            item.append(segments.item[at].astype(np.int32))
        gap_of, starts, ends = (np.concatenate(part) for part in (gap, start, end))
        return self._with_silence(gap_of, starts, ends, np.concatenate(item))

    def _with_silence(self, gap: Int64s, start: Int64s, end: Int64s, item: Int32s) -> Pieces:
        """Pieces and the holes between them."""
        num = len(self.start)
        order = np.lexsort((start, gap))
        gap, start, end, item = gap[order], start[order], end[order], item[order]
        # Edges of each stretch and of its pieces, in order: a hole lies between an end and the next start.
        ends = np.concatenate((self.start, end))
        starts = np.concatenate((start, self.end))
        of_end = np.concatenate((np.arange(num), gap))
        of_start = np.concatenate((gap, np.arange(num)))
        ends = ends[np.lexsort((ends, of_end))]
        by_start = np.lexsort((starts, of_start))
        starts, of = starts[by_start], of_start[by_start]
        hole = starts > ends
        gap = np.concatenate((gap, of[hole]))
        start = np.concatenate((start, ends[hole]))
        end = np.concatenate((end, starts[hole]))
        item = np.concatenate((item, np.full(int(hole.sum()), -1, np.int32)))
        order = np.lexsort((start, gap))
        item = item[order]
        activities = self.segments.items.activity
        activity = (
            np.where(item >= 0, activities[np.maximum(item, 0)], UNTRACED)
            if len(activities)
            else np.full(len(item), UNTRACED)
        )
        return Pieces(gap[order], start[order], end[order], item, activity.astype(np.int8))

    def thread_name(self, row: int) -> str:
        """Process and thread as the file writes them."""
        threads = self.analysis.capture["thread"]
        return f"{threads['pid'][row].as_py()}/{threads['tid'][row].as_py()}"


def late_time(analysis: Analysis) -> LateTime | None:
    """The late time of all devices; None without any, or where idle time is withheld."""
    if analysis.quality.idle_withheld is not None:
        return None
    parts = []
    thread_of = analysis.capture.ids("api_call", "thread_id")
    for device in analysis.devices:
        gaps = device.gaps
        code = _CODE_OF_CAUSE[gaps.cause[gaps.late.rows]]
        kept = (code >= 0) & (gaps.late.end > gaps.late.start)
        rows = gaps.late.rows[kept]
        position = gaps.kernel[rows]
        parts.append(
            (
                gaps.late.start[kept], gaps.late.end[kept], gaps.duration_ns[rows],
                thread_of[gaps.late.call[kept]], code[kept], device.work.row[position],
            )
        )  # fmt: skip
    if not sum(len(part[0]) for part in parts):
        return None
    return LateTime(analysis, *(np.concatenate(column) for column in zip(*parts, strict=True)))
