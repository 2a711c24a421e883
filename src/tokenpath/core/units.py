"""Exact conversions and the one way in which numbers are written for people."""

from __future__ import annotations

import re

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

_DURATION_STEPS = ((NS_PER_US, "us"), (NS_PER_MS, "ms"), (NS_PER_S, "s"))
_BYTE_STEPS = ((2**10, "KiB"), (2**20, "MiB"), (2**30, "GiB"), (2**40, "TiB"))

_DURATION_TEXT = (
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]{1,9})?)\s*(?P<unit>ns|us|ms|s|)"
)
_SCALES = {"ns": 1, "us": NS_PER_US, "ms": NS_PER_MS, "s": NS_PER_S, "": NS_PER_S}


def format_ms(duration_ns: int | float) -> str:
    """Milliseconds with two decimals and thousands separators: the column of every report."""
    return f"{duration_ns / NS_PER_MS:z,.2f}"


def format_duration(duration_ns: int | float) -> str:
    """A duration in the unit that leaves one to three digits before the point: `9.10 us`.

    Nanoseconds have no decimals; seconds have as many digits as they need.
    """
    value, decimals, unit = float(duration_ns), 0, "ns"
    for size, larger in _DURATION_STEPS:
        # Judged as it would be written: 999,996 ns is 1.00 ms, not 1,000.00 us.
        if not abs(round(value, decimals)) >= 1000:
            break
        value, decimals, unit = duration_ns / size, 2, larger
    return f"{value:z,.{decimals}f} {unit}"


def format_bytes(num_bytes: int | float) -> str:
    """A byte count in the binary unit that leaves less than 1,024 of it: `1.5 MiB`."""
    value, decimals, unit = float(num_bytes), 0, "B"
    for size, larger in _BYTE_STEPS:
        if not abs(round(value, decimals)) >= 1024:
            break
        value, decimals, unit = num_bytes / size, 1, larger
    return f"{value:z,.{decimals}f} {unit}"


def format_percent(part: int | float, whole: int | float) -> str:
    """`part` of `whole` in per cent with one decimal; `n/a` when there is no whole."""
    if whole == 0:
        return "n/a"
    return f"{100 * part / whole:z.1f} %"


def parse_duration_ns(text: str) -> int:
    """`1.5ms`, `20us`, `3s`, `7ns` or a bare number of seconds, exactly, as nanoseconds.

    Raises ValueError when the text is none of these, is no whole number of nanoseconds, or does not fit
    int64.
    """
    # Loaded here because few commands need them, and `--help` none.
    from decimal import Decimal
    from fractions import Fraction

    match = re.fullmatch(_DURATION_TEXT, text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 1.5ms, 20us or 3s")
    number = Decimal(match["number"])
    if not number:
        return 0
    # Settled by the exponent first: 1e999999999 must not become an integer.
    too_large = f"{text!r} is outside the range of int64 nanoseconds"
    if number.adjusted() > 18:
        raise ValueError(too_large)
    exponent = number.as_tuple().exponent
    value = Fraction(number) * _SCALES[match["unit"]] if int(exponent) > -1000 else Fraction(1, 2)
    if value.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of nanoseconds")
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError(too_large)
    return int(value)
