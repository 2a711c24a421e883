"""Counts of what was dropped or repaired, by reason."""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass
class Loss:
    """One reason."""

    reason: str
    """Stable words."""
    lost: bool
    """Whether information was lost."""
    dropped: bool
    """Whether the events are in no table; False for repaired ones."""
    num_events: int = 0
    """How many events."""
    offset: int | None = None
    """Byte offset of the first one in the unpacked file."""
    what: str = ""
    """What the first one was."""

    @property
    def example(self) -> str | None:
        """Where the first one is, and what."""
        if self.offset is None:
            return None
        return f"byte {self.offset}" + (f": {self.what}" if self.what else "")


class Losses:
    """Counts by reason; the example is the one with the lowest offset."""

    def __init__(self) -> None:
        self._by_reason: dict[str, Loss] = {}

    def add(
        self,
        reason: str,
        num_events: int = 1,
        *,
        offset: int | None = None,
        what: str = "",
        lost: bool = True,
        dropped: bool = True,
    ) -> None:
        """Count events under a reason; nothing happens for none."""
        if num_events <= 0:
            return
        loss = self._by_reason.setdefault(reason, Loss(reason, lost, dropped))
        loss.num_events += num_events
        if offset is not None and (loss.offset is None or offset < loss.offset):
            loss.offset, loss.what = offset, what

    def count(self, reason: Reason, num_events: int, offset: int, phase: int | None) -> None:
        """Count events under a reason of `Reason`; the first one lies at `offset`."""
        words = REASONS[reason]
        what = "" if phase is None else f"phase {chr(phase)}"
        self.add(
            words.reason,
            num_events,
            offset=offset,
            what=what,
            lost=words.lost,
            dropped=words.dropped,
        )

    def merge(self, other: Losses) -> None:
        """Add another count to this one."""
        for loss in other.rows():
            self.add(
                loss.reason,
                loss.num_events,
                offset=loss.offset,
                what=loss.what,
                lost=loss.lost,
                dropped=loss.dropped,
            )

    def rows(self) -> list[Loss]:
        """By reason, in alphabetical order."""
        return [self._by_reason[reason] for reason in sorted(self._by_reason)]

    def num_dropped(self) -> int:
        """Events that are in no table."""
        return sum(loss.num_events for loss in self._by_reason.values() if loss.dropped)


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
