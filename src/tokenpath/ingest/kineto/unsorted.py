"""Complete events without a known category: their process and name say what they are."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpath.ingest.kineto.categories import Sort
from tokenpath.ingest.kineto.columns import Flag
from tokenpath.ingest.kineto.processes import Pairs
from tokenpath.ingest.kineto.stores import NO_CODE, Store, required
from tokenpath.ingest.losses import Losses

_DERIVED_PROCESSES = frozenset({"Overlap Analysis"})
"""Rows that msprof computes from the others."""
_WAIT = re.compile(r"(?:EVENT|NOTIFY|CAPTURE)_WAIT|(?:Event|Notify)[ _]?Wait")
_NO_WORK = re.compile(r"(?:EVENT|NOTIFY|CAPTURE)_RECORD|(?:Event|Notify)[ _]?Record|PLACE_?HOLDER")
_COPY = re.compile(r"MEMCPY|Memcpy|SDMA")


def settle(unsorted: Store, stores: dict[str, Store], pairs: Pairs, losses: Losses) -> str | None:
    """Move each row to the store it belongs in; the vendor that the rows give away, if any."""
    if unsorted.num_rows == 0:
        return None
    num_rows = unsorted.num_rows
    columns = {field.name: unsorted.take(field.name) for field in unsorted.fields}
    pair, name = required(columns["pair"]), columns["name"]
    flags = columns["flags"]
    is_spyre = np.zeros(num_rows, bool) if flags is None else (flags & Flag.SPYRE) != 0
    has_category = columns["category"] is not None and columns["category"] != NO_CODE
    has_category = np.zeros(num_rows, bool) | has_category
    names = np.full(num_rows, NO_CODE) if name is None else name
    target = np.full(num_rows, "range", dtype="U12")
    sort = np.zeros(num_rows, np.uint8)
    vendor = "ibm" if is_spyre.any() else None
    for number in np.unique(pair).tolist():
        rows = np.flatnonzero(pair == number)
        process = pairs.name_of(number)
        if process in _DERIVED_PROCESSES:
            target[rows] = "derived"
        elif process == "CANN":
            target[rows] = "api_call"
        elif process == "Ascend Hardware":
            vendor = "huawei"
            target[rows] = "kernel"
            _settle_tasks(rows, names, pairs.texts, target, sort)
        elif pairs.is_device(number):
            target[rows] = "device_range"
    target[is_spyre & ~has_category] = "kernel"
    columns["sort"] = sort
    for store in ("range", "api_call", "kernel", "device_range", "sync"):
        chosen = np.flatnonzero(target == store)
        if len(chosen):
            wanted = {field.name for field in stores[store].fields}
            part = {k: v[chosen] for k, v in columns.items() if v is not None and k in wanted}
            stores[store].append_columns(part, len(chosen))
    losses.add("derived by the profiler", int((target == "derived").sum()), lost=False)
    losses.add("record of a device event", int((target == "record").sum()), lost=False)
    return vendor


def _settle_tasks(
    rows: NDArray[np.intp],
    names: NDArray[Any],
    texts: list[str],
    target: NDArray[np.str_],
    sort: NDArray[np.uint8],
) -> None:
    """Tasks of an Ascend stream: waits and records are no work, copies are copies."""
    for code in np.unique(names[rows]).tolist():
        text = "" if code == NO_CODE else texts[code]
        own = rows[names[rows] == code]
        if _WAIT.match(text):
            target[own] = "sync"
        elif _NO_WORK.match(text):
            target[own] = "record"
        elif _COPY.match(text):
            sort[own] = Sort.MEMCPY
