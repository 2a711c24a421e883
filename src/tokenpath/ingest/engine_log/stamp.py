"""Time stamps at the head of a log line, as far as they say when."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

_DATED = re.compile(
    rb"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)[ T](?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    rb"(?:[.,](?P<fraction>\d{1,9}))?(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
_UNDATED = re.compile(
    rb"(?<![-\d])(?P<month>\d\d)-(?P<day>\d\d) (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    rb"(?:[.,](?P<fraction>\d{1,9}))?"
)
_HEAD_BYTES = 200
_LEAP_YEAR = 2000
"""Stands for a year that is not written: every day of a year exists in it."""
_HALF_A_YEAR_NS = 183 * 86_400 * 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Stamp:
    """When a line was written."""

    at_ns: int
    """Nanoseconds since 1970; as if in UTC where the zone is not written, in 2000 where the year is not."""
    has_zone: bool
    """Whether the instant is known."""
    has_fraction: bool
    """Whether it is finer than a second."""


def read_stamp(line: bytes) -> Stamp | None:
    """The stamp at the head of a line; None when there is none, or it is no date."""
    head = line[:_HEAD_BYTES]
    match = _DATED.search(head) or _UNDATED.search(head)
    if match is None:
        return None
    parts = match.groupdict()
    year = int(parts.get("year") or _LEAP_YEAR)
    numbers = [int(parts[name]) for name in ("month", "day", "hour", "minute", "second")]
    try:
        month, day, hour, minute, second = numbers
        since = datetime(year, month, day, hour, minute, second, tzinfo=UTC) - _EPOCH
    except ValueError:
        return None
    at_ns = (since.days * 86_400 + since.seconds) * 10**9
    fraction = parts.get("fraction")
    if fraction:
        at_ns += int(fraction.ljust(9, b"0"))
    zone = parts.get("zone")
    return Stamp(at_ns - _offset_ns(zone), zone is not None, fraction is not None)


def _offset_ns(zone: bytes | None) -> int:
    if zone is None or zone == b"Z":
        return 0
    digits = zone[1:].replace(b":", b"")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return (-1 if zone[:1] == b"-" else 1) * seconds * 10**9


class Clock:
    """Stamps of one file in order; a year that is not written goes on by one when the months start again."""

    def __init__(self) -> None:
        self.has_zone: bool | None = None
        """Of the first stamp; lines of the other kind cannot be placed beside it."""
        self.is_coarse = False
        """Whether stamps are whole seconds."""
        self._last_ns = 0
        self._years_ns = 0

    def place(self, stamp: Stamp) -> int | None:
        """Time of a line on the file's clock; None for a stamp of another kind than the first."""
        if self.has_zone is None:
            self.has_zone, self._last_ns = stamp.has_zone, stamp.at_ns
        if stamp.has_zone != self.has_zone:
            return None
        self.is_coarse |= not stamp.has_fraction
        at_ns = stamp.at_ns + self._years_ns
        if not stamp.has_zone and at_ns < self._last_ns - _HALF_A_YEAR_NS:
            self._years_ns += 366 * 86_400 * 10**9
            at_ns += 366 * 86_400 * 10**9
        self._last_ns = at_ns
        return at_ns
