"""Utilisation funnel: wall -> busy -> compute by family, communication, copies -> idle by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenpath.capture.intervals import Intervals, clip, difference, union
from tokenpath.core.report import Funnel, FunnelRow
from tokenpath.core.units import format_duration
from tokenpath.explain.causes import CAUSES, HOST_NOT_READY, CauseTotals
from tokenpath.explain.work import COMPUTE, BusySplit, DeviceWork


@dataclass(frozen=True)
class DeviceFunnel:
    """What the funnel of one device is made of, in nanoseconds."""

    split: BusySplit
    """The window, each nanosecond in one part."""
    family_ns: Counter[str]
    """Compute time by family, each nanosecond in one; adds up to `split.compute`."""


def measure(work: DeviceWork, split: BusySplit) -> DeviceFunnel:
    """Split the compute time of a device by family.

    Where kernels of several families run at once, the family with the most time in all has the
    nanosecond; so the parts add up to the compute time and not to more.
    """
    chosen = work.kind == COMPUTE
    start, end = clip(
        work.start[chosen], work.end[chosen], work.window_start_ns, work.window_end_ns
    )
    family = work.family[chosen]
    unions = {code: union(start[family == code], end[family == code]) for code in np.unique(family)}
    largest_first = sorted(unions, key=lambda code: (-unions[code].total, work.families[code]))
    family_ns: Counter[str] = Counter()
    taken: list[Intervals] = []
    for code in largest_first:
        free = unions[code]
        if taken:
            free = difference(free, taken[-1])
        family_ns[work.families[code]] = free.total
        before = taken[-1] if taken else Intervals(start[:0], end[:0])
        taken.append(
            union(
                np.concatenate((before.start, free.start)), np.concatenate((before.end, free.end))
            )
        )
    return DeviceFunnel(split, family_ns)


def build_funnel(
    title: str,
    parts: Sequence[DeviceFunnel],
    causes: CauseTotals | None,
    withheld: str | None = None,
) -> Funnel:
    """The funnel summed over devices; without `causes` idle time has no parts.

    `withheld` is the reason why idle time is not explained.
    """
    wall = sum(part.split.wall_ns for part in parts)
    busy = sum(part.split.busy_ns for part in parts)
    families: Counter[str] = Counter()
    for part in parts:
        families.update(part.family_ns)
    compute = sum(part.split.compute.total for part in parts)
    memset = sum(part.split.memset.total for part in parts)
    communication = sum(part.split.communication_ns for part in parts)
    exposed_communication = sum(part.split.exposed_communication.total for part in parts)
    memcpy = sum(part.split.memcpy_ns for part in parts)
    exposed_memcpy = sum(part.split.exposed_memcpy.total for part in parts)

    rows = [FunnelRow("wall", "wall", 0, wall), FunnelRow("busy", "busy", 1, busy)]
    rows.append(FunnelRow("compute", "compute", 2, compute))
    for family, duration in sorted(families.items(), key=lambda item: (-item[1], item[0])):
        rows.append(FunnelRow(family, family.replace("_", " "), 3, duration))
    for key, label, exposed, total in (
        ("communication", "communication, exposed", exposed_communication, communication),
        ("memcpy", "memcpy, exposed", exposed_memcpy, memcpy),
    ):
        if total:
            note = f"of {format_duration(total)} in all"
            rows.append(FunnelRow(f"exposed_{key}", label, 2, exposed, note))
    if memset:
        rows.append(FunnelRow("memset", "memset", 2, memset))
    rows.append(FunnelRow("idle", "idle", 1, wall - busy, withheld))
    if causes is not None and wall > busy:
        rows += idle_rows(causes)
    return Funnel(title, rows)


def idle_rows(causes: CauseTotals) -> list[FunnelRow]:
    """The idle time by cause; the host's causes stand under one line."""
    host: list[FunnelRow] = []
    other: list[FunnelRow] = []
    for cause in CAUSES:
        duration = causes.idle_ns[cause.key]
        if duration == 0 and cause.key != "unattributed":
            continue
        note = None
        if count := causes.num_gaps[cause.key]:
            note = f"in {count:,} gap{'s' if count > 1 else ''}"
            if count > 2:
                note += f", p50 {format_duration(causes.p50_ns[cause.key])}"
            if causes.top_detail[cause.key]:
                note += f", {causes.top_detail[cause.key]}"
        is_host = cause in HOST_NOT_READY
        row = FunnelRow(cause.key, cause.label, 3 if is_host else 2, duration, note)
        (host if is_host else other).append(row)
    total = sum(row.duration_ns for row in host)
    rows = []
    if host:
        count = sum(causes.num_gaps[cause.key] for cause in HOST_NOT_READY)
        note = f"in {count:,} gap{'s' if count > 1 else ''}"
        rows.append(FunnelRow("host_not_ready", "host not ready", 2, total, note))
        rows += sorted(host, key=lambda row: -row.duration_ns)
    unattributed = [row for row in other if row.key == "unattributed"]
    rest = [row for row in other if row.key != "unattributed"]
    return rows + sorted(rest, key=lambda row: -row.duration_ns) + unattributed
