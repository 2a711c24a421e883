"""Kernels by name: how often, how long, how launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import Int64s
from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit
from tokenpath.explain.work import NO_LAUNCH, DeviceWork

MAX_ROWS = 200
"""Rows of the table; the tail is counted, not shown."""

_COLUMNS = (
    TableColumn("name", "kernel", Unit.TEXT),
    TableColumn("family", "family", Unit.TEXT),
    TableColumn("kind", "kind", Unit.TEXT, is_key_figure=False),
    TableColumn("count", "count", Unit.COUNT),
    TableColumn("total_ns", "total", Unit.NS),
    TableColumn("share", "share", Unit.SHARE),
    TableColumn("mean_ns", "mean", Unit.NS),
    TableColumn("p50_ns", "p50", Unit.NS, is_key_figure=False),
    TableColumn("p99_ns", "p99", Unit.NS, is_key_figure=False),
    TableColumn("p50_launch_delay_ns", "launch delay p50", Unit.NS, is_key_figure=False),
    TableColumn("p50_queue_depth", "queue depth p50", Unit.COUNT, is_key_figure=False),
    TableColumn("grid", "grid", Unit.TEXT, is_key_figure=False),
    TableColumn("block", "block", Unit.TEXT, is_key_figure=False),
    TableColumn("registers_per_thread", "registers", Unit.COUNT, is_key_figure=False),
    TableColumn("shared_memory_bytes", "shared memory", Unit.BYTES, is_key_figure=False),
    TableColumn("occupancy_percent", "est. occupancy", Unit.PERCENT, is_key_figure=False),
)


@dataclass(frozen=True)
class Groups:
    """Rows put together by an integer key, each group's values sorted."""

    key: Int64s
    """Key of each group."""
    first: Int64s
    """Where each group begins in `order`."""
    count: Int64s
    """Rows in each."""
    order: Int64s
    """Rows by (key, value)."""
    value: Int64s
    """Values in that order."""

    def nearest_rank(self, quantile: float) -> Int64s:
        """The value at a quantile by the nearest-rank definition: always a value that was measured."""
        rank = np.maximum(np.ceil(quantile * self.count).astype(np.int64), 1) - 1
        result: Int64s = self.value[self.first + rank]
        return result

    def total(self) -> Int64s:
        """Sum of each group."""
        result: Int64s = np.add.reduceat(self.value, self.first)
        return result


def group(key: NDArray[np.integer], value: Int64s) -> Groups:
    """Groups of at least one row, sorted by key."""
    order = np.lexsort((value, key))
    sorted_key = key[order].astype(np.int64)
    is_first = np.append(True, sorted_key[1:] != sorted_key[:-1])[: len(sorted_key)]
    first = np.flatnonzero(is_first)
    count = np.diff(np.append(first, len(sorted_key)))
    return Groups(sorted_key[first], first, count, order, value[order])


def queue_depth(work: DeviceWork) -> Int64s:
    """At each launch, how many earlier launches of the device had not started; -1 without launch."""
    known = work.launch_start != NO_LAUNCH
    launched = np.sort(work.launch_start[known])
    started = np.sort(work.start[known])
    at = work.launch_start
    depth = np.searchsorted(launched, at, side="left") - np.searchsorted(started, at, side="right")
    return np.where(known, np.maximum(depth, 0), -1)


def kernel_table(capture: Capture, works: Sequence[DeviceWork]) -> ShownTable:
    """The kernels and copies that start within the windows, by name, longest in total first."""
    parts = []
    for work in works:
        inside = work.in_window()
        delay = np.where(work.launch_start != NO_LAUNCH, work.start - work.launch_start, -1)
        parts.append(
            tuple(a[inside] for a in (work.row, work.end - work.start, delay, queue_depth(work)))
        )
    if not parts or not sum(len(part[0]) for part in parts):
        return ShownTable("kernels", "Kernels", _COLUMNS, (), 0)
    row, duration, delay, depth = (np.concatenate(c) for c in zip(*parts, strict=True))
    codes, names = capture.codes("kernel", "name")
    code = codes[row]
    groups = group(code, duration)
    total = groups.total()
    all_ns = int(total.sum())
    p50, p99 = groups.nearest_rank(0.5), groups.nearest_rank(0.99)
    # By name where totals are equal: codes follow the order of the file.
    by_name = [names[key] for key in groups.key]
    longest = sorted(range(len(total)), key=lambda g: (-int(total[g]), by_name[g]))
    shown = np.array(longest[:MAX_ROWS], np.int64)
    example = _examples(capture, row[groups.order[groups.first]][shown])
    p50_delay, p50_depth = (_median_known(code, values, groups.key) for values in (delay, depth))
    rows: list[Sequence[Cell]] = []
    for index, g in enumerate(shown):
        fields = example[index]
        rows.append(
            (
                names[groups.key[g]],
                fields["family"],
                fields["kind"],
                int(groups.count[g]),
                int(total[g]),
                int(total[g]) / all_ns if all_ns else None,
                int(total[g]) / int(groups.count[g]),
                int(p50[g]),
                int(p99[g]),
                p50_delay[g],
                p50_depth[g],
                _shape(fields["grid"]),
                _shape(fields["block"]),
                fields["registers_per_thread"],
                fields["shared_memory_bytes"],
                fields["occupancy_percent"],
            )
        )
    note = "Share is of summed kernel time; grid, block and registers are those of one launch."
    return ShownTable("kernels", "Kernels", _COLUMNS, rows, len(total), note)


def _examples(capture: Capture, rows: Int64s) -> list[dict[str, Cell]]:
    names = [
        "family", "kind", "grid", "block",
        "registers_per_thread", "shared_memory_bytes", "occupancy_percent",
    ]  # fmt: skip
    taken: list[dict[str, Cell]] = capture["kernel"].select(names).take(rows).to_pylist()
    return taken


def _median_known(code: NDArray[np.int32], value: Int64s, keys: Int64s) -> list[int | None]:
    """The median of the non-negative values of each key; None where there is none."""
    known = value >= 0
    found: dict[int, int] = {}
    if known.any():
        groups = group(code[known], value[known])
        found = dict(zip(groups.key.tolist(), groups.nearest_rank(0.5).tolist(), strict=True))
    return [found.get(int(key)) for key in keys]


def _shape(value: object) -> str | None:
    return "x".join(str(part) for part in value) if isinstance(value, list) else None
