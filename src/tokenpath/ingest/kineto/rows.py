"""Where a scanner puts raw rows one at a time."""

from __future__ import annotations

from array import array
from typing import Protocol

import numpy as np

from tokenpath.ingest.kineto.columns import NUM_COLUMNS
from tokenpath.ingest.kineto.sorting import Sorter

_ROWS_PER_CHUNK = 8192


class Sink(Protocol):
    """Takes raw rows in the order of the file."""

    sorter: Sorter
    """Holds what is kept, and the counts."""

    def add(self, row: list[int]) -> None:
        """Keep or count one raw row."""

    def flush(self) -> None:
        """Hand all rows on to the sorter."""


class RowBuffer:
    """Gathers rows to chunks for the sorter."""

    def __init__(self, sorter: Sorter) -> None:
        self.sorter = sorter
        self._buffer = array("q")

    def add(self, row: list[int]) -> None:
        """Keep one raw row."""
        self._buffer.extend(row)
        if len(self._buffer) >= _ROWS_PER_CHUNK * NUM_COLUMNS:
            self.flush()

    def flush(self) -> None:
        """Hand the rows gathered so far to the sorter."""
        if self._buffer:
            rows = np.frombuffer(self._buffer, np.int64).reshape(-1, NUM_COLUMNS)
            self._buffer = array("q")
            self.sorter.add(rows)
