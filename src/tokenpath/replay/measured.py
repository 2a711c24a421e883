"""What was measured, as the columns that the graph is made of."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.capture.intervals import Int64s

Int32s = NDArray[np.int32]
Bools = NDArray[np.bool_]

_WAITS = re.compile(r"synchron", re.IGNORECASE)
_MAY_WAIT = re.compile(
    r"memcpy(?!.*async)|memset(?!.*async)|(?:cuda|hip|cu)(?:mem|array)?free|hostalloc|hostfree|mallochost"
    r"|hostregister|hostunregister|streamdestroy|moduleunload",
    re.IGNORECASE,
)
_GRAPH = re.compile(r"graph_?launch", re.IGNORECASE)


@dataclass(frozen=True)
class Work:
    """Device work, by start."""

    row: Int32s
    """Row of `kernel`."""
    source: Int32s
    """Row of `source`."""
    device: Int32s
    """Row of `device`."""
    stream: Int64s
    """A number for each stream of each device."""
    start: Int64s
    """Start, from the origin of the graph."""
    end: Int64s
    """End, not before the start."""
    call: Int32s
    """Position in Calls of what launched it; -1 when the file does not hold it."""
    is_communication: Bools
    """Whether it is communication."""
    is_copy: Bools
    """Whether it is a copy."""

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Calls:
    """API calls that launch work or may wait for it, by thread and start."""

    row: Int32s
    """Row of `api_call`."""
    source: Int32s
    """Row of `source`."""
    thread: Int32s
    """Row of `thread`."""
    start: Int64s
    """Start, from the origin of the graph."""
    end: Int64s
    """End."""
    is_graph: Bools
    """Whether it launches a graph."""
    waits: Bools
    """Whether it is there to wait for the device."""
    may_wait: Bools
    """Whether it may wait as a side effect."""
    name: Int32s
    """Code of its name."""

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Measured:
    """Work and calls on one time line."""

    origin_ns: int
    """Time on the capture's clock from which all times count."""
    shift_ns: Int64s
    """Taken off the times of each source, so that the clocks of several hosts agree."""
    work: Work
    """Device work."""
    calls: Calls
    """Host calls."""


def measure(capture: Capture, shift_ns: Int64s | None = None) -> Measured:
    """Read the columns of a linked capture.

    `shift_ns` is what the clock of each row of `source` shows too much; none for one clock.
    """
    num_sources = max(capture.num_rows("source"), 1)
    shift = np.zeros(num_sources, np.int64) if shift_ns is None else shift_ns
    has_shift = bool(shift.any())
    source = capture.ids("kernel", "source_id")
    start, end = capture.int64("kernel", "start_ns"), capture.int64("kernel", "end_ns")
    if has_shift:
        start, end = start - shift[source], end - shift[source]
    calls, position = _calls(capture, shift)
    origin = min(
        (int(times.min()) for times in (start, calls.start) if len(times)),
        default=0,
    )
    order = np.arange(len(start))
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
    device = capture.ids("kernel", "device_id")[order]
    stream = capture.int64("kernel", "stream_id")[order]
    kind, kinds = capture.codes("kernel", "kind")
    kind = kind[order]
    call = capture.ids("kernel", "api_call_id")[order]
    call = np.where(call >= 0, position[call], NO_ID) if len(position) else call
    begin = start[order] - origin
    return Measured(
        origin,
        shift,
        Work(
            order.astype(np.int32),
            source[order],
            device,
            _dense(device, stream),
            begin,
            np.maximum(end[order] - origin, begin),
            call.astype(np.int32),
            _is_kind(kind, kinds, "communication"),
            _is_kind(kind, kinds, "memcpy"),
        ),
        Calls(
            calls.row,
            calls.source,
            calls.thread,
            calls.start - origin,
            np.maximum(calls.end - origin, calls.start - origin),
            calls.is_graph,
            calls.waits,
            calls.may_wait,
            calls.name,
        ),
    )


def _is_kind(codes: Int32s, names: list[str], kind: str) -> Bools:
    return codes == names.index(kind) if kind in names else np.zeros(len(codes), np.bool_)


def _dense(device: Int32s, stream: Int64s) -> Int64s:
    """One number for each pair, in the order of their first parts."""
    _, of_stream = np.unique(stream, return_inverse=True)
    width = int(of_stream.max()) + 1 if len(of_stream) else 1
    result: Int64s = device.astype(np.int64) * width + of_stream.reshape(-1)
    return result


def _calls(capture: Capture, shift: Int64s) -> tuple[Calls, Int32s]:
    """The calls that matter by (thread, start), and the position of every row of `api_call` among them."""
    codes, names = capture.codes("api_call", "name")
    is_graph, waits, may_wait = (
        np.array([pattern.search(name) is not None for name in names] or [False], np.bool_)
        for pattern in (_GRAPH, _WAITS, _MAY_WAIT)
    )
    num = capture.num_rows("api_call")
    at = np.maximum(codes, 0)
    launches = np.zeros(num, np.bool_)
    of_work = capture.ids("kernel", "api_call_id")
    if num:
        launches[of_work[of_work >= 0]] = True
    rows = np.flatnonzero(launches | waits[at] | may_wait[at])
    thread = capture.ids("api_call", "thread_id")[rows]
    source = capture.ids("api_call", "source_id")[rows]
    start = capture.int64("api_call", "start_ns")[rows] - shift[source]
    ends = capture.int64("api_call", "end_ns")[rows] - shift[source]
    order = np.lexsort((start, thread))
    rows = rows[order]
    position = np.full(num, NO_ID, np.int32)
    position[rows] = np.arange(len(rows), dtype=np.int32)
    code = at[rows]
    return (
        Calls(
            rows.astype(np.int32),
            source[order],
            thread[order],
            start[order],
            ends[order],
            is_graph[code],
            waits[code],
            may_wait[code],
            code.astype(np.int32),
        ),
        position,
    )
