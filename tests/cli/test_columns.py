"""`--columns`: a plain table becomes known by saying which column is what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import small, tokenpath

from tokenpath import api

TABLE = "start,n_in,n_out,lat\n1.5,10,3,0.25\n2.5,20,5,0.5\n"
COLUMNS = "arrival_s=start,prompt_tokens=n_in,output_tokens=n_out"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "load.csv"
    path.write_text(TABLE)
    return path


def test_convert_reads_the_columns_that_are_named(table: Path, tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    options = ("--columns", COLUMNS, "--columns", "e2e_s=lat")
    result = tokenpath("convert", *options, table, "--to", folder)
    assert (result.code, result.stderr) == (0, "")
    request = api.load([folder])["request"]
    assert request["arrival_ns"].to_pylist() == [1_500_000_000, 2_500_000_000]
    assert request["finished_ns"].to_pylist() == [1_750_000_000, 3_000_000_000]
    assert request["output_tokens"].to_pylist() == [3, 5]


def test_inspect_and_explain_take_them(table: Path) -> None:
    result = tokenpath("inspect", "--json", "--columns", COLUMNS, table)
    assert result.code == 0
    (source,) = json.loads(result.stdout)["facts"]["sources"]
    assert (source["format"], source["num_events"]) == ("csv_requests", 2)
    assert tokenpath("explain", "--columns", COLUMNS, table).code == 0


def test_an_unknown_table_names_its_columns_and_the_way_out(table: Path) -> None:
    result = tokenpath("inspect", table)
    assert result.code == 2
    assert "start,n_in,n_out,lat" in result.stderr
    assert "--columns" in result.stderr


def test_columns_change_nothing_for_other_formats(tmp_path: Path) -> None:
    trace = small().write(tmp_path / "a.json")
    plain, mapped = (
        tokenpath("inspect", "--json", *o, trace) for o in ((), ("--columns", COLUMNS))
    )
    assert plain == mapped


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("arrival_s", "no pair"),
        ("=start", "no pair"),
        ("arrival_s=start,arrival_s=lat", "twice"),
        ("arrival=start", "no column of requests"),
        ("arrival_s=start,arrival_ms=lat", "say the same"),
    ],
)
def test_a_map_that_cannot_be_used_is_refused(table: Path, columns: str, words: str) -> None:
    result = tokenpath("convert", "--columns", columns, table, "--to", table.parent / "x")
    assert result.code == 2
    assert words in result.stderr
    assert "allowed:" in result.stderr


def test_a_column_that_the_file_lacks_is_refused(table: Path) -> None:
    result = tokenpath("inspect", "--columns", "arrival_s=begin", table)
    assert result.code == 2
    assert "start,n_in,n_out,lat" in result.stderr
