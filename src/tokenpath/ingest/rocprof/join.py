"""Files of one run as one: the same device is one row, the same thread too, and launches are found."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture, nullable
from tokenpath.capture.tables import TABLES
from tokenpath.ingest.growing import NULL, find_rows

Ids = NDArray[np.int32]


def join_run(capture: Capture) -> Capture:
    """Equal devices and threads merged; kernels linked to their calls, counters to their kernels.

    A device is known by its index, a thread by its (pid, tid), a call by its correlation id and the
    kernel of a counter by its times. Kernels, calls and counters lie in different files, so no file can say it by itself.
    """
    device = capture["device"]
    keys: list[Hashable] = list(device["index"].to_pylist())
    capture = _merge(capture, "device", keys)
    thread = capture["thread"]
    pairs = zip(thread["pid"].to_pylist(), thread["tid"].to_pylist(), strict=True)
    capture = _merge(capture, "thread", list(pairs))
    return _link(capture)


def _merge(capture: Capture, name: str, keys: Sequence[Hashable]) -> Capture:
    """Rows of a table with equal keys become the first of them, and the ids elsewhere follow."""
    new_of_key: dict[Hashable, int] = {}
    kept: list[int] = []
    for row, key in enumerate(keys):
        if new_of_key.setdefault(key, len(new_of_key)) == len(kept):
            kept.append(row)
    if len(kept) == len(keys):
        return capture
    new = np.array([new_of_key[key] for key in keys], np.int32)
    changed = {name: capture[name].take(pa.array(kept, pa.int64()))}
    column = f"{name}_id"
    for table in capture:
        if table != name and any(own.name == column for own in TABLES[table].columns):
            ids = capture.ids(table, column)
            moved = np.where(ids == NO_ID, np.int32(NO_ID), new[np.maximum(ids, 0)])
            changed[table] = _with_ids(capture[table], table, column, moved.astype(np.int32))
    return capture.replace(changed)


def _link(capture: Capture) -> Capture:
    changed = {}
    if capture.num_rows("kernel") and capture.num_rows("api_call"):
        found = _first_rows(
            [capture.int64("api_call", "correlation_id", NO_ID)],
            [capture.int64("kernel", "correlation_id", NO_ID)],
        )
        changed["kernel"] = _with_ids(capture["kernel"], "kernel", "api_call_id", found)
    if capture.num_rows("kernel") and capture.num_rows("kernel_counter"):
        names = ("start_ns", "end_ns")
        found = _first_rows(
            [capture.int64("kernel", name, NO_ID) for name in names],
            [capture.int64("kernel_counter", name, NO_ID) for name in names],
        )
        changed["kernel_counter"] = _with_ids(
            capture["kernel_counter"], "kernel_counter", "kernel_id", found
        )
    return capture.replace(changed)


def _first_rows(keys: Sequence[NDArray[np.int64]], wanted: Sequence[NDArray[np.int64]]) -> Ids:
    pairs = [
        np.stack([np.where(column == NO_ID, NULL, column) for column in columns], axis=1)
        for columns in (keys, wanted)
    ]
    if len(keys) == 1:
        pairs = [np.concatenate([pair, pair], axis=1) for pair in pairs]
    return find_rows(pairs[1], pairs[0], np.arange(len(pairs[0]))).astype(np.int32)


def _with_ids(table: pa.Table, name: str, column: str, ids: Ids) -> pa.Table:
    at = table.schema.get_field_index(column)
    values = nullable(ids, NO_ID) if TABLES[name].column(column).null else pa.array(ids)
    return table.set_column(at, table.schema.field(at), values)
