"""Combined captures hold the rows of all, and their row numbers name the same rows as before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpath.capture.capture import Capture, build_table
from tokenpath.capture.combine import combine
from tokenpath.capture.tables import TABLES
from tokenpath.capture.validate import table_of_id, validate

SOURCE = {
    "path": ["a"],
    "format": ["x"],
    "reader_version": [1],
    "num_bytes": [1],
    "clock_offset_ns": [0],
    "clock": ["epoch"],
    "state": ["measured"],
    "num_events": [0],
    "num_skipped": [0],
}


def capture_of(ops: list[tuple[str, int | None]], threads: int) -> Capture:
    """Operators as (name, row of the parent), on the last of some threads."""
    tables = {
        "source": build_table("source", SOURCE),
        "thread": build_table(
            "thread",
            {
                "source_id": [0] * threads,
                "pid": ["1"] * threads,
                "tid": [str(i) for i in range(threads)],
            },
        ),
    }
    if ops:
        tables["op"] = build_table(
            "op",
            {
                "source_id": [0] * len(ops),
                "thread_id": [threads - 1] * len(ops),
                "start_ns": np.arange(len(ops)),
                "end_ns": np.arange(len(ops)),
                "name": [name for name, _ in ops],
                "parent_op_id": pa.array([parent for _, parent in ops], pa.int32()),
            },
        )
    return Capture(tables)


def test_row_numbers_move_on():
    one = capture_of([("a", None), ("b", 0)], 2)
    two = capture_of([("c", None), ("b", 0)], 1)
    both = combine([one, two])
    validate(both)
    op = both["op"]
    assert op["name"].to_pylist() == ["a", "b", "c", "b"]
    assert op["parent_op_id"].to_pylist() == [None, 0, None, 2]
    assert op["source_id"].to_pylist() == [0, 0, 1, 1]
    assert op["thread_id"].to_pylist() == [1, 1, 2, 2]


def test_one_is_itself_and_none_is_refused():
    one = capture_of([], 1)
    assert combine([one]) is one
    with pytest.raises(ValueError, match="no capture"):
        combine([])


def test_ids_of_sources_themselves_stay():
    """`step.engine_id` is a rank, not a row."""
    columns = {"source_id": [0], "name": ["s"], "start_ns": [0], "end_ns": [1], "engine_id": [3]}
    part = Capture({"source": build_table("source", SOURCE), "step": build_table("step", columns)})
    assert combine([part, part])["step"]["engine_id"].to_pylist() == [3, 3]


shapes = st.lists(
    st.tuples(st.lists(st.sampled_from("xyz"), max_size=4), st.integers(1, 3)),
    min_size=1,
    max_size=4,
)


@given(shapes)
def test_names_of_parents_and_order_of_grouping_do_not_change(parts):
    captures = [
        capture_of([(name, at - 1 if at else None) for at, name in enumerate(names)], threads)
        for names, threads in parts
    ]
    whole = combine(captures)
    validate(whole)
    step_by_step = captures[0]
    for capture in captures[1:]:
        step_by_step = combine([step_by_step, capture])
    for name in whole:
        assert whole[name].to_pylist() == step_by_step[name].to_pylist()
    rows = [row for capture in captures for row in _with_parent_names(capture)]
    assert _with_parent_names(whole) == rows


def _with_parent_names(capture: Capture) -> list[tuple[str, str | None]]:
    op = capture["op"].to_pylist()
    return [
        (row["name"], None if row["parent_op_id"] is None else op[row["parent_op_id"]]["name"])
        for row in op
    ]


def test_every_column_of_row_numbers_is_moved():
    """Those that `combine` moves are those that `validate` checks."""
    for table in TABLES.values():
        for column in table.columns:
            if column.type == "int32" and column.name.endswith("_id"):
                target = table_of_id(column.name)
                assert target in TABLES or column.name == "engine_id", (table.name, column.name)
