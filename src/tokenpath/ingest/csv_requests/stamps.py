"""Dates with a time, as public traces write them, to nanoseconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from tokenpath.core.units import INT64_MAX, NS_PER_S

_ISO = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[ T](\d{2}):(\d{2}):(\d{2})(?:[.,](\d{1,12}))?\s*(Z|[+-]\d{2}:?\d{2})?",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso_ns(cell: object) -> int | None:
    """`2023-11-16 18:17:03.9799600` exactly, as UTC where it names no zone; None for what is no date.

    Digits below a nanosecond are cut off; dates that int64 nanoseconds cannot hold (after 2262) are none.
    """
    match = _ISO.fullmatch(cell.strip()) if isinstance(cell, str) else None
    if match is None:
        return None
    zone = UTC if match[8] in (None, "Z") else _zone(match[8])
    try:
        year, month, day, hour, minute, second = (int(match[part]) for part in range(1, 7))
        whole = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError:
        return None
    since = whole - _EPOCH
    nanoseconds = int((match[7] or "0").ljust(9, "0")[:9])
    found = (since.days * 86_400 + since.seconds) * NS_PER_S + nanoseconds
    return found if abs(found) <= INT64_MAX else None


def has_zone(cell: object) -> bool:
    """Whether a date names its zone."""
    match = _ISO.fullmatch(cell.strip()) if isinstance(cell, str) else None
    return match is not None and match[8] is not None


def _zone(text: str) -> timezone | None:
    sign = -1 if text[0] == "-" else 1
    digits = text[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:])
    return timezone(sign * timedelta(minutes=min(minutes, 23 * 60 + 59)))
