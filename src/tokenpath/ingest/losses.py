"""Counts of what was dropped or repaired, by reason."""

from __future__ import annotations

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
            return self.what or None
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
        elif loss.offset is None and not loss.what:
            loss.what = what

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
