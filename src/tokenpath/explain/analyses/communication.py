"""Collectives against what their links can do: bandwidth, slow links, messages too small to be worth it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s
from tokenpath.core.costs import COLLECTIVE_OPS, bus_factor
from tokenpath.core.finding import Evidence, Finding, Kind
from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.analyses.collective_model import OPS, one_shot_ns, typical_fixed_ns
from tokenpath.explain.analyses.communication_calls import (
    UNKNOWN,
    Calls,
    Judged,
    find_calls,
    judge,
)
from tokenpath.explain.analyses.communication_messages import small_messages
from tokenpath.explain.analyses.communication_overlap import contention
from tokenpath.explain.analyses.communication_training import late_communication
from tokenpath.explain.analyses.contract import Context, Proposal, Result
from tokenpath.replay.change import with_kernel_times

MIN_SHARE = 0.005
"""Communication below this share of the window is not looked into."""
MIN_WIRE_NS = 5_000
"""Shorter transfers say nothing about a link's rate."""
SLOW_SHARE = 0.5
"""The link is called slow when more than this share of the judged time is in transfers beyond the interval."""
MIN_SLOW = 3
"""Fewer slow transfers than this name no link."""
MAX_ONE_SHOT = 256 << 10
"""All-reduces up to this size may be one kernel that reads all peers (vLLM's and SGLang's custom all-reduce)."""
MIN_STEADY = 8
"""Of one rank alone, so many collectives of a kind ..."""
MAX_STEADY_SPREAD = 1.3
"""... whose 90th percentile is within this factor of the 10th, are taken to hold no waiting for peers."""
MIN_UNKNOWN = 0.05
"""From this share of the window on, time that may be waiting or transfer is spoken of."""
_MAX_ROWS = 5
_MAX_KINDS = 40
_COLUMNS = (
    TableColumn("op", "collective", Unit.TEXT),
    TableColumn("buffer_bytes", "size", Unit.BYTES),
    TableColumn("group_size", "ranks", Unit.COUNT),
    TableColumn("count", "count", Unit.COUNT),
    TableColumn("total_ns", "total", Unit.NS),
    TableColumn("exposed_ns", "exposed", Unit.NS),
    TableColumn("p50_transfer_ns", "transfer p50", Unit.NS),
    TableColumn("expected_low_ns", "expected from", Unit.NS),
    TableColumn("expected_high_ns", "to", Unit.NS),
    TableColumn("bus_bytes_per_s", "bus bandwidth", Unit.PER_S, is_key_figure=False),
    TableColumn("link_share", "of link", Unit.SHARE),
    TableColumn("verdict", "verdict", Unit.TEXT),
)


def analyse(context: Context) -> Result:
    """All claims about communication; nothing without communication kernels."""
    analysis = context.analysis
    calls = find_calls(analysis)
    if calls is None or analysis.wall_ns == 0:
        return Result()
    judged = judge(analysis, calls)
    table = _table(calls, judged)
    if int(calls.length_ns.sum()) < MIN_SHARE * analysis.wall_ns:
        return Result(tables=[table])
    slow = _slow_link(context, calls, judged)
    proposals: list[Proposal] = [] if slow is None else [slow]
    for found in (
        small_messages(context, calls, judged),
        late_communication(context, calls),
        contention(context, calls),
    ):
        proposals += [] if found is None else [found]
    findings = [item.finding for item in proposals]
    if (unknown := _unknown_waiting(context, calls, judged)) is not None:
        findings.append(unknown)
    return Result(findings, [table], proposals=proposals)


def _slow_link(context: Context, calls: Calls, judged: Judged) -> Proposal | None:
    """Transfers far above what the size should take on that link."""
    by_size = judged.is_known & (np.nan_to_num(judged.wire_ns) >= MIN_WIRE_NS)
    by_size &= is_transfer(calls)
    # Beside compute both are slower, which is no property of the link.
    alone = by_size & (2 * calls.exposed_ns >= calls.length_ns)
    by_size = alone if alone.sum() >= MIN_SLOW else by_size
    slow = by_size & (calls.transfer_ns > np.nan_to_num(judged.high_ns))
    time = calls.transfer_ns
    if slow.sum() < MIN_SLOW or time[slow].sum() <= SLOW_SHARE * time[by_size].sum():
        return None
    mine = np.flatnonzero(slow)
    share_exposed = calls.exposed_ns[mine] / np.maximum(calls.length_ns[mine], 1)
    excess = time[mine] - judged.typical_ns[mine]
    sized = int((excess * share_exposed).sum())
    least = int((np.maximum(time[mine] - judged.high_ns[mine], 0) * share_exposed).sum())
    factor = float(time[mine].sum() / judged.typical_ns[mine].sum())
    others, more = _unsized(calls, factor)
    share_others = calls.exposed_ns[others] / np.maximum(calls.length_ns[others], 1)
    unsized = int((more * share_others).sum())
    lost = sized + unsized
    most = int(((time[mine] - judged.low_ns[mine]) * share_exposed).sum()) + unsized
    wall = context.analysis.wall_ns
    peak = judged.peaks[0]
    reached = float(judged.wire_ns[mine].sum() / time[mine].sum())
    sizes = len(np.unique(calls.kind[mine]))
    finding = Finding(
        code="slow-link",
        sentence=(
            f"{len(mine):,} transfers of {sizes} size{'s' if sizes > 1 else ''} take {factor:.1f} times what "
            f"they should: {format_percent(reached, 1)} of {peak.name}'s {peak.bytes_per_s / 1e9:.0f} GB/s; "
            f"{format_duration(lost)} of the excess has no compute beside it ({format_percent(lost, wall)} of "
            "the window)"
        ),
        kind=Kind.COST,
        value=reached,
        unit="share of the link's rate",
        duration_ns=lost,
        share=lost / wall,
        gain_ns=lost,
        gain_method="estimated",
        gain_interval_ns=(least, most),
        status=context.status,
        evidence=(_rows(calls, mine[np.argsort(-excess, kind="stable")]),),
        falsifier="nccl-tests (rccl-tests) between the same ranks reach no more at these sizes",
        fix=(
            "look at the link: NVLink or xGMI errors and lanes, peer-to-peer disabled (NCCL_P2P_DISABLE), "
            "PCIe width, NIC rate and routing; nccl-tests between pairs of ranks find the bad one"
        ),
        details={
            "num_slow": len(mine),
            "num_of_unknown_size": len(others),
            "excess_of_unknown_size_ns": unsized,
            "times_expected": factor,
            "share_of_link": reached,
            "link": peak.name,
            "link_bytes_per_s": peak.bytes_per_s,
        },
        part_of_ns={"exposed-communication": lost},
        confidence=round(min(0.95, 1 - 0.5 / factor), 2),
        effort="hardware",
    )
    # Of a matched collective replay scales the transfer, of another one all that its kernel took.
    mine, excess = np.concatenate((mine, others)), np.concatenate((excess, more))
    measured = np.where(calls.match[mine] == UNKNOWN, calls.length_ns[mine], time[mine])
    shorter = np.maximum(measured - np.maximum(excess, 0).astype(np.int64), 0)
    return Proposal(
        finding,
        lambda: with_kernel_times(
            "collectives at the link's usual rate", calls.kernel[mine], measured, shorter
        ),
    )


def _unsized(calls: Calls, factor: float) -> tuple[Int64s, NDArray[np.float64]]:
    """Transfers of unknown size (inside device graphs nothing is said of them), and what each lost on that link.

    What depends on their size is as much slower as for those of known size; the fixed part and the hops are not.
    """
    is_op = np.array([op in OPS for op in calls.ops])[calls.op]
    rows = np.flatnonzero(
        is_op & (calls.buffer_bytes == UNKNOWN) & (calls.group_size > 1) & is_transfer(calls)
    )
    by_size = np.maximum(calls.transfer_ns[rows] - typical_fixed_ns(calls.group_size[rows]), 0.0)
    return rows, by_size * (1 - 1 / factor)


def is_transfer(calls: Calls) -> NDArray[np.bool_]:
    """Whether `transfer_ns` is known to hold no waiting for peers.

    It does not where several ranks were seen, or where a kind of collective takes equally long each time.
    """
    num = _num(calls)
    order = np.lexsort((calls.length_ns, calls.kind))
    ordered = calls.length_ns[order]
    count = np.bincount(calls.kind, minlength=num)
    first = np.cumsum(count) - count
    low, high = (ordered[first + ((count - 1) * q).astype(np.int64)] for q in (0.1, 0.9))
    steady = (count >= MIN_STEADY) & (high <= MAX_STEADY_SPREAD * low)
    result: NDArray[np.bool_] = (calls.match != UNKNOWN) | steady[calls.kind]
    return result


def _unknown_waiting(context: Context, calls: Calls, judged: Judged) -> Finding | None:
    """Much more than expected, and one rank alone cannot say whether that is the link or its peers."""
    mine = np.flatnonzero(
        judged.is_known & ~is_transfer(calls) & (calls.length_ns > np.nan_to_num(judged.high_ns))
    )
    wall = context.analysis.wall_ns
    share = calls.exposed_ns[mine] / np.maximum(calls.length_ns[mine], 1)
    excess = int(((calls.length_ns[mine] - judged.typical_ns[mine]) * share).sum())
    if excess < MIN_UNKNOWN * wall:
        return None
    factor = float(calls.length_ns[mine].sum() / judged.typical_ns[mine].sum())
    return Finding(
        code="transfer-or-waiting",
        sentence=(
            f"{len(mine):,} collectives take {factor:.1f} times what their sizes need on this link: "
            f"{format_duration(excess)} ({format_percent(excess, wall)} of the window) of waiting for other "
            "ranks or of slow transfer, which this rank alone cannot tell"
        ),
        kind=Kind.ABSTENTION,
        value=factor,
        unit="times the expected time",
        duration_ns=excess,
        share=excess / wall,
        gain_ns=None,
        gain_method=None,
        status=context.status,
        evidence=(_rows(calls, mine[np.argsort(-calls.length_ns[mine], kind="stable")]),),
        falsifier="the traces of all ranks show the same collectives equally long on each",
        fix="record all ranks of the same steps and explain them together",
        details={"num_collectives": len(mine), "times_expected": factor},
    )


def _rows(calls: Calls, worst: Int64s) -> Evidence:
    return Evidence(
        "kernel",
        tuple(calls.kernel[worst[:_MAX_ROWS]].tolist()),
        len(worst),
        "see table collectives",
    )


@dataclass(frozen=True)
class _KindRow:
    total_ns: int
    cells: list[Cell]


def _table(calls: Calls, judged: Judged) -> ShownTable:
    rows = sorted(
        (
            _kind_row(calls, judged, np.flatnonzero(calls.kind == kind))
            for kind in range(_num(calls))
        ),
        key=lambda row: -row.total_ns,
    )
    note = "Transfer: the shortest part over ranks, waiting left out; of one rank alone the lower quartile."
    if judged.why_not:
        note += f" Not judged without {'; '.join(judged.why_not)}."
    return ShownTable(
        "collectives",
        "Collectives by size",
        _COLUMNS,
        [row.cells for row in rows[:_MAX_KINDS]],
        len(rows),
        note,
    )


def _num(calls: Calls) -> int:
    return int(calls.kind.max()) + 1


def _kind_row(calls: Calls, judged: Judged, mine: Int64s) -> _KindRow:
    first = mine[0]
    op, size, ranks = (
        calls.ops[calls.op[first]],
        int(calls.buffer_bytes[first]),
        int(calls.group_size[first]),
    )
    transfer = int(np.median(calls.transfer_ns[mine]))
    low, high, wire = (
        _mean(values[mine]) for values in (judged.low_ns, judged.high_ns, judged.wire_ns)
    )
    name = OPS.get(op)
    bus = None
    if name in COLLECTIVE_OPS and size != UNKNOWN and ranks > 1 and transfer:
        bus = size / transfer * 1e9 * bus_factor(name, ranks)
    verdict = None
    if low is not None and high is not None and wire is not None:
        verdict = "slow" if transfer > high else "fast" if transfer < low else "expected"
        verdict += _faster_way(op, size, ranks, transfer, wire)
    total = int(calls.length_ns[mine].sum())
    return _KindRow(
        total,
        [
            op,
            None if size == UNKNOWN else size,
            None if ranks == UNKNOWN else ranks,
            len(mine),
            total,
            int(calls.exposed_ns[mine].sum()),
            transfer,
            None if low is None else round(low),
            None if high is None else round(high),
            None if bus is None else round(bus),
            wire / transfer if wire is not None and transfer else None,
            verdict,
        ],
    )


def _faster_way(op: str, size: int, ranks: int, transfer: int, wire_ns: float) -> str:
    """For small all-reduces far above what a kernel of its own needs: that."""
    if op != "allreduce" or size > MAX_ONE_SHOT or not wire_ns:
        return ""
    rate = size * min(bus_factor("all_reduce", ranks), 1.0) / wire_ns * 1e9
    one_shot = one_shot_ns(size, ranks, rate)
    return f"; one-shot {format_duration(one_shot)}" if transfer > 2.5 * one_shot else ""


def _mean(values: NDArray[np.float64]) -> float | None:
    return None if np.isnan(values).all() else float(np.nanmean(values))
