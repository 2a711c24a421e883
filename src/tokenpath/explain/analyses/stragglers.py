"""Ranks against each other: who is waited for in collectives, and whether host, device or load is why."""

from __future__ import annotations

import numpy as np

from tokenpath.capture.intervals import Int64s, clip, covered
from tokenpath.core.finding import Evidence, Finding, Kind
from tokenpath.core.stats_bootstrap import bootstrap_interval
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.analyses.contract import Context, Proposal, Result
from tokenpath.explain.analyses.stragglers_arrivals import (
    NO_CAUSE,
    Arrivals,
    causes,
    find_arrivals,
    median_of_others,
    rank_of,
)
from tokenpath.explain.analyses.stragglers_kernels import AgainstOthers, against_others
from tokenpath.explain.analyses.stragglers_table import Blame, arrivals_table, device_name
from tokenpath.explain.analysis import Analysis
from tokenpath.explain.causes import CAUSE_NUMBER
from tokenpath.explain.findings import IDLE_CODES
from tokenpath.explain.work import COMPUTE, MEMCPY, MEMSET
from tokenpath.replay.change import HostChange, WhatIf, with_kernel_times

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


def analyse(context: Context) -> Result:
    """Stragglers, slow devices and uneven loads; nothing where fewer than two ranks share collectives."""
    analysis = context.analysis
    arrivals = find_arrivals(analysis)
    if arrivals is None:
        unmatched = _unmatched(context)
        return Result([] if unmatched is None else [unmatched])
    exposed = int(arrivals.exposed_ns.sum())
    cause = causes(arrivals)
    blames = _blames(analysis, arrivals, cause)
    total = sum(blame.caused_ns for blame in blames)
    suspects = [
        blame
        for blame in blames
        if blame.net_ns > MIN_DOMINANCE * total
        and exposed >= MIN_SHARE * analysis.wall_ns
        and blame.net_ns + blame.own_ns >= MIN_SHARE * analysis.wall_ns
    ]
    kernels = against_others(analysis, arrivals) if suspects else None
    findings: list[Finding] = []
    proposals: list[Proposal] = []
    for blame, own in [(blame, kernels[blame.device]) for blame in suspects if kernels]:
        finding = _finding(context, arrivals, cause, blame, own, total)
        is_steady = (finding.gain_interval_ns or (0, 0))[0] > 0
        if is_steady or blame.net_ns >= SURE_DOMINANCE * total:
            findings.append(finding)
            proposals += _proposal(analysis, arrivals, finding, blame, own)
    table = arrivals_table(analysis, arrivals, blames, kernels)
    return Result(findings, [table], proposals=proposals)


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


def _excess(analysis: Analysis, arrivals: Arrivals) -> tuple[Int64s, Int64s]:
    """(idle, busy) time of each device over the typical other one's in the time that all have in common.

    Totals, because collectives on a stream of their own run late, beside compute that has nothing to do with
    why they do.
    """
    num = len(analysis.devices)
    idle, busy = np.zeros(num, np.int64), np.zeros(num, np.int64)
    low, high = arrivals.low_ns, arrivals.high_ns
    for number, device in enumerate(analysis.devices):
        at = low[number : number + 1], high[number : number + 1]
        busy[number] = covered(*at, device.work.busy(COMPUTE, MEMSET, MEMCPY))[0]
        idle[number] = high[number] - low[number] - covered(*at, device.work.busy())[0]
    group = np.zeros(num, np.int64)
    return idle - median_of_others(group, idle, 1), busy - median_of_others(group, busy, 1)


def _blames(analysis: Analysis, arrivals: Arrivals, cause: Int64s) -> list[Blame]:
    num, num_devices = arrivals.num_collectives, len(analysis.devices)
    loss = np.bincount(arrivals.collective, arrivals.exposed_ns, num).astype(np.int64)
    device = np.where(cause == NO_CAUSE, -1, arrivals.device[np.maximum(cause, 0)])
    known = device >= 0
    caused = np.bincount(device[known], loss[known], num_devices).astype(np.int64)
    usual = median_of_others(np.zeros(num_devices, np.int64), caused, 1)
    others = np.maximum(np.bincount(arrivals.collective, minlength=num) - 1, 1)
    own = np.bincount(device[known], (loss / others)[known], num_devices)
    idle_excess, busy_excess = _excess(analysis, arrivals)
    found = []
    for number in range(num_devices):
        mine = np.flatnonzero(device == number)
        parts = np.unique(cause[mine])
        found.append(
            Blame(
                number,
                int(caused[number]),
                int(max(caused[number] - usual[number], 0)),
                mine,
                parts,
                round(own[number]),
                int(idle_excess[number]),
                int(busy_excess[number]),
            )
        )
    return found


def _finding(
    context: Context,
    arrivals: Arrivals,
    cause: Int64s,
    blame: Blame,
    kernels: AgainstOthers,
    total_ns: int,
) -> Finding:
    analysis = context.analysis
    is_host = blame.idle_excess_ns >= blame.busy_excess_ns
    code = "straggler" if is_host else "slow-device" if _is_slow(kernels) else "rank-imbalance"
    name = device_name(analysis, blame.device)
    share = blame.net_ns / blame.caused_ns
    waited_ns, own = _lost(analysis, blame, share)
    duration = waited_ns + own
    low, high = _interval(arrivals, cause, blame.device, duration)
    # Work in excess stays with the job: spread over n ranks, 1/n of it is left on each.
    goes = 1 - 1 / len(analysis.devices) if code == "rank-imbalance" else 1.0
    waited = format_duration(waited_ns)
    of_window = format_percent(duration, analysis.wall_ns)
    place = {"device": analysis.devices[blame.device].work.label}
    rank = rank_of(analysis, analysis.devices[blame.device])
    if rank is not None:
        place["rank"] = str(rank)
    if code == "straggler":
        late = format_duration(_usual_lateness(arrivals, blame))
        sentence = (
            f"{name} comes late to {len(blame.parts):,} of {arrivals.num_collectives:,} collectives, by "
            f"{late} each, its device idle meanwhile: the others wait {waited} for its host "
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
        gain_ns=round(duration * goes),
        gain_method="estimated",
        gain_interval_ns=(round(low * goes), round(high * goes)),
        status=context.status,
        evidence=(_evidence(arrivals, blame),),
        falsifier=falsifier,
        fix=fix,
        details={
            "waited_ns": waited_ns,
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
        part_of_ns={"exposed-communication": waited_ns}
        | _same_kernels(code, kernels)
        | _own_idle(analysis, arrivals, blame, share),
        confidence=_confidence(arrivals, blame, total_ns),
        effort=effort,
    )


def _lost(analysis: Analysis, blame: Blame, share: float) -> tuple[int, int]:
    """(what the others lost by it, what it lost itself).

    Ranks that share collectives end together. So what one has more of idle and busy time, each of the others
    has more of communication that runs alone; where collectives run beside compute that is more than the
    waiting, since transfers come late as well. It is no less than the waiting that was seen.
    """
    each = max(blame.own_ns, blame.idle_excess_ns + blame.busy_excess_ns) * share
    exposed = [d.funnel.split.exposed_communication.total for d in analysis.devices]
    most = sum(exposed) - exposed[blame.device]
    return min(round(each * blame.caused_ns / blame.own_ns), most), round(each)


def _proposal(
    analysis: Analysis, arrivals: Arrivals, finding: Finding, blame: Blame, kernels: AgainstOthers
) -> list[Proposal]:
    """What would change: its kernels as long as their counterparts, or its host's delay gone."""
    if finding.code != "straggler":
        if kernels.unmatched_ns * 2 > kernels.excess_ns or not len(kernels.rows):
            return []
        label, target = "its kernels as fast as the others'", kernels.counterpart_ns
        if finding.code == "rank-imbalance":
            # Work that is spread over all does not go away: each gets its part of what was too much.
            label = "its work spread over all"
            excess = kernels.each_ns - kernels.counterpart_ns
            target = kernels.counterpart_ns + excess // len(analysis.devices)
        return [
            Proposal(
                finding,
                lambda: with_kernel_times(label, kernels.rows, kernels.each_ns, target),
            )
        ]
    gaps = analysis.devices[blame.device].gaps
    low, high = int(arrivals.low_ns[blame.device]), int(arrivals.high_ns[blame.device])
    start, end = clip(gaps.late.start, gaps.late.end, low, high)
    mine = np.flatnonzero(end > start)
    total = int((end - start)[mine].sum())
    # Without launches in the file the host's time is not known.
    if not total or 2 * total < blame.idle_excess_ns:
        return []
    thread = analysis.capture.ids("api_call", "thread_id")[gaps.late.call[mine]]
    left = 1 - min(1.0, blame.idle_excess_ns / total)
    return [
        Proposal(
            finding,
            lambda: WhatIf(
                "its host as fast as the others'",
                host=[HostChange(thread, start[mine], end[mine], left)],
            ),
        )
    ]


def _same_kernels(code: str, kernels: AgainstOthers) -> dict[str, int]:
    """Kernels that are slower on one rank only are so for its device's or its load's sake, not for their own."""
    excess = kernels.matched_ns - kernels.reference_ns
    return {"slow-kernel": excess} if code != "straggler" and excess > 0 else {}


def _own_idle(analysis: Analysis, arrivals: Arrivals, blame: Blame, share: float) -> dict[str, int]:
    """Idle time of the late rank itself, by the code that claims it for its cause: the delay is why."""
    gaps = analysis.devices[blame.device].gaps
    if analysis.quality.idle_withheld is not None or blame.idle_excess_ns <= 0:
        return {}
    low, high = arrivals.low_ns[blame.device], arrivals.high_ns[blame.device]
    start, end = clip(gaps.start, gaps.end, int(low), int(high))
    inside = end - start
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


def _usual_lateness(arrivals: Arrivals, blame: Blame) -> float:
    """Mean lateness where it was late of its own accord, ns."""
    return float(arrivals.late_ns[blame.parts].mean()) if len(blame.parts) else 0.0


def _confidence(arrivals: Arrivals, blame: Blame, total_ns: int) -> float:
    """How much of all waiting goes back to this rank, less where the clocks blur its lateness."""
    dominance = blame.caused_ns / total_ns
    late = _usual_lateness(arrivals, blame)
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


def _evidence(arrivals: Arrivals, blame: Blame) -> Evidence:
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
