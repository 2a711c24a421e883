"""What an edge of the graph can be, and edges as they are gathered."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s

Int32s = NDArray[np.int32]


class EdgeKind(enum.IntEnum):
    """Why a point of time cannot come before another."""

    HOST = 0
    """Order on a host thread: the time between two recorded moments."""
    THREAD = 1
    """A thread stood still until another had done something."""
    RETURN = 2
    """A host call returns after the work that it waited for."""
    LAUNCH = 3
    """Work starts after the call that launches it."""
    STREAM = 4
    """Work starts after the work before it on its stream."""
    GRAPH = 5
    """The same within one graph launch or call."""
    EVENT = 6
    """Work starts after a recorded event of another stream."""
    INFERRED = 7
    """Work starts at the end of work of another stream; no record says so."""
    WORK = 8
    """Work ends its duration after its start."""
    OVERLAP = 9
    """Work starts before the end of the work before it on its stream (programmatic dependent launch): the
    edge leads from the start of that."""
    ARRIVE = 10
    """A collective begins to move data when its last rank has arrived."""
    TRANSFER = 11
    """A rank's part of a collective ends when the data has moved."""
    PAST_COMMUNICATION = 12
    """Work starts after the last work on its stream that is neither communication nor copy. Never binding as
    measured: it is what remains when communication is hidden."""
    QUEUE = 14
    """A launch returns when the queue of launches has room again."""
    CROWDED = 13
    """Queued work starts while work of another stream runs its last waves; no record says that it waited for
    room. The edge leads from the start of the other, and stretches with it as OVERLAP does."""


@dataclass
class EdgeList:
    """Edges in the order in which they were found."""

    parts: list[tuple[Int64s, Int64s, Int64s, int]] = field(default_factory=list)
    """Sources, targets, weights and kind of each batch."""

    def add(self, source: Int64s, target: Int64s, weight: Int64s, kind: EdgeKind) -> None:
        """One batch of edges between points by number."""
        if len(source):
            self.parts.append((source, target, weight, int(kind)))

    def columns(self) -> tuple[Int64s, Int64s, Int64s, NDArray[np.int8]]:
        """All sources, targets, weights and kinds."""
        none = np.empty(0, np.int64)
        source, target, weight = (
            np.concatenate([part[at] for part in self.parts] or [none]) for at in range(3)
        )
        kind = np.concatenate(
            [np.full(len(part[0]), part[3], np.int8) for part in self.parts]
            or [none.astype(np.int8)]
        )
        return source, target, weight, kind


@dataclass(frozen=True)
class Numbering:
    """Numbers of points while edges are gathered: calls first, then work, then collectives."""

    num_calls: int
    """Calls: two points each."""
    num_work: int
    """Pieces of work: two points each."""

    def call_start(self, at: Int64s) -> Int64s:
        """Where calls begin."""
        return 2 * at

    def call_end(self, at: Int64s) -> Int64s:
        """Where calls end."""
        return 2 * at + 1

    def work_start(self, at: Int64s) -> Int64s:
        """Where work begins."""
        return 2 * (self.num_calls + at)

    def work_end(self, at: Int64s) -> Int64s:
        """Where work ends."""
        return 2 * (self.num_calls + at) + 1

    def release(self, at: Int64s) -> Int64s:
        """Where collectives begin to move data."""
        return 2 * (self.num_calls + self.num_work) + at


def typical_ns(samples: Int64s, default_ns: int, at_least: int = 5) -> int:
    """The median of what was measured; the default for few samples."""
    if len(samples) < at_least:
        return default_ns
    middle = (len(samples) - 1) // 2
    return int(np.partition(samples, middle)[middle])


def concatenated(parts: Sequence[Int64s]) -> Int64s:
    """The arrays joined; an empty one for none."""
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
