"""One Perfetto trace: track events of each writer's sequence, with its interned texts and defaults.

Sources: protos/perfetto/trace/trace_packet.proto, track_event/track_event.proto,
interned_data/interned_data.proto.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.capture.combine import combine
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.kineto.facts import is_epoch
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.perfetto.clocks import BOOTTIME, Clocks
from tokenpath.ingest.perfetto.event import Event, read_event
from tokenpath.ingest.perfetto.kinds import DESCRIPTIONS, KINDS
from tokenpath.ingest.perfetto.packets import Packets
from tokenpath.ingest.perfetto.tracks import Tracks
from tokenpath.ingest.reader import Options, Reader, options_by_file
from tokenpath.ingest.slices import NO_NAME, Slices
from tokenpath.ingest.wire import BYTES, VARINT, WireError, fields, text

_CLEARED, _NEEDS_STATE = 1, 2
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_LEGACY_TYPES = {ord("B"): _BEGIN, ord("E"): _END, ord("I"): _INSTANT, ord("i"): _INSTANT}
_COMPLETE = ord("X")
_MAX_TEXT = 4096


def read_files(reader: Reader, paths: Sequence[Path], options: Options) -> Capture:
    """A capture of all files, each a source of its own."""
    each = zip(paths, options_by_file(paths, options), strict=True)
    return combine([_read_one(reader, path, own) for path, own in each])


def _read_one(reader: Reader, path: Path, options: Options) -> Capture:
    builder = CaptureBuilder(reader, path, options)
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    trace = _Trace(builder)
    for data, at, offset in Packets(unpacked.chunks, builder.losses, options.max_bytes, str(path)):
        builder.num_events += 1
        try:
            trace.packet(data, at, offset)
        except WireError:
            builder.losses.add("malformed packet", offset=offset)
    unpacked.report_done()
    for problem in unpacked.problems:
        builder.losses.add(problem.split(":")[0], dropped=False)
    if not builder.num_events:
        raise DamagedInput("no packet could be read", where=str(path))
    trace.finish()
    return builder.finish()


@dataclass
class _Sequence:
    """The state of one writer."""

    names: dict[int, str] = field(default_factory=dict)
    """Interned event names by their id."""
    track: int | None = None
    """Track of events that name none."""
    counters: list[int] = field(default_factory=list)
    """Tracks of extra counter values that come without any."""
    real_counters: list[int] = field(default_factory=list)
    """The same for extra values that are doubles."""
    clock: int = BOOTTIME
    """Clock of packets that name none."""
    sums: dict[int, float] = field(default_factory=dict)
    """Values so far of counters that are written as differences."""
    is_whole: bool = False
    """Whether nothing that its packets build on was lost."""

    def clear(self) -> None:
        """Begin anew."""
        self.names.clear()
        self.sums.clear()
        self.track, self.counters, self.real_counters = None, [], []
        self.clock, self.is_whole = BOOTTIME, True


class _Trace:
    """Reads packets one after the other."""

    def __init__(self, builder: CaptureBuilder) -> None:
        self._builder = builder
        self._losses = builder.losses
        self._slices = Slices(builder)
        self._tracks = Tracks(self._slices)
        self._clocks = Clocks()
        self._sequences: dict[int, _Sequence] = {}

    def finish(self) -> None:
        """Write the tables."""
        offset = self._clocks.realtime_offset_ns
        first = self._slices.first_ns()
        base = 0 if offset is None else offset
        has_epoch = offset is not None or (first is not None and is_epoch(first, None))
        self._builder.origin.clock = "epoch" if has_epoch else "monotonic"
        fits = -(2**63) < base < 2**63
        self._builder.origin.clock_offset_ns = base if fits else 0
        self._tracks.finish()
        self._slices.finish(base if fits else 0)

    def packet(self, data: memoryview, at: slice, offset: int) -> None:
        """Take in one packet. WireError when it is damaged."""
        numbers: dict[int, int] = {}
        messages: dict[int, slice] = {}
        for number, wire_type, value in fields(data, at):
            if isinstance(value, slice):
                messages[number] = value
            elif wire_type == VARINT:
                numbers[number] = value
        sequence_id = numbers.get(10, 0)
        is_first = sequence_id not in self._sequences
        sequence = self._sequences.setdefault(sequence_id, _Sequence())
        flags = numbers.get(13, 0)
        if numbers.get(42) and not is_first:
            # Every sequence's first packet bears this mark too.
            self._losses.add("packets dropped by the writer", offset=offset, dropped=False)
            sequence.is_whole = False
        if flags & _CLEARED or numbers.get(41):
            sequence.clear()
        if 59 in messages:
            self._defaults(data, messages[59], sequence)
        if 12 in messages:
            _intern(data, messages[12], sequence)
        if 11 in messages:
            if flags & _NEEDS_STATE and not sequence.is_whole:
                self._losses.add("packet without the state it builds on", offset=offset)
                return
            self._track_event(data, messages[11], numbers, sequence, sequence_id, offset)
        else:
            self._other(data, messages, sequence, sequence_id, offset)

    def _other(
        self,
        data: memoryview,
        messages: dict[int, slice],
        sequence: _Sequence,
        sequence_id: int,
        offset: int,
    ) -> None:
        if 6 in messages:
            self._clocks.snapshot(data, messages[6], sequence_id)
            self._losses.add("description", lost=False)
        elif 60 in messages:
            self._tracks.describe(data, messages[60])
            self._losses.add("description", lost=False)
        elif 44 in messages:
            # Ids of tracks are positive, so this one is free.
            key = -1 - sequence_id
            sequence.track = self._tracks.legacy_thread(data, messages[44], key)
            self._losses.add("description", lost=False)
        elif not messages or messages.keys() <= {12, 43, 59} or messages.keys() & DESCRIPTIONS:
            self._losses.add("description", lost=False)
        else:
            known = next((KINDS[number] for number in messages if number in KINDS), None)
            number = next(iter(messages))
            reason = known or "packet of another kind"
            self._losses.add(reason, offset=offset, what=f"field {number}")

    @staticmethod
    def _defaults(data: memoryview, at: slice, sequence: _Sequence) -> None:
        for number, wire_type, value in fields(data, at):
            if number == 58 and wire_type == VARINT and isinstance(value, int):
                sequence.clock = value
            elif number == 11 and wire_type == BYTES and isinstance(value, slice):
                event = read_event(data, value)
                sequence.track = sequence.track if event.track is None else event.track
                sequence.counters = event.counters or sequence.counters
                sequence.real_counters = event.real_counters or sequence.real_counters

    def _track_event(
        self,
        data: memoryview,
        at: slice,
        numbers: dict[int, int],
        sequence: _Sequence,
        sequence_id: int,
        offset: int,
    ) -> None:
        event = read_event(data, at)
        if 8 not in numbers:
            self._losses.add("missing timestamp", offset=offset)
            return
        clock = numbers.get(58, sequence.clock)
        time = self._clocks.to_trace_ns(clock, numbers[8], sequence_id)
        if time is None:
            self._losses.add("clock that no snapshot ties to the others", offset=offset)
            return
        self._losses.add("arguments of a slice", int(event.has_arguments), dropped=False)
        self._losses.add("flow arrow", event.num_flows, lost=False, dropped=False)
        uuid = event.track if event.track is not None else sequence.track or 0
        for tracks, values in (
            (event.counters or sequence.counters, event.values),
            (event.real_counters or sequence.real_counters, event.real_values),
        ):
            for track, value in zip(tracks, values, strict=False):
                self._value(track, time, value, sequence)
        self._keep(event, uuid, time, sequence, offset)

    def _keep(self, event: Event, uuid: int, time: int, sequence: _Sequence, offset: int) -> None:
        kind = event.kind or _LEGACY_TYPES.get(event.legacy_phase or 0, 0)
        if kind == _COUNTER:
            if event.value is None:
                self._losses.add("counter without a number", offset=offset)
            else:
                self._value(uuid, time, event.value, sequence)
        elif kind == _END:
            self._slices.end(self._tracks.row(uuid), time, None, offset)
        elif kind in (_BEGIN, _INSTANT) or event.legacy_phase == _COMPLETE:
            row, name = self._tracks.row(uuid), self._name(event, sequence)
            if kind == _BEGIN:
                self._slices.begin(row, time, name, offset)
            else:
                duration = event.legacy_duration_us if kind != _INSTANT else 0
                end = time + (duration or 0) * 1000
                if duration is None or not time <= end < 2**63:
                    self._losses.add("malformed duration", offset=offset)
                else:
                    self._slices.slice(row, time, end, name)
        else:
            self._losses.add("event of an unknown type", offset=offset)

    def _name(self, event: Event, sequence: _Sequence) -> str:
        if event.name is not None:
            return event.name[:_MAX_TEXT] or NO_NAME
        if not event.name_id:
            return NO_NAME
        name = sequence.names.get(event.name_id)
        if name is None:
            self._losses.add("name that is not in the file", dropped=False)
        return name or NO_NAME

    def _value(self, uuid: int, time: int, value: float, sequence: _Sequence) -> None:
        track = self._tracks.find(uuid)
        if track.is_incremental:
            value += sequence.sums.get(uuid, 0)
            sequence.sums[uuid] = value
        pid, tid = self._tracks.owner(uuid)
        labels = {
            key: str(number) for key, number in (("pid", pid), ("tid", tid)) if number is not None
        }
        number = float(value * track.multiplier)
        if number - number != 0:
            self._losses.add("counter without a number", dropped=False)
            return
        self._slices.sample(time, track.name or f"counter {uuid}", labels, number, track.unit)


def _intern(data: memoryview, at: slice, sequence: _Sequence) -> None:
    for number, wire_type, value in fields(data, at):
        if number == 2 and wire_type == BYTES and isinstance(value, slice):
            key, name = 0, ""
            for inner, kind, inside in fields(data, value):
                if inner == 1 and kind == VARINT and isinstance(inside, int):
                    key = inside
                elif inner == 2 and isinstance(inside, slice):
                    name = text(data, inside)[:_MAX_TEXT]
            sequence.names[key] = name
