"""Growing columns: narrow arrays a chunk at a time, one array at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpath.ingest.kineto.columns import NULL, Col

Array = NDArray[Any]
NO_CODE = -1
"""Stands for NULL in int32 columns."""


def required(values: Array | None) -> Array:
    """A column that no kept row is without; ValueError if it is all NULL all the same."""
    if values is None:
        raise ValueError("a column that every row has is NULL")
    return values


@dataclass(frozen=True)
class Field:
    """A column of a store and where its values come from."""

    name: str
    """Name within the store."""
    column: int
    """Position in the raw row."""
    dtype: str
    """`i4` (NULL is NO_CODE), `i8` (NULL stays NULL), `f8` (bit patterns; NULL is NaN), `u1`."""


def text(name: str, column: Col) -> Field:
    """A column of text codes."""
    return Field(name, column, "i4")


def int64(name: str, column: Col) -> Field:
    """A column of integers."""
    return Field(name, column, "i8")


def int32(name: str, column: int) -> Field:
    """A column of small integers; one outside int32 reads as NULL."""
    return Field(name, column, "i4")


def real(name: str, column: Col) -> Field:
    """A column of float64 bit patterns."""
    return Field(name, column, "f8")


class Store:
    """Columns that rows are appended to; a chunk in which a column is all NULL costs nothing."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self.fields = tuple(fields)
        self.num_rows = 0
        self._chunks: dict[str, list[Array | int]] = {field.name: [] for field in fields}
        self._dtypes = {field.name: field.dtype for field in fields}

    def append(self, rows: NDArray[np.int64]) -> None:
        """Append raw rows, an array (rows, NUM_COLUMNS)."""
        for field in self.fields:
            self._add(field.name, narrowed(rows[:, field.column], field.dtype), len(rows))
        self.num_rows += len(rows)

    def append_columns(self, columns: Mapping[str, Array | None], num_rows: int) -> None:
        """Append columns by name; those missing or None are NULL."""
        for field in self.fields:
            self._add(field.name, columns.get(field.name), num_rows)
        self.num_rows += num_rows

    def _add(self, name: str, values: Array | None, num_rows: int) -> None:
        chunks = self._chunks[name]
        if values is not None:
            chunks.append(values)
        elif chunks and isinstance(chunks[-1], int):
            chunks[-1] += num_rows
        else:
            chunks.append(num_rows)

    def extend(self, other: Store) -> None:
        """Append all of another store of the same fields, which is emptied."""
        for name, chunks in other._chunks.items():
            for chunk in chunks:
                if isinstance(chunk, int):
                    self._add(name, None, chunk)
                else:
                    self._add(name, chunk, len(chunk))
            chunks.clear()
        self.num_rows += other.num_rows
        other.num_rows = 0

    def shift(self, name: str, by: int) -> None:
        """Add a number to a column that is never NULL, in place."""
        for chunk in self._chunks[name]:
            if not isinstance(chunk, int):
                chunk += by

    def remap(self, names: Sequence[str], new_of_old: NDArray[np.int32]) -> None:
        """Exchange the codes of these columns in place; -1 becomes the last one of `new_of_old`."""
        for name in names:
            for chunk in self._chunks[name]:
                if not isinstance(chunk, int):
                    chunk[:] = new_of_old.take(chunk, mode="wrap")

    def take(self, name: str) -> Array | None:
        """The whole column, which leaves the store; None when it is all NULL."""
        chunks = self._chunks[name]
        self._chunks[name] = []
        if all(isinstance(chunk, int) for chunk in chunks):
            return None
        if len(chunks) == 1 and not isinstance(chunks[0], int):
            return chunks[0]
        dtype = self._dtypes[name]
        result = np.empty(self.num_rows, dtype)
        at = 0
        for number, chunk in enumerate(chunks):
            if isinstance(chunk, int):
                result[at : at + chunk] = _NULLS[dtype]
                at += chunk
            else:
                result[at : at + len(chunk)] = chunk
                at += len(chunk)
                chunks[number] = 0
        return result


_NULLS: dict[str, float | int] = {"i4": NO_CODE, "i8": NULL, "f8": float("nan"), "u1": 0}


def without_nulls(values: Array, dtype: str) -> Array | None:
    """A column of a store over the same memory, None when it is all NULL; `f8` come as bit patterns."""
    if dtype == "u1":
        return values
    null = NO_CODE if dtype == "i4" else NULL
    if values[0] == null and (values == null).all():
        return None
    if dtype == "f8":
        reals = values.view(np.float64)
        reals[values == NULL] = np.nan
        return reals
    return values


def narrowed(values: NDArray[np.int64], dtype: str) -> Array | None:
    """A raw column in its own type; None when it is all NULL."""
    if dtype == "u1":
        return values.astype(np.uint8)
    if values[0] == NULL and (values == NULL).all():
        return None
    if dtype == "i8":
        return values.copy()
    if dtype == "f8":
        bits = values.copy()
        reals = bits.view(np.float64)
        reals[bits == NULL] = np.nan
        return reals
    outside = (values < -(2**31)) | (values >= 2**31)
    return np.where(outside, NO_CODE, values).astype(np.int32)
