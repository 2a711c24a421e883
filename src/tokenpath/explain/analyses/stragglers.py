"""Ranks against each other: who is waited for in collectives, and whether host, device or load is why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenpath.capture.intervals import Int64s, covered, union
from tokenpath.core.finding import Evidence, Finding, Kind
from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit
from tokenpath.core.stats_bootstrap import bootstrap_interval
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.analyses.contract import Context, Result
from tokenpath.explain.analyses.stragglers_arrivals import (
    NO_CAUSE,
    Arrivals,
    causes,
    find_arrivals,
    median_of_others,
    rank_of,
)
from tokenpath.explain.analyses.stragglers_kernels import AgainstOthers, against_others
from tokenpath.explain.analysis import Analysis
from tokenpath.explain.causes import CAUSE_NUMBER
from tokenpath.explain.findings import IDLE_CODES

MIN_SHARE = 0.005
"""Waiting below this share of the window is not looked into."""
MIN_DOMINANCE = 0.2
"""A rank is named when it causes this much more of all waiting than the typical other rank does ..."""
SURE_DOMINANCE = 0.5
"""... and that in stretch after stretch, or this much more of it."""
MIN_SLOWDOWN = 1.02
"""A device is called slow when equal work takes it at least so much longer than the others."""
MIN_UNIFORM = 0.75
"""Of a slow device's slow families so much of the time is in kernels that all are slower; of a fuller rank's less."""
MIN_UNMATCHED = 0.05
"""From this share of the window on, communication that cannot be matched is spoken of."""
_NUM_BLOCKS = 20
_MAX_ROWS = 5
_COLUMNS = (
    TableColumn("rank", "rank", Unit.TEXT),
    TableColumn("caused_ns", "others waited for it", Unit.NS),
    TableColumn("waited_ns", "it waited", Unit.NS),
    TableColumn("num_caused", "collectives it held up", Unit.COUNT),
    TableColumn("idle_excess_ns", "late, device idle", Unit.NS),
    TableColumn("busy_excess_ns", "late, device busy", Unit.NS),
    TableColumn("slowdown", "equal work", Unit.NUMBER),
    TableColumn("compute_excess_ns", "more compute", Unit.NS, is_key_figure=False),
)


@dataclass(frozen=True)
class _Blame:
    """What one device made the others wait, and why it was late."""

    device: int
    """Position among the devices of the analysis."""
    caused_ns: int
    """Exposed waiting of the others that goes back to it."""
    net_ns: int
    """The same over what the typical other device causes."""
    collectives: Int64s
    """Collectives that it held up."""
    parts: Int64s
    """Its parts in which it was late of its own accord."""
    idle_excess_ns: int
    """How much longer its device was idle before those than the others' were."""
    busy_excess_ns: int
    """How much longer its device computed before those."""

    @property
    def own_ns(self) -> int:
        """Its own lateness: what it would gain itself."""
        return self.idle_excess_ns + self.busy_excess_ns


def analyse(context: Context) -> Result:
    """Stragglers, slow devices and uneven loads; nothing where fewer than two ranks share collectives."""
    analysis = context.analysis
    arrivals = find_arrivals(analysis)
    if arrivals is None:
        unmatched = _unmatched(context)
        return Result([] if unmatched is None else [unmatched])
    exposed = int(arrivals.exposed_ns.sum())
    cause = causes(arrivals)
    blames = _blames(arrivals, cause, len(analysis.devices))
    if exposed < MIN_SHARE * analysis.wall_ns:
        return Result(tables=[_table(analysis, arrivals, blames, None)])
    kernels = against_others(analysis, arrivals)
    total = sum(blame.caused_ns for blame in blames)
    findings = [
        _finding(context, arrivals, cause, blame, kernels[blame.device], total)
        for blame in blames
        if blame.net_ns > MIN_DOMINANCE * total
        and blame.net_ns + blame.own_ns >= MIN_SHARE * analysis.wall_ns
    ]
    findings = [
        finding
        for finding in findings
        if (finding.gain_interval_ns or (0, 0))[0] > 0
        or finding.part_of_ns["exposed-communication"] >= SURE_DOMINANCE * total
    ]
    return Result(findings=findings, tables=[_table(analysis, arrivals, blames, kernels)])


def _unmatched(context: Context) -> Finding | None:
    """Several ranks communicate and none of it could be matched: nobody can say who waits for whom."""
    analysis = context.analysis
    sources = analysis.capture.ids("device", "source_id")
    talking = [d for d in analysis.devices if d.funnel.split.communication_ns]
    exposed = sum(d.funnel.split.exposed_communication.total for d in talking)
    ranks = {int(sources[d.work.device_id]) for d in talking}
    if len(ranks) < 2 or exposed < MIN_UNMATCHED * analysis.wall_ns:
        return None
    return Finding(
        code="unmatched-collectives",
        sentence=(
            f"{format_duration(exposed)} of communication without compute beside it on {len(ranks)} ranks "
            f"({format_percent(exposed, analysis.wall_ns)} of the window), and no collective could be matched "
            "across them: who waits for whom cannot be told"
        ),
        kind=Kind.ABSTENTION,
        value=exposed / analysis.wall_ns,
        unit="share of the window",
        duration_ns=exposed,
        share=exposed / analysis.wall_ns,
        gain_ns=None,
        gain_method=None,
        status=context.status,
        falsifier="the ranks belong to different jobs, or to replicas that share no collective",
        fix=(
            "record the same steps on all ranks, with collective metadata (NCCL's sequence numbers, PyTorch "
            "2.6 and later), so that parts of one collective can be told"
        ),
        details={"num_ranks": len(ranks)},
    )


def _blames(arrivals: Arrivals, cause: Int64s, num_devices: int) -> list[_Blame]:
    num = arrivals.num_collectives
    loss = np.bincount(arrivals.collective, arrivals.exposed_ns, num).astype(np.int64)
    device = np.where(cause == NO_CAUSE, -1, arrivals.device[np.maximum(cause, 0)])
    known = device >= 0
    caused = np.bincount(device[known], loss[known], num_devices).astype(np.int64)
    usual = median_of_others(np.zeros(num_devices, np.int64), caused, 1)
    own, busy = arrivals.own_ns, arrivals.busy_ns
    idle_excess = (own - busy) - median_of_others(arrivals.collective, own - busy, num)
    busy_excess = busy - median_of_others(arrivals.collective, busy, num)
    found = []
    for number in range(num_devices):
        mine = np.flatnonzero(device == number)
        parts = np.unique(cause[mine])
        found.append(
            _Blame(
                number,
                int(caused[number]),
                int(max(caused[number] - usual[number], 0)),
                mine,
                parts,
                max(int(idle_excess[parts].sum()), 0),
                max(int(busy_excess[parts].sum()), 0),
            )
        )
    return found


def _finding(
    context: Context,
    arrivals: Arrivals,
    cause: Int64s,
    blame: _Blame,
    kernels: AgainstOthers,
    total_ns: int,
) -> Finding:
    analysis = context.analysis
    is_host = blame.idle_excess_ns >= blame.busy_excess_ns
    code = "straggler" if is_host else "slow-device" if _is_slow(kernels) else "rank-imbalance"
    name = _name(analysis, blame.device)
    share = blame.net_ns / blame.caused_ns
    own = round(blame.own_ns * share)
    duration = blame.net_ns + own
    low, high = _interval(arrivals, cause, blame.device, duration)
    waited = format_duration(blame.net_ns)
    of_window = format_percent(duration, analysis.wall_ns)
    place = {"device": analysis.devices[blame.device].work.label}
    rank = rank_of(analysis, analysis.devices[blame.device])
    if rank is not None:
        place["rank"] = str(rank)
    if code == "straggler":
        late = format_duration(blame.own_ns / max(len(blame.parts), 1))
        sentence = (
            f"{name} comes late to {len(blame.parts):,} of {arrivals.num_collectives:,} collectives, by "
            f"{late} each, its device idle before them: the others wait {waited} for its host "
            f"({of_window} of the window with its own delay)"
        )
        fix = "look at this rank's host: other processes, its core and memory binding, GC, data loading"
        falsifier = (
            "with the processes of two ranks exchanged, this rank's host is not late any more"
        )
        effort = "code"
    elif code == "slow-device":
        sentence = (
            f"{name} takes {100 * (kernels.slowdown - 1):.1f} % longer for the same kernels than the other "
            f"ranks: they wait {waited} for it ({of_window} of the window with its own delay)"
        )
        fix = "check this device's clocks, power limit, temperature, ECC errors; take it out of the job"
        falsifier = "with the devices of two ranks exchanged, the slowness stays with the rank"
        effort = "hardware"
    else:
        family = _most(kernels)
        place |= {"family": family} if family else {}
        what = f", most of it in {family.replace('_', ' ')}" if family else ""
        sentence = (
            f"{name} has more work than the other ranks, {format_duration(blame.busy_excess_ns)} of device "
            f"time{what}: they wait {waited} for it ({of_window} of the window with its own delay)"
        )
        fix = "spread the work: expert placement or redundant experts, tokens or lengths balanced over ranks"
        falsifier = (
            "the rank's kernels process no more tokens, experts or elements than the others'"
        )
        effort = "code"
    return Finding(
        code=code,
        sentence=sentence,
        kind=Kind.COST,
        value=duration / analysis.wall_ns,
        unit="share of the window",
        duration_ns=duration,
        share=duration / analysis.wall_ns,
        gain_ns=duration,
        gain_method="estimated",
        gain_interval_ns=(low, high),
        status=context.status,
        evidence=(_evidence(arrivals, blame),),
        falsifier=falsifier,
        fix=fix,
        details={
            "waited_ns": blame.net_ns,
            "own_delay_ns": own,
            "num_collectives": arrivals.num_collectives,
            "num_late": len(blame.parts),
            "idle_excess_ns": blame.idle_excess_ns,
            "busy_excess_ns": blame.busy_excess_ns,
            "equal_work_slowdown": kernels.slowdown,
            "excess_ns_by_family": kernels.excess_by_family_ns,
            "clock_residual_ns": arrivals.residual_ns,
        },
        place=place,
        part_of_ns={"exposed-communication": blame.net_ns}
        | _same_kernels(code, kernels)
        | _own_idle(analysis, arrivals, blame, share),
        confidence=_confidence(arrivals, blame, total_ns),
        effort=effort,
    )


def _same_kernels(code: str, kernels: AgainstOthers) -> dict[str, int]:
    """Kernels that are slower on one rank only are so for its device's or its load's sake, not for their own."""
    excess = kernels.matched_ns - kernels.reference_ns
    return {"slow-kernel": excess} if code != "straggler" and excess > 0 else {}


def _own_idle(
    analysis: Analysis, arrivals: Arrivals, blame: _Blame, share: float
) -> dict[str, int]:
    """Idle time of the late rank itself, by the code that claims it for its cause: the delay is why."""
    gaps = analysis.devices[blame.device].gaps
    if analysis.quality.idle_withheld is not None or not blame.idle_excess_ns:
        return {}
    before = union(arrivals.since[blame.parts], arrivals.start[blame.parts])
    inside = covered(gaps.start, gaps.end, before)
    total = int(inside.sum())
    found = {}
    for code in IDLE_CODES:
        numbers = [CAUSE_NUMBER[key] for key in code.causes]
        mine = int(inside[np.isin(gaps.cause, numbers)].sum())
        if mine:
            found[code.code] = round(mine * min(1.0, blame.idle_excess_ns / total) * share)
    return found


def _is_slow(kernels: AgainstOthers) -> bool:
    """Whether equal work takes the device longer, rather than that it has more of it."""
    more = kernels.larger_ns + kernels.unmatched_ns
    overall = kernels.matched_ns / kernels.reference_ns if kernels.reference_ns else 1.0
    is_slow = kernels.slowdown >= max(MIN_SLOWDOWN, 1 + (overall - 1) / 2)
    is_uniform = kernels.uniform_share >= MIN_UNIFORM
    return is_slow and is_uniform and 2 * more <= kernels.excess_ns


def _most(kernels: AgainstOthers) -> str | None:
    excess = kernels.excess_by_family_ns
    name = max(excess, key=lambda family: excess[family], default=None)
    return name if name is not None and excess[name] > 0 else None


def _confidence(arrivals: Arrivals, blame: _Blame, total_ns: int) -> float:
    """How much of all waiting goes back to this rank, less where the clocks blur its lateness."""
    dominance = blame.caused_ns / total_ns
    late = blame.own_ns / max(len(blame.parts), 1)
    blur = (arrivals.residual_ns or 0) / late if late else 1.0
    return round(max(0.05, min(0.99, dominance * (1 - min(blur, 1.0)))), 2)


def _interval(arrivals: Arrivals, cause: Int64s, device: int, total_ns: int) -> tuple[int, int]:
    """99 % of what other stretches of the run would have lost, by blocks of collectives in time."""
    num = arrivals.num_collectives
    loss = np.bincount(arrivals.collective, arrivals.exposed_ns, num)
    of = np.where(cause == NO_CAUSE, -1, arrivals.device[np.maximum(cause, 0)])
    others = max(int(arrivals.device.max()), 1)
    # What each of the others causes on average is what anybody may.
    net = np.where(of == device, loss, np.where(of >= 0, -loss / others, 0.0))
    edges = np.linspace(0, num, min(_NUM_BLOCKS, num) + 1).astype(np.int64)
    blocks = np.add.reduceat(net, edges[:-1])
    if len(blocks) < 2 or blocks.sum() <= 0:
        return 0, total_ns
    found = bootstrap_interval(
        blocks,
        lambda sample: float(sample.sum()),
        level=0.99,
        num_resamples=600,
        method="percentile",
    )
    scale = total_ns / blocks.sum()
    return max(round(found.low * scale), 0), round(found.high * scale)


def _evidence(arrivals: Arrivals, blame: _Blame) -> Evidence:
    held_up = np.flatnonzero(
        np.isin(arrivals.collective, blame.collectives) & (arrivals.exposed_ns > 0)
    )
    longest = held_up[np.argsort(-arrivals.exposed_ns[held_up], kind="stable")]
    return Evidence(
        "kernel",
        tuple(arrivals.kernel[longest[:_MAX_ROWS]].tolist()),
        len(held_up),
        "collectives of the waiting ranks; see table arrivals",
    )


def _name(analysis: Analysis, device: int) -> str:
    rank = rank_of(analysis, analysis.devices[device])
    return analysis.devices[device].work.label if rank is None else f"rank {rank}"


def _table(
    analysis: Analysis,
    arrivals: Arrivals,
    blames: list[_Blame],
    kernels: list[AgainstOthers] | None,
) -> ShownTable:
    waited = np.bincount(arrivals.device, arrivals.exposed_ns, len(analysis.devices))
    rows: list[list[Cell]] = [
        [
            _name(analysis, blame.device),
            blame.caused_ns,
            int(waited[blame.device]),
            len(blame.collectives),
            blame.idle_excess_ns,
            blame.busy_excess_ns,
            None if kernels is None else round(kernels[blame.device].slowdown, 3),
            None if kernels is None else kernels[blame.device].excess_ns,
        ]
        for blame in sorted(blames, key=lambda blame: -blame.caused_ns)
    ]
    skew = sum(blame.caused_ns for blame in blames)
    note = (
        f"Waiting with no compute beside it: {format_duration(int(waited.sum()))}, of it "
        f"{format_duration(skew)} behind a rank that was late by itself; the rest is the start of the "
        "recording, or no rank in particular. Equal work: time of the same kernels over the other ranks'."
    )
    if arrivals.residual_ns is not None:
        note += f" Clocks agree to {format_duration(arrivals.residual_ns)}."
    return ShownTable("arrivals", "Who waits for whom", _COLUMNS, rows, len(rows), note)
