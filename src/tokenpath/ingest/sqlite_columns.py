"""Tables of a SQLite database as columns.

Large tables are read from the pages of the file (`sqlite_scan`); small ones, and whatever the scan does
not take, by SQLite itself. Both give the same.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from tokenpath.capture.compiled import COMPILE_FROM_ROWS, WARM_FROM_ROWS
from tokenpath.capture.intervals import Int64s
from tokenpath.core.errors import InputError
from tokenpath.core.units import INT64_MIN
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.sqlite_file import MAGIC, Database, Shape, open_database
from tokenpath.ingest.sqlite_scan import CannotScan, Wanted, map_pages, scan_table

_ROWS_AT_ONCE = 20_000
_MAX_ODD_SHARE = 0.1
"""With more rows than this in overflow pages, SQLite reads the whole table."""


@dataclass
class Columns:
    """Columns of one table."""

    num_rows: int = 0
    """Rows."""
    integers: dict[str, Int64s] = field(default_factory=dict)
    """By name; INT64_MIN for NULL. Columns that the table lacks are not here."""
    texts: dict[str, pa.Array] = field(default_factory=dict)
    """String arrays by name."""
    num_wrong: int = 0
    """Values of another type than wanted; they are NULL."""
    problem: str | None = None
    """Why the table was not read, where the reader of it has not counted that itself."""

    def integer(self, name: str) -> Int64s:
        """A column, all NULL when the table lacks it."""
        found = self.integers.get(name)
        return np.full(self.num_rows, INT64_MIN, np.int64) if found is None else found

    def text(self, name: str) -> pa.Array:
        """A text column, all NULL when the table lacks it."""
        found = self.texts.get(name)
        return pa.nulls(self.num_rows, pa.string()) if found is None else found

    def texts_by(self, key: str, value: str) -> Mapping[int, str]:
        """Texts by number, for a small table."""
        pairs = zip(self.integer(key).tolist(), self.text(value).to_pylist(), strict=True)
        return {number: text for number, text in pairs if text is not None}


class SqliteColumns:
    """The tables of an open database."""

    def __init__(self, database: Database, path: Path) -> None:
        self._database, self._path = database, path
        self._num_rows: dict[str, int] = {}

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables."""
        return tuple(self._database.tables)

    def num_rows(self, table: str) -> int:
        """Rows of a table; 0 where they cannot be counted."""
        if table not in self._num_rows:
            self._num_rows[table] = self._database.num_rows(table)
        return self._num_rows[table]

    def read(self, table: str, integers: Sequence[str], texts: Sequence[str] = ()) -> Columns:
        """The columns that the table has of those named; no rows for a table that is not there."""
        known = self._database.tables.get(table, ())
        integers = [name for name in integers if name in known]
        texts = [name for name in texts if name in known]
        if not integers and not texts:
            return Columns(self.num_rows(table))
        # For fewer rows loading the compiled scan would take longer than SQLite does.
        if self.num_rows(table) >= (
            WARM_FROM_ROWS if "llvmlite" in sys.modules else COMPILE_FROM_ROWS
        ):
            shape = self._database.shape(table)
            try:
                if shape is not None:
                    return self.scan(table, shape, integers, texts)
            except CannotScan:
                pass
        return self.query(table, integers, texts)

    def scan(
        self, table: str, shape: Shape, integers: Sequence[str], texts: Sequence[str]
    ) -> Columns:
        """Read a table from the pages of the file. CannotScan where they are not simple enough."""
        data, page_size = map_pages(self._path)
        position = {name: at for at, name in enumerate(self._database.tables[table])}
        wanted = Wanted(
            shape.root_page,
            [position[name] for name in integers],
            [position[name] for name in texts],
            shape.row_id,
        )
        found = scan_table(data, page_size, wanted)
        if len(found.odd_rows) > found.num_rows * _MAX_ODD_SHARE:
            raise CannotScan
        columns = Columns(
            found.num_rows,
            dict(zip(integers, found.integers, strict=True)),
            dict(zip(texts, found.texts, strict=True)),
            found.num_wrong,
        )
        if len(found.odd_rows):
            self._complete(table, columns, found.odd_rows, found.odd_ids)
        return columns

    def _complete(self, table: str, columns: Columns, rows: Int64s, row_ids: Int64s) -> None:
        """Fill in the rows that go on in overflow pages."""
        names = [*columns.integers, *columns.texts]
        texts = {name: column.to_pylist() for name, column in columns.texts.items()}
        for at, row_id in zip(rows.tolist(), row_ids.tolist(), strict=True):
            values = self._database.row(table, names, row_id)
            if values is None:
                raise CannotScan
            for name, value in zip(names, values, strict=True):
                if isinstance(value, str) and name in texts:
                    texts[name][at] = value
                elif isinstance(value, int) and name not in texts:
                    columns.integers[name][at] = value
                else:
                    columns.num_wrong += value is not None
        columns.texts = {name: pa.array(values, pa.string()) for name, values in texts.items()}

    def query(self, table: str, integers: Sequence[str], texts: Sequence[str]) -> Columns:
        """Read a table by SQLite."""
        names = [*integers, *texts]
        parts: list[list[pa.Array]] = [[] for _ in names]
        result = Columns()
        rows = self._database.rows(table, names)
        while piece := list(islice(rows, _ROWS_AT_ONCE)):
            result.num_rows += len(piece)
            for number, values in enumerate(zip(*piece, strict=True)):
                wanted, kind = (int, pa.int64()) if number < len(integers) else (str, pa.string())
                kept = [value if type(value) is wanted else None for value in values]
                result.num_wrong += kept.count(None) - values.count(None)
                parts[number].append(pa.array(kept, kind))
        for number, name in enumerate(names):
            if number < len(integers):
                result.integers[name] = _plain(parts[number])
            else:
                result.texts[name] = pa.chunked_array(parts[number], pa.string()).combine_chunks()
        return result


@contextmanager
def open_columns(path: Path, losses: Losses, max_bytes: int) -> Iterator[SqliteColumns]:
    """The tables of a database file; a packed one is unpacked into a temporary file first."""
    try:
        with path.open("rb") as file:
            is_plain = file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if is_plain:
        with open_database(path, losses) as database:
            yield SqliteColumns(database, path)
        return
    with tempfile.TemporaryDirectory(prefix="tokenpath-") as folder:
        copy = Path(folder) / path.stem
        unpacked = open_unpacked(path, max_bytes=max_bytes)
        with copy.open("wb") as target:
            for chunk in unpacked.chunks:
                target.write(chunk.data)
        for problem in unpacked.problems:
            losses.add("damaged archive", what=problem, dropped=False)
        with open_database(copy, losses) as database:
            yield SqliteColumns(database, copy)


def _plain(parts: Sequence[pa.Array]) -> Int64s:
    if not parts:
        return np.zeros(0, np.int64)
    filled = [
        np.array([INT64_MIN if value is None else value for value in part.to_pylist()], np.int64)
        if part.null_count
        else part.to_numpy()
        for part in parts
    ]
    whole: Int64s = np.concatenate(filled)
    return whole
