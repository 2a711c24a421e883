"""Why attention over a KV cache is slow: too few blocks for the device, or one request far longer than the rest."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.core.units import INT64_MIN, format_percent
from tokenpath.explain.analyses.kernel_roofline_attainable import FLOOR_NS, is_slow, limiter
from tokenpath.explain.analyses.kernel_roofline_claims import Claim
from tokenpath.explain.analyses.kernel_roofline_costs import step_sums
from tokenpath.explain.analyses.kernel_roofline_shapes import ATTENTION
from tokenpath.explain.analyses.kernel_roofline_work import Group

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]

MAX_FILL = 0.5
"""Blocks over multiprocessors below which attention leaves the device empty; half of them can stream a memory."""
MIN_CONTEXT = 1_024
"""Tokens of context a request (mean) from which on splitting them over blocks pays."""
MIN_NS = 15_000
"""Attention shorter than this is held by latency."""
SPLIT_SHARE = 0.5
"""Share of the blocks' perfect division that split-KV brings: half of the multiprocessors can stream the memory."""
COMBINE_NS = 3_000
"""The kernel that joins the parts of a split."""
UNDERFILLED_RATIO = 1.4
"""A decode kernel with few blocks is named when splitting would make it this many times faster."""
MAX_ELASTICITY = 0.5
"""Growth of the time over growth of the summed context below which time does not follow the sum."""
MIN_STEPS = 8
"""Steps needed to tell."""
MIN_KV_RANGE = 1.15
"""Largest over smallest summed context needed to tell."""
MIN_JUMP = 1.2
"""From one decode step to the next of as many requests the summed context grows by a token each, or by one new
request; attention whose time grows by this much meanwhile follows the longest request."""
JUMP_OVER_SUM = 3.0
"""So many times as much as the summed context it must grow, where that is known."""
MAX_OTHERS = 0.3
"""Growth of the step's other kernels over growth of attention, from which on everything has become slower."""
MIN_SPREAD = 2.0
"""Longest context over the mean from which on the lengths are called unequal."""

_DECODE_KEYS = re.compile(r"\bg_sk=(\d{1,15})\b", re.ASCII)
"""Summed context of the decode requests in labels of steps like `step[DECODE bs=96 g_sq=96 g_sk=190752]`."""
_HELPERS = re.compile(r"combine|reduce|merge|metadata|prepare|schedul", re.IGNORECASE)


@dataclass(frozen=True)
class StepLengths:
    """Context lengths of the decode requests of each row of `step`; NaN where unknown."""

    is_decode: NDArray[np.bool_]
    """Only decode requests."""
    requests: Floats
    """Requests."""
    total: Floats
    """Summed context."""
    longest: Floats
    """The longest."""
    prompt_spread: Floats
    """Of steps with prompts: prompts x summed squares of their tokens / squared sum; 1 when all are equal."""


def judge_attention(
    capture: Capture, groups: Sequence[Group], attainable: Sequence[float | None]
) -> list[tuple[str, Claim]]:
    """(code, claim) of every slow group of attention kernels."""
    mine = [
        at
        for at, group in enumerate(groups)
        if group.family in ATTENTION
        and not _HELPERS.search(group.name)
        and group.alone >= 0.8
        and group.quiet_ns >= MIN_NS
    ]
    if not mine:
        return []
    step = capture.ids("kernel", "step_id")
    lengths = step_lengths(capture)
    stalls = {
        key: _Stall.of([groups[at] for at in members], step, lengths)
        for key, members in _by_name(groups, mine).items()
    }
    jumps = {
        key: find_jump(
            [groups[at] for at in members], _others_ns(groups, key[0], step, lengths), step, lengths
        )
        for key, members in _by_name(groups, mine).items()
    }
    found = []
    for at in mine:
        group = groups[at]
        jump = jumps[(group.device, group.name)]
        if jump is not None:
            excess = jump.excess_ns(group, step)
            if excess > 0:
                found.append(("attention-imbalance", Claim(group, excess, jump.why)))
            continue
        claim = _underfilled(group, attainable[at], step, lengths)
        if claim is not None:
            found.append(("attention-underfilled", claim))
            continue
        stall = stalls[(group.device, group.name)]
        expected = attainable[at]
        if expected is not None and limiter(group) == "latency":
            continue
        if expected is not None and is_slow(group, expected):
            excess = int((group.quiet_ns - expected) * group.count)
            times = f"{group.quiet_ns / expected:.1f} times what its shapes allow"
            if stall.is_unequal:
                found.append(("attention-imbalance", Claim(group, excess, f"{times}, {stall.why}")))
            else:
                found.append(("slow-kernel", Claim(group, excess, times)))
        elif expected is None and stall.rate is not None:
            excess = stall.excess_ns(group, step, lengths)
            if excess > 0:
                found.append(("attention-imbalance", Claim(group, excess, stall.why)))
    return found


def _by_name(groups: Sequence[Group], mine: Sequence[int]) -> dict[tuple[int, str], list[int]]:
    found: dict[tuple[int, str], list[int]] = defaultdict(list)
    for at in mine:
        found[(groups[at].device, groups[at].name)].append(at)
    return found


def _underfilled(
    group: Group, attainable: float | None, step: NDArray[np.int32], lengths: StepLengths
) -> Claim | None:
    """Decode attention whose blocks are fewer than half of the multiprocessors, over long contexts."""
    if not group.num_blocks or not group.num_sms:
        return None
    fill = group.num_blocks / group.num_sms
    if fill >= MAX_FILL or not _is_decode(group, step, lengths):
        return None
    steps = _known_steps(group, step)
    context = lengths.total[steps] / lengths.requests[steps]
    context = context[np.isfinite(context)]
    if len(context) and float(np.median(context)) < MIN_CONTEXT:
        return None
    floor = 2.0 * FLOOR_NS.get(group.hardware.vendor if group.hardware else "NVIDIA", 3_000)
    target = attainable
    if target is None:
        target = max(floor, group.quiet_ns * fill / SPLIT_SHARE) + COMBINE_NS
    if group.quiet_ns < UNDERFILLED_RATIO * target:
        return None
    tokens = f" over {np.median(context):,.0f} tokens a request" if len(context) else ""
    return Claim(
        group,
        int((group.quiet_ns - target) * group.count),
        f"{group.num_blocks:,} blocks{tokens} leave {format_percent(1 - fill, 1)} of "
        f"{group.num_sms:,} multiprocessors idle",
    )


def _known_steps(group: Group, step: NDArray[np.int32]) -> NDArray[np.int32]:
    of_row: NDArray[np.int32] = step[group.rows]
    known: NDArray[np.int32] = of_row[of_row != NO_ID]
    return known


def _is_decode(group: Group, step: NDArray[np.int32], lengths: StepLengths) -> bool:
    steps = _known_steps(group, step)
    if len(steps):
        return bool(lengths.is_decode[steps].mean() > 0.5)
    return group.family == "attention_decode"


@dataclass(frozen=True)
class _Stall:
    """Whether the time of one attention kernel follows the longest request and not the sum of all."""

    is_unequal: bool
    """The lengths are, or the time does not grow with their sum."""
    rate: float | None
    """Nanoseconds a token of context in the best steps; None when the time follows the sum, or nobody can tell."""
    why: str
    """The figures."""

    @classmethod
    def of(cls, groups: Sequence[Group], step: NDArray[np.int32], lengths: StepLengths) -> _Stall:
        """From all kernels of one name on one device."""
        rows = np.concatenate([group.rows for group in groups])
        duration = np.concatenate([group.duration_ns for group in groups]).astype(float)
        of_row = step[rows]
        known = of_row != NO_ID
        known[known] &= (
            lengths.is_decode[of_row[known]]
            & np.isfinite(lengths.total[of_row[known]])
            & (lengths.requests[of_row[known]] >= 2)
        )
        prompts = lengths.prompt_spread[of_row[of_row != NO_ID]]
        prompts = prompts[np.isfinite(prompts)]
        if not known.any():
            unequal = len(prompts) > 0 and float(np.median(prompts)) >= MIN_SPREAD
            return cls(unequal, None, "one prompt has most of the tokens" if unequal else "")
        steps, inverse = np.unique(of_row[known], return_inverse=True)
        mean = np.bincount(inverse, weights=duration[known]) / np.bincount(inverse)
        total, requests = lengths.total[steps], lengths.requests[steps]
        spread = (
            float(np.nanmedian(lengths.longest[steps] * requests / total))
            if np.isfinite(lengths.longest[steps]).any()
            else None
        )
        slope = _elasticity(total, mean)
        is_flat = slope is not None and slope < MAX_ELASTICITY
        parts = []
        if spread is not None and spread >= MIN_SPREAD:
            parts.append(f"the longest request has {spread:.1f} times the mean context")
        if is_flat:
            parts.append("its time does not follow the summed context")
        rate = float(np.quantile(mean / total, 0.1)) if is_flat else None
        return cls(bool(parts), rate, " and ".join(parts))

    def excess_ns(self, group: Group, step: NDArray[np.int32], lengths: StepLengths) -> int:
        """Time of a group's kernels above what the best steps take for as many tokens."""
        of_row = step[group.rows]
        known = of_row != NO_ID
        expected = (self.rate or 0.0) * lengths.total[of_row[known]] * 1.1
        over = group.duration_ns[known] - expected
        return int(np.nansum(np.maximum(over, 0.0)))


@dataclass(frozen=True)
class Jump:
    """A moment from which on attention takes far longer for about as many tokens."""

    grids: frozenset[tuple[int, int, int] | None]
    """Launches of decode; of the same kernel for prompts nothing is expected."""
    expected_ns: Floats
    """Time of one kernel by row of `step`; NaN where unknown."""
    why: str
    """The figures."""

    def excess_ns(self, group: Group, step: NDArray[np.int32]) -> int:
        """Time of a group's kernels above what is expected of their steps."""
        if group.grid not in self.grids:
            return 0
        of_row = step[group.rows]
        known = of_row != NO_ID
        over = group.duration_ns[known] - self.expected_ns[of_row[known]]
        return int(np.nansum(np.where(over > 0.1 * self.expected_ns[of_row[known]], over, 0.0)))


def find_jump(
    groups: Sequence[Group],
    others_ns: Floats,
    step: NDArray[np.int32],
    lengths: StepLengths,
) -> Jump | None:
    """Where one attention kernel of one device jumps between decode steps of as many requests; else None.

    Where the summed context is unknown only kernels count whose grid has no more than a block for each request and
    head: one that splits the keys takes the sum for its time.
    """
    rows = np.concatenate([group.rows for group in groups])
    duration = np.concatenate([group.duration_ns for group in groups]).astype(float)
    of_row = step[rows]
    keep = of_row != NO_ID
    if not keep.any():
        return None
    steps, inverse = np.unique(of_row[keep], return_inverse=True)
    mean = np.bincount(inverse, weights=duration[keep]) / np.bincount(inverse)
    decode = lengths.is_decode[steps] & (lengths.requests[steps] >= 2)
    if decode.sum() < MIN_STEPS:
        return None
    known = bool(np.isfinite(lengths.total[steps[decode]]).all())
    requests = lengths.requests[steps]
    in_decode = {
        group.grid for group in groups if np.isin(_known_steps(group, step), steps[decode]).any()
    }
    if not known and not all(_is_unsplit(grid, requests[decode]) for grid in in_decode):
        return None
    # Steps that do not tell have the sum of the decode step before.
    filled = np.maximum.accumulate(np.where(decode, np.arange(len(steps)), -1))
    total = lengths.total[steps] if known else requests
    total = np.where(filled >= 0, total[np.maximum(filled, 0)], np.nan)
    at = np.flatnonzero(decode)
    time, tokens, others = mean[at], total[at], others_ns[steps[at]]
    same = requests[at][1:] == requests[at][:-1]
    growth = np.where(same, time[1:] / time[:-1] - 1, 0.0)
    sums = np.abs(tokens[1:] / tokens[:-1] - 1)
    where = int(np.argmax(growth))
    if growth[where] < MIN_JUMP - 1 or growth[where] < JUMP_OVER_SUM * sums[where]:
        return None
    if abs(others[where + 1] / max(others[where], 1.0) - 1) > MAX_OTHERS * growth[where]:
        return None
    rate = time / tokens
    low = float(np.quantile(rate, 0.1))
    usual = float(np.median(rate[rate <= 1.1 * low]))
    expected = np.full(len(lengths.requests), np.nan)
    expected[steps] = usual * total
    grew = f", their summed context by {format_percent(sums[where], 1)}" if known else ""
    return Jump(
        frozenset(in_decode),
        expected,
        f"from one decode step to the next of {requests[at][where]:,.0f} requests it grows by "
        f"{format_percent(growth[where], 1)}{grew}",
    )


def _is_unsplit(grid: tuple[int, int, int] | None, requests: Floats) -> bool:
    """Whether a grid has a block for each request and head, and no dimension for parts of the keys."""
    return grid is not None and min(grid) == 1 and bool(np.isin(requests, grid).all())


def _others_ns(
    groups: Sequence[Group], device: int, step: NDArray[np.int32], lengths: StepLengths
) -> Floats:
    """Time of a device's kernels that are not attention, by row of `step`."""
    total = np.zeros(len(lengths.requests))
    for group in groups:
        if group.device == device and group.family not in ATTENTION:
            of_row = step[group.rows]
            known = of_row != NO_ID
            total += np.bincount(
                of_row[known], weights=group.duration_ns[known], minlength=len(total)
            )
    return total


def _elasticity(total: Floats, time: Floats) -> float | None:
    """Slope of log time over log total across steps; None with too few steps or too little change."""
    if len(total) < MIN_STEPS or total.min() <= 0 or total.max() < MIN_KV_RANGE * total.min():
        return None
    x, y = np.log(total), np.log(np.maximum(time, 1.0))
    x = x - x.mean()
    return float((x * (y - y.mean())).sum() / (x * x).sum())


def step_lengths(capture: Capture) -> StepLengths:
    """Context lengths by row of `step`: from its label, its columns, its scheduler's row or its requests."""
    num = capture.num_rows("step")
    unknown = np.full(num, np.nan)
    if num == 0:
        return StepLengths(np.zeros(0, bool), unknown, unknown, unknown, unknown)
    requests = numbers(capture, "step", "num_decode_requests")
    total = numbers(capture, "step", "sum_decode_kv_tokens")
    prefill = numbers(capture, "step", "num_prefill_tokens")
    twin = capture.ids("step", "scheduler_step_id")
    longest, spread = _longest(capture, num), unknown.copy()
    for column in (requests, total, prefill, longest):
        missing = np.isnan(column) & (twin != NO_ID)
        column[missing] = column[twin[missing]]
    for at, label in enumerate(capture["step"]["name"].to_pylist()):
        keys = _DECODE_KEYS.search(label) if np.isnan(total[at]) else None
        if keys is not None:
            total[at] = float(keys[1])
        sums = step_sums(label)
        if sums is not None:
            prompts, decode = sums
            if prompts.queries:
                spread[at] = prompts.requests * prompts.squares / prompts.queries**2
            requests[at], total[at], prefill[at] = decode.requests, decode.keys, sums[0].queries
    total[total <= 0] = np.nan
    requests[requests <= 0] = np.nan
    is_decode = ~(prefill > 0) & np.isfinite(requests)
    return StepLengths(is_decode, requests, total, longest, spread)


def numbers(capture: Capture, table: str, column: str) -> Floats:
    """A column of integers as an own array of floats, NaN for NULL; the largest are rounded."""
    whole = capture.int64(table, column, INT64_MIN)
    return np.where(whole == INT64_MIN, np.nan, whole.astype(float))


def _longest(capture: Capture, num: int) -> Floats:
    """The longest context among the requests of each step, where they are linked."""
    result = np.full(num, np.nan)
    if capture.num_rows("request_step") == 0:
        return result
    step = capture.ids("request_step", "step_id")
    tokens = capture.int64("request_step", "num_tokens")
    before = numbers(capture, "request_step", "num_computed_before")
    known = (step != NO_ID) & np.isfinite(before)
    highest = np.zeros(num)
    np.maximum.at(highest, step[known], before[known] + tokens[known])
    result[highest > 0] = highest[highest > 0]
    return result
