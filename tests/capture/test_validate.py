"""validate(): what a type cannot say about a table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from declared_rows import sample_row

from tokenpath.capture.capture import Capture, build_table
from tokenpath.capture.tables import TABLES
from tokenpath.capture.validate import validate
from tokenpath.core.errors import CaptureError

WITH_TIMES = [
    name
    for name, table in TABLES.items()
    if {"start_ns", "end_ns"} <= {column.name for column in table.columns}
]


def target_of(column: str) -> str:
    return column.removesuffix("_id").removeprefix("parent_").removeprefix("scheduler_")


# Columns that end in _id, are int32, and mean no row of a table of ours.
FOREIGN_IDS = {("step", "engine_id"), ("kv_event", "engine_id")}
IDS = {
    (table.name, column.name): target_of(column.name)
    for table in TABLES.values()
    for column in table.columns
    if column.type == "int32"
    and column.name.endswith("_id")
    and (table.name, column.name) not in FOREIGN_IDS
}


ONE_ROW_EACH = Capture({name: build_table(name, sample_row(name)) for name in TABLES})


def changed(table: str, columns: dict[str, list[object]]) -> Capture:
    """One row in every table, each id naming row 0, with some columns of one table changed."""
    return ONE_ROW_EACH.replace({table: build_table(table, {**sample_row(table), **columns})})


def test_what_is_right_passes():
    validate(Capture({}))
    validate(ONE_ROW_EACH)
    validate(Capture({name: table.schema.empty_table() for name, table in TABLES.items()}))


def test_every_id_names_a_declared_table():
    assert set(IDS.values()) <= set(TABLES)
    assert ("op", "parent_op_id") in IDS
    assert ("kernel", "api_call_id") in IDS
    for table, column in FOREIGN_IDS:
        assert TABLES[table].column(column).type == "int32"


@pytest.mark.parametrize(("table", "column"), IDS)
@pytest.mark.parametrize("wrong", [1, -1, 2**31 - 1, -(2**31)])
def test_an_id_without_a_row(table, column, wrong):
    capture = changed(table, {column: [wrong]})
    with pytest.raises(CaptureError) as error:
        validate(capture)
    target = IDS[table, column]
    assert f"table {table}, column {column}: row 0 names row {wrong} of {target}" in str(
        error.value
    )
    assert "which has 1 rows" in str(error.value)


def test_ids_into_a_table_that_is_absent():
    rows = {**sample_row("op"), "parent_op_id": [None]}
    capture = Capture({"op": build_table("op", rows)})
    with pytest.raises(
        CaptureError, match=r"table op, column source_id: .*source, which has 0 rows"
    ):
        validate(capture)


def test_null_is_no_broken_id_and_the_first_broken_row_is_named():
    source, thread = sample_row("source"), sample_row("thread")
    rows = {**sample_row("op", 5), "parent_op_id": [None, 0, None, 5, 9]}
    tables = {"source": source, "thread": thread, "op": rows}
    capture = Capture({name: build_table(name, rows) for name, rows in tables.items()})
    with pytest.raises(CaptureError, match="row 3 names row 5 of op, which has 5 rows"):
        validate(capture)
    # The same in two chunks.
    table = capture["op"]
    cut = pa.concat_tables([table.slice(0, 2), table.slice(2)])
    with pytest.raises(CaptureError, match="row 3 names row 5 of op"):
        validate(capture.replace({"op": cut}))


@pytest.mark.parametrize("table", WITH_TIMES)
def test_reversed_and_endless_times(table):
    validate(changed(table, {"start_ns": [5], "end_ns": [5]}))
    validate(changed(table, {"start_ns": [-(2**62)], "end_ns": [2**62 - 1]}))
    validate(changed(table, {"start_ns": [0], "end_ns": [2**63 - 1]}))
    with pytest.raises(CaptureError, match=f"table {table}, .*: end before start in row 0"):
        validate(changed(table, {"start_ns": [6], "end_ns": [5]}))
    with pytest.raises(CaptureError, match=f"table {table}, .*: end before start in row 0"):
        validate(changed(table, {"start_ns": [2**63 - 1], "end_ns": [-(2**63)]}))
    for start, end in ((-1, 2**63 - 1), (-(2**63), 2**63 - 1), (-(2**63), 0)):
        with pytest.raises(CaptureError, match=f"table {table}, .*: row 0 is longer than int64"):
            validate(changed(table, {"start_ns": [start], "end_ns": [end]}))


@pytest.mark.parametrize("name", list(TABLES))
def test_null_where_there_may_be_none(name):
    good = ONE_ROW_EACH
    for index, column in enumerate(TABLES[name].columns):
        if column.null is not None:
            continue
        field = TABLES[name].schema.field(column.name)
        broken = good[name].set_column(index, field, pa.nulls(1, column.arrow_type))
        with pytest.raises(CaptureError, match=f"table {name}, column {column.name}: NULL"):
            validate(good.replace({name: broken}))


def test_a_large_table_is_checked_to_its_last_row():
    size = 100_000
    rows = sample_row("op", size) | {"parent_op_id": np.arange(size, dtype=np.int32) + 1}
    capture = ONE_ROW_EACH.replace({"op": build_table("op", rows)})
    with pytest.raises(CaptureError, match="row 99999 names row 100000 of op"):
        validate(capture)
