"""Clocks of a trace: every time is brought to the trace's own clock by the snapshots in it.

Source: protos/perfetto/trace/clock_snapshot.proto; docs/concepts/clock-sync.md.
"""

from __future__ import annotations

from tokenpath.ingest.wire import BYTES, VARINT, Buffer, fields

REALTIME, MONOTONIC, BOOTTIME = 1, 3, 6
_SEQUENCE_CLOCKS = range(64, 128)
"""Ids whose meaning is that of the writer's sequence."""
_MAX_NS = 2**63

Key = tuple[int, int]
"""Sequence (0 for clocks of the whole trace) and clock id."""


class Clocks:
    """What the snapshots seen so far say."""

    def __init__(self) -> None:
        self.realtime_offset_ns: int | None = None
        """Epoch time minus the trace clock, by the first snapshot that has both."""
        self._trace_clock: int | None = None
        self._at: dict[Key, tuple[int, int]] = {}
        """Per clock, its reading and the trace clock's at the same moment."""
        self._units: dict[Key, tuple[int, bool]] = {}
        self._last: dict[Key, int] = {}

    def snapshot(self, data: Buffer, at: slice, sequence: int) -> None:
        """Take in a ClockSnapshot message."""
        readings: dict[int, int] = {}
        primary: int | None = None
        for number, wire_type, value in fields(data, at):
            if number == 1 and wire_type == BYTES and isinstance(value, slice):
                clock = {n: v for n, t, v in fields(data, value) if t == VARINT}
                clock_id, reading = clock.get(1), clock.get(2)
                if not isinstance(clock_id, int) or not isinstance(reading, int):
                    continue
                unit, is_delta = clock.get(4), bool(clock.get(3))
                key = self._key(clock_id, sequence)
                unit = unit if isinstance(unit, int) and 0 < unit < 10**9 else 1
                self._units[key] = (unit, is_delta)
                self._last[key] = reading * unit
                readings[clock_id] = reading * unit
            elif number == 2 and wire_type == VARINT and isinstance(value, int):
                primary = value
        if self._trace_clock is None and readings:
            order = (primary, BOOTTIME, MONOTONIC, REALTIME, *sorted(readings))
            self._trace_clock = next(clock for clock in order if clock in readings)
        own = readings.get(-1 if self._trace_clock is None else self._trace_clock)
        if own is None:
            return
        for clock_id, reading in readings.items():
            self._at[self._key(clock_id, sequence)] = (reading, own)
        if self.realtime_offset_ns is None and REALTIME in readings:
            self.realtime_offset_ns = readings[REALTIME] - own

    def to_trace_ns(self, clock_id: int, value: int, sequence: int) -> int | None:
        """A time on the trace's clock; None when no snapshot ties the clock to it."""
        key = self._key(clock_id, sequence)
        unit, is_delta = self._units.get(key, (1, False))
        reading = value * unit
        if is_delta:
            reading += self._last[key]
            self._last[key] = reading
        if self._trace_clock is None:
            # Without any snapshot all clocks of the machine are taken for one.
            found = reading if clock_id not in _SEQUENCE_CLOCKS else None
        elif clock_id == self._trace_clock:
            found = reading
        elif key in self._at:
            mine, its = self._at[key]
            found = reading - mine + its
        else:
            found = None
        return found if found is not None and -_MAX_NS < found < _MAX_NS else None

    def _key(self, clock_id: int, sequence: int) -> Key:
        return (sequence if clock_id in _SEQUENCE_CLOCKS else 0, clock_id)
