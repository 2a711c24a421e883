"""The stores of one file taken out: impossible times dropped, the base added, flow arrows used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpath.ingest.kineto import links
from tokenpath.ingest.kineto.columns import NULL
from tokenpath.ingest.kineto.sorting import FIELDS, Sorter
from tokenpath.ingest.kineto.stores import required
from tokenpath.ingest.workers import each

Array = NDArray[Any]
Columns = dict[str, Array | None]

HOST_STORES = ("op", "frame", "api_call", "range", "overhead")
TIMED_STORES = (*HOST_STORES, "device_range", "kernel", "sync", "memory", "flow")
_FAR_FROM_ZERO_NS = 3600 * 10**9


@dataclass
class Rows:
    """The kept rows of one file, times on the capture's clock, before ids are given."""

    columns: dict[str, Columns]
    """By store, then by field; None for a column that is all NULL."""
    num_rows: dict[str, int]
    """By store."""


def collect(sorter: Sorter, base_ns: int, num_workers: int = 1) -> Rows:
    """Take everything out of the stores; drop impossible times; add the base; link by flows."""
    losses = sorter.losses
    rows = Rows({}, {name: sorter.stores[name].num_rows for name in TIMED_STORES})
    wanted = [(name, field.name) for name in TIMED_STORES for field in FIELDS[name]]
    taken = each(lambda which: sorter.stores[which[0]].take(which[1]), wanted, num_workers)
    for (name, field), values in zip(wanted, taken, strict=True):
        rows.columns.setdefault(name, {})[field] = values
    stray = _find_stray_zeros(rows)
    for name in TIMED_STORES:
        columns = rows.columns[name]
        start = columns["start" if "start" in columns else "at"]
        if start is None:
            continue
        last = columns.get("end")
        keep = _drop_out_of_range(start, start if last is None else last, base_ns)
        if stray and not start.all():
            zero = start == 0
            losses.add("zero timestamp", int(zero.sum()))
            keep = ~zero if keep is None else keep & ~zero
        if keep is not None:
            if not stray or not (start == 0).any():
                losses.add("timestamp out of range", int((~keep).sum()))
            _filter(rows, name, keep)
            _move_collectives(sorter, name, keep)
        if base_ns:
            for field in ("start", "end", "at"):
                values = columns.get(field)
                if values is not None:
                    values += base_ns
    return rows


def _find_stray_zeros(rows: Rows) -> bool:
    """Whether zero is far from all other times of the file, so that it can only be a lost stamp."""
    nearest = None
    has_zero = False
    for columns in rows.columns.values():
        start = columns["start" if "start" in columns else "at"]
        if start is None or len(start) == 0:
            continue
        if not start.all():
            has_zero = True
            start = start[start != 0]
        if len(start):
            low = min(abs(int(start.min())), abs(int(start.max())))
            nearest = low if nearest is None else min(nearest, low)
    return has_zero and nearest is not None and nearest > _FAR_FROM_ZERO_NS


def _drop_out_of_range(start: Array, last: Array, base_ns: int) -> NDArray[np.bool_] | None:
    if len(start) == 0:
        return None
    low, high = int(start.min()) + base_ns, int(last.max()) + base_ns
    if low > NULL and high < 2**63:
        return None
    return (start > NULL - min(base_ns, 0)) & (last < 2**63 - max(base_ns, 0))


def _filter(rows: Rows, name: str, keep: NDArray[np.bool_]) -> None:
    columns = rows.columns[name]
    for field, values in columns.items():
        columns[field] = None if values is None else values[keep]
    rows.num_rows[name] = int(keep.sum())


def _move_collectives(sorter: Sorter, name: str, keep: NDArray[np.bool_]) -> None:
    store = sorter.stores.get(f"{name}_collective")
    if store is None or store.num_rows == 0:
        return
    columns = {field.name: store.take(field.name) for field in store.fields}
    row = required(columns["row"])
    chosen = keep[row]
    new_of_old = np.cumsum(keep) - 1
    store.num_rows = 0
    columns["row"] = new_of_old[row].astype(np.int32)
    if chosen.any():
        kept = {k: v[chosen] for k, v in columns.items() if v is not None}
        store.append_columns(kept, int(chosen.sum()))


def link(rows: Rows, sorter: Sorter) -> None:
    """Use flow arrows where device work carries no correlation id."""
    kernel = rows.columns["kernel"]
    correlation = kernel["correlation"]
    num_flows = rows.num_rows["flow"]
    sorter.losses.add("flow arrow", num_flows, lost=False)
    is_linked = correlation is not None and bool((correlation != NULL).all())
    if num_flows and rows.num_rows["kernel"] and not is_linked:
        host = {"correlation": rows.columns["api_call"], "external": rows.columns["op"]}
        links.link_by_flows(rows.columns["flow"], num_flows, host, kernel, sorter.losses)
    rows.columns["flow"] = {}
