"""What the wall consists of along the chain of waits that makes it as long as it is."""

from __future__ import annotations

from collections.abc import Sequence

from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit
from tokenpath.core.units import format_percent
from tokenpath.explain.analyses.contract import Context, Result
from tokenpath.replay.critical_path import UNEXPLAINED, CriticalPath, critical_path

MIN_NOT_COMPUTE = 0.02
"""A device that computes all but this share of its window has its own kernels for a path: nothing to show."""
_COLUMNS = (
    TableColumn("device", "device", Unit.TEXT),
    TableColumn("part", "part", Unit.TEXT),
    TableColumn("duration_ns", "time", Unit.NS),
    TableColumn("share", "share of path", Unit.SHARE),
)


def analyse(context: Context) -> Result:
    """The composition of the longest device's path; nothing where idle time is not supported."""
    analysis = context.analysis
    if analysis.quality.idle_withheld is not None or not analysis.wall_ns:
        return Result()
    compute = sum(device.funnel.split.compute.total for device in analysis.devices)
    if analysis.wall_ns - compute < MIN_NOT_COMPUTE * analysis.wall_ns:
        return Result()
    windows = context.replay.in_windows
    longest = max(windows, key=lambda item: item.window.end_ns - item.window.start_ns)
    path = critical_path(context.capture, context.replay, longest)
    if not path.wall_ns:
        return Result()
    label = next(
        device.work.label for device in analysis.devices if device.work.device_id == path.device_id
    )
    return Result(tables=[_table(path, label)])


def _table(path: CriticalPath, label: str) -> ShownTable:
    rows: list[Sequence[Cell]] = [
        (label, part, duration, duration / path.wall_ns) for part, duration in path.parts_ns.items()
    ]
    through = f", through {path.num_sources} ranks" if path.num_sources > 1 else ""
    held = format_percent(path.parts_ns.get(UNEXPLAINED, 0), path.wall_ns)
    note = (
        f"{len(path.kernels):,} pieces of device work and {len(path.calls):,} calls{through}; "
        f"{held} is delay that no recorded dependency explains."
    )
    return ShownTable("critical_path", "Critical path", _COLUMNS, rows, len(rows), note)
