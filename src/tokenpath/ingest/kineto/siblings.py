"""Parts of one split capture: the same event in two files is one event."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.ingest.losses import Losses

_KEYS = {
    "op": ("thread_id", "start_ns", "end_ns", "name", "external_id"),
    "frame": ("thread_id", "start_ns", "end_ns", "name", "python_id"),
    "api_call": ("thread_id", "start_ns", "end_ns", "name", "correlation_id"),
    "range": ("thread_id", "device_id", "stream_id", "start_ns", "end_ns", "name", "external_id"),
    "kernel": ("device_id", "stream_id", "start_ns", "end_ns", "name", "correlation_id"),
    "dependency": ("device_id", "stream_id", "start_ns", "end_ns", "kind", "correlation_id"),
    "memory_event": ("at_ns", "address", "bytes", "action"),
}
_NULL = -(2**63)


def drop_duplicates(
    tables: dict[str, pa.Table], run_of_source: NDArray[np.int32], losses: Sequence[Losses]
) -> dict[str, pa.Table]:
    """Tables without the rows that an earlier part of the same run has; these are counted.

    Equal rows within one file are kept: only a file that repeats another one's rows is corrected.
    """
    result = dict(tables)
    kernel_rows = None
    for name, keys in _KEYS.items():
        table = tables.get(name)
        if table is None:
            continue
        keep = _first_parts(table, keys, run_of_source)
        if keep.all():
            continue
        sources = table["source_id"].to_numpy()[~keep]
        for source, count in zip(*np.unique(sources, return_counts=True), strict=True):
            losses[source].add("duplicate of a split sibling", int(count), lost=False)
        result[name] = table.filter(pa.array(keep)).combine_chunks()
        if name == "kernel":
            kernel_rows = keep
    if kernel_rows is not None and "collective" in tables:
        result["collective"] = _renumber(tables["collective"], kernel_rows)
    return result


def _first_parts(
    table: pa.Table, keys: Sequence[str], run_of_source: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Which rows stay: of equal rows in several sources, those of the first source."""
    source = table["source_id"].to_numpy()
    columns = [run_of_source[source].astype(np.int64)]
    for key in keys:
        values = table[key].combine_chunks()
        if pa.types.is_dictionary(values.type):
            values = values.indices
        columns.append(values.cast(pa.int64()).fill_null(_NULL).to_numpy(zero_copy_only=False))
    order = np.lexsort((source, *columns))
    is_new = np.ones(len(order), bool)
    if len(order) > 1:
        same = np.ones(len(order) - 1, bool)
        for column in columns:
            ordered = column[order]
            same &= ordered[1:] == ordered[:-1]
        is_new[1:] = ~same
    group = np.cumsum(is_new) - 1
    first_source = source[order][is_new]
    keep = np.empty(len(order), bool)
    keep[order] = source[order] == first_source[group]
    return keep


def _renumber(collective: pa.Table, keep: NDArray[np.bool_]) -> pa.Table:
    """Collectives without those of dropped kernels, the rest pointing at the new row numbers."""
    kernel = collective["kernel_id"].combine_chunks().fill_null(-1).to_numpy()
    new_of_old = np.cumsum(keep) - 1
    kept = (kernel < 0) | keep[kernel]
    values = np.where(kernel < 0, -1, new_of_old[kernel])[kept].astype(np.int32)
    table = collective.filter(pa.array(kept))
    at = table.schema.get_field_index("kernel_id")
    numbers = pa.array(values, mask=values < 0)
    return table.set_column(at, table.schema.field(at), numbers).combine_chunks()
