"""Captures of several sources as one: rows one after the other, row numbers moved on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tokenpath.capture.capture import NO_ID, Capture, nullable
from tokenpath.capture.tables import TABLES
from tokenpath.capture.validate import table_of_id


def combine(captures: Sequence[Capture]) -> Capture:
    """One capture that holds the rows of all, in the order given.

    Columns of row numbers name the same rows as before. Nothing is merged: a thread that two captures
    know is two rows. ValueError for no capture.
    """
    if not captures:
        raise ValueError("no capture to combine")
    if len(captures) == 1:
        return captures[0]
    parts: dict[str, list[pa.Table]] = {}
    num_before: dict[str, int] = {}
    for capture in captures:
        for name in capture:
            if capture.num_rows(name):
                parts.setdefault(name, []).append(_moved(capture, name, num_before))
        for name in capture:
            num_before[name] = num_before.get(name, 0) + capture.num_rows(name)
    return Capture({name: _joined(tables) for name, tables in parts.items()})


def _moved(capture: Capture, name: str, num_before: dict[str, int]) -> pa.Table:
    table = capture[name]
    for column in TABLES[name].columns:
        by = num_before.get(table_of_id(column.name), 0)
        if by == 0 or column.type != "int32" or not column.name.endswith("_id"):
            continue
        if table_of_id(column.name) not in TABLES:
            continue
        ids = capture.ids(name, column.name)
        moved = np.where(ids == NO_ID, NO_ID, ids + np.int32(by)).astype(np.int32)
        at = table.schema.get_field_index(column.name)
        values = nullable(moved, NO_ID) if column.null is not None else pa.array(moved)
        table = table.set_column(at, table.schema.field(at), values)
    return table


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()
