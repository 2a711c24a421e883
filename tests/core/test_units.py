"""Numbers as people read and write them."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokenpath.core.units import (
    INT64_MAX,
    INT64_MIN,
    NS_PER_MS,
    NS_PER_S,
    NS_PER_US,
    format_bytes,
    format_duration,
    format_ms,
    format_percent,
    parse_duration_ns,
)

UNITS = {"ns": 1, "us": NS_PER_US, "ms": NS_PER_MS, "s": NS_PER_S}
SIZES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
DURATIONS = st.integers(INT64_MIN, INT64_MAX) | st.integers(-2_000_000, 2_000_000)


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0 ns"),
        (1, "1 ns"),
        (999, "999 ns"),
        (999.4, "999 ns"),
        (999.6, "1.00 us"),
        (1_000, "1.00 us"),
        (9_100, "9.10 us"),
        (999_994, "999.99 us"),
        (999_996, "1.00 ms"),
        (1_500_000, "1.50 ms"),
        (999_999_999, "1.00 s"),
        (261_900_000_000, "261.90 s"),
        (3_600_000_000_000, "3,600.00 s"),
        (-999_996, "-1.00 ms"),
        (-5, "-5 ns"),
        (-0.3, "0 ns"),
        (INT64_MAX, "9,223,372,036.85 s"),
        (float("nan"), "nan ns"),
    ],
)
def test_format_duration(duration_ns, text):
    assert format_duration(duration_ns) == text


@given(DURATIONS)
@example(INT64_MIN)
@example(999_995)
def test_a_formatted_duration_is_near_and_short(duration_ns):
    text = format_duration(duration_ns)
    number, unit = text.split(" ")
    value = Decimal(number.replace(",", ""))
    assert (
        abs(value * UNITS[unit] - duration_ns)
        <= Decimal(UNITS[unit]) / 200 + abs(duration_ns) // 2**50
    )
    if unit != "s":
        assert abs(value) < 1000
    if unit != "ns":
        assert abs(value) >= 1
    if duration_ns >= 0:
        assert not text.startswith("-")


@given(st.integers(0, 10**15), st.integers(0, 10**6))
def test_a_longer_duration_is_never_written_as_a_shorter_one(duration_ns, more):
    def read(text: str) -> Decimal:
        number, unit = text.split(" ")
        return Decimal(number.replace(",", "")) * UNITS[unit]

    assert read(format_duration(duration_ns)) <= read(format_duration(duration_ns + more))


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1023.9, "1.0 KiB"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1_048_524, "1,023.9 KiB"),
        (1_048_575, "1.0 MiB"),
        (80 * 2**30, "80.0 GiB"),
        (5000 * 2**40, "5,000.0 TiB"),
        (-2048, "-2.0 KiB"),
        (-0.2, "0 B"),
    ],
)
def test_format_bytes(num_bytes, text):
    assert format_bytes(num_bytes) == text


@given(st.integers(-(2**60), 2**60))
def test_formatted_bytes_are_near(num_bytes):
    number, unit = format_bytes(num_bytes).split(" ")
    value = Decimal(number.replace(",", "")) * SIZES[unit]
    assert abs(value - num_bytes) <= Decimal(SIZES[unit]) / 20 + abs(num_bytes) // 2**50


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [(0, "0.00"), (4_999, "0.00"), (5_001, "0.01"), (-1, "0.00"), (1_934_567_890, "1,934.57")],
)
def test_format_ms(duration_ns, text):
    assert format_ms(duration_ns) == text


def test_format_percent():
    assert format_percent(1, 3) == "33.3 %"
    assert format_percent(0, 5) == "0.0 %"
    assert format_percent(-1, 10**6) == "0.0 %"
    assert format_percent(3, 2) == "150.0 %"
    assert format_percent(INT64_MAX, INT64_MAX) == "100.0 %"
    assert format_percent(1, 0) == format_percent(0, 0) == format_percent(1.0, 0.0) == "n/a"


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("1.5ms", 1_500_000),
        ("20us", 20_000),
        ("3s", 3_000_000_000),
        ("7ns", 7),
        ("2", 2_000_000_000),
        ("0", 0),
        ("0e99", 0),
        (".5", 500_000_000),
        ("5.", 5_000_000_000),
        (" 1 MS ", 1_000_000),
        ("1e3us", 1_000_000),
        ("1e-9", 1),
        ("-5ms", -5_000_000),
        ("+1s", 1_000_000_000),
        ("1.0ns", 1),
        ("1." + "0" * 200 + "s", 1_000_000_000),
        ("0.000000001", 1),
        ("1719792000.123456789s", 1_719_792_000_123_456_789),
        ("9223372036.854775807", INT64_MAX),
        ("-9223372036.854775808", INT64_MIN),
        ("9223372036854775807ns", INT64_MAX),
    ],
)
def test_parse_duration(text, duration_ns):
    assert parse_duration_ns(text) == duration_ns


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *[
            (text, "is not a duration such as")
            for text in (
                "", " ", "s", "ms", ".", "-", "1 min", "1h", "1,5s", "1_0s", "1 0s", "nan", "inf",
                "-infinity", "sNaN", "0x10", "1e", "1ees", "1ss", "1..5s", "٣s", "--1s", "1e1.5s",
            )
        ],
        *[
            (text, "is not a whole number of nanoseconds")
            for text in ("1.5ns", "0.0000000001", "1e-10", "1e-999999999s", "1.00000000000000000000000000001s")
        ],
        *[
            (text, "is outside the range of int64")
            for text in (
                "9223372036.854775808", "-9223372036.854775809", "9223372036854775808ns",
                "1e999999999", "-1e19ns", "9" * 5000,
            )
        ],
    ],
)  # fmt: skip
def test_parse_duration_refuses(text, reason):
    with pytest.raises(ValueError, match=re.escape(repr(text)) + " " + reason):
        parse_duration_ns(text)


@given(st.integers(INT64_MIN, INT64_MAX), st.sampled_from(["ns", "us", "ms", "s", ""]))
def test_every_nanosecond_can_be_written_in_every_unit(duration_ns, unit):
    exponent = {"ns": 0, "us": 3, "ms": 6}.get(unit, 9)
    text = f"{Decimal(duration_ns) / 10**exponent:f}{unit}"
    assert Decimal(text.removesuffix(unit)) * 10**exponent == duration_ns
    assert parse_duration_ns(text) == duration_ns


@given(st.text(alphabet="0123456789.e+-nums ", max_size=12))
def test_parse_duration_is_exact_or_an_error(text):
    try:
        found = parse_duration_ns(text)
    except ValueError:
        return
    body = text.strip()
    unit = next((known for known in ("ns", "us", "ms", "s") if body.endswith(known)), "")
    assert Fraction(body.removesuffix(unit).strip()) * UNITS.get(unit, NS_PER_S) == found
