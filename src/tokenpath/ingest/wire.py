"""The protobuf wire format: the fields of a message, from bytes that are trusted in nothing.

A message is a run of fields, each a tag (number and wire type) and a value. What the numbers mean is
the caller's business. Parts of the input are named by `slice`, always counted from the start of the whole
buffer, so nothing is copied and every error gives the byte where it is:

    for number, wire_type, value in fields(data):
        if number == 1 and wire_type == BYTES:
            for inner_number, inner_type, inner in fields(data, value): ...
            data[value], text(data, value)

Source: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias

from tokenpath.core.errors import DamagedInput, LimitExceeded

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What is decoded; a memoryview must be one of bytes (format `B`)."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types. 3 and 4 are groups, which protobuf gave up; 6 and 7 do not exist."""

MAX_DEPTH = 64
"""Messages within messages; protobuf's own parsers stop at 100."""

_MAX_VARINT_BYTES = 10
_MAX_NUMBER = 2**29 - 1
_WORDS = {
    3: "a group starts",
    4: "a group ends",
    6: "no such wire type: 6",
    7: "no such wire type: 7",
}

Field: TypeAlias = tuple[int, int, "int | slice[int, int, None]"]
"""Number, wire type, and the value: an integer 0 .. 2**64 - 1 as the bits stand, or a slice for BYTES."""


class WireError(DamagedInput):
    """Bytes that are no message, or a message that ends before its fields do."""

    def __init__(self, what: str, offset: int) -> None:
        self.offset = offset
        """Byte in the buffer at which it was noticed."""
        super().__init__(what, where=f"byte {offset}", allowed="fields of the protobuf wire format")


def fields(data: Buffer, within: slice | None = None) -> Iterator[Field]:
    """The fields of a message in order, each checked as it is reached.

    `within` bounds the message in `data`; None is all of it. WireError at the first byte that is no
    field: the fields before it have been given.
    """
    at, stop = (0, len(data)) if within is None else (within.start, min(within.stop, len(data)))
    while at < stop:
        tag_at = at
        tag = data[at]
        if tag < 0x80:
            at += 1
        else:
            tag, at = read_varint(data, at, stop)
        number, wire_type = tag >> 3, tag & 7
        if not 0 < number <= _MAX_NUMBER:
            raise WireError(f"no field has number {number}", tag_at)
        if wire_type == VARINT:
            value, at = read_varint(data, at, stop)
            yield number, VARINT, value
        elif wire_type == BYTES:
            length, at = read_varint(data, at, stop)
            if length > stop - at:
                words = f"field {number} says {length} bytes, {stop - at} are left"
                raise WireError(words, tag_at)
            yield number, BYTES, slice(at, at + length)
            at += length
        elif wire_type in (FIXED32, FIXED64):
            size = 8 if wire_type == FIXED64 else 4
            if size > stop - at:
                raise WireError(f"field {number} needs {size} bytes, {stop - at} are left", tag_at)
            yield number, wire_type, int.from_bytes(data[at : at + size], "little")
            at += size
        else:
            raise WireError(f"field {number}: {_WORDS[wire_type]}", tag_at)


def read_varint(data: Buffer, at: int, stop: int) -> tuple[int, int]:
    """The unsigned integer at `at` and the byte after it.

    Longer forms than needed are read, as protobuf does, up to 10 bytes. WireError when it does not end
    before `stop` or does not fit 64 bits.
    """
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if at + index >= stop:
            raise WireError("a number does not end", at)
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value >= 2**64:
                break
            return value, at + index + 1
    raise WireError("a number does not fit 64 bits", at)


def packed_varints(data: Buffer, within: slice) -> list[int]:
    """A packed repeated field of varints, unsigned."""
    at, stop = within.start, min(within.stop, len(data))
    values = []
    while at < stop:
        value, at = read_varint(data, at, stop)
        values.append(value)
    return values


def packed_fixed(data: Buffer, within: slice, code: str) -> tuple[int, ...] | tuple[float, ...]:
    """A packed repeated field of fixed size; `code` is that of `struct`: one of `I i f Q q d`.

    WireError when the length is no multiple of the size.
    """
    size = struct.calcsize("<" + code)
    length = within.stop - within.start
    if length % size:
        raise WireError(f"{length} bytes hold no whole number of values of {size}", within.start)
    return struct.unpack_from(f"<{length // size}{code}", data, within.start)


def text(data: Buffer, within: slice) -> str:
    """A string; bytes that are no UTF-8 become U+FFFD."""
    return bytes(data[within]).decode("utf-8", "replace")


def signed(value: int) -> int:
    """int32 or int64 from a varint (negative ones are written as 64-bit two's complement)."""
    return value - 2**64 if value >= 2**63 else value


def unzigzag(value: int) -> int:
    """sint32 or sint64 from a varint."""
    return (value >> 1) ^ -(value & 1)


def to_double(value: int) -> float:
    """A double from the bits of a FIXED64."""
    number: float = struct.unpack("<d", value.to_bytes(8, "little"))[0]
    return number


def to_float(value: int) -> float:
    """A float from the bits of a FIXED32."""
    number: float = struct.unpack("<f", value.to_bytes(4, "little"))[0]
    return number


def check_depth(depth: int, offset: int) -> None:
    """For a caller that enters messages of its own kind: LimitExceeded beyond `MAX_DEPTH`."""
    if depth > MAX_DEPTH:
        raise LimitExceeded(
            f"messages are nested more than {MAX_DEPTH} deep",
            where=f"byte {offset}",
            allowed=f"{MAX_DEPTH} levels",
        )
