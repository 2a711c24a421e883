"""A capture with our annotations as a trace for Perfetto and chrome://tracing.

The format is the Trace Event Format (JSON): "Trace Event Format", Google, 2016, sections "Complete
Events" (`ph: X`), "Metadata Events" (`M`) and flow events of version 2 (`bind_id`, `flow_in`,
`flow_out`).
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from isal import igzip

from tokenpath import __version__
from tokenpath.core.errors import UsageError
from tokenpath.export.json import plain
from tokenpath.export.perfetto_events import Tracks, device_events, event_times, host_events
from tokenpath.export.tone import Tone, tone_of

GZIP_LEVEL = 2
"""Of isal's 0 to 3: half the size of 0 at twice its time."""
ANNOTATIONS_PER_WRITE = 4_096
MAX_KNOWN_ARGUMENTS = 10_000

_TIMED_TABLES = ("kernel", "op", "api_call", "frame", "range")
# Names that catapult's color_scheme.html reserves; it refuses others. Perfetto ignores them.
_ANNOTATION_COLOURS = {
    Tone.IDLE: "terrible",
    Tone.COMMUNICATION: "bad",
    Tone.MEMCPY: "yellow",
    Tone.UNKNOWN: "grey",
    Tone.BUSY: "generic_work",
    Tone.WALL: "generic_work",
}


class Tables(Protocol):
    """What is needed of a capture: its declared tables by name, absent ones empty."""

    def __getitem__(self, name: str, /) -> pa.Table:
        """The table of that name."""


@dataclass(frozen=True)
class Annotation:
    """Something that we know about a stretch of time, drawn on a track of its own."""

    track: str
    """Name of the track: `GPU 0 idle causes`. Annotations of one track lie apart or nest."""
    start_ns: int
    """Start on the capture's clock."""
    end_ns: int
    """End on the capture's clock (exclusive)."""
    name: str
    """What is written on it: `host not ready`."""
    args: Mapping[str, object] = field(default_factory=dict)
    """Further facts, JSON types only; their names end in their unit."""


@dataclass(frozen=True)
class Arrow:
    """An arrow from one annotation to another; both ends must lie on annotations of their tracks."""

    name: str
    """What it means: `served by`."""
    from_track: str
    """Track of the annotation that it leaves."""
    from_ns: int
    """A moment within that annotation."""
    to_track: str
    """Track of the annotation that it enters."""
    to_ns: int
    """A moment within that annotation, not before `from_ns`."""


def write(
    capture: Tables,
    annotations: Sequence[Annotation],
    path: str | os.PathLike[str],
    arrows: Sequence[Arrow] = (),
) -> None:
    """The device and host work of the capture and the annotations as trace JSON, gzipped for `.gz`.

    Times are microseconds with three decimals, so exact to the nanosecond, counted from the first event;
    `baseTimeNanoseconds` holds that event's time on the capture's clock. Each event carries the row of
    its table. Kernels of a stream that overlap, and host events that overlap without nesting, stand on
    further lines of their stream or thread, because viewers drop slices that overlap so. An event that
    ends before it starts is drawn empty and counted in `otherData`.

    Memory is bounded by the columns of one table and a chunk of text. The file appears under its name
    when it is whole. Raises UsageError when it cannot be written.
    """
    target = Path(path)
    times = event_times(capture, _TIMED_TABLES)
    starts = [a.start_ns for a in annotations] + (
        [times.start_ns] if times.start_ns is not None else []
    )
    base_ns = min(starts, default=0)
    num_reversed = times.num_reversed + sum(a.end_ns < a.start_ns for a in annotations)
    tracks = Tracks(capture)
    names = list(dict.fromkeys(annotation.track for annotation in annotations))
    annotation_tracks = {name: tracks.add_annotations(name) for name in names}
    try:
        with _replacing(target) as sink:
            sink.write(_opening(capture, base_ns, num_reversed))
            # Device lanes are known only once the kernels are sorted, so that their names come last.
            for chunk in device_events(capture, tracks, base_ns):
                sink.write(chunk)
            for chunk in host_events(capture, tracks, base_ns):
                sink.write(chunk)
            for text in _annotation_events(annotations, annotation_tracks, base_ns):
                sink.write(text)
            for text in _arrow_events(arrows, annotation_tracks, base_ns):
                sink.write(text)
            sink.write(tracks.metadata())
            sink.write(b"]}\n")
    except OSError as error:
        raise UsageError(
            f"the trace cannot be written: {error.strerror or error}",
            where=str(target),
            next_step="name a file in a folder that exists and has room",
        ) from error


def _opening(capture: Tables, base_ns: int, num_reversed: int) -> bytes:
    sources = capture["source"]
    facts = {
        "tokenpath_version": __version__,
        "states": pc.unique(sources["state"].cast(pa.string())).to_pylist(),
        "sources": sources["path"].to_pylist(),
        "num_events_that_end_before_they_start": num_reversed,
    }
    head = (
        f'{{"displayTimeUnit":"ns","baseTimeNanoseconds":{base_ns},\n"otherData":{json.dumps(facts)},\n'
        '"traceEvents":[\n{"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"tokenpath"}}'
    )
    return head.encode("ascii")


def _annotation_events(
    annotations: Sequence[Annotation], tracks: Mapping[str, str], base_ns: int
) -> Iterator[bytes]:
    """Text of the annotations, track by track, outer ones before those inside them."""
    order = sorted(range(len(annotations)), key=lambda i: _nesting_key(annotations[i]))
    heads: dict[str, str] = {}
    known: dict[object, str] = {}
    for first in range(0, len(order), ANNOTATIONS_PER_WRITE):
        texts = []
        for index in order[first : first + ANNOTATIONS_PER_WRITE]:
            annotation = annotations[index]
            head = heads.get(annotation.name)
            if head is None:
                colour = _ANNOTATION_COLOURS[tone_of(annotation.name, Tone.IDLE)]
                head = f',\n{{"ph":"X","name":{json.dumps(annotation.name)},"cat":"tokenpath","cname":"{colour}",'
                heads[annotation.name] = head
            duration_ns = max(0, annotation.end_ns - annotation.start_ns)
            texts.append(
                f'{head}{tracks[annotation.track]}"ts":{_microseconds(annotation.start_ns - base_ns)},'
                f'"dur":{_microseconds(duration_ns)},"args":{_arguments(annotation.args, known)}}}'
            )
        yield "".join(texts).encode("ascii")


def _arrow_events(
    arrows: Sequence[Arrow], tracks: Mapping[str, str], base_ns: int
) -> Iterator[bytes]:
    """Flow events (`ph: s`, `f`), each bound to the slice that encloses it (`bp: e`)."""
    for first in range(0, len(arrows), ANNOTATIONS_PER_WRITE):
        texts = []
        for number, arrow in enumerate(arrows[first : first + ANNOTATIONS_PER_WRITE], first):
            head = f',\n{{"name":{json.dumps(arrow.name)},"cat":"tokenpath","id":{number},'
            texts.append(
                f'{head}"ph":"s",{tracks[arrow.from_track]}"ts":{_microseconds(arrow.from_ns - base_ns)}}}'
                f'{head}"ph":"f","bp":"e",{tracks[arrow.to_track]}'
                f'"ts":{_microseconds(arrow.to_ns - base_ns)}}}'
            )
        yield "".join(texts).encode("ascii")


def _arguments(args: Mapping[str, object], known: dict[object, str]) -> str:
    """The arguments as JSON; those of a thousand gaps are a handful of different ones."""
    # With the types: True, 1 and 1.0 are one key, and three texts.
    key = tuple((name, type(value), value) for name, value in args.items())
    try:
        text = known.get(key)
    except TypeError:  # a value that has no hash, such as a list
        return json.dumps(plain(args, "args"), allow_nan=False)
    if text is None:
        text = json.dumps(plain(args, "args"), allow_nan=False)
        if len(known) < MAX_KNOWN_ARGUMENTS:
            known[key] = text
    return text


def _nesting_key(annotation: Annotation) -> tuple[str, int, int]:
    return annotation.track, annotation.start_ns, -annotation.end_ns


def _microseconds(duration_ns: int) -> str:
    return f"{duration_ns // 1000}.{duration_ns % 1000:03d}"


@contextmanager
def _replacing(target: Path) -> Iterator[Any]:
    """A file that takes the name `target` when it is complete, and leaves nothing when it fails."""
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    opener: Any = igzip.IGzipFile
    try:
        with unfinished.open("xb") as file:
            if target.suffix == ".gz":
                # Neither name nor time in the header: equal captures give equal bytes.
                with opener("", "wb", GZIP_LEVEL, file, 0) as packed:
                    yield packed
            else:
                yield file
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
