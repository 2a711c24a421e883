"""Exact conversions and the one way in which numbers are written for people."""

from __future__ import annotations

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

_DURATION_STEPS = ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (NS_PER_US, "us"))
_BYTE_STEPS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def format_ms(duration_ns: int | float) -> str:
    """Milliseconds with two decimals and thousands separators: the column of every report."""
    return f"{duration_ns / NS_PER_MS:,.2f}"


def format_duration(duration_ns: int | float) -> str:
    """A duration in the unit that leaves one to three digits before the point: `9.1 us`."""
    for size, unit in _DURATION_STEPS:
        if abs(duration_ns) >= size:
            return f"{duration_ns / size:,.2f} {unit}"
    return f"{duration_ns:,.0f} ns"


def format_bytes(num_bytes: int | float) -> str:
    """A byte count in binary units: `1.5 MiB`."""
    for size, unit in _BYTE_STEPS:
        if abs(num_bytes) >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes:,.0f} B"


def format_percent(part: int | float, whole: int | float) -> str:
    """`part` of `whole` in per cent with one decimal; `n/a` when there is no whole."""
    if whole == 0:
        return "n/a"
    return f"{100 * part / whole:.1f} %"


def parse_duration_ns(text: str) -> int:
    """`1.5ms`, `20us`, `3s`, `7ns` or a bare number of seconds, exactly, as nanoseconds.

    Raises ValueError when the text is none of these.
    """
    from decimal import Decimal, InvalidOperation

    body = text.strip().lower()
    scale = NS_PER_S
    for suffix, size in (("ns", 1), ("us", NS_PER_US), ("ms", NS_PER_MS), ("s", NS_PER_S)):
        if body.endswith(suffix):
            body, scale = body[: -len(suffix)].strip(), size
            break
    try:
        value = Decimal(body) * scale
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a duration such as 1.5ms, 20us or 3s") from None
    if not value.is_finite() or not INT64_MIN <= value <= INT64_MAX:
        raise ValueError(f"{text!r} is outside the range of int64 nanoseconds")
    return int(value)
