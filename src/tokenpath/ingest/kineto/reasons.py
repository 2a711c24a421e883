"""The reasons that both Kineto scanners count event by event."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tokenpath.ingest.losses import Losses


class Reason(enum.IntEnum):
    """The reasons that both scanners count event by event; `REASONS` has the words."""

    FLOW = 0
    PROFILER_SPAN = 1
    INSTANT = 2
    CUDA_EVENT = 3
    OTHER_PHASE = 4
    METADATA = 5
    OUT_OF_RANGE = 6
    CUT_DIGITS = 7
    MISSING_TIMESTAMP = 8
    MISSING_DURATION = 9
    NEGATIVE_DURATION = 10
    MEMORY_WITHOUT_BYTES = 11


@dataclass(frozen=True)
class Words:
    """What a reason is called and what it means for the events."""

    reason: str
    """Stable words."""
    lost: bool = True
    """Whether information was lost."""
    dropped: bool = True
    """Whether the events are in no table."""


REASONS: dict[Reason, Words] = {
    Reason.FLOW: Words("flow arrow", lost=False),
    Reason.PROFILER_SPAN: Words("profiler span", lost=False),
    Reason.INSTANT: Words("instant", lost=False),
    Reason.CUDA_EVENT: Words("cuda_event record"),
    Reason.OTHER_PHASE: Words("other phase"),
    Reason.METADATA: Words("metadata", lost=False),
    Reason.OUT_OF_RANGE: Words("timestamp out of range"),
    Reason.CUT_DIGITS: Words("digits below a nanosecond", lost=False, dropped=False),
    Reason.MISSING_TIMESTAMP: Words("missing timestamp"),
    Reason.MISSING_DURATION: Words("missing duration", dropped=False),
    Reason.NEGATIVE_DURATION: Words("negative duration"),
    Reason.MEMORY_WITHOUT_BYTES: Words("memory event without bytes"),
}


def count(losses: Losses, reason: Reason, num_events: int, offset: int, phase: int | None) -> None:
    """Count events under a reason; the first one lies at `offset`."""
    words = REASONS[reason]
    what = "" if phase is None else f"phase {chr(phase)}"
    losses.add(
        words.reason,
        num_events,
        offset=offset,
        what=what,
        lost=words.lost,
        dropped=words.dropped,
    )
