"""What both forms of an XLA profile become: timelines, their events column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.compiled import compiled
from tokenpath.ingest.losses import Losses

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]

PS_PER_NS = 1_000
NULL = np.iinfo(np.int64).min
"""No number."""
NO_TEXT = -1
"""No text: code of a NULL."""
_DENSE = 2**20
"""Ids below this are looked up in a table of as many entries."""
_FARTHEST_NS = 2**61
"""Times further than this from zero (73 years before or after) are damage."""

HOST_STATS = frozenset(
    {"correlation_id", "step_num", "addr", "allocation_bytes", "index_on_host", "allocator_name"}
)
"""Statistics that are of use on host threads."""
INTEGERS = (
    "correlation_id",
    "group_id",
    "step_num",
    "addr",
    "allocation_bytes",
    "index_on_host",
    "device_duration_ps",
)
"""Statistics that are kept as numbers."""
TEXTS = (
    "kernel_details",
    "memcpy_details",
    "Memset_details",
    "hlo_op",
    "hlo_module",
    "hlo_category",
    "tf_op",
    "name",
    "level 0",
    "step_name",
    "shape_with_layout",
    "allocator_name",
)
"""Statistics that are kept as texts."""


def distinct(values: Int64s) -> tuple[Int64s, Int32s]:
    """The distinct values in ascending order, and for each row which one it is.

    Ids are small and dense as a rule: then a table of those seen does what else takes a sort.
    """
    if len(values):
        low, high = int(values.min()), int(values.max())
        if low >= 0 and high < _DENSE:
            seen = np.zeros(high + 1, np.bool_)
            seen[values] = True
            position = np.cumsum(seen, dtype=np.int32) - np.int32(1)
            return np.flatnonzero(seen), position[values]
    found, which = np.unique(values, return_inverse=True)
    return found, which.astype(np.int32)


@dataclass
class Texts:
    """A column of texts."""

    codes: Int32s
    """Entries of `values`; NO_TEXT for none."""
    values: list[str]
    """The distinct texts."""

    def arrow(self) -> pa.Array:
        """As a column of a table; no text is NULL."""
        known = self.codes >= 0
        indices = pa.array(self.codes, pa.int32(), mask=None if known.all() else ~known)
        return pa.DictionaryArray.from_arrays(indices, pa.array(self.values, pa.string()))

    def take(self, rows: NDArray[np.generic]) -> Texts:
        """Some of the rows."""
        return Texts(self.codes[rows], self.values)

    def mapped(self, values: list[str | None]) -> Texts:
        """Each distinct text exchanged for another one; None is no text."""
        distinct = list(dict.fromkeys(value for value in values if value is not None))
        code = {value: at for at, value in enumerate(distinct)}
        recode = [NO_TEXT if value is None else code[value] for value in values]
        # The extra last entry is what NO_TEXT indexes.
        return Texts(np.array([*recode, NO_TEXT], np.int32)[self.codes], distinct)


def together(*columns: Texts) -> tuple[Int32s, list[tuple[str | None, ...]]]:
    """For each row the entry of the list that holds what all columns say; None for no text."""
    which = np.zeros(len(columns[0].codes), np.int64)
    combined: list[tuple[str | None, ...]] = [()]
    for column in columns:
        # Numbered anew after each column, so that the product stays small.
        size = len(column.values) + 1
        present, place = distinct(which * size + (column.codes + 1))
        which = place.astype(np.int64)
        texts = [None, *column.values]
        combined = [(*combined[at // size], texts[at % size]) for at in present.tolist()]
    return which.astype(np.int32), combined


def texts_of(values: Sequence[str | None]) -> Texts:
    """A column of these texts."""
    return Texts(np.arange(len(values), dtype=np.int32), []).mapped(list(values))


def same(num_rows: int, text: str) -> Texts:
    """A text column of one text."""
    return Texts(np.zeros(num_rows, np.int32), [text])


@dataclass
class Line:
    """One timeline: a stream, a thread, a row of derived marks."""

    plane: str
    """Name of the plane it belongs to: `/device:GPU:0`, `/host:CPU`."""
    id: int
    """Number of the line within the plane, as written."""
    name: str
    """Name of the line: `Stream #17(Kernel)`, `XLA Ops`, a thread."""
    base_ns: int
    """Time that `offset_ps` counts from."""
    offset_ps: Int64s
    """Start of each event."""
    duration_ps: Int64s
    """Duration of each event."""
    names: Texts
    """Short name of each event; never NULL."""
    long_names: Texts
    """HLO text or full operator name; NULL where there is none."""
    integers: dict[str, Int64s] = field(default_factory=dict)
    """Statistics by name, NULL where an event has none; those that no event has are absent."""
    texts: dict[str, Texts] = field(default_factory=dict)
    """The same for texts."""
    start_ns: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    """Start of each event in whole nanoseconds, rounded down; `timed` fills it."""
    end_ns: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    """End, rounded down like the start, so that neighbours stay neighbours."""

    def __len__(self) -> int:
        return len(self.offset_ps)

    def take(self, rows: NDArray[np.generic]) -> Line:
        """The line with some of its events."""
        return Line(
            self.plane,
            self.id,
            self.name,
            self.base_ns,
            self.offset_ps[rows],
            self.duration_ps[rows],
            self.names.take(rows),
            self.long_names.take(rows),
            {name: values[rows] for name, values in self.integers.items()},
            {name: texts.take(rows) for name, texts in self.texts.items()},
            self.start_ns[rows] if len(self.start_ns) else self.start_ns,
            self.end_ns[rows] if len(self.end_ns) else self.end_ns,
        )

    def number(self, name: str) -> Int64s:
        """A statistic, NULL throughout where no event has it."""
        found = self.integers.get(name)
        return np.full(len(self), NULL, np.int64) if found is None else found

    def text(self, name: str) -> Texts:
        """The same for a text."""
        found = self.texts.get(name)
        return Texts(np.full(len(self), NO_TEXT, np.int32), []) if found is None else found


@dataclass
class Plane:
    """A device or the host."""

    name: str
    """`/device:GPU:0`, `/host:CPU`, `Task Environment`."""
    stats: Mapping[str, int | float | str] = field(default_factory=dict)
    """What it says of itself: peak figures, sizes, versions."""
    lines: list[Line] = field(default_factory=list)
    """Its timelines."""


@dataclass
class Space:
    """One profile."""

    planes: list[Plane] = field(default_factory=list)
    """Devices and host."""
    num_events: int = 0
    """Events seen, whatever became of them."""
    hosts: list[str] = field(default_factory=list)
    """Host names that the file gives."""
    messages: dict[str, str] = field(default_factory=dict)
    """What the profiler complained of, by `error.0`, `warning.0`, ..."""


def timed(line: Line, losses: Losses) -> Line:
    """The line with times in nanoseconds, without events whose times cannot be; cuts are counted."""
    num = len(line)
    line.start_ns, line.end_ns = np.empty(num, np.int64), np.empty(num, np.int64)
    is_bad = np.empty(num, np.bool_)
    num_cut, num_bad = np.zeros(1, np.int64), 0
    if num:
        num_bad = _to_ns(num)(
            np.ascontiguousarray(line.offset_ps),
            np.ascontiguousarray(line.duration_ps),
            line.base_ns if abs(line.base_ns) <= _FARTHEST_NS else _FARTHEST_NS + 1,
            line.start_ns,
            line.end_ns,
            is_bad.view(np.uint8),
            num_cut,
        )
    losses.add("cut below a nanosecond", int(num_cut[0]), lost=False, dropped=False)
    if num_bad:
        losses.add("impossible time", num_bad)
        line = line.take(~is_bad)
    return line


@compiled
def _to_ns(
    offset_ps: Int64s,
    duration_ps: Int64s,
    base_ns: int,
    start_ns: Int64s,
    end_ns: Int64s,
    is_bad: NDArray[np.uint8],
    num_cut: Int64s,
) -> int:
    """Starts and ends of events, rounded down; returns how many have an impossible time."""
    num_bad = 0
    cut = 0
    for row in range(len(offset_ps)):
        offset = int(offset_ps[row])
        duration = int(duration_ps[row])
        whole = offset // PS_PER_NS
        length = duration // PS_PER_NS
        rest = offset - whole * PS_PER_NS
        left = duration - length * PS_PER_NS
        if rest != 0 or left != 0:
            cut += 1
        far = base_ns > _FARTHEST_NS or whole > _FARTHEST_NS or whole < -_FARTHEST_NS
        if far or duration < 0:
            is_bad[row] = 1
            start_ns[row] = 0
            end_ns[row] = 0
            num_bad += 1
            continue
        is_bad[row] = 0
        start = whole + base_ns
        start_ns[row] = start
        end_ns[row] = start + length + (1 if rest + left >= PS_PER_NS else 0)
    num_cut[0] = cut
    return num_bad
