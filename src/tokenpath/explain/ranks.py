"""Ranks against each other: who arrives last at collectives, and how far their clocks are apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit
from tokenpath.core.units import INT64_MAX, INT64_MIN, format_duration
from tokenpath.stitch.clocks import HostClock, host_clocks

Int64s = NDArray[np.int64]
_UNKNOWN = INT64_MIN
_COLUMNS = (
    TableColumn("rank", "rank", Unit.COUNT),
    TableColumn("host", "host", Unit.TEXT),
    TableColumn("num_collectives", "collectives", Unit.COUNT),
    TableColumn("last_share", "arrived last", Unit.SHARE),
    TableColumn("p50_late_ns", "late p50", Unit.NS),
    TableColumn("sum_waited_ns", "waited in all", Unit.NS),
    TableColumn("clock_offset_ns", "clock ahead", Unit.NS),
    TableColumn("clock_drift_ppm", "drift ppm", Unit.NUMBER, is_key_figure=False),
    TableColumn("clock_residual_ns", "residual", Unit.NS, is_key_figure=False),
)


def ranks_table(capture: Capture) -> ShownTable | None:
    """One row a source that took part in collectives matched across ranks; None when there are none.

    A rank is late by its start after the first start of the collective, and waits from its start until the
    last rank has started; both after the clocks of the hosts have been aligned.
    """
    match = capture.int64("collective", "match", -1)
    rows = np.flatnonzero(match >= 0)
    if len(rows) == 0:
        return None
    clocks = host_clocks(capture)
    source = capture.ids("collective", "source_id")[rows]
    start = _aligned_starts(capture, rows, source, clocks)
    known = start != _UNKNOWN
    rows, source, start = rows[known], source[known], start[known]
    _, which = np.unique(match[rows], return_inverse=True)
    num_sets = int(which.max()) + 1 if len(which) else 0
    first, last = np.full(num_sets, INT64_MAX, np.int64), np.full(num_sets, INT64_MIN, np.int64)
    np.minimum.at(first, which, start)
    np.maximum.at(last, which, start)
    late, waits = start - first[which], last[which] - start
    is_last = start == last[which]
    sources = capture["source"]
    clock_of = {one: clock for clock in clocks for one in clock.sources}
    table: list[Sequence[Cell]] = []
    order = np.argsort(source, kind="stable")
    distinct, begin = np.unique(source[order], return_index=True)
    ranks, hosts = sources["rank"].to_pylist(), sources["host"].to_pylist()
    for one, mine in zip(distinct.tolist(), np.split(order, begin[1:]), strict=False):
        clock = clock_of.get(one)
        table.append(
            (
                ranks[one],
                hosts[one],
                len(mine),
                float(is_last[mine].mean()),
                int(np.median(late[mine])),
                int(waits[mine].sum()),
                None if clock is None else clock.offset_ns,
                None if clock is None else clock.drift_ppm,
                None if clock is None else clock.residual_ns,
            )
        )
    table.sort(key=lambda row: -(row[3] if isinstance(row[3], float) else 0.0))
    return ShownTable(
        "ranks",
        "Ranks at matched collectives",
        _COLUMNS,
        table,
        len(table),
        _remark(clocks, num_sets),
    )


def _aligned_starts(
    capture: Capture, rows: Int64s, source: NDArray[np.int32], clocks: Sequence[HostClock]
) -> Int64s:
    start = capture.int64("collective", "start_ns", _UNKNOWN)[rows]
    kernel = capture.ids("collective", "kernel_id")[rows]
    if capture.num_rows("kernel"):
        began = capture.int64("kernel", "start_ns")[np.maximum(kernel, 0)]
        start = np.where(kernel >= 0, began, start)
    of_source = np.full(capture.num_rows("source"), -1, np.int64)
    for number, clock in enumerate(clocks):
        of_source[clock.sources] = number
    known = np.flatnonzero((start != _UNKNOWN) & (of_source[source] >= 0))
    which = of_source[source[known]]
    order = np.argsort(which, kind="stable")
    distinct, begin = np.unique(which[order], return_index=True)
    for number, mine in zip(distinct.tolist(), np.split(known[order], begin[1:]), strict=False):
        start[mine] = clocks[number].corrected(start[mine])
    return start


def _remark(clocks: Sequence[HostClock], num_sets: int) -> str:
    text = f"{num_sets:,} collectives seen by several ranks."
    if clocks:
        worst = max(clock.residual_ns for clock in clocks)
        text += (
            f" Clocks aligned by the ends of collectives; they agree to {format_duration(worst)} (median "
            "of the worst host). A host is unknown: its source has a clock of its own."
            if any(len(clock.sources) == 1 for clock in clocks)
            else f" Clocks aligned by the ends of collectives; they agree to {format_duration(worst)}."
        )
    return text
