"""From all FLOPs that the devices could have done to those that made tokens; every loss in FLOPs, time and money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import clip, difference, union
from tokenpath.core.hardware import Hardware, load_catalogue
from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit
from tokenpath.core.units import format_percent
from tokenpath.explain.analyses.contract import Context, Result
from tokenpath.explain.analyses.flops_funnel_tokens import TokenShares, token_shares
from tokenpath.explain.analyses.kernel_roofline_shapes import MATRIX
from tokenpath.explain.analyses.kernel_roofline_work import Group, kernel_groups
from tokenpath.explain.analyses.precision import dtype_of
from tokenpath.explain.analysis import DeviceResult
from tokenpath.explain.work import COMPUTE

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class Stage:
    """One part of the funnel."""

    key: str
    """Stable key."""
    label: str
    """What a person reads."""
    meaning: str
    """What belongs to it: the definition of docs/glossary.md."""


PEAK = Stage(
    "peak", "peak x time", "every device from the first start to the last end of all windows"
)
LOSSES = (
    Stage("outside", "device outside its window", "of that: before a device's window began, after it ended"),
    Stage("idle", "device idle", "no work on the device"),
    Stage("other_work", "other work", "busy, but no matrix kernel runs: products, convolutions, attention"),
    Stage("unknown", "matrix kernels of unknown shapes", "FLOPs unknown: no shapes, or no peak for their type"),
    Stage("above_roofline", "slower than their roofline", "time above the larger of FLOPs / peak and bytes / rate"),
    Stage("memory", "waiting for memory", "bytes / rate above FLOPs / peak, at the roofline"),
    Stage("slower_type", "slower number type", "FLOPs / peak of their type above FLOPs / peak of the fastest type used"),
    Stage("draft", "draft model", "matrix kernels launched within a range that is called draft"),
    Stage("padding", "padding", "rows of padded batches without a request"),
    Stage("recompute", "computed again", "prompt tokens that had been computed before a preemption"),
    Stage("rejected", "rejected speculation", "tokens computed for drafts that were not accepted"),
)  # fmt: skip
USEFUL = Stage("useful", "useful tokens", "what is left: FLOPs of matrix kernels that made tokens")
STAGES = (PEAK, *LOSSES, USEFUL)
"""The whole, its losses in order, and what is left; losses and rest add up to the whole exactly."""

MIN_TYPE_SHARE = 0.05
"""A number type with less of the known FLOPs does not set the peak."""
MAX_DEVICES = 16
"""Devices shown one by one below the sum."""

_COLUMNS = (
    TableColumn("device", "device", Unit.TEXT),
    TableColumn("part", "part", Unit.TEXT),
    TableColumn("duration_ns", "time", Unit.NS),
    TableColumn("share", "share", Unit.SHARE),
    TableColumn("peak_flops", "FLOPs at peak", Unit.NUMBER),
)
_USD = TableColumn("usd_per_hour", "$ an hour", Unit.NUMBER)
_UTILISATION = (
    TableColumn("device", "device", Unit.TEXT),
    TableColumn("mfu_share", "MFU", Unit.SHARE),
    TableColumn("mbu_share", "MBU", Unit.SHARE),
    TableColumn("known_share", "known", Unit.SHARE),
    TableColumn("flops", "FLOPs", Unit.NUMBER),
    TableColumn("bytes", "bytes", Unit.BYTES),
    TableColumn("dtype", "type", Unit.TEXT),
    TableColumn("peak_flops_per_s", "peak FLOP/s", Unit.NUMBER, is_key_figure=False),
)


@dataclass(frozen=True)
class DeviceFlops:
    """The funnel of one device."""

    label: str
    """Device label."""
    level_ns: Int64s
    """What is left after each loss, `len(LOSSES) + 1` numbers that never grow."""
    peak: float
    """Dense FLOPs per second of the fastest type used."""
    dtype: str
    """That type."""
    flops: float
    """Known FLOPs of matrix kernels."""
    bytes: float
    """Known bytes of all kernels."""
    rate: float
    """Bytes per second of the memory."""
    matrix_ns: int
    """Time of matrix kernels."""
    known_ns: int
    """Of that: FLOPs known."""

    @property
    def level_flops(self) -> list[int]:
        """The levels in FLOPs at peak, whole numbers."""
        return [round(int(level) * self.peak / 1e9) for level in self.level_ns]


def analyse(context: Context) -> Result:
    """Tables `flops_funnel` and `utilisation`; nothing for parts without a known peak."""
    shares = token_shares(context.analysis.capture, context.analysis)
    devices = measure_flops(context, shares)
    if not devices:
        return Result()
    price = context.options.usd_per_gpu_hour
    rows = _rows("all", devices, price, shares.unknown) if len(devices) > 1 else []
    for device in devices[:MAX_DEVICES]:
        rows += _rows(device.label, [device], price, shares.unknown)
    matrix = sum(device.matrix_ns for device in devices)
    known = sum(device.known_ns for device in devices)
    note = (
        f"FLOPs are known for {format_percent(known, matrix)} of the time of matrix kernels; the rest stands in a "
        "row of its own, so useful is a lower bound. FLOPs at peak = time x dense peak of the fastest type used. "
        "Attention is counted without a mask where its shapes alone are known."
    )
    columns = (*_COLUMNS, _USD) if price is not None else _COLUMNS
    count = (len(STAGES) - len(shares.unknown)) * (len(devices) + (len(devices) > 1))
    if shares.unknown:
        labels = [stage.label for stage in LOSSES if stage.key in shares.unknown]
        note += f" Not recorded, and part of useful: {', '.join(labels)}."
    return Result(
        tables=[
            ShownTable("flops_funnel", "Where the FLOPs went", columns, rows, count, note),
            _utilisation(devices),
        ]
    )


def measure_flops(context: Context, shares: TokenShares) -> list[DeviceFlops]:
    """The funnel of every device whose part has a known peak."""
    analysis = context.analysis
    capture = analysis.capture
    parts = []
    for number, device in enumerate(analysis.devices):
        key = capture["device"]["hardware"][device.work.device_id].as_py()
        if key is not None and key in load_catalogue() and device.work.span_ns > 0:
            parts.append((number, device, load_catalogue()[key]))
    if not parts:
        return []
    groups = kernel_groups(analysis)
    low = min(device.work.window_start_ns for _, device, _ in parts)
    high = max(device.work.window_end_ns for _, device, _ in parts)
    found = []
    for number, device, hardware in parts:
        mine = [group for group in groups if group.device == number]
        found.append(
            _measure(device, hardware, mine, shares, high - low, capture.num_rows("kernel"))
        )
    return found


def _measure(
    device: DeviceResult,
    hardware: Hardware,
    groups: Sequence[Group],
    shares: TokenShares,
    whole_ns: int,
    num_kernels: int,
) -> DeviceFlops:
    matrix = [group for group in groups if group.family in MATRIX]
    known = [(group, own) for group in matrix if (own := _peak(group, hardware)) is not None]
    dtype, peak = _fastest(known, hardware)
    flops = sum((group.flops or 0.0) * group.count for group, _ in known)
    moved = sum((group.bytes or 0.0) * group.count for group in groups if group.bytes is not None)
    is_known = np.zeros(num_kernels, bool)
    for group, _ in known:
        is_known[group.rows] = True
    work, split = device.work, device.funnel.split
    chosen = (work.kind == COMPUTE) & np.isin(
        work.family, [at for at, name in enumerate(work.families) if name in MATRIX]
    )
    start, end = clip(work.start, work.end, work.window_start_ns, work.window_end_ns)
    run = union(start[chosen], end[chosen])
    unknown = chosen & ~is_known[work.row]
    # Time under both belongs to the unknown ones: nobody knows which of them made it last.
    run_known = difference(run, union(start[unknown], end[unknown]))
    compute = memory = fastest = 0.0
    for group, own in known:
        arithmetic = (group.flops or 0.0) * group.count / own * 1e9
        compute += arithmetic
        memory += max(
            arithmetic, (group.bytes or 0.0) * group.count / hardware.memory_bytes_per_s * 1e9
        )
        fastest += (group.flops or 0.0) * group.count / peak * 1e9
    # Data in caches and masked attention can look faster than possible: a level is never above the one before.
    fit = min(1.0, run_known.total / memory) if memory else 0.0
    useful = fastest * fit
    drafted = sum((g.flops or 0.0) * float(shares.is_draft[g.rows].sum()) for g, _ in known)
    lost = (drafted / flops if flops else 0.0, shares.padding, shares.recompute, shares.rejected)
    left = useful * np.cumprod([1 - share for share in lost])
    levels = [
        whole_ns, work.span_ns, split.busy_ns, run.total, run_known.total,
        memory * fit, compute * fit, useful,
        *left,
    ]  # fmt: skip
    whole = np.minimum.accumulate(np.array([int(level) for level in levels], np.int64))
    return DeviceFlops(
        work.label, whole, peak, dtype, flops, moved, hardware.memory_bytes_per_s,
        run.total, run_known.total,
    )  # fmt: skip


def _peak(group: Group, hardware: Hardware) -> float | None:
    """The peak of the type that a group computes in; None without FLOPs or without that peak."""
    kind = dtype_of(group)
    return None if group.flops is None or kind is None else hardware.peak(kind)


def _fastest(known: Sequence[tuple[Group, float]], hardware: Hardware) -> tuple[str, float]:
    """The fastest type that does a share of the FLOPs worth naming; 16 bits where nothing is known."""
    total = sum((group.flops or 0.0) * group.count for group, _ in known)
    by_type: dict[str, float] = {}
    for group, _ in known:
        kind = dtype_of(group) or "bf16"
        by_type[kind] = by_type.get(kind, 0.0) + (group.flops or 0.0) * group.count
    used = [
        (hardware.peak(kind) or 0.0, kind)
        for kind, flops in by_type.items()
        if flops >= MIN_TYPE_SHARE * total
    ]
    if used and max(used)[0] > 0:
        peak, kind = max(used)
        return kind, peak
    for kind in ("bf16", "fp16", "fp32"):
        stated = hardware.peak(kind)
        if stated is not None:
            return kind, stated
    return max(hardware.peak_flops.items(), key=lambda item: item[1])


def _rows(
    label: str, devices: Sequence[DeviceFlops], price: float | None, unknown: Sequence[str]
) -> list[Sequence[Cell]]:
    """Whole, losses and rest of some devices together; losses and rest add up to the whole."""
    levels = np.sum([device.level_ns for device in devices], axis=0)
    flops = [sum(parts) for parts in zip(*(d.level_flops for d in devices), strict=True)]
    whole = int(levels[0])
    values = [(whole, flops[0])]
    values += [
        (int(levels[at] - levels[at + 1]), flops[at] - flops[at + 1]) for at in range(len(LOSSES))
    ]
    values.append((int(levels[-1]), flops[-1]))
    rows: list[Sequence[Cell]] = []
    for stage, (duration, number) in zip(STAGES, values, strict=True):
        if stage.key in unknown:
            continue
        row: tuple[Cell, ...] = (label, stage.label, duration, duration / whole, number)
        rows.append(row if price is None else (*row, duration / whole * price * len(devices)))
    return rows


def _utilisation(devices: Sequence[DeviceFlops]) -> ShownTable:
    rows: list[Sequence[Cell]] = []
    for device in devices[:MAX_DEVICES]:
        seconds = int(device.level_ns[1]) / 1e9
        rows.append(
            (
                device.label,
                device.flops / (device.peak * seconds) if device.flops else None,
                device.bytes / (device.rate * seconds) if device.bytes else None,
                device.known_ns / device.matrix_ns if device.matrix_ns else None,
                device.flops or None,
                int(device.bytes) or None,
                device.dtype,
                device.peak,
            )
        )
    note = "Shares of the dense peak and of the memory rate over the window; lower bounds where work is unknown."
    return ShownTable("utilisation", "MFU and MBU", _UTILISATION, rows, len(devices), note)
