"""A TrackEvent message decoded, as far as tables hold it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tokenpath.ingest.wire import (
    FIXED64,
    VARINT,
    Buffer,
    fields,
    packed_fixed,
    packed_varints,
    signed,
    text,
    to_double,
)

_FLOWS = frozenset({36, 42, 47, 48})
_ARGUMENTS = frozenset({4, 5, 21, *range(24, 30), *range(32, 36)})


@dataclass(slots=True)
class Event:
    """What an event says; None where it does not."""

    kind: int = 0
    """1 begin, 2 end, 3 instant, 4 counter, 0 unspecified."""
    track: int | None = None
    """Id of its track."""
    name: str | None = None
    """Its name, when it is not interned."""
    name_id: int = 0
    """Id of its interned name."""
    value: float | None = None
    """Value of a counter event."""
    counters: list[int] = field(default_factory=list)
    """Tracks of `values`."""
    values: list[float] = field(default_factory=list)
    """Extra counter values, integers."""
    real_counters: list[int] = field(default_factory=list)
    """Tracks of `real_values`."""
    real_values: list[float] = field(default_factory=list)
    """Extra counter values, doubles."""
    legacy_phase: int | None = None
    """Character of the JSON format, for events without a type."""
    legacy_duration_us: int | None = None
    """Duration of a complete legacy event."""
    num_flows: int = 0
    """Flows that begin, pass or end here."""
    has_arguments: bool = False
    """Whether it carries arguments."""


def read_event(data: Buffer, at: slice) -> Event:
    """Decode a message. WireError when it is damaged."""
    event = Event()
    for number, wire_type, value in fields(data, at):
        if isinstance(value, slice):
            _take_bytes(event, data, number, value)
        elif wire_type == VARINT:
            _take_number(event, number, value)
        elif wire_type == FIXED64:
            if number == 44:
                event.value = to_double(value)
            elif number == 46:
                event.real_values.append(to_double(value))
            elif number in _FLOWS:
                event.num_flows += 1
    return event


def _take_number(event: Event, number: int, value: int) -> None:
    if number == 9:
        event.kind = value
    elif number == 10:
        event.name_id = value
    elif number == 11:
        event.track = value
    elif number == 12:
        event.values.append(signed(value))
    elif number == 30:
        event.value = signed(value)
    elif number == 31:
        event.counters.append(value)
    elif number == 45:
        event.real_counters.append(value)
    elif number in _FLOWS:
        event.num_flows += 1


def _take_bytes(event: Event, data: Buffer, number: int, value: slice) -> None:
    if number == 23:
        event.name = text(data, value)
    elif number == 6:
        _take_legacy(event, data, value)
    elif number == 12:
        event.values += [signed(number) for number in packed_varints(data, value)]
    elif number == 31:
        event.counters += packed_varints(data, value)
    elif number == 45:
        event.real_counters += packed_varints(data, value)
    elif number == 46:
        event.real_values += packed_fixed(data, value, "d")
    elif number in (47, 48):
        event.num_flows += (value.stop - value.start) // 8
    elif number in _ARGUMENTS:
        event.has_arguments = True


def _take_legacy(event: Event, data: Buffer, at: slice) -> None:
    """LegacyEvent: its name, its phase and its duration."""
    for number, wire_type, value in fields(data, at):
        if wire_type == VARINT and isinstance(value, int):
            if number == 1:
                event.name_id = event.name_id or value
            elif number == 2:
                event.legacy_phase = value
            elif number == 3:
                event.legacy_duration_us = signed(value)
