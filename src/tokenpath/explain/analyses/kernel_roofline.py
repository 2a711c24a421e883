"""Achieved against attainable, kernel by kernel, and why the slow ones are slow."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID
from tokenpath.core.units import format_percent
from tokenpath.explain.analyses.attention_stalls import judge_attention
from tokenpath.explain.analyses.contract import Context, Result
from tokenpath.explain.analyses.kernel_roofline_attainable import (
    STREAM_SMS,
    expected_ns,
    is_slow,
    limiter,
)
from tokenpath.explain.analyses.kernel_roofline_claims import Claim, claims_of_code
from tokenpath.explain.analyses.kernel_roofline_launch import Residency, waves
from tokenpath.explain.analyses.kernel_roofline_layers import step_tokens
from tokenpath.explain.analyses.kernel_roofline_shapes import ATTENTION, MATRIX
from tokenpath.explain.analyses.kernel_roofline_table import residency_of, roofline_table
from tokenpath.explain.analyses.kernel_roofline_work import Floats, Group, kernel_groups
from tokenpath.explain.analyses.precision import wrong_precision

MIN_SLOW_NS = 8_000
"""Kernels shorter than this are held by latency."""
MIN_ALONE = 0.8
"""Share of a kernel's time without work on other streams from which its speed is its own."""
PEERS = (0.8, 1.3)
"""How far the other kernels of a capture may move what counts as attainable."""
MAX_WAVE_EFFICIENCY = 0.75
"""Time of even rounds of blocks over that of whole ones, from which on down a tail is worth naming."""
MAX_LAST_FILL = 0.5
"""The last round leaves most multiprocessors idle below this."""
MIN_PEERS = 3
"""Other groups of one limiter that are needed to move what counts as attainable."""
MAX_LARGE_BLOCKS = 2
"""Resident blocks of a multiprocessor up to which a round is all of them."""
MIN_TAIL_TOKENS = 512
"""Tokens of the step from which on a product of unknown shape is limited by arithmetic; with fewer maybe by memory."""
MIN_TAIL_PART = 0.6
"""Share of the time above attainable that the rounds must explain; else the kernel is slow for another reason."""
MIN_TAIL_GAIN = 0.1
"""A tail that costs a smaller share of the kernel is not named."""
LOW_OCCUPANCY = 0.3
"""Resident warps over the most possible, below which a streaming kernel cannot hide latency."""
LOW_OCCUPANCY_MATRIX = 0.05
"""The same for a matrix kernel without others to compare with: those live with few warps."""


def analyse(context: Context) -> Result:
    """Roofline table and findings of the window's kernels."""
    analysis = context.analysis
    groups = kernel_groups(analysis)
    if not groups:
        return Result()
    labels = [device.work.label for device in analysis.devices]
    attainable = attainable_ns(groups)
    precise = wrong_precision(groups, attainable)
    taken = {id(group) for group, _, _ in precise}
    step, batch = analysis.capture.ids("kernel", "step_id"), step_tokens(analysis.capture)
    claims: dict[str, list[Claim]] = defaultdict(list)
    claims["wrong-precision"] = [Claim(group, left, why) for group, left, why in precise]
    for at, group in enumerate(groups):
        if id(group) not in taken:
            tokens = _tokens(group, step, batch) if attainable[at] is None else 0.0
            found = _judge(groups, at, attainable[at], tokens)
            if found is not None:
                claims[found[0]].append(found[1])
    claims["slow-kernel"] += _slower_than_elsewhere(groups, attainable)
    for code, claim in judge_attention(analysis.capture, groups, attainable):
        claims[code].append(claim)
    proposals = [
        *claims_of_code(
            context,
            "wrong-precision",
            claims["wrong-precision"],
            "multiply in 32 bits although the model is 16-bit",
        ),
        *claims_of_code(
            context,
            "tail-wave",
            claims["tail-wave"],
            "leave most multiprocessors idle in their last wave of blocks",
        ),
        *claims_of_code(
            context,
            "low-occupancy",
            claims["low-occupancy"],
            "have too few resident warps to hide latency",
        ),
        *claims_of_code(
            context,
            "attention-underfilled",
            claims["attention-underfilled"],
            "have too few blocks for the device, their keys and values not split",
        ),
        *claims_of_code(
            context,
            "attention-imbalance",
            claims["attention-imbalance"],
            "wait for the longest request of the batch",
        ),
        *claims_of_code(
            context, "slow-kernel", claims["slow-kernel"], "run far below what their shapes allow"
        ),
    ]
    return Result(
        [proposal.finding for proposal in proposals],
        [roofline_table(groups, attainable, labels)],
        proposals=proposals,
    )


def _tokens(group: Group, step: NDArray[np.int32], batch: NDArray[np.int64]) -> float:
    """Median tokens of the steps in which a group runs; 0 where unknown."""
    steps = step[group.rows]
    steps = steps[steps != NO_ID]
    return float(np.median(batch[steps])) if len(steps) else 0.0


def attainable_ns(groups: Sequence[Group]) -> list[float | None]:
    """Attainable time of one kernel of each group, moved by how the capture's other kernels fare.

    The fractions of peak are tables; a device that all kernels find somewhat slower or faster than the tables
    say is believed, within `PEERS`. A kernel is never its own yardstick.
    """
    plain = [expected_ns(group) for group in groups]
    classes: dict[tuple[int, str | None], list[int]] = defaultdict(list)
    for at, group in enumerate(groups):
        if plain[at]:
            classes[(group.device, limiter(group))].append(at)
    result = list(plain)
    for members in classes.values():
        ratio = np.array([groups[at].quiet_ns / (plain[at] or 1.0) for at in members])
        weight = np.array([groups[at].total_ns for at in members], float)
        name = np.array([groups[at].name for at in members], object)
        order = np.argsort(ratio, kind="stable")
        for own in set(name.tolist()):
            others = order[name[order] != own]
            if len(others) < MIN_PEERS:
                continue
            moved = float(np.clip(weighted_median(ratio[others], weight[others]), *PEERS))
            for at in np.array(members)[name == own].tolist():
                result[at] = (plain[at] or 0.0) * moved
    slowness = device_slowness(groups)
    return [
        None if value is None else value * slowness.get(group.device, 1.0)
        for group, value in zip(groups, result, strict=True)
    ]


def device_slowness(groups: Sequence[Group]) -> dict[int, float]:
    """How much longer each device takes for the launches that it shares with others than the fastest of them.

    A device that is slow in everything is one finding, and it is not about its kernels.
    """
    same: dict[tuple[object, ...], list[Group]] = defaultdict(list)
    for group in groups:
        if group.quiet_ns >= MIN_SLOW_NS:
            same[(group.name, group.grid, group.block, group.flops, group.bytes)].append(group)
    ratios: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for members in same.values():
        if len(members) > 1:
            fastest = min(group.quiet_ns for group in members)
            for group in members:
                ratios[group.device].append((group.quiet_ns / fastest, float(group.total_ns)))
    return {device: weighted_median(*np.array(sorted(pairs)).T) for device, pairs in ratios.items()}


def weighted_median(ordered: Floats, weight: Floats) -> float:
    """The value at half of the weight; values sorted, at least one."""
    seen = np.cumsum(weight)
    return float(ordered[min(len(ordered) - 1, int(np.searchsorted(seen, seen[-1] / 2)))])


def _judge(
    groups: Sequence[Group], at: int, attainable: float | None, tokens: float
) -> tuple[str, Claim] | None:
    """The code and claim of a slow group; None for one that is not, or whose speed is not its own."""
    group = groups[at]
    if group.quiet_ns < MIN_SLOW_NS or group.alone < MIN_ALONE or group.family in ATTENTION:
        return None  # of attention, attention_stalls judges: the lengths of the requests count
    room = residency_of(group)
    if (claim := _tail(group, room, attainable, tokens)) is not None:
        return "tail-wave", claim
    if attainable is None or not is_slow(group, attainable):
        return None
    if group.op is not None and not group.op.is_exact:
        return None
    excess = int((group.quiet_ns - attainable) * group.count)
    times = f"{group.quiet_ns / attainable:.1f} times what its shapes allow"
    if room is not None and _is_low(groups, group, room):
        return "low-occupancy", Claim(
            group,
            excess,
            f"{room.limited_by} leave {format_percent(room.occupancy, 1)} of the warps, {times}",
        )
    return "slow-kernel", Claim(group, excess, times)


def _tail(
    group: Group, room: Residency | None, attainable: float | None, tokens: float
) -> Claim | None:
    """A matrix kernel whose last round of blocks is mostly empty, if that is what its time shows.

    Where memory is the limit an empty round costs half of one, which is all that is claimed of a product of unknown
    shape in a step of few tokens; one of known shape must lose about as much as its rounds say.
    """
    blocks = group.num_blocks
    if room is None or not group.num_sms or not blocks or group.family not in MATRIX:
        return None
    # Of many small blocks on a multiprocessor the rest speed up when one ends; of one or two large ones not.
    slots = room.blocks if room.blocks <= MAX_LARGE_BLOCKS else 1
    if blocks <= group.num_sms * room.blocks:
        return None  # all run at once
    rounds = waves(blocks, group.num_sms, slots)
    if rounds.efficiency > MAX_WAVE_EFFICIENCY or rounds.last_fill >= MAX_LAST_FILL:
        return None
    excess = group.quiet_ns * (1 - rounds.efficiency)
    if attainable is None and tokens <= 0:
        return None
    if attainable is None and tokens < MIN_TAIL_TOKENS:
        # Memory may be the limit: a multiprocessor alone then streams at twice its share of the rate.
        whole = math.ceil(rounds.waves) - 1
        excess = group.quiet_ns * (1 - rounds.waves / (whole + max(STREAM_SMS, rounds.last_fill)))
    if attainable is not None:
        above = group.quiet_ns - attainable
        if excess < MIN_TAIL_PART * above or (limiter(group) != "compute" and excess > 2 * above):
            return None
        excess = min(excess, above)
    if excess < MIN_TAIL_GAIN * group.quiet_ns:
        return None
    return Claim(
        group,
        int(excess * group.count),
        f"{blocks:,} blocks on {group.num_sms * slots:,} places leave "
        f"{format_percent(1 - rounds.last_fill, 1)} of them idle in the last wave",
    )


def _is_low(groups: Sequence[Group], group: Group, room: Residency) -> bool:
    """Whether too few warps fit, by registers or shared memory, though the grid has more."""
    if room.limited_by not in ("registers", "shared memory") or not group.num_sms:
        return False
    if (group.num_blocks or 0) < group.num_sms * room.blocks:
        return False
    if group.family not in MATRIX:
        return room.occupancy < LOW_OCCUPANCY
    others = sorted(
        (found.occupancy, float(other.total_ns))
        for other in groups
        if other.family == group.family
        and other.name != group.name
        and (found := residency_of(other)) is not None
    )
    if not others:
        return room.occupancy < LOW_OCCUPANCY_MATRIX
    pairs = np.array(others)
    return room.occupancy < 0.6 * weighted_median(pairs[:, 0], pairs[:, 1])


def _slower_than_elsewhere(
    groups: Sequence[Group], attainable: Sequence[float | None]
) -> list[Claim]:
    """Kernels of unknown work that one device runs slower than the others, and slower than its other kernels."""
    same: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for at, group in enumerate(groups):
        if attainable[at] is None and group.family not in ATTENTION:
            same[(group.name, group.grid, group.block)].append(at)
    ratios: dict[int, list[tuple[float, float]]] = defaultdict(list)
    found: list[tuple[int, float]] = []
    for members in same.values():
        if len({groups[at].device for at in members}) < 3 or len(members) > 64:
            continue
        middle = float(np.median([groups[at].quiet_ns for at in members]))
        for at in members:
            ratio = groups[at].quiet_ns / max(middle, 1.0)
            ratios[groups[at].device].append((ratio, float(groups[at].total_ns)))
            found.append((at, ratio))
    usual_of = {
        device: weighted_median(*np.array(sorted(pairs)).T) for device, pairs in ratios.items()
    }
    claims = []
    for at, ratio in found:
        group = groups[at]
        usual = usual_of[group.device]
        if group.quiet_ns >= MIN_SLOW_NS and group.alone >= MIN_ALONE and ratio > 1.4 * usual:
            excess = int(group.quiet_ns * (1 - usual / ratio) * group.count)
            claims.append(Claim(group, excess, f"{ratio:.1f} times what other devices take"))
    return claims
