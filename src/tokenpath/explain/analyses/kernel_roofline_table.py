"""The table of kernels against their roofline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit
from tokenpath.core.units import format_percent
from tokenpath.explain.analyses.kernel_roofline_attainable import limiter
from tokenpath.explain.analyses.kernel_roofline_launch import Residency, limits_of, residency, waves
from tokenpath.explain.analyses.kernel_roofline_work import Group

MAX_ROWS = 60
"""Rows of the table."""

_COLUMNS = (
    TableColumn("name", "kernel", Unit.TEXT),
    TableColumn("family", "family", Unit.TEXT),
    TableColumn("device", "device", Unit.TEXT, is_key_figure=False),
    TableColumn("count", "count", Unit.COUNT),
    TableColumn("total_ns", "total", Unit.NS),
    TableColumn("quiet_ns", "undisturbed", Unit.NS, is_key_figure=False),
    TableColumn("attainable_ns", "attainable", Unit.NS),
    TableColumn("headroom_ns", "headroom", Unit.NS),
    TableColumn("limiter", "limiter", Unit.TEXT),
    TableColumn("compute_share", "of peak FLOP/s", Unit.SHARE),
    TableColumn("memory_share", "of peak bytes/s", Unit.SHARE),
    TableColumn("flops", "FLOPs", Unit.NUMBER, is_key_figure=False),
    TableColumn("bytes", "bytes", Unit.BYTES, is_key_figure=False),
    TableColumn("dtype", "type", Unit.TEXT, is_key_figure=False),
    TableColumn("waves", "waves", Unit.NUMBER, is_key_figure=False),
    TableColumn("occupancy_share", "occupancy limit", Unit.SHARE, is_key_figure=False),
    TableColumn("shape", "batch, m, n, k", Unit.TEXT, is_key_figure=False),
)


def residency_of(group: Group) -> Residency | None:
    """How many of its blocks fit on a multiprocessor; None where the trace or the part does not tell."""
    limits = limits_of(None if group.hardware is None else group.hardware.key)
    if limits is None or group.block is None:
        return None
    return residency(limits, int(np.prod(group.block)), group.registers, group.shared_bytes)


def roofline_table(
    groups: Sequence[Group], attainable: Sequence[float | None], labels: Sequence[str]
) -> ShownTable:
    """Kernels with known work first by headroom, then the others by time."""
    order = sorted(
        range(len(groups)),
        key=lambda at: (
            -_headroom(groups[at], attainable[at]),
            -groups[at].total_ns,
            groups[at].name,
            groups[at].device,
            str(groups[at].grid),
        ),
    )
    rows = [_row(groups[at], attainable[at], labels) for at in order[:MAX_ROWS]]
    known = sum(
        g.total_ns for g, value in zip(groups, attainable, strict=True) if value is not None
    )
    total = sum(group.total_ns for group in groups)
    note = (
        f"FLOPs and bytes are known for {format_percent(known, total)} of the kernels' time. Attainable is a "
        "fraction of peak (docs: slow-kernel), headroom the time above it, never below zero."
    )
    return ShownTable(
        "kernel_roofline",
        "Kernels against their roofline",
        _COLUMNS,
        rows[:MAX_ROWS],
        len(rows),
        note,
    )


def _headroom(group: Group, attainable: float | None) -> int:
    if attainable is None:
        return 0
    return int(max(0.0, group.quiet_ns - attainable) * group.count)


def _row(group: Group, attainable: float | None, labels: Sequence[str]) -> Sequence[Cell]:
    room, hardware, op = residency_of(group), group.hardware, group.op
    rounds = (
        waves(group.num_blocks, group.num_sms, room.blocks).waves
        if room is not None and group.num_sms and group.num_blocks
        else None
    )
    dtype = op.dtype if op is not None else None
    peak = hardware.peak(dtype) if hardware is not None and dtype is not None else None
    seconds = group.quiet_ns / 1e9
    headroom = (
        None if attainable is None else int(max(0.0, group.quiet_ns - attainable) * group.count)
    )
    return (
        group.name,
        group.family,
        labels[group.device],
        group.count,
        group.total_ns,
        group.quiet_ns,
        None if attainable is None else round(attainable),
        headroom,
        limiter(group),
        group.flops / peak / seconds if peak and group.flops and seconds else None,
        group.bytes / hardware.memory_bytes_per_s / seconds
        if hardware is not None and group.bytes and seconds
        else None,
        group.flops,
        None if group.bytes is None else int(group.bytes),
        dtype,
        rounds,
        None if room is None else room.occupancy,
        None if op is None or op.tiles is None else " x ".join(str(size) for size in op.tiles),
    )
