"""What an export is to this reader: tables with named columns, in whichever container."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from tokenpath.core.errors import DamagedInput, LimitExceeded
from tokenpath.core.units import INT64_MIN
from tokenpath.ingest.sqlite_columns import Columns

SUFFIXES = (".parquet", ".arrow")


class Export(Protocol):
    """Tables by name; `SqliteColumns` and `FolderExport` are such."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables."""

    def num_rows(self, table: str) -> int:
        """Rows of a table; 0 where they cannot be counted."""

    def read(self, table: str, integers: Sequence[str], texts: Sequence[str] = ()) -> Columns:
        """The columns that the table has of those named; no rows for a table that is not there."""


class FolderExport:
    """`nsys export --type parquetdir` or `arrowdir`: a folder with one file a table."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """DamagedInput for a folder without a readable table."""
        self._folder, self._max_bytes = folder, max_bytes
        self._files = {
            file.stem: file for file in sorted(folder.iterdir()) if file.suffix in SUFFIXES
        }
        self._schemas: dict[str, tuple[tuple[str, ...], int]] = {}
        self.unreadable: dict[str, str] = {}
        for name, file in self._files.items():
            try:
                self._schemas[name] = _look(file)
            except (pa.ArrowException, OSError) as error:
                self.unreadable[name] = str(error)
        if not self._schemas:
            raise DamagedInput(
                f"no table of the folder can be read: {next(iter(self.unreadable.values()), '')}",
                where=str(folder),
                next_step="export it anew: nsys export --type parquetdir REPORT.nsys-rep",
            )

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that can be read."""
        return tuple(self._schemas)

    def num_rows(self, table: str) -> int:
        """Rows of a table."""
        return self._schemas.get(table, ((), 0))[1]

    def read(self, table: str, integers: Sequence[str], texts: Sequence[str] = ()) -> Columns:
        """The columns that the table has of those named."""
        known = self._schemas.get(table, ((), 0))[0]
        integers = [name for name in integers if name in known]
        texts = [name for name in texts if name in known]
        names = [*integers, *texts]
        if not names:
            return Columns(self.num_rows(table))
        if self.num_rows(table) * 8 * len(names) > self._max_bytes:
            raise LimitExceeded(
                f"table {table} has {self.num_rows(table):,} rows",
                where=str(self._folder),
                allowed=f"{self._max_bytes} bytes unpacked",
            )
        try:
            found = _load(self._files[table], names)
        except (pa.ArrowException, OSError, ValueError) as error:
            return Columns(problem=str(error))
        result = Columns(found.num_rows)
        for name in integers:
            result.integers[name], wrong = _integers(found[name].combine_chunks())
            result.num_wrong += wrong
        for name in texts:
            result.texts[name], wrong = _texts(found[name].combine_chunks())
            result.num_wrong += wrong
        return result


def _look(file: Path) -> tuple[tuple[str, ...], int]:
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        metadata = pq.read_metadata(file)
        return tuple(metadata.schema.to_arrow_schema().names), metadata.num_rows
    table = _read_arrow(file)
    return tuple(table.schema.names), table.num_rows


def _load(file: Path, names: Sequence[str]) -> pa.Table:
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.ParquetFile(file).read(columns=list(names))
    return _read_arrow(file).select(list(names))


def _read_arrow(file: Path) -> pa.Table:
    with pa.memory_map(str(file)) as source:
        try:
            return pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source).read_all()


def _integers(array: pa.Array) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], int]:
    if pa.types.is_null(array.type):
        return np.full(len(array), INT64_MIN, np.int64), 0
    if not (pa.types.is_integer(array.type) or pa.types.is_boolean(array.type)):
        return np.full(len(array), INT64_MIN, np.int64), len(array) - array.null_count
    # Process ids fill all 64 bits; as in SQLite, the upper half of the unsigned ones is negative.
    values = array.cast(pa.int64(), safe=False)
    if values.null_count:
        values = values.fill_null(INT64_MIN)
    return np.array(values.to_numpy(zero_copy_only=False), np.int64), 0


def _texts(array: pa.Array) -> tuple[pa.Array, int]:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return array.cast(pa.string()), 0
    return pa.nulls(len(array), pa.string()), len(array) - array.null_count
