"""Runs the compiled scanners over a block: room for their tables, and the tables when they are done."""

from __future__ import annotations

import secrets
import sys
from dataclasses import astuple, dataclass, replace
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.ingest.otlp.state import (
    ENTRY_WORDS,
    ID_BYTES,
    MEMO_WORDS,
    NUM_COLUMNS,
    NUM_MEMOS,
    NUM_WORDS,
    PADDING,
    Op,
    S,
    Status,
    Tag,
)

FROM_BYTES = 4 * 2**20
"""Below, the other ways take less time than loading the compiled code does."""
WARM_FROM_BYTES = 2**17
"""The same once the loader of machine code is there."""

_HEAD_SHARE = 16
"""What is scanned of the input to tell how much room the whole needs: one part of so many ..."""
_MARGIN = 1.1
"""... and what is added to that."""

Int64s = NDArray[np.int64]


def is_worth_it(num_bytes: int) -> bool:
    """Whether a block is large enough for the compiled scanners."""
    return num_bytes >= (WARM_FROM_BYTES if "llvmlite" in sys.modules else FROM_BYTES)


@dataclass(frozen=True)
class Found:
    """The tables that a scan has filled."""

    data: bytes
    """The input, with padding."""
    state: Int64s
    entries: Int64s
    """A row for each text."""
    spans: Int64s
    """A row for each span."""
    attributes: NDArray[np.int32]
    """Codes of key and value."""
    reals: Int64s
    scopes: Int64s
    trace_ids: NDArray[np.uint8]
    """One behind the other, like the others."""
    span_ids: NDArray[np.uint8]
    parent_ids: NDArray[np.uint8]
    slots: NDArray[np.int32]
    """Where texts are found again; kept here because the state has only its address."""
    memos: Int64s
    """Kept here for the same reason."""

    def is_tagged(self, tag: Tag) -> NDArray[np.bool_]:
        """Of each text, whether it is of that kind."""
        found: NDArray[np.bool_] = (self.entries[:, 2] & 7) == tag
        return found

    def text(self, code: int) -> bytes:
        """The bytes of a text."""
        begin, size = int(self.entries[code, 1]), int(self.entries[code, 2]) >> 3
        return self.data[begin : begin + size]


def scan(data: bytes, op: Op, places: Int64s | None = None) -> Found | None:
    """Run a scanner over the data, which ends in PADDING; None if it declines.

    Protobuf needs the `places` of its ResourceSpans messages.
    """
    whole = len(data) - PADDING
    if places is None:
        head = data.rfind(b"\n", 0, whole // _HEAD_SHARE) + 1
        parts: list[tuple[int, int | Int64s]] = [(head, head), (whole, whole)]
    else:
        few = places[: max(1, len(places) // _HEAD_SHARE)]
        parts = [(int((few[:, 1] - few[:, 0]).sum()), few), (whole, places)]
    room = Room.for_bytes(parts[0][0] or whole)
    found = None
    for number, (size, what) in enumerate(parts):
        if size == 0:
            continue
        found = _scanned(data, op, room, what)
        if found is None:
            return None
        if number == 0:
            room = Room.for_more(found, _MARGIN * whole / size)
    return found


@dataclass(frozen=True)
class Room:
    """Rows of each table."""

    spans: int
    attributes: int
    reals: int
    scopes: int
    texts: int

    @classmethod
    def for_bytes(cls, size: int) -> Room:
        """A guess."""
        return cls(*(64 + size // of_one for of_one in (300, 60, 120, 3000, 120)))

    @classmethod
    def for_more(cls, found: Found, times: float) -> Room:
        """Room for so many times what was found."""
        tables = (found.spans, found.attributes, found.reals, found.scopes, found.entries)
        return cls(*(64 + int(times * len(table)) for table in tables))

    def doubled(self) -> Room:
        """Room for twice as much."""
        return Room(*(2 * number for number in astuple(self)))


def _scanned(data: bytes, op: Op, room: Room, what: int | Int64s) -> Found | None:
    """One scan, up to an offset or of messages; with more room if there was too little."""
    from tokenpath.ingest.otlp.machine_code import load_entry

    run = load_entry()
    base = np.frombuffer(data, np.uint8).ctypes.data
    while True:
        found = _with_room(data, base, room)
        address = found.state.ctypes.data
        if isinstance(what, int):
            status = run(address, op, base, base + what)
        else:
            what = np.ascontiguousarray(what)
            status = run(address, op, what.ctypes.data, len(what))
        if status == Status.FULL:
            room = room.doubled()
            continue
        return _filled(found) if status == Status.DONE else None


def _with_room(data: bytes, base: int, room: Room) -> Found:
    slots = 1 << (2 * room.texts).bit_length()
    id_bytes = ID_BYTES * (room.spans + 1)
    found = Found(
        data,
        np.zeros(NUM_WORDS, np.int64),
        np.empty((room.texts, ENTRY_WORDS), np.int64),
        np.empty((room.spans, NUM_COLUMNS), np.int64),
        np.empty((room.attributes, 2), np.int32),
        np.empty((room.reals, 2), np.int64),
        np.empty((room.scopes, 2), np.int64),
        np.empty(id_bytes, np.uint8),
        np.empty(id_bytes, np.uint8),
        np.empty(id_bytes, np.uint8),
        np.zeros(slots, np.int32),
        np.zeros((NUM_MEMOS, MEMO_WORDS), np.int64),
    )
    for word, table in (
        (S.ENTRIES, found.entries),
        (S.SPANS, found.spans),
        (S.ATTRIBUTES, found.attributes),
        (S.REALS, found.reals),
        (S.SCOPES, found.scopes),
        (S.TRACE_IDS, found.trace_ids),
        (S.SPAN_IDS, found.span_ids),
        (S.PARENT_IDS, found.parent_ids),
        (S.SLOTS, found.slots),
        (S.MEMO, found.memos),
    ):
        found.state[word] = cast("NDArray[np.generic]", table).ctypes.data
    limits = (S.MAX_SPANS, S.MAX_ATTRIBUTES, S.MAX_REALS, S.MAX_SCOPES, S.MAX_TEXTS)
    for word, number in zip(limits, astuple(room), strict=True):
        found.state[word] = number
    found.state[S.BASE], found.state[S.SLOT_MASK] = base, slots - 1
    found.state[S.SEED] = secrets.randbits(62)
    return found


def _filled(found: Found) -> Found:
    state = found.state
    return replace(
        found,
        entries=found.entries[: state[S.NUM_TEXTS]],
        spans=found.spans[: state[S.NUM_SPANS]],
        attributes=found.attributes[: state[S.NUM_ATTRIBUTES]],
        reals=found.reals[: state[S.NUM_REALS]],
        scopes=found.scopes[: state[S.NUM_SCOPES]],
    )


def texts_of(found: Found) -> pa.Array:
    """All texts as they are, those of Tag.RAW empty."""
    places = found.entries[:, 1:3].copy()
    places[:, 1] >>= 3
    places[found.is_tagged(Tag.RAW), 1] = 0
    return texts_at(found, places)


def texts_at(found: Found, places: Int64s) -> pa.Array:
    """Texts by their offsets and sizes."""
    from tokenpath.ingest.otlp.machine_code import load_entry

    places = np.ascontiguousarray(places)
    out = np.empty(int(places[:, 1].sum()) + 8, np.uint8)
    ends = np.zeros(len(places) + 1, np.int32)
    found.state[S.OUT], found.state[S.OUT_ENDS] = out.ctypes.data, ends[1:].ctypes.data
    load_entry()(found.state.ctypes.data, Op.GATHER, places.ctypes.data, len(places))
    return pa.StringArray.from_buffers(len(places), pa.py_buffer(ends), pa.py_buffer(out))
