"""Tracks by their id, described before or after their events: threads, processes, counters, others.

Source: protos/perfetto/trace/track_event/track_descriptor.proto.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenpath.ingest.slices import Slices
from tokenpath.ingest.wire import BYTES, VARINT, Buffer, fields, signed, text

_UNITS = {1: "ns", 2: "count", 3: "byte"}
_MAX_PARENTS = 64
_MAX_TEXT = 4096


@dataclass
class Track:
    """What descriptors say of a track; None where they do not."""

    parent: int | None = None
    """Id of the enclosing track."""
    name: str | None = None
    """Its own name."""
    pid: int | None = None
    """Process, of a process or thread track."""
    tid: int | None = None
    """Thread, of a thread track."""
    process_name: str | None = None
    """Name of the process."""
    is_counter: bool = False
    """Whether its events are values."""
    unit: str | None = None
    """Unit of the values."""
    multiplier: int = 1
    """Values are to be multiplied by this."""
    is_incremental: bool = False
    """Whether values are differences."""


class Tracks:
    """All tracks of a file."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._known: dict[int, Track] = {}
        self._rows: dict[int, int] = {}
        self._process_names: dict[int, str] = {}

    def describe(self, data: Buffer, at: slice) -> int:
        """Take in a TrackDescriptor; the id of its track."""
        uuid, track = 0, Track()
        for number, wire_type, value in fields(data, at):
            if isinstance(value, slice):
                if number in (2, 10) and wire_type == BYTES:
                    track.name = text(data, value)[:_MAX_TEXT] or track.name
                elif number == 3:
                    self._process(data, value, track)
                elif number == 4:
                    self._thread(data, value, track)
                elif number == 8:
                    self._counter(data, value, track)
            elif wire_type == VARINT:
                if number == 1:
                    uuid = value
                elif number == 5:
                    track.parent = value
        self._known[uuid] = track
        return uuid

    def legacy_thread(self, data: Buffer, at: slice, key: int) -> int:
        """Take in a ThreadDescriptor packet, the older way to name a writer's thread."""
        track = Track()
        self._thread(data, at, track)
        self._known[key] = track
        return key

    def _process(self, data: Buffer, at: slice, track: Track) -> None:
        for number, wire_type, value in fields(data, at):
            # Field 2 is the command line, which is dropped.
            if number == 1 and wire_type == VARINT and isinstance(value, int):
                track.pid = signed(value)
            elif number == 6 and isinstance(value, slice):
                track.process_name = text(data, value)[:_MAX_TEXT]
        if track.pid is not None and track.process_name:
            self._process_names[track.pid] = track.process_name

    @staticmethod
    def _thread(data: Buffer, at: slice, track: Track) -> None:
        for number, wire_type, value in fields(data, at):
            if wire_type == VARINT and isinstance(value, int):
                if number == 1:
                    track.pid = signed(value)
                elif number == 2:
                    track.tid = signed(value)
            elif number == 5 and isinstance(value, slice):
                track.name = text(data, value)[:_MAX_TEXT]

    @staticmethod
    def _counter(data: Buffer, at: slice, track: Track) -> None:
        track.is_counter = True
        for number, wire_type, value in fields(data, at):
            if number == 6 and isinstance(value, slice):
                track.unit = text(data, value)[:_MAX_TEXT]
            elif wire_type == VARINT and isinstance(value, int):
                if number == 1 and value in _UNITS:
                    # A built-in counter: time of the thread, or its instructions.
                    track.unit = track.unit or _UNITS[value]
                    track.name = track.name or ("thread time" if value == 1 else "instructions")
                elif number == 3:
                    track.unit = track.unit or _UNITS.get(value)
                elif number == 4:
                    track.multiplier = signed(value)
                elif number == 5:
                    track.is_incremental = bool(value)

    def find(self, uuid: int) -> Track:
        """What is known of a track so far."""
        return self._known.get(uuid) or Track()

    def row(self, uuid: int) -> int:
        """Row of `thread` for the slices of a track."""
        row = self._rows.get(uuid)
        if row is None:
            row = self._rows[uuid] = self._slices.thread("", f"track {uuid}")
        return row

    def owner(self, uuid: int) -> tuple[int | None, int | None]:
        """Process and thread of a track, from the tracks around it where it does not say."""
        pid = tid = None
        track = self._known.get(uuid)
        for _ in range(_MAX_PARENTS):
            if track is None:
                break
            pid = track.pid if pid is None else pid
            tid = track.tid if tid is None else tid
            parent = track.parent
            track = None if parent is None else self._known.get(parent)
        return pid, tid

    def finish(self) -> None:
        """Name and place the threads of all tracks that have slices."""
        for uuid, row in self._rows.items():
            track = self.find(uuid)
            pid, _ = self.owner(uuid)
            owner = "" if pid is None else str(pid)
            self._slices.place_thread(
                row, owner, f"track {uuid}" if track.tid is None else str(track.tid)
            )
            name = track.name or track.process_name
            if not name and pid is not None:
                name = self._process_names.get(pid)
            if name:
                self._slices.name_thread(row, name)
