"""The protobuf wire format, against bytes written by hand and against a writer of a few lines."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.protobuf import encode, varint
from tokenpath.core.errors import DamagedInput, LimitExceeded
from tokenpath.ingest import wire
from tokenpath.ingest.wire import BYTES, FIXED32, FIXED64, VARINT, WireError, fields


def test_the_examples_of_the_specification() -> None:
    """protobuf.dev/programming-guides/encoding: a = 150; b = "testing"; f = [3, 270, 86942]."""
    assert list(fields(b"\x08\x96\x01")) == [(1, VARINT, 150)]
    data = b"\x12\x07testing"
    ((number, wire_type, value),) = fields(data)
    assert (number, wire_type, wire.text(data, value)) == (2, BYTES, "testing")
    data = b"\x32\x06\x03\x8e\x02\x9e\xa7\x05"
    ((number, _, value),) = fields(data)
    assert (number, wire.packed_varints(data, value)) == (6, [3, 270, 86942])


def test_slices_count_from_the_start_of_the_buffer() -> None:
    data = b"\x08\x01\x1a\x03\x08\x96\x01\x10\x02"
    assert list(fields(data)) == [(1, VARINT, 1), (3, BYTES, slice(4, 7)), (2, VARINT, 2)]
    assert list(fields(data, slice(4, 7))) == [(1, VARINT, 150)]
    assert list(fields(memoryview(data), slice(4, 7))) == [(1, VARINT, 150)]


def test_fixed_sizes() -> None:
    data = b"\x09" + struct.pack("<d", -1.5) + b"\x15" + struct.pack("<f", 0.25)
    (_, first, double), (_, second, single) = fields(data)
    assert (first, second) == (FIXED64, FIXED32)
    assert (wire.to_double(double), wire.to_float(single)) == (-1.5, 0.25)
    packed = struct.pack("<3Q", 1, 2, 2**64 - 1)
    assert wire.packed_fixed(packed, slice(0, 24), "Q") == (1, 2, 2**64 - 1)
    with pytest.raises(WireError, match="no whole number"):
        wire.packed_fixed(packed, slice(0, 23), "Q")


def test_negative_numbers() -> None:
    ((_, _, value),) = fields(b"\x08" + b"\xff" * 9 + b"\x01")
    assert wire.signed(value) == -1
    assert [wire.unzigzag(number) for number in (0, 1, 2, 3, 2**64 - 1)] == [0, -1, 1, -2, -(2**63)]


def test_longer_forms_than_needed_are_numbers_too() -> None:
    assert list(fields(b"\x08\x81\x80\x00")) == [(1, VARINT, 1)]
    assert list(fields(b"\x08" + b"\x81" + b"\x80" * 8 + b"\x00")) == [(1, VARINT, 1)]


@pytest.mark.parametrize(
    ("data", "offset", "words"),
    [
        (b"\x08" + b"\x80" * 10 + b"\x01", 1, "64 bits"),
        (b"\x08" + b"\xff" * 9 + b"\x02", 1, "64 bits"),
        (b"\x08\x96", 1, "does not end"),
        (b"\x08", 1, "does not end"),
        (b"\x88", 0, "does not end"),
        (b"\x08\x01\x12\x05abc", 2, "5 bytes, 3 are left"),
        (b"\x12" + b"\xff" * 9 + b"\x01", 0, "are left"),
        (b"\x09\x01\x02", 0, "8 bytes, 2 are left"),
        (b"\x0d\x01\x02", 0, "4 bytes, 2 are left"),
        (b"\x0b\x0c", 0, "a group starts"),
        (b"\x0c", 0, "a group ends"),
        (b"\x0e", 0, "no such wire type"),
        (b"\x0f", 0, "no such wire type"),
        (b"\x00", 0, "number 0"),
        (varint(2**32) + b"\x00", 0, "no field has number"),
    ],
)
def test_what_is_no_field_says_where(data: bytes, offset: int, words: str) -> None:
    with pytest.raises(DamagedInput, match=words) as caught:
        list(fields(data))
    assert isinstance(caught.value, WireError)
    assert caught.value.offset == offset
    assert f"byte {offset}" in str(caught.value)


def test_an_inner_message_does_not_reach_beyond_its_own_end() -> None:
    """The bytes are there, but they belong to the outer message."""
    data = b"\x0a\x02\x12\x03abc"
    ((_, _, inner), *_) = _until_error(data)
    with pytest.raises(WireError, match="3 bytes, 0 are left"):
        list(fields(data, inner))


def test_depth_has_a_bound() -> None:
    wire.check_depth(wire.MAX_DEPTH, 0)
    with pytest.raises(LimitExceeded, match="nested"):
        wire.check_depth(wire.MAX_DEPTH + 1, 0)


_values = st.one_of(
    st.tuples(st.just(VARINT), st.integers(0, 2**64 - 1)),
    st.tuples(st.just(FIXED64), st.integers(0, 2**64 - 1)),
    st.tuples(st.just(FIXED32), st.integers(0, 2**32 - 1)),
    st.tuples(st.just(BYTES), st.binary(max_size=300)),
)
_messages = st.lists(
    st.tuples(st.integers(1, 2**29 - 1), _values).map(lambda pair: (pair[0], *pair[1])), max_size=8
)


@given(_messages)
def test_what_was_written_is_read(message: list[tuple[int, int, int | bytes]]) -> None:
    data = encode(message)
    read = [
        (number, kind, data[value] if isinstance(value, slice) else value)
        for number, kind, value in fields(data)
    ]
    assert read == message


@given(_messages, st.data())
def test_a_message_cut_short_gives_the_fields_before_the_cut(
    message: list[tuple[int, int, int | bytes]], draw: st.DataObject
) -> None:
    data = encode(message)
    whole = list(fields(data))
    found = _until_error(data[: draw.draw(st.integers(0, len(data)))])
    assert found == whole[: len(found)]


@given(st.binary(max_size=60))
def test_any_bytes_end_in_fields_or_one_error(data: bytes) -> None:
    for _, kind, value in _until_error(data):
        if kind == BYTES:
            assert isinstance(value, slice)
            assert 0 <= value.start <= value.stop <= len(data)


def _until_error(data: bytes) -> list[wire.Field]:
    found = []
    with contextlib.suppress(WireError):
        for field in fields(data):
            found.append(field)
    return found
