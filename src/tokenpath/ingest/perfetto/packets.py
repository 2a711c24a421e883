"""The packets of a trace, from a stream of bytes; packed ones are unpacked, within bounds."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.errors import LimitExceeded
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.wire import BYTES, WireError, fields, read_varint

MAX_PACKET_BYTES = 64 * 2**20
"""A packet larger than this is damage: the service's own bound is 512 KiB."""

_PACKET_TAG = 0x0A
_DEFLATED, _ZSTD = 50, 133
_MAX_HEADER_BYTES = 11

Packet = tuple[memoryview, slice, int]
"""Bytes, where in them the packet lies, and its offset in the file."""


class Packets:
    """Reads a file's packets in order."""

    def __init__(
        self, chunks: Iterable[NDArray[np.uint8]], losses: Losses, max_bytes: int, where: str
    ) -> None:
        """`max_bytes` bounds what packed packets may unpack to, together."""
        self._chunks = chunks
        self._losses = losses
        self._left = max_bytes
        self._max_bytes = max_bytes
        self._where = where

    def __iter__(self) -> Iterator[Packet]:
        for data, at, offset in self._frames():
            packed = self._packed(data, at)
            if packed is None:
                yield data, at, offset
            else:
                yield from self._unpack(*packed, offset)

    def _frames(self) -> Iterator[Packet]:
        rest, offset = b"", 0
        for chunk in self._chunks:
            data = memoryview(rest + chunk.tobytes()) if rest else chunk.data
            at = 0
            while at < len(data):
                try:
                    end, packet = self._frame(data, at)
                except WireError:
                    if len(data) - at < _MAX_HEADER_BYTES:
                        break
                    self._losses.add("damaged from here on", offset=offset + at, dropped=False)
                    return
                if end > len(data):
                    if end - at > MAX_PACKET_BYTES:
                        self._losses.add("damaged from here on", offset=offset + at, dropped=False)
                        return
                    break
                if packet is not None:
                    yield data, packet, offset + at
                at = end
            rest = bytes(data[at:])
            offset += at
        if rest:
            self._losses.add("no end of the file", offset=offset, dropped=False)

    def _frame(self, data: memoryview, at: int) -> tuple[int, slice | None]:
        """The byte after the next field of the trace, and its packet; None for another field."""
        tag, after = read_varint(data, at, len(data))
        if tag & 7 != BYTES or tag == BYTES:
            raise WireError("no packet", at)
        size, start = read_varint(data, after, len(data))
        end = start + size
        return end, (slice(start, end) if tag == _PACKET_TAG else None)

    def _packed(self, data: memoryview, at: slice) -> tuple[int, bytes] | None:
        """How packets within a packet are packed, and their bytes; None for a plain packet."""
        # The tags of both fields take two bytes; a plain packet rarely begins with either.
        if at.stop - at.start < 3 or bytes(data[at.start : at.start + 2]) not in _PACKED_TAGS:
            return None
        try:
            number, wire_type, value = next(fields(data, at))
        except WireError:
            return None
        if wire_type != BYTES or not isinstance(value, slice):
            return None
        return number, bytes(data[value])

    def _unpack(self, kind: int, packed: bytes, offset: int) -> Iterator[Packet]:
        limit = min(self._left, MAX_PACKET_BYTES)
        data = _inflate(packed, limit) if kind == _DEFLATED else _inflate_zstd(packed, limit)
        if data is None:
            self._losses.add("damaged packed packets", offset=offset, dropped=False)
            return
        self._left -= len(data)
        if len(data) >= limit:
            raise LimitExceeded(
                "packed packets unpack to more than is allowed",
                where=self._where,
                allowed=f"{self._max_bytes} bytes in all, {MAX_PACKET_BYTES} in one packet",
            )
        view = memoryview(data)
        try:
            for number, wire_type, value in fields(view):
                if number == 1 and wire_type == BYTES and isinstance(value, slice):
                    yield view, value, offset
        except WireError:
            self._losses.add("damaged packed packets", offset=offset, dropped=False)


def _tag(number: int) -> bytes:
    tag = number << 3 | BYTES
    return bytes([tag & 0x7F | 0x80, tag >> 7])


_PACKED_TAGS = (_tag(_DEFLATED), _tag(_ZSTD))


def _inflate(packed: bytes, limit: int) -> bytes | None:
    try:
        return zlib.decompressobj().decompress(packed, limit)
    except zlib.error:
        return None


def _inflate_zstd(packed: bytes, limit: int) -> bytes | None:
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(packed) as source:
            return source.read(limit)
    except zstandard.ZstdError:
        return None
