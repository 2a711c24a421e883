"""Rows of tables gathered over many timelines and added at once: a profile has hundreds of small ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.tables import TABLES
from tokenpath.ingest import arrow
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.xla.lines import NO_TEXT, NULL, Texts

Column: TypeAlias = "NDArray[Any] | Texts"
"""Numbers, or texts. NULL is NULL in int64, -1 in int32 and in the first of three, NaN in float64."""


class Parts:
    """Parts of tables in order."""

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[int, Mapping[str, Column]]]] = {}

    def num_rows(self, table: str) -> int:
        """Rows gathered for a table."""
        return sum(size for size, _ in self._parts.get(table, ()))

    def add(self, table: str, num_rows: int, columns: Mapping[str, Column]) -> int:
        """Append rows; the number of the first of them. A column that other parts lack is NULL there."""
        first = self.num_rows(table)
        if num_rows:
            self._parts.setdefault(table, []).append((num_rows, columns))
        return first

    def write(self, builder: CaptureBuilder) -> None:
        """Give everything to the builder; nothing is held afterwards."""
        for table in list(self._parts):
            parts = self._parts.pop(table)
            names = dict.fromkeys(name for _, columns in parts for name in columns)
            sizes = [size for size, _ in parts]
            whole = {
                name: _arrow(
                    table, name, _joined([columns.get(name) for _, columns in parts], sizes)
                )
                for name in names
            }
            builder.add(table, whole)


def _joined(parts: Sequence[Column | None], sizes: Sequence[int]) -> Column:
    model = next(part for part in parts if part is not None)
    if isinstance(model, Texts):
        return _joined_texts([part if isinstance(part, Texts) else None for part in parts], sizes)
    if len(parts) == 1:
        return model
    null: Any = {"int64": NULL, "int32": NO_TEXT, "float64": np.nan}[model.dtype.name]
    arrays = [
        part
        if isinstance(part, np.ndarray)
        else np.full((size, *model.shape[1:]), null, model.dtype)
        for part, size in zip(parts, sizes, strict=True)
    ]
    return np.concatenate(arrays)


def _joined_texts(parts: Sequence[Texts | None], sizes: Sequence[int]) -> Texts:
    if len(parts) == 1 and parts[0] is not None:
        return parts[0]
    code: dict[str, int] = {}
    columns = []
    for part, size in zip(parts, sizes, strict=True):
        if part is None:
            columns.append(np.full(size, NO_TEXT, np.int32))
            continue
        # The extra last entry is what NO_TEXT indexes.
        recode = [code.setdefault(text, len(code)) for text in part.values]
        columns.append(np.array([*recode, NO_TEXT], np.int32)[part.codes])
    return Texts(np.concatenate(columns), list(code))


def _arrow(table: str, name: str, column: Column) -> pa.Array:
    if isinstance(column, Texts):
        texts = column.arrow()
        return texts.cast(pa.string()) if TABLES[table].column(name).type == "string" else texts
    is_nullable = TABLES[table].column(name).null is not None
    if column.ndim == 2:
        return arrow.triples(column, column[:, 0] >= 0)
    if column.dtype == np.float64:
        return arrow.reals(column)
    null = (NO_TEXT if column.dtype == np.int32 else NULL) if is_nullable else None
    return arrow.integers(np.ascontiguousarray(column), null)
