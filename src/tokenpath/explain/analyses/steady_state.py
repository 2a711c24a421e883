"""Whether the capture shows a steady state: warm-up, clocks, copies below their link, steps that drift or recur."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.finding import Evidence, Finding, Kind
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.analyses.contract import Context, Proposal, Result
from tokenpath.explain.analyses.kernel_roofline_claims import place_of_device
from tokenpath.explain.analyses.steady_state_clock import Throttle, find_throttle
from tokenpath.explain.analyses.steady_state_copies import SlowCopies, copies
from tokenpath.explain.analyses.steady_state_steps import Steps, drift, period, read_steps, warm_up
from tokenpath.explain.causes import CAUSE_NUMBER
from tokenpath.explain.findings import IDLE_CODES
from tokenpath.replay.change import KernelChange, WhatIf, with_kernel_times

MIN_SHARE = 0.01
"""Gain over the window from which on a finding is made."""


def analyse(context: Context) -> Result:
    """Findings about time: what only happens at first, from some moment on, or every so often."""
    if not context.analysis.devices:
        return Result()
    table, slow = copies(context.analysis)
    proposals = [*_slow_copies(context, slow), *_throttled(context)]
    findings = [proposal.finding for proposal in proposals]
    steps = read_steps(context.analysis)
    findings += [*_warm_up(context, steps), *_not_steady(context, steps)]
    return Result(findings, [table] if table else [], proposals=proposals)


def _cost(context: Context, excess_ns: int) -> bool:
    return excess_ns >= MIN_SHARE * context.analysis.wall_ns > 0


def _slow_copies(context: Context, slow: Sequence[SlowCopies]) -> list[Proposal]:
    slow = sorted(slow, key=lambda item: (-item.excess_ns, item.name, item.device))
    excess = sum(item.excess_ns for item in slow)
    if not slow or not _cost(context, excess):
        return []
    worst, wall = slow[0], context.analysis.wall_ns
    count = sum(len(item.rows) for item in slow)
    total = sum(int(item.duration_ns.sum()) for item in slow)
    place = place_of_device(context, worst.device) if len(context.analysis.devices) > 1 else {}
    if len({item.device for item in slow}) > 1:
        place = {}
    finding = Finding(
        code="slow-copy",
        sentence=f"{count:,} copies between host and device ({format_duration(total)}) move "
        f"{worst.bytes_per_s / 1e9:.1f} GB/s where {worst.attainable_bytes_per_s / 1e9:.0f} are "
        f"attainable: {format_duration(excess)} in which nothing else ran; worst: {worst.name}",
        kind=Kind.COST,
        value=excess / wall,
        unit="share of the window",
        duration_ns=excess,
        share=excess / wall,
        gain_ns=excess,
        gain_method="estimated",
        status=context.status,
        evidence=(
            Evidence(
                "kernel", tuple(int(row) for row in worst.rows[:5]), count, "see table copies"
            ),
        ),
        falsifier="a copy benchmark (nvbandwidth) on the idle host reaches no more",
        fix="check the link (generation and lanes in nvidia-smi -q, a shared switch, the wrong NUMA node)",
        details={"bytes_per_s": worst.bytes_per_s, "attainable": worst.attainable_bytes_per_s},
        place=place,
        part_of_ns={"exposed-copy": excess},
        confidence=0.8,
        effort="hardware",
    )
    rows = np.concatenate([item.rows for item in slow])
    measured = np.concatenate([item.duration_ns for item in slow])
    new = np.concatenate([item.attainable_ns for item in slow])
    return [
        Proposal(finding, partial(with_kernel_times, "at the link's rate", rows, measured, new))
    ]


def _throttled(context: Context) -> list[Proposal]:
    """One finding a device whose kernels all slow down together; one for all of them where ranks run in step.

    Ranks in step wait for each other: a higher clock on one of several slow devices brings next to nothing.
    """
    capture, devices = context.analysis.capture, context.analysis.devices
    found = [
        (number, throttle)
        for number, device in enumerate(devices)
        if (throttle := find_throttle(capture, device.work)) is not None
    ]
    if not found:
        return []
    in_step = _are_in_step(context)
    parts = [found] if in_step else [[one] for one in found]
    proposals = []
    for part in parts:
        excess = sum(throttle.excess_ns for _, throttle in part)
        if in_step:  # the others wait as long
            excess = excess * len(devices) // len(part)
        if _cost(context, excess):
            is_minority = in_step and len(part) <= len(devices) / 2
            proposals.append(_throttling(context, part, excess, is_minority=is_minority))
    return proposals


def _throttling(
    context: Context, part: Sequence[tuple[int, Throttle]], excess: int, *, is_minority: bool
) -> Proposal:
    """The finding of devices that are slow together, the most slowed in words."""
    analysis = context.analysis
    number, throttle = max(part, key=lambda pair: pair[1].excess_ns)
    work, wall = analysis.devices[number].work, analysis.wall_ns
    after = throttle.start_ns - work.window_start_ns
    memory = (
        f", those limited by memory {throttle.memory_ratio:.2f} times"
        if throttle.memory_ratio is not None
        else ""
    )
    where = f" on {len(part)} devices" if len(part) > 1 else ""
    is_one = len(part) == 1
    finding = Finding(
        code="clock-throttling",
        sentence=f"from {format_duration(after)} on, for "
        f"{format_duration(throttle.end_ns - throttle.start_ns)}, the same kernels take "
        f"{throttle.ratio:.2f} times as long as in the rest of the window{where}{memory}: "
        f"{format_duration(excess)}{' with the waiting of other ranks' if is_minority else ''}",
        kind=Kind.COST,
        value=throttle.ratio,
        unit="times the usual duration",
        duration_ns=excess,
        share=excess / wall,
        gain_ns=excess,
        gain_method="estimated",
        status=context.status,
        evidence=(Evidence("kernel", _longest(throttle), sum(len(each.rows) for _, each in part)),),
        falsifier="the clocks recorded beside the run (nvidia-smi dmon) do not fall at that moment",
        fix="look for power or thermal limits (nvidia-smi -q -d PERFORMANCE), cooling, and neighbours on "
        "the same power budget; lock the clocks for measurements",
        details={
            "start_ns": after,
            "end_ns": throttle.end_ns - work.window_start_ns,
            "ratio": throttle.ratio,
            "memory_ratio": throttle.memory_ratio,
            "devices": [analysis.devices[at].work.label for at, _ in part],
        },
        scope=work.label if is_one and len(analysis.devices) > 1 else None,
        place=place_of_device(context, number) if is_one else {},
        part_of_ns={"slow-device": excess, "rank-imbalance": excess} if is_minority else {},
        confidence=0.85,
        effort="hardware",
    )
    changes = [KernelChange(each.rows, each.factor) for _, each in part]
    return Proposal(finding, partial(WhatIf, "full clock", changes))


def _are_in_step(context: Context) -> bool:
    """Whether ranks meet in collectives that could be matched."""
    capture = context.analysis.capture
    if capture.num_rows("collective") == 0 or len(context.analysis.devices) < 2:
        return False
    return bool((capture.int64("collective", "match", -1) >= 0).any())


def _longest(throttle: Throttle) -> tuple[int, ...]:
    return tuple(int(row) for row in throttle.rows[:5])


def _warm_up(context: Context, steps: Sequence[Steps]) -> list[Finding]:
    """The leading steps of the capture that take longer than later ones of the same batch."""
    analysis = context.analysis
    found = [(item, warm_up(item)) for item in steps]
    slow = [(item, part) for item, part in found if part is not None]
    if not slow:
        return []
    excess = sum(part.excess_ns for _, part in slow)
    whole = sum(item.span_ns + item.lead_ns for item in steps)
    if excess < 2 * MIN_SHARE * whole:
        return []
    _, most = max(slow, key=lambda pair: pair[1].excess_ns)
    device = analysis.devices[slow[0][0].device]
    is_inside = device.work.window_start_ns <= int(device.spans.start[0])
    told = "" if is_inside else "; this window leaves them out, a mean over the capture does not"
    base = analysis.wall_ns if is_inside else whole
    parts = []
    if most.count:
        parts.append(
            f"the first {most.count} of {most.num_steps} steps take up to {most.ratio:.1f} times "
            f"the median of the later ones"
        )
    if most.lead_ns:
        parts.append(f"before the first step the host sets up for {format_duration(most.lead_ns)}")
    return [
        Finding(
            code="warm-up-included",
            sentence=f"{'; '.join(parts)}: {format_duration(excess)}, "
            f"{format_percent(excess, whole)} of the capture{told}",
            kind=Kind.COST,
            value=excess / whole if whole else None,
            unit="share of the capture",
            duration_ns=excess,
            share=excess / base if base else None,
            gain_ns=excess,
            gain_method="ceiling",
            status=context.status,
            evidence=(Evidence("step", most.rows[:5], max(most.count, 1)),),
            falsifier="a run that has been warm for minutes shows the same first steps",
            fix="warm up with the shapes of the measurement before it starts, or leave the first steps out",
            details={
                "num_steps": most.count,
                "ratio": most.ratio,
                "lead_ns": most.lead_ns,
                "median_step_ns": most.usual_ns,
                "is_in_window": is_inside,
            },
            part_of_ns=_idle_excess(context, slow[0][0], most.count) if is_inside else {},
            confidence=0.85,
            effort="setting",
        )
    ]


def _idle_excess(context: Context, steps: Steps, count: int) -> dict[str, int]:
    """Idle time of the first steps above that of as many later ones, by the code that claims it."""
    analysis = context.analysis
    if analysis.quality.idle_withheld is not None or len(steps.start) <= count:
        return {}
    device = analysis.devices[steps.device]
    gaps, edge = device.gaps, int(steps.start[count])
    is_early: NDArray[np.bool_] = gaps.start < edge
    later = max(len(steps.start) - count, 1)
    found = {}
    for code in IDLE_CODES:
        mine = np.isin(gaps.cause, [CAUSE_NUMBER[key] for key in code.causes])
        early = int(gaps.duration_ns[mine & is_early].sum())
        usual = int(gaps.duration_ns[mine & ~is_early].sum()) * count // later
        if early > usual:
            found[code.code] = early - usual
    return found


def _not_steady(context: Context, steps: Sequence[Steps]) -> list[Finding]:
    """What makes a mean of the steps misleading; no cost of its own, since other findings name the cause."""
    found = []
    for item in steps[:1]:
        if (recurs := period(item)) is not None:
            found.append(
                _quality(
                    context,
                    "slow-steps-recur",
                    f"every {recurs.every} steps ({format_duration(recurs.period_ns)}) one takes "
                    f"{recurs.ratio:.1f} times the median, {recurs.count} times in "
                    f"{recurs.num_steps} steps; {recurs.likely}",
                    recurs.excess_ns,
                    recurs.rows,
                )
            )
        if (moves := drift(item)) is not None:
            found.append(
                _quality(
                    context,
                    "step-drift",
                    f"steps of the same batch grow by {format_percent(moves.growth, 1)} from the first "
                    f"to the last tenth of the capture",
                    moves.excess_ns,
                    moves.rows,
                )
            )
    return found


def _quality(
    context: Context, code: str, sentence: str, excess_ns: int, rows: tuple[int, ...]
) -> Finding:
    return Finding(
        code=code,
        sentence=sentence,
        kind=Kind.QUALITY,
        value=excess_ns / 1e6,
        unit="ms",
        duration_ns=None,
        share=None,
        gain_ns=None,
        gain_method=None,
        status=context.status,
        evidence=(Evidence("step", rows[:5], len(rows)),),
        falsifier="a longer capture does not show it",
        fix="look at the findings with a cause; compare runs by medians, not by means",
    )
