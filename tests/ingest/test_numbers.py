"""Times are exact."""

from __future__ import annotations

import math
import struct
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpath.ingest.kineto.columns import NULL
from tokenpath.ingest.kineto.numbers import parse_int64, parse_ns, parse_real_bits


@pytest.mark.parametrize(
    ("text", "nanoseconds", "cut"),
    [
        ("0", 0, False),
        ("1", 1000, False),
        ("1.5", 1500, False),
        ("3676599926233.705", 3676599926233705, False),
        ("1704161511422856.936", 1704161511422856936, False),
        ("12.77012757357446", 12770, True),
        ("0.0009", 0, True),
        ("-0.0001", -1, True),
        ("-2.5", -2500, False),
        ("1.7e15", 1_700_000_000_000_000_000, False),
        ("1e-3", 1, False),
        ("5.0000", 5000, False),
        (" 7.25 ", 7250, False),
    ],
)
def test_parse_ns(text: str, nanoseconds: int, cut: bool) -> None:
    assert parse_ns(text) == (nanoseconds, cut)


@pytest.mark.parametrize("text", ["", "x", "1.2.3", "0x10", "nan", "inf", "1,5", "--1"])
def test_what_is_no_number(text: str) -> None:
    assert parse_ns(text) is None


@given(st.decimals(min_value=-(10**17), max_value=10**17, allow_nan=False, places=9))
def test_parse_ns_rounds_down_to_the_nanosecond(value: Decimal) -> None:
    with localcontext() as context:
        context.prec = 60
        exact = value * 1000
        floor = math.floor(exact)
    assert parse_ns(format(value, "f")) == (floor, exact != floor)


@given(st.integers(-(2**70), 2**70))
def test_parse_int64(value: int) -> None:
    expected = value if NULL < value < 2**63 else NULL
    assert parse_int64(value) == expected
    assert parse_int64(str(value)) == expected


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_parse_real_bits(value: float) -> None:
    (back,) = struct.unpack("<d", struct.pack("<q", parse_real_bits(repr(value))))
    assert back == value


def test_huge_exponents_do_not_hang() -> None:
    assert parse_ns("1e9999") == (2**200, False)
    assert parse_ns("0e9999") == (0, False)
    assert parse_ns("1e-9999") == (0, True)
