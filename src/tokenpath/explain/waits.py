"""Recorded waits of device streams: which queued kernels had to wait for an event, and whose."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.capture.intervals import Int64s, expand
from tokenpath.capture.nesting import Int32s, search_grouped
from tokenpath.core.units import INT64_MIN
from tokenpath.explain.work import COMMUNICATION, NO_LAUNCH, DeviceWork
from tokenpath.stitch.runs import match, runs_of

HANDOVER_NS = 10_000
"""A kernel that starts within this time after its stream's previous one was handed over to."""

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
    called: Int64s
    """When the host made the recorded wait: profilers record the call, not the wait on the device."""
    from_stream: Int64s
    """Stream that is waited for; NO_ID when not recorded."""
    event_at: Int64s
    """When the host recorded the event that is waited for; the wait itself where not recorded."""
    thread_of_call: Int32s
    """Thread of every API call."""

    NONE, EVENT, COLLECTIVE = 0, 1, 2

    def before(self, work: DeviceWork, kernel: Int64s) -> NDArray[np.int8]:
        """What each queued kernel had to wait for: NONE, EVENT, or COLLECTIVE (an event behind one).

        Evidence is a recorded wait of the kernel's stream, made between the launch before on that stream
        and the kernel's own, or, for a device without records, a stream-wait call of the launching
        thread in that time (which does not say for which stream).
        """
        found = np.zeros(len(kernel), np.int8)
        if len(kernel) == 0:
            return found
        mine = np.flatnonzero(self.device_id == work.device_id)
        if len(mine):
            self._from_records(work, kernel, mine, found)
        else:
            self._from_calls(work, kernel, found)
        return found

    def _from_records(
        self, work: DeviceWork, kernel: Int64s, mine: Int64s, found: NDArray[np.int8]
    ) -> None:
        mine = mine[np.lexsort((self.called[mine], self.stream[mine]))]
        stream, called = self.stream[mine], self.called[mine]
        before = _launch_before(work)[kernel]
        low = last_on_stream(stream, called, work.stream[kernel], before) + 1
        high = last_on_stream(stream, called, work.stream[kernel], work.launch_start[kernel]) + 1
        row, position = expand(low, high)
        if len(row) == 0:
            return
        record = mine[position]
        # What the awaited stream had been given before the event: its last work holds the kernel.
        by_launch = np.lexsort((work.launch_start, work.stream))
        awaited = last_on_stream(
            work.stream[by_launch],
            work.launch_start[by_launch],
            self.from_stream[record],
            self.event_at[record],
        )
        last = by_launch[np.maximum(awaited, 0)]
        is_known = (awaited >= 0) & (work.stream[last] == self.from_stream[record])
        over = np.where(is_known, work.end[last], NO_LAUNCH)
        previous = previous_on_stream(work)[kernel[row]]
        free = np.where(previous >= 0, work.end[np.maximum(previous, 0)], NO_LAUNCH)
        # Over before the stream was free, the wait cost nothing. Where the stream stood still all the same,
        # what held it is not recorded: a host callback also comes before an event.
        start, launch = work.start[kernel[row]], work.launch_start[kernel[row]]
        held_by_it = is_known & (over > free)
        held = held_by_it | ~is_known | (start - np.maximum(free, launch) > HANDOVER_NS)
        is_collective = held_by_it & (work.kind[last] == COMMUNICATION)
        is_collective &= start - np.maximum(over, launch) <= HANDOVER_NS
        kind = np.where(is_collective, self.COLLECTIVE, np.where(held, self.EVENT, self.NONE))
        # Of several waits the one that was over last counts.
        order = np.lexsort((kind, over, row))
        found[row[order]] = kind[order]

    def _from_calls(self, work: DeviceWork, kernel: Int64s, found: NDArray[np.int8]) -> None:
        if len(self.call_start) == 0:
            return
        launch = work.launch_start[kernel]
        thread = self.thread_of_call[work.call[kernel]]
        position = search_grouped(self.call_thread, self.call_start, thread, launch) - 1
        waited_at = self.call_start[np.maximum(position, 0)]
        exists = (position >= 0) & (self.call_thread[np.maximum(position, 0)] == thread)
        before = _launch_before(work)[kernel]
        own = exists & (waited_at < launch) & (waited_at > before)
        found[own & (found == self.NONE)] = self.EVENT


def last_on_stream(group: Int64s, value: Int64s, at_group: Int64s, at_value: Int64s) -> Int64s:
    """Position of the last row of the group with at most this value.

    For none the position before the group's first row, and -1 for a group without rows.
    """
    distinct = np.unique(group)
    codes = np.searchsorted(distinct, group).astype(np.int32)
    at_codes = np.minimum(np.searchsorted(distinct, at_group), len(distinct) - 1).astype(np.int32)
    result: Int64s = search_grouped(codes, value, at_codes, at_value) - 1
    result[distinct[at_codes] != at_group] = -1
    return result


def previous_on_stream(work: DeviceWork) -> Int32s:
    """Position of the work before each on its stream; -1 for the first."""
    previous = np.full(len(work.stream), -1, np.int32)
    order = np.argsort(work.stream, kind="stable")
    same = work.stream[order][1:] == work.stream[order][:-1]
    previous[order[1:][same]] = order[:-1][same]
    return previous


def _launch_before(work: DeviceWork) -> Int64s:
    """Start of the launch before each one's on its stream; NO_LAUNCH for the first."""
    result = np.full(len(work.call), NO_LAUNCH, np.int64)
    order = np.lexsort((work.launch_start, work.stream))
    stream, launch = work.stream[order], work.launch_start[order]
    # All nodes of a graph share one launch: the launch before is the last different one.
    changed = np.flatnonzero((stream[1:] == stream[:-1]) & (launch[1:] != launch[:-1])) + 1
    previous = np.full(len(order), NO_LAUNCH, np.int64)
    previous[changed] = launch[changed - 1]
    known = previous != NO_LAUNCH
    carried = np.maximum.accumulate(np.where(known, np.arange(len(order)), -1))
    first_of_stream = np.flatnonzero(np.diff(stream, prepend=stream[0] - 1))
    begin = np.zeros(len(order), np.int64)
    begin[first_of_stream] = first_of_stream
    begin = np.maximum.accumulate(begin)
    valid = carried >= begin
    result[order] = np.where(valid, previous[np.maximum(carried, 0)], NO_LAUNCH)
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
    starts = capture.int64("api_call", "start_ns")
    record = match(
        runs_of(capture, "api_call"),
        capture.int64("api_call", "correlation_id", INT64_MIN),
        runs_of(capture, "dependency")[chosen],
        capture.int64("dependency", "from_correlation_id", INT64_MIN)[chosen],
        INT64_MIN,
    )
    called = capture.int64("dependency", "start_ns")[chosen]
    return Waits(
        call_thread=thread[rows][order],
        call_start=call_start[order],
        device_id=capture.ids("dependency", "device_id")[chosen],
        stream=capture.int64("dependency", "stream_id", NO_ID)[chosen],
        called=called,
        from_stream=capture.int64("dependency", "from_stream_id", NO_ID)[chosen],
        event_at=np.where(record >= 0, starts[np.maximum(record, 0)], called)
        if len(starts)
        else called,
        thread_of_call=thread,
    )
