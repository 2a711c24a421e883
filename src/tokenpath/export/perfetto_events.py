"""Kernels, calls and ranges of a capture as trace events on the lines that they belong to."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tokenpath.export.perfetto_text import (
    ROWS_PER_WRITE,
    Coded,
    EventRows,
    Field,
    Int64s,
    dims_field,
    flags,
    int64,
    literal,
    number_field,
    quoted,
    row_field,
    text_field,
    time_fields,
    whole,
    write_events,
)

# Names that catapult's color_scheme.html reserves; it refuses others. Families without one get a colour
# by their name.
_FAMILY_COLOURS = {
    "gemm": "thread_state_running",
    "attention_prefill": "rail_response",
    "attention_decode": "rail_animation",
    "attention": "rail_response",
    "moe": "thread_state_runnable",
    "communication": "bad",
    "memcpy": "yellow",
    "memset": "olive",
    "other": "grey",
}


class _Tables(Protocol):
    def __getitem__(self, name: str, /) -> pa.Table: ...


@dataclass(frozen=True)
class EventTimes:
    """What must be known of all events before the first is written."""

    start_ns: int | None
    """Start of the first event; None without events."""
    num_reversed: int
    """Events that end before they start."""


def event_times(capture: _Tables, tables: Sequence[str]) -> EventTimes:
    """Over the rows of these tables."""
    starts = []
    num_reversed = 0
    for name in tables:
        table = capture[name]
        if table.num_rows:
            starts.append(pc.min(table["start_ns"]).as_py())
            num_reversed += pc.sum(pc.less(table["end_ns"], table["start_ns"])).as_py()
    return EventTimes(min(starts, default=None), num_reversed)


class Tracks:
    """Processes and threads of the trace: numbers for the events, names for the metadata."""

    def __init__(self, capture: _Tables) -> None:
        self._capture = capture
        self._metadata: list[str] = [_named("process_sort_index", 1, 0, "sort_index", -1)]
        self._num_lines = [0, 0]
        self._devices: dict[int, int] = {}
        self._processes: dict[tuple[int, str], int] = {}
        self._threads = capture["thread"].to_pylist()
        self._ranks = capture["source"]["rank"].to_pylist()

    def metadata(self) -> bytes:
        """The metadata events of all tracks asked for so far."""
        return "".join(self._metadata).encode("ascii")

    def add_annotations(self, name: str) -> str:
        """A track of our own."""
        return self._add(1, name)

    def add_device_line(self, device_id: int, name: str, number: int) -> str:
        """A line of a device."""
        if device_id not in self._devices:
            self._devices[device_id] = self._add_process(*self._device_name(device_id))
        return self._add(self._devices[device_id], _numbered(name, number))

    def add_thread_line(self, thread_id: int, number: int) -> str:
        """A line of a thread; threads of one process of one source stand together."""
        thread = self._threads[thread_id]
        key = (thread["source_id"], thread["pid"])
        if key not in self._processes:
            title = f"process {thread['pid']}{self._rank(thread['source_id'])}"
            self._processes[key] = self._add_process(title, 1_000 + len(self._processes))
        name = thread["name"] or ""
        if thread["tid"] not in name:
            name = f"thread {thread['tid']} {name}".rstrip()
        return self._add(self._processes[key], _numbered(name, number))

    def _device_name(self, device_id: int) -> tuple[str, int]:
        device = self._capture["device"].slice(device_id, 1).to_pylist()
        if not device:
            return f"device row {device_id}", device_id
        name = f" {device[0]['name']}" if device[0]["name"] else ""
        return f"device {device[0]['index']}{name}{self._rank(device[0]['source_id'])}", device_id

    def _rank(self, source_id: int) -> str:
        rank = self._ranks[source_id] if source_id < len(self._ranks) else None
        return "" if rank is None else f", rank {rank}"

    def _add_process(self, name: str, position: int) -> int:
        pid = len(self._num_lines)
        self._num_lines.append(0)
        self._metadata.append(_named("process_name", pid, 0, "name", name))
        self._metadata.append(_named("process_sort_index", pid, 0, "sort_index", position))
        return pid

    def _add(self, pid: int, name: str) -> str:
        self._num_lines[pid] += 1
        tid = self._num_lines[pid]
        self._metadata.append(_named("thread_name", pid, tid, "name", name))
        self._metadata.append(_named("thread_sort_index", pid, tid, "sort_index", tid))
        return f'"pid":{pid},"tid":{tid},'


def _numbered(name: str, number: int) -> str:
    return f"{name} ({number + 1})" if number else name


def _named(event: str, pid: int, tid: int, key: str, value: str | int) -> str:
    return f',\n{{"ph":"M","name":"{event}","pid":{pid},"tid":{tid},"args":{{"{key}":{json.dumps(value)}}}}}'


def device_events(capture: _Tables, tracks: Tracks, base_ns: int) -> Iterator[memoryview]:
    """Kernels and device ranges, line by line in order of time."""
    kernel = capture["kernel"]
    if kernel.num_rows:
        family, colour = _families(kernel)
        fields = [
            text_field(',"cat":', family),
            text_field("", colour),
            time_fields(kernel, base_ns),
            row_field(),
            number_field(',"stream":', kernel["stream_id"]),
            text_field(',"op":', _names_of_rows(kernel["op_id"], capture["op"]["name"])),
            number_field(',"step_id":', kernel["step_id"]),
            number_field(',"bytes":', kernel["bytes"]),
            dims_field(',"grid":', kernel["grid"]),
            dims_field(',"block":', kernel["block"]),
            number_field(',"correlation_id":', kernel["correlation_id"]),
            number_field(',"graph_node_id":', kernel["graph_node_id"]),
            literal("}"),
            # One arrow from each launch to what it launched; the launch's row is its number.
            number_field(',"flow_in":true,"bind_id":', kernel["api_call_id"]),
        ]
        yield from _write_device(kernel, tracks, "", fields)
    rows = np.flatnonzero(flags(pc.is_valid(capture["range"]["device_id"])))
    if len(rows):
        ranges = capture["range"].take(pa.array(rows))
        fields = [
            literal(',"cat":"range"'),
            time_fields(ranges, base_ns),
            row_field(rows),
            literal("}"),
        ]
        yield from _write_device(ranges, tracks, " annotations", fields)


def _write_device(
    table: pa.Table, tracks: Tracks, suffix: str, fields: Sequence[Field]
) -> Iterator[memoryview]:
    device, stream = int64(table["device_id"]), int64(table["stream_id"].fill_null(0))
    start, end = int64(table["start_ns"]), int64(table["end_ns"])
    order = np.lexsort((~end, start, stream, device))
    nests = bool(suffix)

    def name_line(row: int, number: int) -> str:
        return tracks.add_device_line(int(device[row]), f"stream {stream[row]}{suffix}", number)

    edges = (np.diff(device[order]) != 0) | (np.diff(stream[order]) != 0)
    track = _lay_out(order, edges, start, end, nests, name_line)
    events = EventRows(track, quoted(table["name"]), fields)
    by_line = order[np.argsort(track.codes.to_numpy()[order], kind="stable")]
    yield from write_events([events], np.zeros(len(order), np.int8), by_line)


def host_events(capture: _Tables, tracks: Tracks, base_ns: int) -> Iterator[memoryview]:
    """Ranges, frames, ops and calls, thread by thread in order of time, outer ones first."""
    launches = pc.unique(capture["kernel"]["api_call_id"]).drop_null()
    tables, own_rows, fields_of = [], [], []
    for name in ("range", "frame", "op", "api_call"):
        rows = np.flatnonzero(flags(pc.is_valid(capture[name]["thread_id"])))
        table = capture[name].take(pa.array(rows)) if name == "range" else capture[name]
        fields = [literal(f',"cat":"{name}"'), time_fields(table, base_ns), row_field(rows)]
        if name == "op":
            fields.append(text_field(',"input_shapes":', quoted(table["input_shapes"])))
        if name == "api_call":
            fields.append(number_field(',"correlation_id":', table["correlation_id"]))
        fields.append(literal("}"))
        if name == "api_call":
            own = pa.array(rows, launches.type)
            arrow = pc.if_else(pc.is_in(own, launches), own, pa.scalar(None, own.type))
            fields.append(number_field(',"flow_out":true,"bind_id":', arrow))
        tables.append(table)
        own_rows.append(np.arange(len(rows)))
        fields_of.append(fields)
    thread = np.concatenate([int64(table["thread_id"]) for table in tables])
    start = np.concatenate([int64(table["start_ns"]) for table in tables])
    end = np.concatenate([int64(table["end_ns"]) for table in tables])
    source = np.repeat(np.arange(len(tables), dtype=np.int8), [len(rows) for rows in own_rows])
    # Of events with equal times the outer kind comes first.
    order = np.lexsort((source, ~end, start, thread))

    def name_line(row: int, number: int) -> str:
        return tracks.add_thread_line(int(thread[row]), number)

    track = _lay_out(order, np.diff(thread[order]) != 0, start, end, True, name_line)
    first = np.cumsum([0, *(len(rows) for rows in own_rows)])
    events = [
        EventRows(
            Coded(track.codes[int(first[i]) : int(first[i + 1])], track.texts),
            quoted(table["name"]),
            fields_of[i],
        )
        for i, table in enumerate(tables)
    ]
    yield from write_events(events, source[order], np.concatenate(own_rows)[order])


def _lay_out(
    order: Int64s,
    edges: NDArray[np.bool_],
    start: Int64s,
    end: Int64s,
    nests: bool,
    name_line: Callable[[int, int], str],
) -> Coded:
    """A line for each row: rows of one group (between `edges` of the order) share as few as they can."""
    if not len(order):
        return Coded(pa.array([], pa.int64()), pa.array([], pa.string()))
    code = np.empty(len(order), np.int64)
    texts: list[str] = []
    bounds = np.concatenate(([0], np.flatnonzero(edges) + 1, [len(order)]))
    for first, last in itertools.pairwise(bounds):
        rows = order[first:last]
        # What ends before it starts is drawn empty.
        lane = lanes(start[rows], np.maximum(start[rows], end[rows]), nests)
        code[rows] = len(texts) + lane
        texts += [name_line(int(rows[0]), number) for number in range(int(lane.max()) + 1)]
    return Coded(pa.array(code), pa.array(texts, pa.string()))


def _families(kernel: pa.Table) -> tuple[Coded, Coded]:
    """The category of each kernel, and its colour."""
    family = quoted(kernel["family"])
    colours = [_FAMILY_COLOURS.get(json.loads(text)) for text in family.texts.to_pylist()]
    texts = pa.array([f',"cname":"{colour}"' if colour else "" for colour in colours], pa.string())
    return family, Coded(family.codes, texts)


def _names_of_rows(ids: pa.ChunkedArray, names: pa.ChunkedArray) -> Coded:
    """The text of the row that each id names."""
    shown = quoted(names)
    return Coded(shown.codes.take(whole(ids)), shown.texts)


def lanes(start: Int64s, end: Int64s, nests: bool) -> Int64s:
    """A lane for each interval, given by start and then longest first, so that no two of a lane clash.

    Two of a lane lie apart or, if `nests`, one within the other. The lowest free lane is taken.
    """
    result = np.zeros(len(start), np.int64)
    clashes = np.zeros(len(start), np.bool_)
    clashes[1:] = start[1:] < np.maximum.accumulate(end)[:-1]
    if not clashes.any():
        return result
    open_ends: list[list[int]] = []
    for first in range(0, len(start), ROWS_PER_WRITE):
        # Lists of Python numbers are quick to loop over, and large: a chunk at a time.
        chunk = slice(first, first + ROWS_PER_WRITE)
        columns = zip(
            start[chunk].tolist(), end[chunk].tolist(), clashes[chunk].tolist(), strict=True
        )
        for index, (at, until, is_clash) in enumerate(columns, first):
            if not is_clash:
                open_ends = [[until]]
                continue
            for lane, ends in enumerate(open_ends):
                while ends and ends[-1] <= at:
                    ends.pop()
                if not ends or (nests and until <= ends[-1]):
                    ends.append(until)
                    if lane:
                        result[index] = lane
                    break
            else:
                result[index] = len(open_ends)
                open_ends.append([until])
    return result
