"""Every piece of communication in the windows, with what is known of it: size, group, transfer, exposure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID
from tokenpath.capture.intervals import Int64s, covered
from tokenpath.explain.analyses.collective_model import Expected, Peak, expected, peak_of
from tokenpath.explain.analysis import Analysis
from tokenpath.explain.work import COMMUNICATION, COMPUTE, MEMSET
from tokenpath.stitch.collectives import op_of_kernel

UNKNOWN = -1
_LOW_QUANTILE = 0.25


@dataclass(frozen=True)
class Calls:
    """Communication kernels of all devices, by device and start."""

    device: Int64s
    """Position among the devices of the analysis."""
    kernel: Int64s
    """Row of `kernel`."""
    start: Int64s
    """Start on the device's clock."""
    end: Int64s
    """End."""
    stream: Int64s
    """Stream."""
    op: Int64s
    """Index into `ops`."""
    ops: Sequence[str]
    """Operations as in table `collective`."""
    buffer_bytes: Int64s
    """The whole buffer of a rank; UNKNOWN where not recorded."""
    group_size: Int64s
    """Ranks that take part; UNKNOWN."""
    match: Int64s
    """Number of the collective across ranks; UNKNOWN."""
    transfer_ns: Int64s
    """What it took once all had arrived: the shortest part over ranks; for a rank alone a low quantile of
    its like, at most its own time."""
    exposed_ns: Int64s
    """Time with no compute beside it."""
    kind: Int64s
    """Number of the operation, size and group: equal for collectives that should take equally long."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length_ns(self) -> Int64s:
        """Durations."""
        result: Int64s = self.end - self.start
        return result


def find_calls(analysis: Analysis) -> Calls | None:
    """All communication in the windows; None when there is none."""
    columns: list[tuple[Int64s, ...]] = []
    for number, device in enumerate(analysis.devices):
        work = device.work
        rows = np.flatnonzero((work.kind == COMMUNICATION) & work.in_window())
        if len(rows) == 0:
            continue
        start, end = work.start[rows], work.end[rows]
        alone = (end - start) - covered(start, end, work.busy(COMPUTE, MEMSET))
        columns.append(
            (
                np.full(len(rows), number),
                work.row[rows].astype(np.int64),
                start,
                end,
                work.stream[rows],
                alone,
            )
        )
    if not columns:
        return None
    device_of, kernel, start, end, stream, exposed = (
        np.concatenate(part) for part in zip(*columns, strict=True)
    )
    said = _what_is_said(analysis, kernel)
    keys = np.stack((said.op, said.buffer_bytes, said.group_size))
    _, kind = np.unique(keys, axis=1, return_inverse=True)
    kind = kind.reshape(-1)
    transfer = _transfers(end - start, said.match, kind)
    return Calls(
        device_of, kernel, start, end, stream, said.op, said.ops, said.buffer_bytes,
        said.group_size, said.match, transfer, exposed, kind,
    )  # fmt: skip


@dataclass(frozen=True)
class _Said:
    op: Int64s
    ops: Sequence[str]
    buffer_bytes: Int64s
    group_size: Int64s
    match: Int64s


def _what_is_said(analysis: Analysis, kernel: Int64s) -> _Said:
    """What table `collective` says of each kernel; the name of the kernel where it says nothing."""
    capture = analysis.capture
    row_of = np.full(capture.num_rows("kernel"), NO_ID, np.int64)
    of_row = capture.ids("collective", "kernel_id")
    known = np.flatnonzero(of_row >= 0)
    row_of[of_row[known]] = known
    row = row_of[kernel]
    there = row >= 0

    def take(column: str) -> Int64s:
        values = capture.int64("collective", column, UNKNOWN)
        return np.where(there, values[np.maximum(row, 0)] if len(values) else UNKNOWN, UNKNOWN)

    codes, texts = capture.codes("kernel", "name")
    ops: dict[str, int] = {}
    of_name = np.zeros(len(texts), np.int64)
    for code in np.unique(codes[kernel]).tolist():
        of_name[code] = ops.setdefault(op_of_kernel(texts[code]), len(ops))
    op = of_name[codes[kernel]]
    said, words = capture.codes("collective", "op")
    if len(said):
        number = np.array([ops.setdefault(word, len(ops)) for word in words], np.int64)
        op = np.where(there, number[said[np.maximum(row, 0)]], op)
    names = list(ops)
    payload, output, size = take("payload_bytes"), take("output_bytes"), take("group_size")
    size = np.where(size > 0, size, _sizes_of_sets(take("match")))
    is_gather = np.array([name == "allgather" for name in names])[op]
    whole = np.where(output > 0, output, np.where(size > 0, payload * size, UNKNOWN))
    buffer = np.where(is_gather & (payload > 0), whole, payload)
    return _Said(op, names, np.where(buffer > 0, buffer, UNKNOWN), size, take("match"))


def _sizes_of_sets(match: Int64s) -> Int64s:
    """How many parts each matched collective has; UNKNOWN for the others."""
    values, which = np.unique(match, return_inverse=True)
    count = np.bincount(which, minlength=len(values))
    return np.where(match == UNKNOWN, UNKNOWN, count[which])


def _transfers(length: Int64s, match: Int64s, kind: Int64s) -> Int64s:
    transfer = length.copy()
    known = np.flatnonzero(match != UNKNOWN)
    if len(known):
        values, which = np.unique(match[known], return_inverse=True)
        least = np.full(len(values), np.iinfo(np.int64).max)
        np.minimum.at(least, which, length[known])
        transfer[known] = least[which]
    alone = np.flatnonzero(match == UNKNOWN)
    if len(alone):
        order = alone[np.lexsort((length[alone], kind[alone]))]
        first = np.flatnonzero(np.diff(kind[order], prepend=-1))
        count = np.diff(np.append(first, len(order)))
        low = length[order][first + ((count - 1) * _LOW_QUANTILE).astype(np.int64)]
        transfer[order] = np.minimum(length[order], np.repeat(low, count))
    return transfer


@dataclass(frozen=True)
class Judged:
    """What each collective should have taken; NaN where that cannot be told."""

    low_ns: NDArray[np.float64]
    """At best."""
    typical_ns: NDArray[np.float64]
    """Typically."""
    high_ns: NDArray[np.float64]
    """At worst on a healthy link."""
    wire_ns: NDArray[np.float64]
    """Its bytes at the link's full rate."""
    peaks: Sequence[Peak]
    """The links that were looked at."""
    why_not: Sequence[str]
    """What is missing for those that cannot be told."""

    @property
    def is_known(self) -> NDArray[np.bool_]:
        """Which are judged."""
        result: NDArray[np.bool_] = ~np.isnan(self.typical_ns)
        return result


def judge(analysis: Analysis, calls: Calls) -> Judged:
    """Hold every collective against the alpha-beta model of its device's link."""
    hardware = analysis.capture["device"]["hardware"].to_pylist()
    names = np.array([str(hardware[d.work.device_id] or "") for d in analysis.devices], object)
    columns = np.full((4, len(calls)), np.nan)
    peaks: dict[str, Peak] = {}
    missing: dict[str, None] = {}
    pair = calls.kind * len(names) + calls.device
    for key in np.unique(pair).tolist():
        mine = np.flatnonzero(pair == key)
        first = mine[0]
        size, ranks = int(calls.buffer_bytes[first]), int(calls.group_size[first])
        if size == UNKNOWN or ranks == UNKNOWN:
            missing["sizes or groups of collectives (NCCL metadata of the profiler)"] = None
            continue
        peak = peak_of(names[calls.device[first]] or None, ranks)
        if peak is None:
            missing["the rate of the link: device unknown, or the group leaves the server"] = None
            continue
        peaks[peak.name] = peak
        model: Expected | None = expected(
            calls.ops[calls.op[first]], size, ranks, peak.bytes_per_s, peak.has_switch
        )
        if model is not None:
            values = (model.low_ns, model.typical_ns, model.high_ns, model.wire_ns)
            columns[:, mine] = np.array(values)[:, None]
    low, typical, high, wire = columns
    return Judged(low, typical, high, wire, tuple(peaks.values()), tuple(missing))
