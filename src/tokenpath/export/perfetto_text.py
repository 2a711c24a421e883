"""Columns as JSON text: each field of an event is built by Arrow kernels, a chunk of rows at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Int8s = NDArray[np.int8]
Int64s = NDArray[np.int64]
Field = Callable[[pa.Array], "pa.Array | str"]
"""A piece of every event: row numbers to one text a row, or one text for all."""

ROWS_PER_WRITE = 16_384
"""About 6 MB of text."""
_FRACTIONS = pa.array([f".{ns:03d}" for ns in range(1000)])


@dataclass(frozen=True)
class Coded:
    """Texts by code; a null code is no text."""

    codes: pa.Array
    """Of each row, an index into `texts`."""
    texts: pa.Array
    """Distinct pieces of JSON."""

    def take(self, rows: pa.Array) -> pa.Array:
        """The texts of these rows."""
        return self.texts.take(self.codes.take(rows))


@dataclass(frozen=True)
class EventRows:
    """Rows of a table that become complete events."""

    track: Coded
    """Of each row, `"pid":2,"tid":1,`."""
    name: Coded
    """Of each row, its name as JSON."""
    fields: Sequence[Field]
    """Pieces behind the name, the closing brace left out."""

    def texts(self, rows: pa.Array) -> pa.Array:
        """One event a row, each after a comma, in ASCII."""
        head = [',\n{"ph":"X",', self.track.take(rows), '"name":', self.name.take(rows)]
        pieces: list[Any] = [*head, *(field(rows) for field in self.fields), "}"]
        return pc.binary_join_element_wise(*pieces, "")


def write_events(sources: Sequence[EventRows], source: Int8s, row: Int64s) -> Iterator[memoryview]:
    """The events `row` of `sources[source]` in that order, in chunks of text."""
    for first in range(0, len(row), ROWS_PER_WRITE):
        chunk_source = source[first : first + ROWS_PER_WRITE]
        chunk_row = row[first : first + ROWS_PER_WRITE]
        present = np.unique(chunk_source)
        texts = [
            sources[which].texts(pa.array(chunk_row[chunk_source == which])) for which in present
        ]
        merged = texts[0]
        if len(texts) > 1:
            # Stable: where each table's events went when they were taken out of the order.
            place = np.argsort(np.argsort(chunk_source, kind="stable"), kind="stable")
            merged = pa.concat_arrays(texts).take(pa.array(place))
        # The bytes of a string column already stand one behind the other.
        yield memoryview(merged.buffers()[2])


def literal(text: str) -> Field:
    """The same text in every event."""
    return lambda _: text


def text_field(prefix: str, values: Coded) -> Field:
    """The prefix and the text, nothing for NULL."""
    return lambda rows: _optional(prefix, values.take(rows))


def number_field(prefix: str, column: Any) -> Field:
    """The prefix and the integer, nothing for NULL."""
    values = whole(column)
    if values.null_count == len(values):
        return literal("")
    return lambda rows: _optional(prefix, values.take(rows).cast(pa.string()))


def dims_field(prefix: str, column: pa.ChunkedArray) -> Field:
    """The prefix and `[x,y,z]`, nothing for NULL."""
    values = whole(column)
    if values.null_count == len(values):
        return literal("")

    def text(rows: pa.Array) -> pa.Array:
        chunk = values.take(rows)
        known = flags(chunk.is_valid())
        # Of the rows that are not null: flatten leaves the others out.
        axes = chunk.flatten().to_numpy(zero_copy_only=False).reshape(-1, 3).T.copy()
        x, y, z = (pa.array(axis).cast(pa.string()) for axis in axes)
        texts = pc.binary_join_element_wise("[", x, ",", y, ",", z, "]", "")
        return _optional(prefix, texts.take(pa.array(np.cumsum(known) - 1, mask=~known)))

    return text


def time_fields(table: pa.Table, base_ns: int) -> Field:
    """`ts` and `dur`: whole microseconds, a point, three digits."""
    # Unsigned: the difference of two int64 may not fit one.
    start, end = (int64(table[name]).view(np.uint64) for name in ("start_ns", "end_ns"))
    reversed_rows = int64(table["end_ns"]) < int64(table["start_ns"])
    base = np.uint64(base_ns % 2**64)

    def text(rows: pa.Array) -> pa.Array:
        at = rows.to_numpy()
        duration = end[at] - start[at]
        duration[reversed_rows[at]] = 0
        ts = _microseconds(start[at] - base)
        return pc.binary_join_element_wise(',"ts":', *ts, ',"dur":', *_microseconds(duration), "")

    return text


def row_field(rows_of_table: Int64s | None = None) -> Field:
    """The start of `args`: the row in its table."""

    def text(rows: pa.Array) -> pa.Array:
        own = rows if rows_of_table is None else pa.array(rows_of_table[rows.to_numpy()])
        return pc.binary_join_element_wise(',"args":{"row":', own.cast(pa.string()), "")

    return text


def quoted(column: pa.ChunkedArray) -> Coded:
    """A text column with each distinct text as JSON."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    values = whole(column.unify_dictionaries())
    texts = [json.dumps(text) for text in values.dictionary.to_pylist()]
    return Coded(values.indices, pa.array(texts, pa.string()))


def whole(values: Any) -> Any:
    """A column as one array."""
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def int64(values: pa.ChunkedArray) -> Int64s:
    """A column without NULL as numbers."""
    result: Int64s = whole(values).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return result


def flags(values: Any) -> NDArray[np.bool_]:
    """A column of truth values, NULL as False."""
    result = whole(values).fill_null(False).to_numpy(zero_copy_only=False)
    return np.asarray(result, np.bool_)


def _microseconds(durations_ns: NDArray[np.uint64]) -> tuple[pa.Array, pa.Array]:
    micros, rest = np.divmod(durations_ns, np.uint64(1000))
    return pa.array(micros).cast(pa.string()), _FRACTIONS.take(pa.array(rest))


def _optional(prefix: str, values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(prefix, values, "").fill_null("")
