"""Rows of one file before they are text, and the clock that their times are read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenpath.lab.kineto.text import NOTHING, Texts

I64 = NDArray[np.int64]
TICK_NS = 32
"""Device times are multiples of this, as on Hopper GPUs."""


@dataclass(frozen=True)
class Clock:
    """How a rank's host counts time."""

    base_ns: int
    """`baseTimeNanoseconds`."""
    origin_ns: int
    """Time of the run's moment 0 after that."""
    drift: float = 0.0
    """Relative error of its rate."""

    def read(self, ns: I64) -> I64:
        """What it shows at moments of the run."""
        return (ns + (ns * self.drift).astype(np.int64)) + self.origin_ns


@dataclass
class Rows:
    """The rows of one file."""

    texts: Texts = field(default_factory=Texts)
    pieces: list[I64] = field(default_factory=list)
    numbers: list[I64] = field(default_factory=list)

    def add(self, pieces: Sequence[I64 | int], numbers: Sequence[I64 | int], count: int) -> None:
        """Rows of pieces and numbers, each a column or one value for all."""
        self.pieces.append(_table(pieces, 6, 0, count))
        self.numbers.append(_table(numbers, 5, NOTHING, count))


def _table(columns: Sequence[I64 | int], width: int, rest: int, count: int) -> I64:
    table = np.full((count, width), rest, np.int64)
    for number, column in enumerate(columns):
        table[:, number] = column
    return table
