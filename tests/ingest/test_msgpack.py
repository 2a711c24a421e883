"""MessagePack: what was packed comes back, and no bytes can hurt."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.packing import pack
from tokenpath.ingest.msgpack import MAX_DEPTH, Incomplete, Malformed, decode

PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=40)
PLAIN |= st.floats(allow_nan=False) | st.binary(max_size=300)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=30,
)


@given(VALUES)
def test_values_come_back(value: Any) -> None:
    data = pack(value)
    assert decode(data) == (value, len(data))
    assert decode(b"\xc0" + data + b"\xc1", 1) == (value, 1 + len(data))


@given(VALUES, st.data())
def test_a_part_of_a_value_is_incomplete(value: Any, data: st.DataObject) -> None:
    whole = pack(value)
    size = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(Incomplete):
        decode(whole[:size])


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_value_or_one_of_two_errors(data: bytes) -> None:
    try:
        _, end = decode(data)
    except (Incomplete, Malformed):
        return
    assert 0 < end <= len(data)


def test_depth_is_bounded() -> None:
    assert decode(b"\x91" * MAX_DEPTH + b"\x01")[1] == MAX_DEPTH + 1
    with pytest.raises(Malformed):
        decode(b"\x91" * 100_000)


def test_a_header_allocates_nothing() -> None:
    for header in (b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9"):
        with pytest.raises(Incomplete):
            decode(header + b"\xff" * 4)


def test_extensions_are_skipped_and_keys_are_plain() -> None:
    assert decode(b"\x92\xd6\xff\x00\x00\x00\x01\x07")[0] == [None, 7]
    assert decode(b"\xc7\x02\x05\x00\x00")[0] is None
    with pytest.raises(Malformed):
        decode(b"\x81\x91\x01\x02")
    with pytest.raises(Malformed):
        decode(b"\xc1")
