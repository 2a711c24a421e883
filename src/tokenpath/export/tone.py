"""What a colour means, on every medium: the device works, talks, copies, waits, or nobody knows."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from tokenpath.core.report import FunnelRow


class Tone(enum.StrEnum):
    """The meaning of a bar."""

    WALL = "wall"
    """The whole."""
    BUSY = "busy"
    """Computing."""
    COMMUNICATION = "communication"
    """Collectives and other exchange between devices."""
    MEMCPY = "memcpy"
    """Copies and fills."""
    IDLE = "idle"
    """Nothing runs."""
    UNKNOWN = "unknown"
    """Without a known cause."""


# The family `copy` is a compute kernel; only what the copy engines do is a memcpy.
_WORDS = (
    (Tone.UNKNOWN, ("unattributed", "unknown", "unresolved")),
    (Tone.IDLE, ("idle", "gap", "queue", "not_scheduled", "transition")),
    (Tone.COMMUNICATION, ("communication", "collective", "nccl", "delivery", "send")),
    (Tone.MEMCPY, ("memcpy", "memset")),
    (Tone.WALL, ("wall", "whole")),
)


def tone_of(key: str, parent: Tone | None = None) -> Tone:
    """The tone of a funnel row or timeline category by its key; below idle everything is idle."""
    lowered = key.lower()
    for tone, words in _WORDS:
        if any(word in lowered for word in words):
            # A wait for a collective is a kind of waiting, not of communicating.
            return Tone.IDLE if parent is Tone.IDLE and tone is not Tone.UNKNOWN else tone
    return Tone.BUSY if parent in (None, Tone.WALL) else parent


def tones(rows: Sequence[FunnelRow]) -> list[Tone]:
    """The tone of each row of a funnel; a row takes after the row it is part of."""
    result: list[Tone] = []
    for row, parent in zip(rows, parent_indices(row.depth for row in rows), strict=True):
        if parent is None:
            result.append(Tone.WALL)
        else:
            result.append(tone_of(row.key, result[parent]))
    return result


def parent_indices(depths: Iterable[int]) -> list[int | None]:
    """For each row of a funnel the row that it is part of: the nearest earlier one of lower depth."""
    parents: list[int | None] = []
    open_rows: list[tuple[int, int]] = []
    for index, depth in enumerate(depths):
        while open_rows and open_rows[-1][0] >= depth:
            open_rows.pop()
        parents.append(open_rows[-1][1] if open_rows else None)
        open_rows.append((depth, index))
    return parents
