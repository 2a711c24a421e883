"""A capture in memory: Arrow tables that keep to their declaration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s
from tokenpath.capture.tables import TABLES
from tokenpath.core.errors import CaptureError

NO_ID = -1
"""What a NULL row number reads as in `Capture.ids`."""


class Capture:
    """What happened: declared tables, absent ones read as empty.

    Immutable; `replace` gives a capture with some tables exchanged.
    """

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        """Tables by declared name; CaptureError for one that is not declared or has other columns."""
        for name, table in tables.items():
            if name not in TABLES:
                raise CaptureError(
                    f"table {name!r} is not declared",
                    allowed=", ".join(TABLES),
                    next_step="see docs/tables.md",
                )
            expected = TABLES[name].schema
            if not table.schema.equals(expected):
                raise CaptureError(
                    "columns differ from the declaration: " + _difference(table.schema, expected),
                    where=f"table {name}",
                    next_step="build it with tokenpath.capture.build_table",
                )
        self._tables = dict(tables)

    def __getitem__(self, name: str) -> pa.Table:
        """The table; an empty one when the capture does not hold it."""
        table = self._tables.get(name)
        return TABLES[name].schema.empty_table() if table is None else table

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def num_rows(self, name: str) -> int:
        """Rows of a table, 0 when it is absent."""
        table = self._tables.get(name)
        return 0 if table is None else table.num_rows

    def int64(self, table: str, column: str, null: int | None = None) -> Int64s:
        """A column as int64; `null` stands for NULL and is required where the column may hold one."""
        return _integers(self[table][column], np.int64, null)

    def ids(self, table: str, column: str) -> NDArray[np.int32]:
        """A column of row numbers as int32, NO_ID for NULL."""
        return _integers(self[table][column], np.int32, NO_ID)

    def float64(self, table: str, column: str) -> NDArray[np.float64]:
        """A column as float64, NaN for NULL (inside calculations only)."""
        values = self[table][column].cast(pa.float64()).combine_chunks()
        result: NDArray[np.float64] = values.to_numpy(zero_copy_only=False)
        return result

    def codes(self, table: str, column: str) -> tuple[NDArray[np.int32], list[str]]:
        """A text column as codes into a list of distinct texts; NO_ID for NULL."""
        values = self[table][column]
        if values.num_chunks != 1:
            values = pa.chunked_array([values.unify_dictionaries().combine_chunks()])
        chunk = values.chunk(0)
        indices = _integers(pa.chunked_array([chunk.indices]), np.int32, NO_ID)
        return indices, chunk.dictionary.to_pylist()

    def replace(self, tables: Mapping[str, pa.Table]) -> Capture:
        """The same capture with these tables in place of its own."""
        return Capture({**self._tables, **tables})

    def nbytes(self) -> int:
        """Bytes held by all tables."""
        return sum(table.nbytes for table in self._tables.values())


def build_table(name: str, columns: Mapping[str, Any]) -> pa.Table:
    """A declared table from columns given as Arrow or NumPy arrays or lists; missing ones are NULL.

    CaptureError when a column is unknown, of the wrong type, of another length, or missing although it
    may not be NULL.
    """
    declared = TABLES[name]
    unknown = set(columns) - {column.name for column in declared.columns}
    if unknown:
        raise CaptureError(
            f"no such column: {', '.join(sorted(unknown))}",
            where=f"table {name}",
            allowed=", ".join(column.name for column in declared.columns),
        )
    lengths = {key: len(value) for key, value in columns.items()}
    if len(set(lengths.values())) > 1:
        raise CaptureError(f"columns differ in length: {lengths}", where=f"table {name}")
    num_rows = next(iter(lengths.values()), 0)
    arrays = []
    for column in declared.columns:
        if column.name in columns:
            arrays.append(_as_arrow(name, column.name, columns[column.name], column.arrow_type))
        elif column.null is None and num_rows:
            raise CaptureError(
                f"column {column.name!r} is missing and may not be NULL", where=f"table {name}"
            )
        else:
            arrays.append(pa.nulls(num_rows, column.arrow_type))
    return pa.Table.from_arrays(arrays, schema=declared.schema)


def dictionary(codes: NDArray[np.int32], texts: Sequence[str] | pa.Array) -> pa.DictionaryArray:
    """A text column from codes into `texts`; negative codes are NULL."""
    mask = codes < 0
    indices = pa.array(codes, mask=mask) if mask.any() else pa.array(codes)
    values = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
    return pa.DictionaryArray.from_arrays(indices, values)


def nullable(values: NDArray[np.int64] | NDArray[np.int32], null: int) -> pa.Array:
    """An integer column in which `null` stands for NULL."""
    mask = values == null
    return pa.array(values, mask=mask) if mask.any() else pa.array(values)


def _as_arrow(table: str, column: str, values: Any, kind: pa.DataType) -> pa.Array:
    try:
        if isinstance(values, pa.ChunkedArray):
            return values if values.type == kind else values.cast(kind)
        if isinstance(values, pa.Array):
            return values if values.type == kind else values.cast(kind)
        if pa.types.is_dictionary(kind) and not isinstance(values, np.ndarray):
            return pa.array(values, pa.string()).dictionary_encode()
        return pa.array(values, kind)
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        OverflowError,
    ) as error:
        raise CaptureError(
            f"values do not fit {kind}: {error}", where=f"table {table}, column {column}"
        ) from None


def _integers(values: pa.ChunkedArray, dtype: Any, null: int | None) -> Any:
    if values.null_count:
        if null is None:
            raise CaptureError("the column holds NULL and the caller named no stand-in for it")
        values = pc.fill_null(values, null)
    if values.num_chunks == 1:
        array = values.chunk(0).to_numpy(zero_copy_only=False)
    else:
        array = values.to_numpy()
    return array.astype(dtype, copy=False)


def _difference(found: pa.Schema, expected: pa.Schema) -> str:
    for name in expected.names:
        if name not in found.names:
            return f"column {name!r} is missing"
        if not found.field(name).equals(expected.field(name)):
            return f"column {name!r} is {found.field(name)}, declared {expected.field(name)}"
    return "unknown or reordered columns: " + ", ".join(
        name for name in found.names if name not in expected.names
    )
