"""Writes Chakra's protobuf form, field by field."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def varint(value: int) -> bytes:
    value %= 2**64
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def field(number: int, value: Any) -> bytes:
    """A varint for integers and truth values, else bytes after their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(int(value))
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def attribute(name: str, value: Any, number: int | None = None) -> bytes:
    """int64, bool or string by the value's type; `number` for another of the oneof."""
    if number is None:
        number = 27 if isinstance(value, bool) else 9 if isinstance(value, int) else 29
    return field(1, name) + field(number, value)


def double(name: str, value: float) -> bytes:
    return field(1, name) + varint(3 << 3 | 1) + struct.pack("<d", value)


def node(
    node_id: int,
    name: str,
    kind: int,
    *,
    ctrl: Sequence[int] = (),
    data: Sequence[int] = (),
    start: int = 0,
    duration: int = 0,
    shapes: str = "",
    types: str = "",
    attributes: Sequence[bytes] = (),
    packed: bool = True,
) -> bytes:
    out = field(1, node_id) + field(2, name) + field(3, kind)
    for number, ids in ((4, ctrl), (5, data)):
        if ids and packed:
            out += field(number, b"".join(map(varint, ids)))
        else:
            out += b"".join(field(number, value) for value in ids)
    out += field(6, start) + field(7, duration)
    if shapes or types:
        out += field(8, field(1, "[[1]]") + field(2, shapes) + field(3, types))
    return out + b"".join(field(10, item) for item in attributes)


def metadata(version: str = "1.0.0", attributes: Sequence[bytes] = ()) -> bytes:
    return field(1, version) + b"".join(field(2, item) for item in attributes)


def write(path: Path, *messages: bytes) -> Path:
    path.write_bytes(b"".join(varint(len(message)) + message for message in messages))
    return path
