"""One profile, in either form, as a capture."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.core.units import format_duration
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Options, Reader
from tokenpath.ingest.workers import worker_count
from tokenpath.ingest.xla.devices import add_device, add_device_lines, is_device
from tokenpath.ingest.xla.hosts import add_host_line
from tokenpath.ingest.xla.lines import NULL, PS_PER_NS, Plane, Space, timed
from tokenpath.ingest.xla.memory import MemoryEvents
from tokenpath.ingest.xla.parts import Parts
from tokenpath.ingest.xla.proto import read_space
from tokenpath.ingest.xla.trace_json import read_trace

_THREADS_FROM_BYTES = 2**23
_JUMP_PS = 1_000_000
"""The two clocks round differently; a microsecond is more than that."""
_EPOCH_FROM_NS = 10**17
"""Stamps from 1973 on count from 1970; smaller ones count from the start of the profile."""
_MAX_JSON_EVENTS = 1_000_000
"""Where XLA's converter to JSON stops without a word (jax issue 21295)."""
_ENVIRONMENT = "Task Environment"
_PLANE_OF_PROGRAMS = "/host:metadata"


def read_xplane(reader: Reader, path: Path, options: Options) -> Capture:
    """A `.xplane.pb` file."""
    builder = CaptureBuilder(reader, path, options)
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    data = _joined(unpacked.chunks)
    for problem in unpacked.problems:
        builder.losses.add(problem, dropped=False)
    # A small file is read before a thread has started.
    num_workers = worker_count(options.num_workers) if len(data) >= _THREADS_FROM_BYTES else 1
    space = read_space(data, builder.losses, str(path), num_workers)
    _fill(builder, space)
    unpacked.report_done()
    return builder.finish()


def read_xla_json(reader: Reader, path: Path, options: Options) -> Capture:
    """The `trace.json.gz` form."""
    builder = CaptureBuilder(reader, path, options)
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    space = read_trace(unpacked.chunks, builder.losses, str(path))
    for problem in unpacked.problems:
        builder.losses.add(problem, dropped=False)
    if space.num_events >= _MAX_JSON_EVENTS:
        builder.note(
            "xla-json-event-limit",
            f"the trace holds {space.num_events:,} events; XLA's converter to JSON stops at 1,000,000 "
            "and says nothing of the rest: the .xplane.pb beside it is whole",
        )
    _fill(builder, space)
    unpacked.report_done()
    return builder.finish()


def _joined(chunks: Iterable[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    parts = list(chunks)
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, np.uint8)


def _fill(builder: CaptureBuilder, space: Space) -> None:
    builder.num_events = space.num_events
    _set_origin(builder, space)
    devices = [plane for plane in space.planes if is_device(plane)]
    _note_clock(builder, devices)
    has_step_lines = any(line.name == "Steps" for plane in devices for line in plane.lines)
    memory, parts = MemoryEvents(), Parts()
    for plane in space.planes:
        lines = (timed(line, builder.losses) for line in plane.lines)
        if is_device(plane):
            add_device_lines(parts, builder.losses, lines, add_device(builder, plane))
        else:
            for line in lines:
                add_host_line(parts, line, memory, with_steps=not has_step_lines)
        # What is done with is let go: the tables hold it now.
        plane.lines.clear()
    parts.write(builder)
    memory.write(builder)


def _note_clock(builder: CaptureBuilder, devices: list[Plane]) -> None:
    """Say where the timeline that is drawn disagrees with the device's own clock on how long work took."""
    num_events = num_off = sum_off_ps = most_ps = 0
    for line in (line for plane in devices for line in plane.lines):
        own = line.number("device_duration_ps")
        known = (own != NULL) & (line.duration_ps >= 0) & (own >= 0)
        off = np.abs(line.duration_ps[known] - own[known])
        off = off[off > _JUMP_PS]
        num_events += int(known.sum())
        num_off += len(off)
        sum_off_ps += sum(off.tolist())
        most_ps = max([most_ps, *off.tolist()])
    if num_off:
        builder.note(
            "xla-clock-jumps",
            f"{num_off:,} of {num_events:,} device events last longer or shorter on the timeline than on "
            f"the device's own clock, by {format_duration(sum_off_ps / PS_PER_NS)} in all and up to "
            f"{format_duration(most_ps / PS_PER_NS)}: the profiler moved the device's clock against the "
            "host's while they ran",
        )


def _set_origin(builder: CaptureBuilder, space: Space) -> None:
    """The clock, the host and what the profiler says of the run."""
    origin = builder.origin
    origin.profiler = "xla"
    origin.host = next((_host(name) for name in space.hosts if name), None)
    for name, message in space.messages.items():
        builder.setting(f"profiler.{name}", message)
    begin: int | None = None
    for plane in space.planes:
        if plane.name == _ENVIRONMENT:
            found = plane.stats.get("profile_start_time")
            if isinstance(found, int) and _EPOCH_FROM_NS < found < 2**62:
                begin = found
        if not is_device(plane) and plane.name != _PLANE_OF_PROGRAMS:
            for name, value in plane.stats.items():
                builder.setting(f"{plane.name.removeprefix('/')}.{name}", value)
    lines = [line for plane in space.planes for line in plane.lines]
    relative = [line for line in lines if line.base_ns < _EPOCH_FROM_NS]
    origin.clock = "epoch" if begin is not None or (lines and not relative) else "monotonic"
    if begin is not None and relative:
        origin.clock_offset_ns = origin.base_time_ns = begin
        for line in relative:
            line.base_ns += begin


def _host(name: str) -> str:
    """The host of `host:port`."""
    host, colon, port = name.rpartition(":")
    return host if colon and port.isdigit() and ":" not in host else name
