"""Kernels, calls and ranges of a capture as trace events on the lines that they belong to."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenpath.export.perfetto_text import (
    Coded,
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
        self._num_annotation_tracks = 0
        self._next_pid = 2
        self._devices: dict[int, int] = {}
        self._num_lanes: dict[int, int] = {}
        self._ranks = capture["source"]["rank"].to_pylist()

    def metadata(self) -> bytes:
        """The metadata events of all tracks asked for so far."""
        return "".join(self._metadata).encode("ascii")

    def add_annotations(self, name: str) -> str:
        """A track of our own."""
        self._num_annotation_tracks += 1
        return self._add(1, self._num_annotation_tracks, name)

    def add_device_lane(self, device_id: int, name: str) -> str:
        """A further line of a device."""
        if device_id not in self._devices:
            self._devices[device_id] = self._add_process(*self._device_name(device_id))
            self._num_lanes[device_id] = 0
        self._num_lanes[device_id] += 1
        return self._add(self._devices[device_id], self._num_lanes[device_id], name)

    def add_threads(self) -> list[str]:
        """One for each row of `thread`; threads of one process of one source stand together."""
        processes: dict[tuple[int, str], int] = {}
        result = []
        for row, thread in enumerate(self._capture["thread"].to_pylist()):
            key = (thread["source_id"], thread["pid"])
            if key not in processes:
                title = f"process {thread['pid']}{self._rank(thread['source_id'])}"
                processes[key] = self._add_process(title, 1_000 + len(processes))
            name = f"thread {thread['tid']}" + (f" {thread['name']}" if thread["name"] else "")
            result.append(self._add(processes[key], row + 1, name))
        return result

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
        pid = self._next_pid
        self._next_pid += 1
        self._metadata.append(_named("process_name", pid, 0, "name", name))
        self._metadata.append(_named("process_sort_index", pid, 0, "sort_index", position))
        return pid

    def _add(self, pid: int, tid: int, name: str) -> str:
        self._metadata.append(_named("thread_name", pid, tid, "name", name))
        self._metadata.append(_named("thread_sort_index", pid, tid, "sort_index", tid))
        return f'"pid":{pid},"tid":{tid},'


def _named(event: str, pid: int, tid: int, key: str, value: str | int) -> str:
    return f',\n{{"ph":"M","name":"{event}","pid":{pid},"tid":{tid},"args":{{"{key}":{json.dumps(value)}}}}}'


def device_events(capture: _Tables, tracks: Tracks, base_ns: int) -> Iterator[memoryview]:
    """Kernels and device ranges, line by line in order of time."""
    kernel = capture["kernel"]
    if kernel.num_rows:
        track, order = _device_lines(kernel, tracks, "", nests=False)
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
        yield from write_events(track, quoted(kernel["name"]), order, fields)
    rows = np.flatnonzero(flags(pc.is_valid(capture["range"]["device_id"])))
    if len(rows):
        ranges = capture["range"].take(pa.array(rows))
        track, order = _device_lines(ranges, tracks, " annotations", nests=True)
        fields = [
            literal(',"cat":"range"'),
            time_fields(ranges, base_ns),
            row_field(rows),
            literal("}"),
        ]
        yield from write_events(track, quoted(ranges["name"]), order, fields)


def host_events(capture: _Tables, tracks: Tracks, base_ns: int) -> Iterator[memoryview]:
    """Ranges, frames, ops and calls, table by table, thread by thread in order of time."""
    threads = pa.array(tracks.add_threads(), pa.string())
    launches = pc.unique(capture["kernel"]["api_call_id"]).drop_null()
    for name in ("range", "frame", "op", "api_call"):
        # Outer things come first: viewers nest events of equal times in the order of the file.
        rows = np.flatnonzero(flags(pc.is_valid(capture[name]["thread_id"])))
        if not len(rows):
            continue
        table = capture[name].take(pa.array(rows)) if name == "range" else capture[name]
        thread = int64(table["thread_id"])
        order = np.lexsort((~int64(table["end_ns"]), int64(table["start_ns"]), thread))
        fields: list[Field] = [
            literal(f',"cat":"{name}"'),
            time_fields(table, base_ns),
            row_field(rows),
        ]
        if name == "op":
            fields.append(text_field(',"input_shapes":', quoted(table["input_shapes"])))
        if name == "api_call":
            fields.append(number_field(',"correlation_id":', table["correlation_id"]))
        fields.append(literal("}"))
        if name == "api_call" and len(launches):
            own = pa.array(rows, launches.type)
            starts_arrow = pc.is_in(own, launches)
            arrow = pc.if_else(starts_arrow, own, pa.scalar(None, own.type))
            fields.append(number_field(',"flow_out":true,"bind_id":', arrow))
        track = Coded(pa.array(thread), threads)
        yield from write_events(track, quoted(table["name"]), order, fields)


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


def _device_lines(
    table: pa.Table, tracks: Tracks, suffix: str, nests: bool
) -> tuple[Coded, Int64s]:
    """The line of each row, and the rows by line and time."""
    device, stream = int64(table["device_id"]), int64(table["stream_id"].fill_null(0))
    start, end = int64(table["start_ns"]), int64(table["end_ns"])
    order = np.lexsort((~end, start, stream, device))
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (np.diff(device[order]) != 0) | (np.diff(stream[order]) != 0)
    edges = np.append(np.flatnonzero(begins), len(order))
    code = np.empty(len(order), np.int64)
    texts: list[str] = []
    for first, last in itertools.pairwise(edges):
        rows = order[first:last]
        lane = lanes(start[rows], end[rows], nests)
        code[rows] = len(texts) + lane
        for number in range(int(lane.max()) + 1):
            name = f"stream {stream[rows[0]]}{suffix}" + (f" ({number + 1})" if number else "")
            texts.append(tracks.add_device_lane(int(device[rows[0]]), name))
    by_line = np.lexsort((np.argsort(order), code))
    return Coded(pa.array(code), pa.array(texts, pa.string())), by_line


def lanes(start: Int64s, end: Int64s, nests: bool) -> Int64s:
    """A lane for each interval, given by start and then longest first, so that no two of a lane clash.

    Two of a lane lie apart or, if `nests`, one within the other. The lowest free lane is taken.
    """
    result = np.zeros(len(start), np.int64)
    before = np.maximum.accumulate(end)
    clashes = start[1:] < before[:-1]
    if not clashes.any():
        return result
    open_ends: list[list[int]] = []
    for index in range(len(start)):
        if index == 0 or not clashes[index - 1]:
            open_ends = [[int(end[index])]]
            continue
        at, until = int(start[index]), int(end[index])
        for lane, ends in enumerate(open_ends):
            while ends and ends[-1] <= at:
                ends.pop()
            if not ends or (nests and until <= ends[-1]):
                ends.append(until)
                result[index] = lane
                break
        else:
            result[index] = len(open_ends)
            open_ends.append([until])
    return result
