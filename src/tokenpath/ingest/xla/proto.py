"""The xplane file: planes, timelines, and the names their events share.

Message and field numbers: xplane.proto of openxla/xla (xla/tsl/profiler/protobuf/xplane.proto).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.errors import DamagedInput
from tokenpath.ingest import wire
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.wire import WireError, fields, signed
from tokenpath.ingest.workers import each
from tokenpath.ingest.xla import scan
from tokenpath.ingest.xla.lines import (
    HOST_STATS,
    INTEGERS,
    NO_TEXT,
    NULL,
    TEXTS,
    Line,
    Plane,
    Space,
    Texts,
    distinct,
)

Int64s = NDArray[np.int64]
Span = slice

_REPLACED = b"\xef\xbf\xbd"
"""U+FFFD in UTF-8: what a conversion to text leaves of a byte that is none."""
_KEPT = frozenset((*INTEGERS, *TEXTS))
_MAX_STAT_TEXT = 2**16


@dataclass
class EventKind:
    """What events with the same metadata id share."""

    name: str = ""
    """Name, or for XLA the whole HLO instruction."""
    display_name: str = ""
    """Short name."""
    stats: dict[str, int | float | str] = field(default_factory=dict)
    """Statistics that hold for all of them."""


@dataclass
class _Parts:
    """A plane before its lines are read: names come after the lines that need them."""

    name: str = ""
    lines: list[Span] = field(default_factory=list)
    kinds: list[Span] = field(default_factory=list)
    stat_names: dict[int, str] = field(default_factory=dict)
    stats: list[Span] = field(default_factory=list)
    damaged_at: int | None = None


def read_space(data: NDArray[np.uint8], losses: Losses, where: str, num_workers: int = 1) -> Space:
    """Read a whole profile. DamagedInput when nothing of it makes sense."""
    space = Space()
    view = scan.bytes_of(data)
    num_sound = 0
    try:
        for number, _, value in fields(view):
            if isinstance(value, int):
                continue
            if number == 1:
                plane = _read_plane(data, value, space, losses, num_workers)
                num_sound += plane is not None
            elif number == 4:
                space.hosts.append(wire.text(view, value))
            elif number in (2, 3):
                label = "error" if number == 2 else "warning"
                count = sum(name.startswith(label) for name in space.messages)
                space.messages[f"{label}.{count}"] = wire.text(view, value)
    except WireError as error:
        if not num_sound:
            raise _damaged(data, error, where) from None
        space.num_events += 1
        losses.add("truncated", offset=error.offset, what=error.what)
    if not num_sound:
        raise _damaged(data, None, where)
    return space


def _damaged(data: NDArray[np.uint8], error: WireError | None, where: str) -> DamagedInput:
    what = "no plane in it can be read" if error is None else error.what
    place = where if error is None else f"{where}, byte {error.offset}"
    if bytes(data[: 2**16]).count(_REPLACED) > 8:
        return DamagedInput(
            f"bytes were replaced by U+FFFD, as a conversion to text does ({what})",
            where=place,
            allowed="the file as the profiler wrote it",
            next_step="copy it again as binary from where it was written",
        )
    return DamagedInput(
        f"not a readable xplane file: {what}",
        where=place,
        allowed="an XSpace message of planes",
        next_step="copy it again from where it was written, or use the trace.json.gz beside it",
    )


def _read_plane(
    data: NDArray[np.uint8], span: Span, space: Space, losses: Losses, num_workers: int
) -> Plane | None:
    """One plane; None when not even its name can be read."""
    view = scan.bytes_of(data)
    parts = _split_plane(view, span)
    if parts.damaged_at is not None:
        space.num_events += 1
        losses.add("damaged plane", offset=parts.damaged_at)
        if not parts.name:
            return None
    plane = Plane(parts.name, dict(_stats(view, parts.stats, parts.stat_names)))
    space.planes.append(plane)
    kinds = _Kinds(view, parts, space, losses)
    kept = _KEPT if plane.name.startswith("/device:") else HOST_STATS
    wanted = {key: name for key, name in parts.stat_names.items() if name in kept}
    sources = _Sources(data, view, plane.name, wanted, kinds)
    for line, num_events, own_losses in each(
        lambda line_span: _read_line(sources, line_span), parts.lines, num_workers
    ):
        space.num_events += num_events
        losses.merge(own_losses)
        if line is not None:
            plane.lines.append(line)
    return plane


def _split_plane(view: memoryview, span: Span) -> _Parts:
    parts = _Parts()
    try:
        for number, _, value in fields(view, span):
            if isinstance(value, int):
                continue
            if number == 2:
                parts.name = wire.text(view, value)
            elif number == 3:
                parts.lines.append(value)
            elif number == 4:
                parts.kinds.append(value)
            elif number == 5:
                key, name = _stat_name(view, value)
                parts.stat_names[key] = name
            elif number == 6:
                parts.stats.append(value)
    except WireError as error:
        parts.damaged_at = error.offset
    return parts


def _stat_name(view: memoryview, span: Span) -> tuple[int, str]:
    """Key and name of an XStatMetadata in the map."""
    key, name = 0, ""
    for number, _, value in fields(view, span):
        if number == 1 and isinstance(value, int):
            key = signed(value)
        elif number == 2 and isinstance(value, slice):
            for inner, _, text in fields(view, value):
                if inner == 2 and isinstance(text, slice):
                    name = wire.text(view, text)
    return key, name


def _stats(
    view: memoryview, spans: list[Span], names: dict[int, str]
) -> Iterator[tuple[str, int | float | str]]:
    """Statistics as (name, value); those that hold bytes are left out."""
    for span in spans:
        name: str | None = None
        found: int | float | str | None = None
        for number, kind, value in fields(view, span):
            if isinstance(value, slice):
                if number == 5:
                    found = wire.text(
                        view, slice(value.start, min(value.stop, value.start + _MAX_STAT_TEXT))
                    )
            elif number == 1:
                name = names.get(signed(value))
            elif number == 2 and kind == wire.FIXED64:
                found = wire.to_double(value)
            elif number == 3:
                found = value
            elif number == 4:
                found = signed(value)
            elif number == 7:
                found = names.get(signed(value))
        if name and found is not None:
            yield name, found


class _Kinds:
    """The kinds of events of a plane, decoded when first asked for."""

    def __init__(self, view: memoryview, parts: _Parts, space: Space, losses: Losses) -> None:
        self._view, self._stat_names = view, parts.stat_names
        self._kinds: dict[int, EventKind] = {}
        num_programs = 0
        for span in parts.kinds:
            try:
                key, body = _key_and_body(view, span)
                if body is not None:
                    self._kinds[key] = self._decode(body)
            except WireError as error:
                space.num_events += 1
                losses.add("damaged event name", offset=error.offset)
            num_programs += parts.name == "/host:metadata"
        # The plane of HLO protos holds no events: programs are not read.
        space.num_events += num_programs
        losses.add("HLO program", num_programs, lost=False)

    def get(self, key: int) -> EventKind | None:
        return self._kinds.get(key)

    def stat_name(self, key: int) -> str | None:
        return self._stat_names.get(key)

    def _decode(self, body: Span) -> EventKind:
        found = EventKind()
        stats = []
        for number, _, value in fields(self._view, body):
            if not isinstance(value, slice):
                continue
            if number == 2:
                found.name = wire.text(self._view, value)
            elif number == 4:
                found.display_name = wire.text(self._view, value)
            elif number == 5:
                stats.append(value)
        pairs = _stats(self._view, stats, self._stat_names)
        found.stats = {name: value for name, value in pairs if name in _KEPT}
        return found


def _key_and_body(view: memoryview, span: Span) -> tuple[int, Span | None]:
    key, body = 0, None
    for number, _, value in fields(view, span):
        if number == 1 and isinstance(value, int):
            key = signed(value)
        elif number == 2 and isinstance(value, slice):
            body = value
    return key, body


@dataclass(frozen=True)
class _Sources:
    """What all lines of a plane are read from."""

    data: NDArray[np.uint8]
    view: memoryview
    plane: str
    wanted: dict[int, str]
    kinds: _Kinds


def _read_line(sources: _Sources, span: Span) -> tuple[Line | None, int, Losses]:
    """A timeline, None when it holds no event in time; the events in it, and what of them was lost."""
    view, kinds, losses = sources.view, sources.kinds, Losses()
    ids = np.array(sorted(sources.wanted), np.int64)
    events = scan.scan_line(sources.data, span.start, span.stop, ids, len(sources.data))
    num_events = len(events.offset_ps)
    if events.damaged_at is not None:
        num_events += 1
        losses.add("damaged timeline", offset=events.damaged_at)
    asked, column = distinct(events.metadata_id)
    known = [kinds.get(key) for key in asked.tolist()]
    has_kind = np.array([kind is not None for kind in known] or [False], np.bool_)[column]
    losses.add("event without a name", int((~has_kind).sum()))
    is_timed = events.is_aggregate == 0
    losses.add("aggregate without a time", int((has_kind & ~is_timed).sum()))
    rows = np.flatnonzero(has_kind & is_timed)
    if not len(rows):
        return None, num_events, losses
    every = [kind or EventKind() for kind in known]
    line = Line(
        sources.plane,
        events.line_id,
        wire.text(view, events.shown_name) or wire.text(view, events.name),
        events.base_ns,
        events.offset_ps,
        events.duration_ps,
        Texts(column, []).mapped([kind.display_name or kind.name for kind in every]),
        Texts(column, []).mapped([kind.name if kind.display_name else None for kind in every]),
    )
    for at, key in enumerate(ids.tolist()):
        stat = sources.wanted[key]
        if stat in INTEGERS:
            line.integers[stat] = _numbers(events, at)
        else:
            line.texts[stat] = _texts(events, at, view, kinds)
    _add_shared(line, column, every)
    return line if len(rows) == len(line) else line.take(rows), num_events, losses


def _numbers(events: scan.Events, at: int) -> Int64s:
    kind = events.kinds[at]
    is_number = (kind == scan.UNSIGNED) | (kind == scan.SIGNED)
    return np.where(is_number, events.values[at], NULL)


def _texts(events: scan.Events, at: int, view: memoryview, kinds: _Kinds) -> Texts:
    kind, values = events.kinds[at], events.values[at]
    codes = np.full(len(kind), NO_TEXT, np.int32)
    found: dict[str, int] = {}
    for code in (scan.REFERENCE, scan.STRING):
        rows = np.flatnonzero(kind == code)
        if not len(rows):
            continue
        own = values[rows]
        asked, which = distinct(own)
        first = np.empty(len(asked), np.int64)
        first[which[::-1]] = rows[::-1]
        of_asked = np.empty(len(asked), np.int32)
        for position, value in enumerate(asked.tolist()):
            if code == scan.REFERENCE:
                text = kinds.stat_name(value)
            else:
                place = int(events.places[at, first[position]])
                begin, size = place >> scan.SIZE_BITS, place & ((1 << scan.SIZE_BITS) - 1)
                text = wire.text(view, slice(begin, begin + size))
            of_asked[position] = NO_TEXT if text is None else found.setdefault(text, len(found))
        codes[rows] = of_asked[which]
    return Texts(codes, list(found))


def _add_shared(line: Line, column: NDArray[np.int32], kinds: list[EventKind]) -> None:
    """What the event's kind says, where the event itself does not say it."""
    names = {name for kind in kinds for name in kind.stats}
    for name in sorted(names):
        said = [kind.stats.get(name) for kind in kinds]
        if name in INTEGERS:
            values = [
                value if isinstance(value, int) and -(2**63) < value < 2**63 else NULL
                for value in said
            ]
            shared = np.array(values, np.int64)[column]
            own = line.number(name)
            line.integers[name] = np.where(own == NULL, shared, own)
        else:
            own_texts = line.text(name)
            texts = [None if value is None else str(value) for value in said]
            shared_texts = Texts(column, []).mapped(texts)
            codes = np.where(
                (own_texts.codes < 0) & (shared_texts.codes >= 0),
                shared_texts.codes + len(own_texts.values),
                own_texts.codes,
            ).astype(np.int32)
            line.texts[name] = Texts(codes, own_texts.values + shared_texts.values)
