"""Checks of a capture against what its tables declare beyond their types."""

from __future__ import annotations

import numpy as np

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.capture.tables import TABLES
from tokenpath.core.errors import CaptureError


def validate(capture: Capture) -> None:
    """Raise CaptureError at the first broken promise: NULLs, reversed times, ids without a row."""
    for name in capture:
        table, declared = capture[name], TABLES[name]
        for column in declared.columns:
            where = f"table {name}, column {column.name}"
            if column.null is None and table[column.name].null_count:
                raise CaptureError("NULL in a column that may not hold one", where=where)
            if column.name.endswith("_id") and column.type == "int32":
                _check_ids(capture, name, column.name, where)
        names = {column.name for column in declared.columns}
        if {"start_ns", "end_ns"} <= names:
            start, end = capture.int64(name, "start_ns"), capture.int64(name, "end_ns")
            reversed_rows = np.flatnonzero(end < start)
            if len(reversed_rows):
                raise CaptureError(
                    f"end before start in row {reversed_rows[0]}", where=f"table {name}"
                )


def _check_ids(capture: Capture, table: str, column: str, where: str) -> None:
    target = column.removesuffix("_id").removeprefix("parent_")
    if target not in TABLES:
        return
    ids = capture.ids(table, column)
    wrong = np.flatnonzero((ids != NO_ID) & ((ids < 0) | (ids >= capture.num_rows(target))))
    if len(wrong):
        raise CaptureError(
            f"row {wrong[0]} names row {ids[wrong[0]]} of {target}, "
            f"which has {capture.num_rows(target)} rows",
            where=where,
        )
