"""SQLite databases from anywhere: opened read-only, only plain tables read, everything bounded.

A schema is code that others wrote: views, triggers, generated columns and virtual tables are not looked
at, extensions are not loaded, and only columns that a real table has are named in a query.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tokenpath.core.errors import DamagedInput, InputError, LimitExceeded
from tokenpath.ingest.losses import Losses

MAGIC = b"SQLite format 3\0"
MAX_CELL_BYTES = 2**26
MAX_TABLES = 10_000

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_WITHOUT_ROWID = re.compile(r"WITHOUT\s+ROWID", re.IGNORECASE)
FAILURES = (sqlite3.Error, UnicodeDecodeError, OverflowError)
"""What reading a hostile database can raise; the message of an error may itself be no text."""

_ROWS_AT_ONCE = 4096
_STEPS = 100_000
"""Steps of SQLite's machine between looks at the bound."""
_MAX_STEPS_A_BYTE = 100
"""A scan takes about one step a cell, and no cell takes less than a byte."""


@dataclass(frozen=True)
class Shape:
    """How a table lies in its file."""

    root_page: int
    """Page at which its tree begins."""
    row_id: int | None
    """Position of the column that is the row id itself; None where there is none."""


class Database:
    """An open database."""

    def __init__(self, connection: sqlite3.Connection, path: Path, losses: Losses) -> None:
        self._connection = connection
        self._losses = losses
        self.tables = dict(self._list_tables(path))
        """The columns of each plain table, by name."""

    def _list_tables(self, path: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'table' LIMIT ?"
        try:
            listed = self._connection.execute(query, (MAX_TABLES + 1,)).fetchall()
        except FAILURES as error:
            words = str(error) if isinstance(error, sqlite3.Error) else "damaged"
            raise DamagedInput(f"no schema could be read: {words}", where=str(path)) from None
        if len(listed) > MAX_TABLES:
            raise LimitExceeded(
                f"more than {MAX_TABLES} tables", where=str(path), allowed=f"{MAX_TABLES} tables"
            )
        for name, sql in listed:
            is_plain = isinstance(name, str) and _PLAIN_NAME.fullmatch(name)
            if not is_plain or not isinstance(sql, str):
                continue
            if re.match(r"\s*CREATE\s+VIRTUAL", sql, re.IGNORECASE) is None:
                columns = self._columns(name)
                if columns:
                    yield name, columns

    def _columns(self, table: str) -> tuple[str, ...]:
        try:
            rows = self._connection.execute(f'PRAGMA table_xinfo("{table}")').fetchall()
        except FAILURES:
            return ()
        # The last value is not 0 for hidden and generated columns.
        names = (row[1] for row in rows if row[6] == 0)
        return tuple(name for name in names if _PLAIN_NAME.fullmatch(str(name)))

    def shape(self, table: str) -> Shape | None:
        """How a table lies in the file; None for one whose records do not simply hold its columns."""
        query = "SELECT rootpage, sql FROM sqlite_master WHERE type = 'table' AND name = ?"
        try:
            (root_page, sql) = self._connection.execute(query, (table,)).fetchone()
            # (position, name, type, NOT NULL, default, key, hidden); hidden ones may be computed.
            columns = self._connection.execute(f'PRAGMA table_xinfo("{table}")').fetchall()
        except (*FAILURES, TypeError):
            return None
        is_plain = len(columns) == len(self.tables.get(table, ()))
        if not is_plain or _WITHOUT_ROWID.search(sql) or not isinstance(root_page, int):
            return None
        keys = [row for row in columns if row[5]]
        is_row_id = len(keys) == 1 and str(keys[0][2]).upper() == "INTEGER"
        return Shape(root_page, keys[0][0] if is_row_id else None)

    def num_rows(self, table: str) -> int:
        """Rows of a table; 0 where they cannot be counted."""
        if table not in self.tables:
            return 0
        try:
            cursor = self._connection.execute(_select("count(*)", table))
            return int(cursor.fetchone()[0])
        except FAILURES:
            return 0

    def row(self, table: str, columns: Sequence[str], row_id: int) -> tuple[object, ...] | None:
        """One row by its row id; None where it cannot be read."""
        chosen = ", ".join(f'"{name}"' for name in columns)
        query = _select(chosen, table) + " WHERE rowid = ?"
        try:
            found: tuple[object, ...] | None = self._connection.execute(query, (row_id,)).fetchone()
        except FAILURES:
            return None
        return found

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[object, ...]]:
        """The rows of a table; None for a column it has not. Damage ends in a counted loss."""
        known = self.tables.get(table, ())
        chosen = [f'"{name}"' if name in known else "NULL" for name in columns]
        try:
            cursor = self._connection.execute(_select(", ".join(chosen), table))
            while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                yield from rows
        except FAILURES:
            self._losses.add("damaged table", what=table, dropped=False)


def _select(what: str, table: str) -> str:
    """A query; its names are those of the schema itself, of letters, digits and underscores."""
    return " ".join(("SELECT", what, "FROM", f'"{table}"'))


@contextmanager
def open_database(path: Path, losses: Losses) -> Iterator[Database]:
    """Open a database file read-only and unchanged. InputError when it is packed or cannot be opened."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise InputError(
                "a packed database cannot be read in place",
                where=str(path),
                next_step="unpack it first",
            )
    uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(uri, uri=True, check_same_thread=True)
    except sqlite3.Error as error:
        raise InputError(f"cannot be opened: {error}", where=str(path)) from None
    try:
        _confine(connection, path.stat().st_size)
        yield Database(connection, path, losses)
    finally:
        connection.close()


def _confine(connection: sqlite3.Connection, num_bytes: int) -> None:
    if hasattr(connection, "enable_load_extension"):
        connection.enable_load_extension(False)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL_BYTES)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
        connection.execute(f"PRAGMA {pragma}")
    left = 1_000 + _MAX_STEPS_A_BYTE * num_bytes // _STEPS

    def is_over() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    connection.set_progress_handler(is_over, _STEPS)
