"""Checks of a capture against what its tables declare beyond their types."""

from __future__ import annotations

import numpy as np

from tokenpath.capture.capture import Capture
from tokenpath.capture.tables import TABLES
from tokenpath.core.errors import CaptureError


def validate(capture: Capture) -> None:
    """Raise CaptureError at the first broken promise: NULLs, reversed or endless times, ids without a row.

    An interval may be at most 2**63 - 1 ns long, so that its length is an int64 too.
    """
    for name in capture:
        declared = TABLES[name]
        for column in declared.columns:
            where = f"table {name}, column {column.name}"
            if column.null is None and capture[name][column.name].null_count:
                raise CaptureError("NULL in a column that may not hold one", where=where)
            if column.name.endswith("_id") and column.type == "int32":
                _check_ids(capture, name, column.name, where)
        if {"start_ns", "end_ns"} <= {column.name for column in declared.columns}:
            _check_times(capture, name)


def table_of_id(column: str) -> str:
    """The table whose rows a column of row numbers names: `op` for `parent_op_id`.

    Not always a declared one: some sources have ids of their own that end in `_id`, too.
    """
    return column.removesuffix("_id").removeprefix("parent_").removeprefix("scheduler_")


def _check_times(capture: Capture, table: str) -> None:
    start, end = capture.int64(table, "start_ns", 0), capture.int64(table, "end_ns", 0)
    columns = [capture[table][name] for name in ("start_ns", "end_ns")]
    if any(column.null_count for column in columns):
        # Where a table may hold NULL, only rows that have both times are an interval.
        is_whole = np.logical_and(*(column.is_valid().to_numpy() for column in columns))
        start, end = np.where(is_whole, start, 0), np.where(is_whole, end, 0)
    where = f"table {table}, columns start_ns and end_ns"
    wrong = np.flatnonzero(end < start)
    if len(wrong):
        raise CaptureError(f"end before start in row {wrong[0]}", where=where)
    # A length past int64 wraps to a negative one, as end is not before start.
    wrong = np.flatnonzero(end - start < 0)
    if len(wrong):
        raise CaptureError(f"row {wrong[0]} is longer than int64 nanoseconds can say", where=where)


def _check_ids(capture: Capture, table: str, column: str, where: str) -> None:
    target = table_of_id(column)
    if target not in TABLES:
        return
    num_rows = capture.num_rows(target)
    import pyarrow.compute as pc

    # Not by way of Capture.ids: there a stored -1 looks like NULL.
    ids = capture[table][column]
    wrong = np.flatnonzero(
        pc.or_(pc.less(ids, 0), pc.greater_equal(ids, num_rows)).fill_null(False)
    )
    if len(wrong):
        raise CaptureError(
            f"row {wrong[0]} names row {ids[int(wrong[0])]} of {target}, which has {num_rows} rows",
            where=where,
            allowed="NULL, or a row number of that table",
        )
