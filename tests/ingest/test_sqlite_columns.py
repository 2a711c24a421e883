"""The scan of SQLite pages gives what SQLite gives, or leaves the table to it; hostile schemas do nothing."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenpath.core.errors import TokenpathError
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.sqlite_columns import Columns, open_columns
from tokenpath.ingest.sqlite_scan import CannotScan

_INTEGERS = st.one_of(
    st.none(),
    st.sampled_from([0, 1, -1, 127, 128, -129, 2**15, -(2**23), 2**31, 2**47, -(2**62), 2**63 - 1]),
    st.integers(-(2**63) + 1, 2**63 - 1),
)
_ODD = st.one_of(_INTEGERS, st.floats(allow_nan=False), st.binary(max_size=5), st.text(max_size=5))
_TEXTS = st.one_of(st.none(), st.text(max_size=30), st.sampled_from(["x" * 700, "ä" * 3000]))
_ROWS = st.lists(st.tuples(_INTEGERS, _TEXTS, _ODD, _INTEGERS), max_size=40)


def write(path: Path, rows: list[Any], page_size: int = 512, key: str = "a INT") -> Path:
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA page_size = {page_size}")
    connection.execute("CREATE TABLE other (x TEXT)")
    connection.execute(f"CREATE TABLE t ({key}, b TEXT, c, d INT)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return path


def both(path: Path, integers: list[str], texts: list[str]) -> tuple[Columns, Columns]:
    with open_columns(path, Losses(), 2**30) as columns:
        shape = columns._database.shape("t")
        assert shape is not None
        return columns.scan("t", shape, integers, texts), columns.query("t", integers, texts)


def same(one: Columns, other: Columns) -> bool:
    return (
        (one.num_rows, one.num_wrong) == (other.num_rows, other.num_wrong)
        and one.integers.keys() == other.integers.keys()
        and all(np.array_equal(v, other.integers[k]) for k, v in one.integers.items())
        and all(v.to_pylist() == other.texts[k].to_pylist() for k, v in one.texts.items())
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(_ROWS, st.sampled_from([512, 1024, 4096]))
def test_the_scan_gives_what_sqlite_gives(tmp_path: Path, rows: list[Any], page_size: int) -> None:
    path = write(tmp_path / "t.db", rows, page_size)
    try:
        one, other = both(path, ["a", "c", "d"], ["b"])
    except CannotScan:
        # More than a tenth of the rows go on in other pages.
        assert any(len(str(row[1])) > 100 for row in rows)
        return
    assert same(one, other)


def test_many_pages_and_a_row_id(tmp_path: Path) -> None:
    """A tree of three levels, and a column that is the row id, which records hold as NULL."""
    rows = [(3 * n, f"text {n}", n, -n) for n in range(30_000)]
    path = write(tmp_path / "t.db", rows, key="a INTEGER PRIMARY KEY")
    one, other = both(path, ["a", "d"], ["b"])
    assert same(one, other)
    assert one.integers["a"][-1] == 3 * 29_999


def test_texts_that_are_not_utf8(tmp_path: Path) -> None:
    path = write(tmp_path / "t.db", [(1, "aXb", None, 2)])
    path.write_bytes(path.read_bytes().replace(b"aXb", b"a\xffb"))
    one, other = both(path, [], ["b"])
    assert one.texts["b"].to_pylist() == other.texts["b"].to_pylist() == ["a\ufffdb"]


def test_a_column_added_later_is_left_to_sqlite(tmp_path: Path) -> None:
    path = write(tmp_path / "t.db", [(1, "x", 2, 3)])
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE t ADD COLUMN e INT DEFAULT 5")
    connection.commit()
    connection.close()
    with open_columns(path, Losses(), 2**30) as columns:
        shape = columns._database.shape("t")
        assert shape is not None
        with pytest.raises(CannotScan):
            columns.scan("t", shape, ["e"], [])
        assert columns.read("t", ["e"]).integers["e"].tolist() == [5]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW v AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r",
        "CREATE TABLE v (n INT, z BLOB AS (zeroblob(900000000)))",
        "CREATE VIRTUAL TABLE v USING fts5(n)",
        "CREATE TABLE v (n INT PRIMARY KEY) WITHOUT ROWID",
        'CREATE TABLE "v; DROP TABLE t" (n INT)',
        "CREATE TRIGGER v AFTER INSERT ON t BEGIN DELETE FROM t; END",
    ],
)
def test_hostile_schemas_do_nothing(tmp_path: Path, statement: str) -> None:
    path = write(tmp_path / "t.db", [(1, "x", 2, 3)])
    connection = sqlite3.connect(path)
    try:
        connection.execute(statement)
    except sqlite3.OperationalError as error:
        pytest.skip(f"this SQLite has no such tables: {error}")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with open_columns(path, Losses(), 2**30) as columns:
        assert columns.read("v", ["n", "z"], ["n"]).num_rows == 0
        assert columns.read("t", ["a"]).integers["a"].tolist() == [1]
    assert path.read_bytes() == before


def test_damaged_pages_end_cleanly(tmp_path: Path) -> None:
    """Whatever bytes the pages hold, the scan ends, and reads nothing outside the file."""
    path = write(tmp_path / "t.db", [(n, f"text {n}", n, -n) for n in range(400)])
    whole = path.read_bytes()
    random_ = random.Random(5)
    for _ in range(120):
        wounded = bytearray(whole)
        for _ in range(random_.randrange(1, 6)):
            wounded[random_.randrange(512, len(wounded))] = random_.randrange(256)
        path.write_bytes(bytes(wounded))
        try:
            with open_columns(path, Losses(), 2**30) as columns:
                shape = columns._database.shape("t")
                if shape is not None:
                    columns.query("t", ["a", "d"], ["b"])
                    columns.scan("t", shape, ["a", "d"], ["b"])
        except (TokenpathError, CannotScan):
            continue


def test_pages_in_a_circle(tmp_path: Path) -> None:
    path = write(tmp_path / "t.db", [(n, "text", n, n) for n in range(2_000)])
    data = bytearray(path.read_bytes())
    with open_columns(path, Losses(), 2**30) as columns:
        shape = columns._database.shape("t")
    assert shape is not None
    root = (shape.root_page - 1) * 512
    assert data[root] == 5
    data[root + 8 : root + 12] = shape.root_page.to_bytes(4, "big")
    path.write_bytes(bytes(data))
    with open_columns(path, Losses(), 2**30) as columns, pytest.raises(CannotScan):
        columns.scan("t", shape, ["a"], [])
