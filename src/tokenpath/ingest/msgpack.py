"""MessagePack values from bytes that nobody vouches for: bounded depth, nothing allocated on a header's word.

Written from the public specification (github.com/msgpack/msgpack, spec.md). Extension types are skipped
and read as None; a map's key must be a text, bytes, a number or nil.
"""

from __future__ import annotations

import struct
from typing import Any, Final

MAX_DEPTH: Final = 16
"""Values may nest so deep."""


class Incomplete(Exception):
    """The bytes end within a value."""


class Malformed(Exception):
    """The bytes are no MessagePack, or go beyond a bound."""


_NUMBERS = {
    0xCA: struct.Struct(">f"),
    0xCB: struct.Struct(">d"),
    0xCC: struct.Struct(">B"),
    0xCD: struct.Struct(">H"),
    0xCE: struct.Struct(">I"),
    0xCF: struct.Struct(">Q"),
    0xD0: struct.Struct(">b"),
    0xD1: struct.Struct(">h"),
    0xD2: struct.Struct(">i"),
    0xD3: struct.Struct(">q"),
}
_SIZED = {
    0xC4: ("bin", 1), 0xC5: ("bin", 2), 0xC6: ("bin", 4),
    0xC7: ("ext", 1), 0xC8: ("ext", 2), 0xC9: ("ext", 4),
    0xD9: ("str", 1), 0xDA: ("str", 2), 0xDB: ("str", 4),
    0xDC: ("array", 2), 0xDD: ("array", 4), 0xDE: ("map", 2), 0xDF: ("map", 4),
}  # fmt: skip
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def decode(data: bytes, at: int = 0) -> tuple[Any, int]:
    """The value that begins at a byte, and the byte after it. Incomplete, Malformed."""
    return _value(data, at, MAX_DEPTH)


def _value(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if at >= len(data):
        raise Incomplete
    first = data[at]
    at += 1
    if first < 0x80:
        return first, at
    if first >= 0xE0:
        return first - 256, at
    if first < 0x90:
        return _map(data, at, first & 0x0F, depth)
    if first < 0xA0:
        return _array(data, at, first & 0x0F, depth)
    if first < 0xC0:
        return _text(data, at, first & 0x1F)
    number = _NUMBERS.get(first)
    if number is not None:
        end = at + number.size
        if end > len(data):
            raise Incomplete
        return number.unpack_from(data, at)[0], end
    if first in _SIZED:
        kind, width = _SIZED[first]
        return _sized(data, at, kind, width, depth)
    if first in _CONSTANTS:
        return _CONSTANTS[first], at
    if 0xD4 <= first <= 0xD8:
        return _skip(data, at, 1 + (1 << first - 0xD4))
    raise Malformed(f"byte {first:#x} begins no value")


def _sized(data: bytes, at: int, kind: str, width: int, depth: int) -> tuple[Any, int]:
    end = at + width
    if end > len(data):
        raise Incomplete
    size = int.from_bytes(data[at:end], "big")
    if kind == "str":
        return _text(data, end, size)
    if kind == "array":
        return _array(data, end, size, depth)
    if kind == "map":
        return _map(data, end, size, depth)
    if kind == "ext":
        return _skip(data, end, 1 + size)
    if end + size > len(data):
        raise Incomplete
    return data[end : end + size], end + size


def _text(data: bytes, at: int, size: int) -> tuple[str, int]:
    if at + size > len(data):
        raise Incomplete
    return data[at : at + size].decode("utf-8", "replace"), at + size


def _skip(data: bytes, at: int, size: int) -> tuple[None, int]:
    if at + size > len(data):
        raise Incomplete
    return None, at + size


def _array(data: bytes, at: int, size: int, depth: int) -> tuple[list[Any], int]:
    if not depth:
        raise Malformed(f"nested deeper than {MAX_DEPTH}")
    items = []
    for _ in range(size):
        item, at = _value(data, at, depth - 1)
        items.append(item)
    return items, at


def _map(data: bytes, at: int, size: int, depth: int) -> tuple[dict[Any, Any], int]:
    if not depth:
        raise Malformed(f"nested deeper than {MAX_DEPTH}")
    items = {}
    for _ in range(size):
        key, at = _value(data, at, depth - 1)
        if isinstance(key, list | dict):
            raise Malformed("a key that is no plain value")
        items[key], at = _value(data, at, depth - 1)
    return items, at
