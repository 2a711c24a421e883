"""MessagePack for tests: what msgspec writes for plain values."""

from __future__ import annotations

import struct
from typing import Any


def pack(value: Any) -> bytes:
    """The value in the shortest form."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return _pack_int(value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        data = value.encode()
        return _header(len(data), 0xA0, 32, b"\xd9", b"\xda") + data
    if isinstance(value, bytes):
        return _header(len(value), 0, 0, b"\xc4", b"\xc5") + value
    if isinstance(value, list):
        return _header(len(value), 0x90, 16, b"", b"\xdc") + b"".join(map(pack, value))
    items = b"".join(pack(key) + pack(item) for key, item in value.items())
    return _header(len(value), 0x80, 16, b"", b"\xde") + items


def _pack_int(value: int) -> bytes:
    if -32 <= value < 128:
        return struct.pack("b", value)
    for letter, code in zip("BHIQ", (0xCC, 0xCD, 0xCE, 0xCF), strict=True):
        if 0 <= value < 256 ** struct.calcsize(">" + letter):
            return bytes([code]) + struct.pack(">" + letter, value)
    return b"\xd3" + struct.pack(">q", value)


def _header(size: int, fixed: int, bound: int, one: bytes, two: bytes) -> bytes:
    if size < bound:
        return bytes([fixed + size])
    if one and size < 256:
        return one + bytes([size])
    if size < 2**16:
        return two + struct.pack(">H", size)
    raise ValueError("longer than a test needs")
