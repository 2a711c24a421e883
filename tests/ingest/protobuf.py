"""Writes protobuf messages, for tests: a message is a list of (number, wire type, value)."""

from __future__ import annotations

import struct
from collections.abc import Iterable


def varint(value: int) -> bytes:
    """An integer as protobuf writes it; a negative one as 64-bit two's complement."""
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: int | float | str | bytes) -> bytes:
    """One field: varint for int, fixed64 for float, length-delimited for str and bytes."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def encode(message: Iterable[tuple[int, int, int | bytes]]) -> bytes:
    """A message of fields whose wire types are given."""
    out = b""
    for number, kind, value in message:
        out += varint(number << 3 | kind)
        if isinstance(value, bytes):
            out += varint(len(value)) + value
        elif kind == 0:
            out += varint(value)
        else:
            out += value.to_bytes(8 if kind == 1 else 4, "little")
    return out
