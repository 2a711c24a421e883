"""Raw rows to stores: which events are kept, where, and what is counted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpath.ingest.kineto.categories import NUM_SORTS, Sort, sort_rows
from tokenpath.ingest.kineto.columns import NULL, TEXT_COLUMNS, Col, Flag
from tokenpath.ingest.kineto.reasons import Reason, count
from tokenpath.ingest.kineto.stores import Field, Store, int32, int64, real, text
from tokenpath.ingest.losses import Losses

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

_HOST = (
    int32("pair", Col.PAIR),
    int64("start", Col.TS),
    int64("end", Col.DUR),
    text("name", Col.NAME),
)
_PLACE = (int64("device", Col.DEVICE), int64("stream", Col.STREAM))
_COLLECTIVE = (
    text("op", Col.COLLECTIVE),
    int64("elements_in", Col.ELEMENTS_IN),
    int64("elements_out", Col.ELEMENTS_OUT),
    text("dtype", Col.DTYPE),
    int32("group_size", Col.GROUP_SIZE),
    text("group", Col.GROUP),
    int64("sequence", Col.COLLECTIVE_SEQUENCE),
    int64("external", Col.EXTERNAL),
)
# DUR holds the end by the time a row is stored.
FIELDS: dict[str, tuple[Field, ...]] = {
    "op": (
        *_HOST,
        int64("external", Col.EXTERNAL),
        int64("sequence", Col.SEQUENCE),
        text("dims", Col.DIMS),
        text("types", Col.TYPES),
        text("stack", Col.STACK),
    ),
    "frame": (*_HOST, int64("python", Col.PYTHON), int64("parent", Col.PYTHON_PARENT)),
    "api_call": (*_HOST, int64("correlation", Col.CORRELATION)),
    "range": (*_HOST, int64("external", Col.EXTERNAL)),
    "overhead": _HOST,
    "device_range": (*_HOST, int64("external", Col.EXTERNAL), *_PLACE),
    "kernel": (
        *_HOST,
        Field("sort", Col.ID, "u1"),
        *_PLACE,
        *(int32(f"grid{axis}", Col.GRID + axis) for axis in range(3)),
        *(int32(f"block{axis}", Col.BLOCK + axis) for axis in range(3)),
        int32("registers", Col.REGISTERS),
        int64("shared", Col.SHARED),
        real("blocks_per_sm", Col.BLOCKS_PER_SM),
        real("warps_per_sm", Col.WARPS_PER_SM),
        real("occupancy", Col.OCCUPANCY),
        int64("bytes", Col.BYTES),
        int64("correlation", Col.CORRELATION),
        int64("external", Col.EXTERNAL),
        int64("graph", Col.GRAPH),
        int64("graph_node", Col.GRAPH_NODE),
    ),
    "sync": (
        *_HOST,
        *_PLACE,
        text("task", Col.TASK),
        int64("wait_stream", Col.WAIT_STREAM),
        int64("wait_correlation", Col.WAIT_CORRELATION),
        int64("correlation", Col.CORRELATION),
    ),
    "unsorted": (
        *_HOST,
        *_PLACE,
        text("category", Col.CATEGORY),
        text("task", Col.TASK),
        int32("flags", Col.FLAGS),
        int64("external", Col.EXTERNAL),
        int64("correlation", Col.CORRELATION),
        int64("bytes", Col.BYTES),
    ),
    "memory": (
        int64("at", Col.TS),
        text("name", Col.NAME),
        int64("bytes", Col.BYTES),
        int64("address", Col.ADDRESS),
        int64("stream", Col.STREAM),
    ),
    "flow": (
        Field("phase", Col.PHASE, "u1"),
        text("category", Col.CATEGORY),
        int64("id", Col.ID),
        int32("pair", Col.PAIR),
        int64("at", Col.TS),
    ),
    "metadata": (text("name", Col.NAME), int32("pair", Col.PAIR), text("meta", Col.META)),
    "op_collective": (int32("row", Col.PHASE), *_COLLECTIVE),
    "kernel_collective": (int32("row", Col.PHASE), *_COLLECTIVE),
}
TEXT_FIELDS: dict[str, tuple[str, ...]] = {
    "op": ("name", "dims", "types", "stack"),
    "frame": ("name",),
    "api_call": ("name",),
    "range": ("name",),
    "overhead": ("name",),
    "device_range": ("name",),
    "kernel": ("name",),
    "sync": ("name", "task"),
    "unsorted": ("name", "category", "task"),
    "memory": ("name",),
    "flow": ("category",),
    "metadata": ("name", "meta"),
    "op_collective": ("op", "dtype", "group"),
    "kernel_collective": ("op", "dtype", "group"),
}
"""Which columns of a store are text codes; columns named `pair` are pair numbers."""

STORE_OF: dict[Sort, str] = {
    Sort.KERNEL: "kernel",
    Sort.OP: "op",
    Sort.FRAME: "frame",
    Sort.API_CALL: "api_call",
    Sort.HOST_RANGE: "range",
    Sort.OVERHEAD: "overhead",
    Sort.DEVICE_RANGE: "device_range",
    Sort.SYNC: "sync",
    Sort.UNSORTED: "unsorted",
    Sort.MEMORY: "memory",
    Sort.METADATA: "metadata",
    Sort.FLOW: "flow",
}
"""The store of each sort of event that is kept as it is; all device work goes into one."""
_NOT_KEPT: dict[Sort, Reason] = {
    Sort.LAUNCH_FLOW: Reason.FLOW,
    Sort.PROFILER_SPAN: Reason.PROFILER_SPAN,
    Sort.INSTANT: Reason.INSTANT,
    Sort.CUDA_EVENT: Reason.CUDA_EVENT,
    Sort.OTHER_PHASE: Reason.OTHER_PHASE,
}


class Sorter:
    """Takes raw rows chunk by chunk and holds what the tables need of them."""

    def __init__(self) -> None:
        self.stores = {name: Store(fields) for name, fields in FIELDS.items()}
        self.losses = Losses()
        self.num_events = 0
        self.begin_end: list[Rows] = []
        self.counters: list[tuple[int, int, int, int, int, float]] = []
        """(sort, start, end, name code, key code, value) of counters and profiler ranges."""

    def add(self, rows: Rows) -> None:
        """Sort a chunk of raw rows (num_events, NUM_COLUMNS); the array may be written to."""
        if len(rows) == 0:
            return
        self.num_events += len(rows)
        self._add_sorted(
            rows, sort_rows(rows[:, Col.PHASE], rows[:, Col.CATEGORY], rows[:, Col.NAME])
        )

    def add_paired(self, rows: Rows) -> None:
        """Sort rows made of begin and end events, which have been counted already."""
        if len(rows):
            sorts = sort_rows(rows[:, Col.PHASE], rows[:, Col.CATEGORY], rows[:, Col.NAME])
            self._add_sorted(rows, sorts)

    def _add_sorted(self, rows: Rows, sort: NDArray[np.uint8]) -> None:
        # All device work goes into one store, in the order of the file.
        is_work = sort <= Sort.MEMSET
        group = np.where(is_work, np.uint8(Sort.KERNEL), sort)
        rows[:, Col.ID] = np.where(is_work, sort, rows[:, Col.ID])
        order = np.argsort(group, kind="stable")
        ends = np.cumsum(np.bincount(group, minlength=NUM_SORTS))
        for number in range(NUM_SORTS):
            chosen = order[(ends[number - 1] if number else 0) : ends[number]]
            if len(chosen):
                self._keep(Sort(number), rows, chosen)

    def _keep(self, sort: Sort, rows: Rows, chosen: NDArray[np.intp]) -> None:
        if sort in _NOT_KEPT:
            self._count(_NOT_KEPT[sort], rows[chosen[:1]], len(chosen))
            return
        part = rows if len(chosen) == len(rows) else rows[chosen]
        if sort is Sort.METADATA:
            self._count(Reason.METADATA, part, len(part))
            named = part[part[:, Col.META] != NULL]
            columns = (named[:, column] for column in (Col.NAME, Col.PAIR, Col.META))
            distinct_metadata(self.stores["metadata"], *columns)
            return
        part = self._check_times(part, has_end=sort <= Sort.UNSORTED)
        if sort is Sort.MEMORY:
            part = self._drop(part, part[:, Col.BYTES] == NULL, Reason.MEMORY_WITHOUT_BYTES)
        if len(part) == 0:
            return
        if sort is Sort.BEGIN_END:
            self.begin_end.append(part.copy())
            return
        if sort in (Sort.KERNEL, Sort.OP):
            self._keep_collectives(STORE_OF[sort], part)
        self.stores[STORE_OF[sort]].append(part)

    def _keep_collectives(self, store: str, rows: Rows) -> None:
        has = np.flatnonzero(rows[:, Col.COLLECTIVE] != NULL)
        if len(has):
            part = rows[has]
            part[:, Col.PHASE] = has + self.stores[store].num_rows
            self.stores[f"{store}_collective"].append(part)

    def _check_times(self, rows: Rows, *, has_end: bool) -> Rows:
        """Rows whose times can be kept, with DUR turned into the end; the others are counted."""
        flags = rows[:, Col.FLAGS]
        if flags.any():
            outside = Flag.TS_RANGE | (Flag.DUR_RANGE if has_end else 0)
            rows = self._drop(rows, (flags & outside) != 0, Reason.OUT_OF_RANGE)
            cut = rows[(rows[:, Col.FLAGS] & Flag.SUB_NS) != 0]
            self._count(Reason.CUT_DIGITS, cut, len(cut))
        rows = self._drop(rows, rows[:, Col.TS] == NULL, Reason.MISSING_TIMESTAMP)
        if not has_end or len(rows) == 0:
            return rows
        missing = rows[:, Col.DUR] == NULL
        if missing.any():
            self._count(Reason.MISSING_DURATION, rows[missing], int(missing.sum()))
            rows[missing, Col.DUR] = 0
        rows = self._drop(rows, rows[:, Col.DUR] < 0, Reason.NEGATIVE_DURATION)
        # Both are int64 and the duration is not negative, so a sum that wraps is below the start.
        end = rows[:, Col.TS] + rows[:, Col.DUR]
        wraps = end < rows[:, Col.TS]
        rows, end = self._drop(rows, wraps, Reason.OUT_OF_RANGE), end[~wraps]
        rows[:, Col.DUR] = end
        return rows

    def _drop(self, rows: Rows, wrong: Mask, reason: Reason) -> Rows:
        if not wrong.any():
            return rows
        self._count(reason, rows[wrong], int(wrong.sum()))
        return rows[~wrong]

    def _count(self, reason: Reason, rows: Rows, num_events: int) -> None:
        """Count events, the first of which is the first of `rows`."""
        if num_events:
            offset, phase = int(rows[0, Col.OFFSET]), int(rows[0, Col.PHASE])
            count(self.losses, reason, num_events, offset, phase)


def distinct_metadata(
    store: Store, name: NDArray[Any], pair: NDArray[np.generic], meta: NDArray[np.generic]
) -> None:
    """Append the distinct ones: some profilers repeat a name a hundred thousand times."""
    if len(name) == 0:
        return
    named = np.stack((name, pair, meta), axis=1)
    _, first = np.unique(named, axis=0, return_index=True)
    kept = named[np.sort(first)].astype(np.int32)
    columns = dict(zip(("name", "pair", "meta"), kept.T.copy(), strict=True))
    store.append_columns(columns, len(kept))


def remap_rows(rows: Rows, codes: NDArray[np.int32], numbers: NDArray[np.int32]) -> None:
    """Exchange the text codes and pair numbers of raw rows in place."""
    for column in TEXT_COLUMNS:
        known = np.flatnonzero(rows[:, column] != NULL)
        rows[known, column] = codes[rows[known, column]]
    rows[:, Col.PAIR] = numbers[rows[:, Col.PAIR]]
