"""The host side: operators and API calls by self time, launches a second, launch-bound figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import Int64s, clip
from tokenpath.capture.nesting import parents, self_time
from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit
from tokenpath.core.units import NS_PER_S, format_duration
from tokenpath.explain.activity import is_synchronizing
from tokenpath.explain.kernel_table import MAX_ROWS
from tokenpath.explain.work import NO_LAUNCH, DeviceWork

LAUNCH_CALL = re.compile(r"launch|memcpy|memset|runFunction", re.IGNORECASE)
"""Names of API calls that put work on a device."""

_COLUMNS = (
    TableColumn("name", "op or API call", Unit.TEXT),
    TableColumn("layer", "layer", Unit.TEXT),
    TableColumn("count", "count", Unit.COUNT),
    TableColumn("self_ns", "self", Unit.NS),
    TableColumn("total_ns", "total", Unit.NS),
    TableColumn("mean_ns", "mean", Unit.NS),
    TableColumn("max_ns", "max", Unit.NS, is_key_figure=False),
    TableColumn("is_synchronizing", "waits for device", Unit.TEXT, is_key_figure=False),
)


@dataclass(frozen=True)
class LaunchFigures:
    """How the host kept the devices fed within the window."""

    num_launches: int
    """Calls that launched work seen on a device."""
    num_kernels: int
    """Pieces of device work with a launch in the file."""
    launches_per_s: float | None
    """Launching calls over the window, summed over devices."""
    launch_call_ns: int
    """Time in launching calls."""
    p50_launch_call_ns: int | None
    """Median launching call."""
    launch_and_queue_ns: int
    """Total kernel launch and queueing time: sum of kernel start - launch start (TKLQT of the SKIP
    paper, arXiv 2504.11750)."""
    num_synchronizing: int
    """Synchronising calls."""
    synchronizing_ns: int
    """Time in them."""


def launch_figures(capture: Capture, works: Sequence[DeviceWork]) -> LaunchFigures:
    """Launch figures over the windows of all devices."""
    calls: list[Int64s] = []
    queue_ns = num_kernels = span_ns = 0
    for work in works:
        known = work.in_window() & (work.launch_start != NO_LAUNCH)
        calls.append(np.unique(work.call[known]).astype(np.int64))
        queue_ns += int((work.start[known] - work.launch_start[known]).sum())
        num_kernels += int(known.sum())
        span_ns += work.span_ns
    call = np.unique(np.concatenate(calls)) if calls else np.empty(0, np.int64)
    start, end = capture.int64("api_call", "start_ns"), capture.int64("api_call", "end_ns")
    duration = np.sort((end - start)[call])
    codes, names = capture.codes("api_call", "name")
    waits = np.array([is_synchronizing(name) for name in names] or [False], np.bool_)
    low, high = host_window(works)
    waiting = np.flatnonzero(waits[np.maximum(codes, 0)] & (start < high) & (end > low))
    cut_start, cut_end = clip(start[waiting], end[waiting], low, high)
    return LaunchFigures(
        num_launches=len(call),
        num_kernels=num_kernels,
        launches_per_s=len(call) * NS_PER_S / span_ns if span_ns else None,
        launch_call_ns=int(duration.sum()),
        p50_launch_call_ns=int(duration[(len(duration) - 1) // 2]) if len(duration) else None,
        launch_and_queue_ns=queue_ns,
        num_synchronizing=len(waiting),
        synchronizing_ns=int((cut_end - cut_start).sum()),
    )


def host_window(works: Sequence[DeviceWork]) -> tuple[int, int]:
    """The stretch of host time that belongs to the windows: from the first launch to their end."""
    if not works:
        bounds = np.iinfo(np.int64)
        return int(bounds.min), int(bounds.max)
    low = min(work.window_start_ns for work in works)
    for work in works:
        launch = work.launch_start[work.in_window() & (work.launch_start != NO_LAUNCH)]
        if len(launch):
            low = min(low, int(launch.min()))
    return low, max(work.window_end_ns for work in works)


def host_table(capture: Capture, works: Sequence[DeviceWork], figures: LaunchFigures) -> ShownTable:
    """Operators and API calls that touch the window, by name, most self time first."""
    low, high = host_window(works)
    parts = []
    names: list[str] = []
    layers: list[str] = []
    for table in ("op", "api_call"):
        if capture.num_rows(table) == 0:
            continue
        start, end = capture.int64(table, "start_ns"), capture.int64(table, "end_ns")
        inside = np.flatnonzero((start < high) & (end > low))
        codes, distinct = capture.codes(table, "name")
        thread = capture.ids(table, "thread_id")[inside]
        parts.append((thread, start[inside], end[inside], codes[inside] + len(names)))
        names += distinct
        layers += [table] * len(distinct)
    if not parts or not sum(len(part[0]) for part in parts):
        return ShownTable("host", "Host", _COLUMNS, (), 0)
    thread, start, end, code = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    own = self_time(start, end, parents(thread, start, end))
    size = len(names)
    count = np.bincount(code, minlength=size)
    self_ns, total_ns = np.zeros(size, np.int64), np.zeros(size, np.int64)
    longest = np.zeros(size, np.int64)
    np.add.at(self_ns, code, own)
    np.add.at(total_ns, code, end - start)
    np.maximum.at(longest, code, end - start)
    seen = np.flatnonzero(count).tolist()
    # By name where self times are equal: codes follow the order of the file.
    shown = sorted(seen, key=lambda c: (-int(self_ns[c]), names[c], layers[c]))[:MAX_ROWS]
    rows: list[Sequence[Cell]] = [
        (
            names[c],
            layers[c],
            int(count[c]),
            int(self_ns[c]),
            int(total_ns[c]),
            int(total_ns[c]) / int(count[c]),
            int(longest[c]),
            "yes" if layers[c] == "api_call" and is_synchronizing(names[c]) else None,
        )
        for c in shown
    ]
    note = f"{launch_sentence(figures)} Calls that touch the window count whole."
    return ShownTable("host", "Host", _COLUMNS, rows, len(seen), note)


def launch_sentence(figures: LaunchFigures) -> str:
    """The launch figures in words."""
    if figures.launches_per_s is None or figures.p50_launch_call_ns is None:
        return "No launches in the window."
    return (
        f"{figures.num_launches:,} launches ({figures.launches_per_s:,.0f}/s, p50 "
        f"{format_duration(figures.p50_launch_call_ns)}) for {figures.num_kernels:,} pieces of "
        f"device work; launch and queueing time {format_duration(figures.launch_and_queue_ns)} in "
        f"all; {figures.num_synchronizing:,} synchronising calls, "
        f"{format_duration(figures.synchronizing_ns)}."
    )
