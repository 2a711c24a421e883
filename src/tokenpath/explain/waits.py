"""Recorded waits of device streams: which queued kernels had to wait for an event, and whose."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.capture.intervals import Int64s
from tokenpath.capture.nesting import Int32s, search_grouped
from tokenpath.explain.work import COMMUNICATION, NO_LAUNCH, DeviceWork

_WAIT_CALL = re.compile(r"stream_?wait_?(?:event|value)|waitEvent", re.IGNORECASE)


@dataclass(frozen=True)
class Waits:
    """Host calls that make a stream wait for an event, and waits that the profiler recorded."""

    call_thread: Int32s
    """Thread of each stream-wait call, sorted by (thread, start)."""
    call_start: Int64s
    """Start of each stream-wait call."""
    device_id: Int32s
    """Device of each recorded wait."""
    stream: Int64s
    """Stream that waits."""
    start: Int64s
    """When the recorded wait began."""
    end: Int64s
    """When it was over."""
    from_stream: Int64s
    """Stream that was waited for; NO_ID when not recorded."""
    thread_of_call: Int32s
    """Thread of every API call."""

    NONE, EVENT, COLLECTIVE = 0, 1, 2

    def before(self, work: DeviceWork, kernel: Int64s) -> NDArray[np.int8]:
        """What each queued kernel had to wait for: NONE, EVENT, or COLLECTIVE (an event behind one).

        Evidence is a recorded wait on the kernel's stream since the stream's previous work ended, or,
        where the profiler records none, a stream-wait call on the launching thread between the launch
        before and the kernel's own.
        """
        found = np.zeros(len(kernel), np.int8)
        self._from_records(work, kernel, found)
        self._from_calls(work, kernel, found)
        return found

    def _from_records(self, work: DeviceWork, kernel: Int64s, found: NDArray[np.int8]) -> None:
        mine = np.flatnonzero(self.device_id == work.device_id)
        if len(mine) == 0 or len(kernel) == 0:
            return
        # The last wait of the kernel's stream that was over before it started holds it, unless other
        # work of the stream ran in between.
        mine = mine[np.lexsort((self.end[mine], self.stream[mine]))]
        position = _search(
            self.stream[mine], self.end[mine], work.stream[kernel], work.start[kernel]
        )
        wait = mine[np.maximum(position, 0)]
        previous = previous_on_stream(work)[kernel]
        previous_end = np.where(previous >= 0, work.end[np.maximum(previous, 0)], NO_LAUNCH)
        held = (position >= 0) & (self.stream[wait] == work.stream[kernel])
        held &= self.end[wait] >= previous_end
        found[held] = self.EVENT
        awaited, over = self.from_stream[wait], self.end[wait]
        by_stream = np.lexsort((work.start, work.stream))
        last = _search(work.stream[by_stream], work.start[by_stream], awaited, over)
        last_work = by_stream[np.maximum(last, 0)]
        behind = (last >= 0) & (work.stream[last_work] == awaited)
        behind &= work.kind[last_work] == COMMUNICATION
        found[held & behind] = self.COLLECTIVE

    def _from_calls(self, work: DeviceWork, kernel: Int64s, found: NDArray[np.int8]) -> None:
        if len(self.call_start) == 0 or len(kernel) == 0:
            return
        launch = work.launch_start[kernel]
        thread = self.thread_of_call[work.call[kernel]]
        position = search_grouped(self.call_thread, self.call_start, thread, launch) - 1
        waited_at = self.call_start[np.maximum(position, 0)]
        exists = (position >= 0) & (self.call_thread[np.maximum(position, 0)] == thread)
        before = _launch_before(work)[kernel]
        own = exists & (waited_at < launch) & ((before < 0) | (waited_at > before))
        found[own & (found == self.NONE)] = self.EVENT


def _search(group: Int64s, value: Int64s, at_group: Int64s, at_value: Int64s) -> Int64s:
    """Position of the last row of the group with at most this value; -1 or another group's for none."""
    distinct = np.unique(group)
    codes = np.searchsorted(distinct, group).astype(np.int32)
    at_codes = np.minimum(np.searchsorted(distinct, at_group), len(distinct) - 1).astype(np.int32)
    result: Int64s = search_grouped(codes, value, at_codes, at_value) - 1
    return result


def previous_on_stream(work: DeviceWork) -> Int32s:
    """Position of the work before each on its stream; -1 for the first."""
    previous = np.full(len(work.stream), -1, np.int32)
    order = np.argsort(work.stream, kind="stable")
    same = work.stream[order][1:] == work.stream[order][:-1]
    previous[order[1:][same]] = order[:-1][same]
    return previous


def _launch_before(work: DeviceWork) -> Int64s:
    """Start of the launch before each one's on its stream; -1 for the first."""
    result = np.full(len(work.call), -1, np.int64)
    order = np.lexsort((work.launch_start, work.stream))
    stream, launch = work.stream[order], work.launch_start[order]
    # All nodes of a graph share one launch: the launch before is the last different one.
    changed = np.flatnonzero((stream[1:] == stream[:-1]) & (launch[1:] != launch[:-1])) + 1
    previous = np.full(len(order), -1, np.int64)
    previous[changed] = launch[changed - 1]
    carried = np.maximum.accumulate(np.where(previous >= 0, np.arange(len(order)), -1))
    first_of_stream = np.flatnonzero(np.diff(stream, prepend=stream[0] - 1))
    begin = np.zeros(len(order), np.int64)
    begin[first_of_stream] = first_of_stream
    begin = np.maximum.accumulate(begin)
    valid = carried >= begin
    result[order] = np.where(valid, previous[np.maximum(carried, 0)], -1)
    return result


def recorded_waits(capture: Capture) -> Waits:
    """All stream waits of a capture."""
    codes, names = capture.codes("api_call", "name")
    is_wait = np.array([_WAIT_CALL.search(name) is not None for name in names] or [False], np.bool_)
    thread = capture.ids("api_call", "thread_id")
    rows = np.flatnonzero(is_wait[np.maximum(codes, 0)] & (codes >= 0))
    call_start = capture.int64("api_call", "start_ns")[rows]
    order = np.lexsort((call_start, thread[rows]))
    kinds, kind_names = capture.codes("dependency", "kind")
    is_event_wait = np.array([name == "event_wait" for name in kind_names] or [False], np.bool_)
    chosen = is_event_wait[np.maximum(kinds, 0)] & (kinds >= 0)
    return Waits(
        call_thread=thread[rows][order],
        call_start=call_start[order],
        device_id=capture.ids("dependency", "device_id")[chosen],
        stream=capture.int64("dependency", "stream_id", NO_ID)[chosen],
        start=capture.int64("dependency", "start_ns")[chosen],
        end=capture.int64("dependency", "end_ns")[chosen],
        from_stream=capture.int64("dependency", "from_stream_id", NO_ID)[chosen],
        thread_of_call=thread,
    )
