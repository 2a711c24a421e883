"""Steps one by one, and the funnel of each phase."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenpath.capture.intervals import Intervals, covered, union
from tokenpath.core.report import Cell, Funnel, FunnelRow, ShownTable, TableColumn, Unit
from tokenpath.explain.analysis import Analysis, DeviceResult
from tokenpath.explain.work import COMMUNICATION, COMPUTE, MEMCPY, MEMSET

MAX_ROWS = 400
"""Steps shown."""

_COLUMNS = (
    TableColumn("step", "step", Unit.COUNT),
    TableColumn("device", "device", Unit.TEXT, is_key_figure=False),
    TableColumn("name", "label", Unit.TEXT),
    TableColumn("phase", "phase", Unit.TEXT),
    TableColumn("start_ns", "after start", Unit.NS, is_key_figure=False),
    TableColumn("span_ns", "span", Unit.NS),
    TableColumn("busy_ns", "busy", Unit.NS),
    TableColumn("idle_share", "idle", Unit.SHARE),
    TableColumn("num_prefill_tokens", "prefill tokens", Unit.COUNT, is_key_figure=False),
    TableColumn("num_decode_requests", "decode requests", Unit.COUNT, is_key_figure=False),
)


def steps_table(analysis: Analysis) -> ShownTable | None:
    """Every step with work on a device, in order; None when the capture marks no steps."""
    step = analysis.capture["step"]
    if step.num_rows == 0:
        return None
    fields = step.select(["name", "phase", "num_prefill_tokens", "num_decode_requests"]).to_pylist()
    rows: list[Sequence[Cell]] = []
    supported = analysis.quality.idle_withheld is None
    origin = min((device.whole.window_start_ns for device in analysis.devices), default=0)
    for device in analysis.devices:
        span = device.spans
        busy = covered(span.start, span.end, device.believable.busy())
        for index in range(span.num_busy):
            own = fields[int(span.step[index])]
            length = int(span.end[index] - span.start[index])
            rows.append(
                (
                    index,
                    device.work.label,
                    own["name"],
                    own["phase"],
                    int(span.start[index]) - origin,
                    length,
                    int(busy[index]),
                    1 - int(busy[index]) / length if length and supported else None,
                    own["num_prefill_tokens"],
                    own["num_decode_requests"],
                )
            )
    if not rows:
        return None
    note = "A step spans its own device work, first start to last end, as launched within it."
    return ShownTable("steps", "Steps", _COLUMNS, rows[:MAX_ROWS], len(rows), note)


def step_funnels(analysis: Analysis) -> list[Funnel]:
    """One funnel for each phase: the steps of that phase, gaps between steps left out."""
    if analysis.quality.idle_withheld is not None:
        return []
    phases = analysis.capture["step"]["phase"].to_pylist()
    totals: dict[str, np.ndarray] = {}
    counts: dict[str, int] = {}
    for device in analysis.devices:
        span = device.spans
        of_step = np.array([phases[row] or "step" for row in span.step.tolist()], object)
        for phase in sorted(set(of_step)):
            mine = of_step == phase
            stretch = union(span.start[mine], span.end[mine])
            totals[phase] = totals.get(phase, np.zeros(6, np.int64)) + _parts(device, stretch)
            counts[phase] = counts.get(phase, 0) + int(mine.sum())
    return [
        _funnel(f"{phase} steps" if phase != "step" else "steps", counts[phase], totals[phase])
        for phase in totals
    ]


def _parts(device: DeviceResult, stretch: Intervals) -> np.ndarray:
    """Wall, compute, memset, exposed communication, exposed copies, busy within a stretch."""
    work = device.believable
    low, high = stretch.start, stretch.end
    within = [
        int(covered(low, high, work.busy(*kinds)).sum())
        for kinds in (
            (COMPUTE,),
            (COMPUTE, MEMSET),
            (COMPUTE, MEMSET, COMMUNICATION),
            (COMPUTE, MEMSET, COMMUNICATION, MEMCPY),
        )
    ]
    steps = np.diff(np.array([0, *within], np.int64))
    return np.array([stretch.total, *steps, within[-1]], np.int64)


def _funnel(title: str, count: int, parts: np.ndarray) -> Funnel:
    wall, compute, memset, communication, memcpy, busy = (int(part) for part in parts)
    rows = [
        FunnelRow("wall", "wall", 0, wall, f"{count:,} step{'s' if count > 1 else ''}"),
        FunnelRow("busy", "busy", 1, busy),
        FunnelRow("compute", "compute", 2, compute),
    ]
    for key, label, duration in (
        ("exposed_communication", "communication, exposed", communication),
        ("exposed_memcpy", "memcpy, exposed", memcpy),
        ("memset", "memset", memset),
    ):
        if duration:
            rows.append(FunnelRow(key, label, 2, duration))
    rows.append(FunnelRow("idle", "idle", 1, wall - busy))
    return Funnel(title, rows)
