"""Events of one timeline of an xplane file, column by column.

Field numbers: xplane.proto (openxla/xla, xla/tsl/profiler/protobuf). The loops are plain Python for small
files and compiled for large ones; both see the same bytes and give the same columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.compiled import compiled

Int64s = NDArray[np.int64]
Bytes = NDArray[np.uint8]

NO_VALUE, DOUBLE, UNSIGNED, SIGNED, STRING, BLOB, REFERENCE = 0, 2, 3, 4, 5, 6, 7
"""What a statistic holds: the field number of its value in XStat."""

SIZE_BITS = 20
"""Texts are read up to 2**20 - 1 bytes."""

_BYTES_A_ROW = 16
"""About the bytes that take as long in plain Python as one row of other loops."""
_BYTES_AN_EVENT = 20
"""Few timelines hold smaller events; those are looked through twice."""
_BAD = -1


@dataclass
class Events:
    """The events of one timeline, a row each."""

    metadata_id: Int64s
    """Key of the event's metadata (unsigned, as two's complement)."""
    offset_ps: Int64s
    """Start, counted from the timeline's own."""
    duration_ps: Int64s
    """Duration."""
    is_aggregate: NDArray[np.int8]
    """1 for a sum over many occurrences, which has no time."""
    kinds: NDArray[np.int8]
    """By wanted statistic and event: what it holds, NO_VALUE for none."""
    values: Int64s
    """Likewise: the number, the bits of a double, the id of a reference, or the hash of a text."""
    places: Int64s
    """Likewise for texts: start << SIZE_BITS | length."""
    line_id: int
    """The timeline's own number."""
    base_ns: int
    """Time that `offset_ps` counts from."""
    name: slice
    """Where the timeline's name lies."""
    shown_name: slice
    """Where the name to be shown lies; empty where there is none."""
    damaged_at: int | None
    """Byte at which the timeline stops making sense; the events before it are here."""


def bytes_of(data: Bytes) -> memoryview:
    """The same memory as bytes."""
    return memoryview(cast("bytes", data))


def scan_line(data: Bytes, start: int, stop: int, wanted: Int64s, num_file_bytes: int) -> Events:
    """Read the timeline in `data[start:stop]`; `wanted` are the sorted ids of statistics to keep."""
    rows = num_file_bytes // _BYTES_A_ROW
    find = find_events(rows)
    # Plain Python reads numbers faster from a memoryview than from an array.
    source: Any = data if hasattr(find, "__wrapped__") else bytes_of(data)
    state = np.zeros(7, np.int64)
    spans = np.empty((max(0, stop - start) // _BYTES_AN_EVENT + 1, 2), np.int64)
    num_events = find(source, start, stop, spans, state)
    if num_events > len(spans):
        spans = np.empty((num_events, 2), np.int64)
        find(source, start, stop, spans, state)
    spans = np.ascontiguousarray(spans[:num_events])
    damaged_at, line_id, base_ns, *head = (int(value) for value in state)
    columns = np.zeros((3, num_events), np.int64)
    is_aggregate = np.zeros(num_events, np.int8)
    shape = (len(wanted), num_events)
    kinds = np.zeros(shape, np.int8)
    values, places = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    num_read = read_events(rows)(
        source, spans, wanted, columns, is_aggregate, kinds, values, places, state
    )
    if num_read < num_events:
        damaged_at = int(state[0])
    return Events(
        columns[0, :num_read],
        columns[1, :num_read],
        columns[2, :num_read],
        is_aggregate[:num_read],
        kinds[:, :num_read],
        values[:, :num_read],
        places[:, :num_read],
        line_id,
        base_ns,
        slice(head[0], head[1]),
        slice(head[2], head[3]),
        None if damaged_at == _BAD else damaged_at,
    )


@compiled
def find_events(data: Bytes, start: int, stop: int, spans: Int64s, state: Int64s) -> int:
    """Where the events (field 4) of a timeline lie; their number.

    `state`: where it breaks off or -1, id (field 1), timestamp_ns (3), and begin and end of name (2) and
    display_name (11).
    """
    at = start
    found = 0
    state[0] = -1
    while at < stop:
        begin = at
        # A number: seven bits a byte, low ones first, at most ten bytes.
        tag = 0
        shift = 0
        while True:
            if at >= stop or shift > 28:
                state[0] = begin
                return found
            byte = int(data[at])
            at += 1
            tag |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        kind = tag & 7
        if tag < 8:
            state[0] = begin
            return found
        if kind == 0:
            value = 0
            shift = 0
            while True:
                if at >= stop or shift > 63:
                    state[0] = begin
                    return found
                byte = int(data[at])
                at += 1
                if shift == 63:
                    if byte > 1:
                        state[0] = begin
                        return found
                    # The highest bit is the sign of the same bits as int64.
                    if byte == 1:
                        value += -9223372036854775808
                    break
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
            if tag == 8:
                state[1] = value
            elif tag == 24:
                state[2] = value
        elif kind == 1:
            at += 8
        elif kind == 5:
            at += 4
        elif kind == 2:
            size = 0
            shift = 0
            while True:
                if at >= stop or shift > 42:
                    state[0] = begin
                    return found
                byte = int(data[at])
                at += 1
                size |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
            if size > stop - at:
                state[0] = begin
                return found
            if tag == 34:
                if found < len(spans):
                    spans[found, 0] = at
                    spans[found, 1] = at + size
                found += 1
            elif tag == 18:
                state[3] = at
                state[4] = at + size
            elif tag == 90:
                state[5] = at
                state[6] = at + size
            at += size
        else:
            state[0] = begin
            return found
        if at > stop:
            state[0] = begin
            return found
    return found


@compiled
def read_events(
    data: Bytes,
    spans: Int64s,
    wanted: Int64s,
    columns: Int64s,
    is_aggregate: NDArray[np.int8],
    kinds: NDArray[np.int8],
    values: Int64s,
    places: Int64s,
    state: Int64s,
) -> int:
    """Fill the columns; the number of events read, fewer than asked where one is damaged (`state[0]`)."""
    for row in range(len(spans)):
        at = spans[row, 0]
        end_of_event = spans[row, 1]
        in_stat = 0
        stop = end_of_event
        stat_id = 0
        stat_kind = 0
        stat_value = 0
        stat_place = 0
        while True:
            if at >= stop:
                if at > stop:
                    state[0] = stop
                    return row
                if in_stat == 0:
                    break
                # A statistic is complete: keep it if it is wanted.
                low = 0
                high = len(wanted)
                while low < high:
                    middle = (low + high) // 2
                    if wanted[middle] < stat_id:
                        low = middle + 1
                    else:
                        high = middle
                if low < len(wanted) and wanted[low] == stat_id:
                    kinds[low, row] = stat_kind
                    if stat_kind == 5:
                        # Two 31-bit hashes; no product leaves int64, so that Python agrees.
                        first = 5381
                        second = 52711
                        for place in range(
                            stat_place >> 20, (stat_place >> 20) + (stat_place & 1048575)
                        ):
                            byte = int(data[place])
                            product = (first ^ byte) * 1540483477
                            first = (product ^ (product >> 31)) & 2147483647
                            product = (second + byte) * 1597334677
                            second = (product ^ (product >> 29)) & 2147483647
                        stat_value = (first << 31) | second
                    values[low, row] = stat_value
                    places[low, row] = stat_place
                in_stat = 0
                stop = end_of_event
                continue
            begin = at
            tag = 0
            shift = 0
            while True:
                if at >= stop or shift > 28:
                    state[0] = begin
                    return row
                byte = int(data[at])
                at += 1
                tag |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
            kind = tag & 7
            number = tag >> 3
            value = 0
            size = 0
            if number == 0:
                state[0] = begin
                return row
            if kind == 0 or kind == 2:
                shift = 0
                while True:
                    if at >= stop or shift > 63:
                        state[0] = begin
                        return row
                    byte = int(data[at])
                    at += 1
                    if shift == 63:
                        if byte > 1:
                            state[0] = begin
                            return row
                        # The highest bit is the sign of the same bits as int64.
                        if byte == 1:
                            value += -9223372036854775808
                        break
                    value |= (byte & 127) << shift
                    shift += 7
                    if byte < 128:
                        break
                if kind == 2:
                    size = value
                    if size < 0 or size > stop - at:
                        state[0] = begin
                        return row
            elif kind == 1:
                if stop - at < 8:
                    state[0] = begin
                    return row
                for i in range(7):
                    value |= int(data[at + i]) << (8 * i)
                byte = int(data[at + 7])
                value |= (byte & 127) << 56
                if byte > 127:
                    value += -9223372036854775808
                size = 8
            elif kind == 5:
                size = 4
                if stop - at < 4:
                    state[0] = begin
                    return row
            else:
                state[0] = begin
                return row
            if in_stat == 1:
                if number == 1 and kind == 0:
                    stat_id = value
                elif 2 <= number <= 7:
                    stat_kind = number
                    stat_value = value
                    if number == 5 and kind == 2:
                        stat_place = (at << 20) | min(size, 1048575)
                    elif (
                        number == 5
                        or (number == 2 and kind != 1)
                        or (number != 2 and number < 6 and kind != 0)
                    ):
                        stat_kind = 0
                at += size
            elif number == 4 and kind == 2:
                in_stat = 1
                stop = at + size
                stat_id = 0
                stat_kind = 0
                stat_value = 0
                stat_place = 0
            else:
                if kind == 0:
                    if number == 1:
                        columns[0, row] = value
                    elif number == 2:
                        columns[1, row] = value
                    elif number == 3:
                        columns[2, row] = value
                    elif number == 5:
                        is_aggregate[row] = 1
                at += size
    return len(spans)
