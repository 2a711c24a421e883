"""The worst gaps, with times, names and the call stack of the launch that came late."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenpath.capture.capture import Capture
from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit
from tokenpath.explain.analysis import Analysis, DeviceResult
from tokenpath.explain.causes import CAUSES
from tokenpath.explain.labels import short_label
from tokenpath.explain.work import NO_LAUNCH

WORST_PER_CAUSE = 3
"""Gaps shown for each cause."""
MAX_STACKS = 6
"""Call stacks looked up in all: each costs a pass over the host tables."""
MAX_DEPTH = 24
"""Innermost entries of a call stack that are kept."""

_COLUMNS = (
    TableColumn("cause", "cause", Unit.TEXT),
    TableColumn("device", "device", Unit.TEXT, is_key_figure=False),
    TableColumn("at_ns", "after start", Unit.NS),
    TableColumn("duration_ns", "length", Unit.NS),
    TableColumn("before", "after kernel", Unit.TEXT, is_key_figure=False),
    TableColumn("kernel", "ends with", Unit.TEXT),
    TableColumn("kernel_row", "row of kernel", Unit.COUNT, is_key_figure=False),
    TableColumn("host", "host was in", Unit.TEXT),
    TableColumn("stack", "call stack of the launch", Unit.TEXT, is_key_figure=False),
)


def worst_gaps(analysis: Analysis) -> ShownTable:
    """The three longest gaps of every cause, longest first."""
    found: list[tuple[int, DeviceResult, int]] = []
    for device in analysis.devices:
        length = device.gaps.duration_ns
        for number in np.unique(device.gaps.cause):
            mine = np.flatnonzero(device.gaps.cause == number)
            longest = mine[np.argsort(-length[mine], kind="stable")[:WORST_PER_CAUSE]]
            found += [(int(length[row]), device, int(row)) for row in longest]
    found.sort(key=lambda item: -item[0])
    seen: dict[int, int] = {}
    rows: list[Sequence[Cell]] = []
    stacks = 0
    origin = min((device.whole.window_start_ns for device in analysis.devices), default=0)
    names = _names(analysis.capture)
    for duration, device, row in found:
        gaps, work = device.gaps, device.work
        cause = int(gaps.cause[row])
        seen[cause] = seen.get(cause, 0) + 1
        if seen[cause] > WORST_PER_CAUSE:
            continue
        position = int(gaps.kernel[row])
        stack: str | None = None
        if position >= 0 and gaps.launch_start[row] != NO_LAUNCH and stacks < MAX_STACKS:
            stack = call_stack(analysis.capture, int(work.call[position]))
            stacks += 1
        ended = np.flatnonzero(work.end <= gaps.start[row])
        before = int(ended[np.argmax(work.end[ended])]) if len(ended) else -1
        label = int(gaps.label[row])
        rows.append(
            (
                CAUSES[cause].key,
                work.label,
                int(gaps.start[row]) - origin,
                duration,
                names[work.row[before]] if before >= 0 else None,
                names[work.row[position]] if position >= 0 else None,
                int(work.row[position]) if position >= 0 else None,
                short_label(gaps.labels[label]) if label >= 0 else None,
                stack,
            )
        )
    note = "Three for each cause. Times count from the first device work of the capture."
    return ShownTable("worst_gaps", "Longest gaps", _COLUMNS, rows, len(rows), note)


class _Names:
    """Kernel names by row, decoded one at a time."""

    def __init__(self, capture: Capture) -> None:
        self._codes, self._names = capture.codes("kernel", "name")

    def __getitem__(self, row: int) -> str:
        name: str = self._names[self._codes[row]]
        return name


def _names(capture: Capture) -> _Names:
    return _Names(capture)


def call_stack(capture: Capture, call: int) -> str | None:
    """Frames and operators around an API call, outermost first, one a line; None without any."""
    thread = capture.ids("api_call", "thread_id")[call]
    at = capture.int64("api_call", "start_ns")[call]
    entries: list[tuple[int, int, str]] = []
    for table in ("frame", "op"):
        if capture.num_rows(table) == 0:
            continue
        start, end = capture.int64(table, "start_ns"), capture.int64(table, "end_ns")
        rows = np.flatnonzero((start <= at) & (end > at))
        rows = rows[capture.ids(table, "thread_id")[rows] == thread]
        codes, names = capture.codes(table, "name")
        entries += [(int(start[r]), -int(end[r]), names[codes[r]]) for r in rows]
    if not entries:
        return None
    entries.sort(key=lambda entry: entry[:2])
    return "\n".join(name for _, _, name in entries[-MAX_DEPTH:])
