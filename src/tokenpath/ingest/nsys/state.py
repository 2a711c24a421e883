"""What the parts of this reader share, and what every row of an export goes through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s
from tokenpath.core.units import INT64_MIN
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.nsys.export import Export
from tokenpath.ingest.nsys.names import Strings
from tokenpath.ingest.nsys.places import Devices, Processes, Threads
from tokenpath.ingest.sqlite_columns import Columns

_LIMIT_NS = 2**62
"""Times beyond it (146 years) are none; sums of two of them still fit."""


@dataclass
class State:
    """One export on its way to a capture."""

    export: Export
    """Its tables."""
    builder: CaptureBuilder
    """Where rows go."""
    strings: Strings
    """Its texts."""
    devices: Devices
    """Its devices."""
    offset_ns: int = 0
    """Added to every time."""
    processes: Processes = field(default_factory=Processes)
    """Its processes."""
    threads: Threads = field(default_factory=Threads)
    """Its threads."""
    thread_names: dict[int, str] = field(default_factory=dict)
    """Names that the program gave its threads."""
    ranks: dict[int, int] = field(default_factory=dict)
    """Ranks by serialised process id."""
    seen: set[str] = field(default_factory=set)
    """Tables that have been read."""
    num_unplaced: int = 0
    """Rows of no process: skipped ones, and ones whose times make no sense."""

    def read(self, table: str, integers: Sequence[str], texts: Sequence[str] = ()) -> Columns:
        """Read a table; its damage is counted."""
        self.seen.add(table)
        columns = self.export.read(table, integers, texts)
        losses = self.builder.losses
        losses.add("value of another type", columns.num_wrong, dropped=False)
        if columns.problem is not None:
            losses.add("table cut short", what=table, dropped=False)
        return columns

    def in_time(self, columns: Columns, end: str = "end") -> tuple[Int64s, Int64s, Int64s]:
        """Rows with times that make sense, and their start and end on the capture's clock.

        The others are counted as lost.
        """
        start, stop = columns.integer("start"), columns.integer(end)
        losses = self.builder.losses
        has_start = start != INT64_MIN
        has_end = has_start & (stop != INT64_MIN)
        small = has_end & (np.abs(np.where(has_end, start, 0)) < _LIMIT_NS)
        small &= np.abs(np.where(has_end, stop, 0)) < _LIMIT_NS
        good = small & (stop >= start)
        losses.add("missing timestamp", int((~has_start).sum()))
        losses.add("missing end", int((has_start & ~has_end).sum()))
        losses.add("timestamp out of range", int((has_end & ~small).sum()))
        losses.add("negative duration", int((small & ~good).sum()))
        rows = np.flatnonzero(good)
        self.num_unplaced += len(good) - len(rows)
        if len(rows) == len(start):
            return rows, start + self.offset_ns, stop + self.offset_ns
        return rows, start[rows] + self.offset_ns, stop[rows] + self.offset_ns

    def names(self, numbers: Int64s) -> pa.DictionaryArray:
        """A column of names that may not be NULL; those not in the export are empty and counted."""
        texts, codes = self.strings.distinct(numbers)
        return self.named(texts, codes)

    def named(self, texts: Sequence[str | None], codes: NDArray[np.int32]) -> pa.DictionaryArray:
        """The same from texts and codes into them."""
        missing = np.array([text is None for text in texts] or [False], np.bool_)
        if missing.any():
            lost = int(missing[codes].sum())
            self.builder.losses.add("name not in the file", lost, dropped=False)
        values = pa.array(["" if text is None else text for text in texts], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), values)


def labels(codes: NDArray[np.int32], values: Sequence[str]) -> pa.DictionaryArray:
    """A text column from codes into few values; negative codes are NULL."""
    indices = pa.array(codes, pa.int32(), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.string()))


def repeated(value: str, num_rows: int) -> pa.DictionaryArray:
    """A text column of one value."""
    return labels(np.zeros(num_rows, np.int32), [value])
