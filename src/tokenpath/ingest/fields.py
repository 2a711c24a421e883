"""Values of decoded records (JSON, MessagePack) as what a column may hold; None for what does not fit."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import Any

from tokenpath.core.units import INT64_MAX, INT64_MIN, NS_PER_S

MAX_TEXT = 4096
"""Longer texts are cut: ids and names are short, prompts are not wanted."""

_MAX_DIGITS = 19


def count(value: object) -> int | None:
    """A number of things: an integer from 0 to what int64 holds, also written as 3.0."""
    number = integer(value)
    return number if number is not None and number >= 0 else None


def integer(value: object) -> int | None:
    """An int64, also written as 3.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if INT64_MIN <= value <= INT64_MAX else None


def rank(value: object) -> int | None:
    """A number of a rank or an answer: an int32 from 0."""
    number = count(value)
    return number if number is not None and number < 2**31 else None


def real(value: object) -> float | None:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def text(value: object) -> str | None:
    """A text of at most MAX_TEXT characters that can be written as UTF-8; whole numbers as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if INT64_MIN <= value <= 2 * INT64_MAX + 1 else None
    if not isinstance(value, str) or not value:
        return None
    return value[:MAX_TEXT].encode("utf-8", "replace").decode()


def nanoseconds(value: object, unit_ns: int = NS_PER_S) -> int | None:
    """A time or duration of so many units as whole nanoseconds, rounded half to even.

    A double stands for the shortest decimal that reads as it, so 0.1 s is 100,000,000 ns. A double of
    seconds since 1970 is itself exact to about 200 ns only.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and len(value) > 2 * _MAX_DIGITS:
        return None
    try:
        number = Decimal(repr(value) if isinstance(value, float) else value)
    except (InvalidOperation, ValueError):
        return None
    if not number.is_finite() or number.adjusted() > _MAX_DIGITS:
        return None
    if number.adjusted() < -_MAX_DIGITS:
        return 0
    whole = int((number * unit_ns).to_integral_value())
    return whole if INT64_MIN <= whole <= INT64_MAX else None


def duration_ns(value: object, unit_ns: int = NS_PER_S) -> int | None:
    """A duration, never negative."""
    whole = nanoseconds(value, unit_ns)
    return whole if whole is not None and whole >= 0 else None


def mapping(value: object) -> dict[str, Any]:
    """A JSON object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}
