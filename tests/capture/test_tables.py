"""The declaration itself, and that docs/tables.md says the same."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tokenpath.capture.schema import Column, Table
from tokenpath.capture.tables import SCHEMA_VERSION, TABLES, describe_markdown

DOCS = Path(__file__).resolve().parents[2] / "docs" / "tables.md"
SAYS_TIME = ("nanosecond", "epoch time", "on the capture's clock")


def test_docs_are_the_output_of_the_generator():
    assert DOCS.read_text(encoding="utf-8") == describe_markdown()


def test_the_command_that_the_page_names_prints_the_page():
    page = DOCS.read_text(encoding="utf-8")
    module = re.search(r"`python -m (\S+) > docs/tables\.md`", page)[1]
    command = [sys.executable, "-W", "error", "-m", module]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    assert (done.stdout, done.stderr) == (page, "")


def test_every_table_and_column_is_on_the_page():
    page = describe_markdown()
    assert f"Schema version {SCHEMA_VERSION}." in page
    for name, table in TABLES.items():
        section = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)[1]
        rows = [line for line in section.splitlines() if line.startswith("| `")]
        assert len(rows) == len(table.columns)
        for column, row in zip(table.columns, rows, strict=True):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
            expected = [f"`{column.name}`", column.type, column.doc, column.null or "(never NULL)"]
            assert cells == expected


def test_names_are_unique_and_declared_once():
    assert all(name == table.name for name, table in TABLES.items())
    for table in TABLES.values():
        names = [column.name for column in table.columns]
        assert len(set(names)) == len(names), table.name
        assert table.schema.names == names


def test_every_column_is_described():
    for table in TABLES.values():
        for column in table.columns:
            where = f"{table.name}.{column.name}"
            assert re.fullmatch(r"[a-z][a-z0-9_]*", column.name), where
            assert column.doc, where
            assert column.null != "", where
            field = table.schema.field(column.name)
            assert field.nullable == (column.null is not None), where
            assert field.type == column.arrow_type, where
            if column.type == "int64" and any(word in column.doc for word in SAYS_TIME):
                assert column.name.endswith("_ns"), where


def test_intervals_are_whole():
    for table in TABLES.values():
        names = {column.name for column in table.columns}
        assert ("start_ns" in names) == ("end_ns" in names), table.name


def test_column_by_name():
    table = Table(
        "t", "a thing", (Column("a", "int64", "first"), Column("b", "text", "second", "x"))
    )
    assert table.column("b").null == "x"
    with pytest.raises(KeyError):
        table.column("c")
    with pytest.raises(KeyError):
        _ = Column("a", "int128", "no such type").arrow_type
