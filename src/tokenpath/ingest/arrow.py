"""NumPy columns to Arrow columns without copying the values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.schema import Table

_DIM3_SIZE = 3


def integers(values: NDArray[np.int64] | NDArray[np.int32], null: int | None = None) -> pa.Array:
    """An integer column over the same memory; `null` stands for NULL."""
    kind = pa.from_numpy_dtype(values.dtype)
    valid = None if null is None else _bitmap(values != null)
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(values)])


def reals(values: NDArray[np.float64]) -> pa.Array:
    """A float64 column over the same memory; NaN stands for NULL."""
    valid = _bitmap(~np.isnan(values))
    return pa.Array.from_buffers(pa.float64(), len(values), [valid, pa.py_buffer(values)])


def booleans(values: NDArray[np.bool_]) -> pa.Array:
    """A bool column."""
    return pa.array(values)


def constant(value: int, num_rows: int) -> pa.Array:
    """An int32 column of one value; zeros take no memory until they are written to."""
    values = np.zeros(num_rows, np.int32) if value == 0 else np.full(num_rows, value, np.int32)
    return integers(values)


def triples(values: NDArray[np.int32], valid: NDArray[np.bool_]) -> pa.Array:
    """A column of three integers, from an array (num_rows, 3)."""
    flat = integers(np.ascontiguousarray(values, np.int32).reshape(-1))
    kind = pa.list_(pa.int32(), _DIM3_SIZE)
    return pa.Array.from_buffers(kind, len(values), [_bitmap(valid)], children=[flat])


def nulls(kind: pa.DataType, num_rows: int) -> pa.Array:
    """A column of NULLs that takes no memory until it is written to."""
    if pa.types.is_dictionary(kind):
        indices = nulls(kind.index_type, num_rows)
        return pa.DictionaryArray.from_arrays(indices, pa.array([], kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        valid = np.zeros((num_rows + 7) // 8, np.uint8)
        child = nulls(kind.value_type, num_rows * kind.list_size)
        return pa.Array.from_buffers(kind, num_rows, [pa.py_buffer(valid)], children=[child])
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        valid = np.zeros((num_rows + 7) // 8, np.uint8)
        values = np.zeros(num_rows, kind.to_pandas_dtype())
        return pa.Array.from_buffers(kind, num_rows, [pa.py_buffer(valid), pa.py_buffer(values)])
    return pa.nulls(num_rows, kind)


def texts(codes: NDArray[np.int32], values: list[str]) -> pa.Array:
    """A text column from codes into `values`, negative for NULL; only the values in use are kept."""
    used = np.zeros(len(values) + 1, bool)
    # A negative code marks the extra slot at the end.
    used[np.where(codes < 0, len(values), codes)] = True
    has_null = bool(used[-1])
    kept = np.flatnonzero(used[:-1])
    new_of_old = np.full(len(values) + 1, -1, np.int32)
    distinct: dict[str, int] = {}
    # Masking and unescaping can make two texts one.
    numbers = [distinct.setdefault(values[code], len(distinct)) for code in kept.tolist()]
    new_of_old[kept] = numbers
    indices = integers(new_of_old[codes], -1 if has_null else None)
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(distinct), pa.string()))


def encode(values: Sequence[str | None]) -> pa.Array:
    """A text column from texts; Array.dictionary_encode would import pyarrow.compute."""
    distinct: dict[str, int] = {}
    codes = [-1 if text is None else distinct.setdefault(text, len(distinct)) for text in values]
    return texts(np.array(codes, np.int32), list(distinct))


def build(table: Table, num_rows: int, columns: dict[str, pa.Array | None]) -> pa.Table:
    """A declared table; columns that are absent or None are NULL throughout."""
    arrays = []
    for column in table.columns:
        values = columns.get(column.name)
        if values is None:
            values = nulls(column.arrow_type, num_rows)
        elif values.type != column.arrow_type:
            values = values.cast(column.arrow_type)
        arrays.append(values)
    return pa.Table.from_arrays(arrays, schema=table.schema)


def _bitmap(valid: NDArray[np.bool_]) -> pa.Buffer | None:
    if valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
