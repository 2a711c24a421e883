"""Kernels that all become slower at one moment: the device lowered its clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.explain.analyses.kernel_roofline_shapes import ATTENTION
from tokenpath.explain.analyses.kernel_roofline_work import same_launch
from tokenpath.explain.work import COMPUTE, DeviceWork

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

NUM_BINS = 64
"""Stretches into which the window is cut; the moment is known to one of them."""
MIN_BINS = 4
"""A change must last at least so many, and so must what it is held against."""
MIN_CALLS = 12
"""Launches of one shape that are needed to follow it over time."""
MIN_GROUPS = 2
"""Different launches that must slow down together."""
MAX_GROUPS = 200
"""Launches that are looked at, the longest in total."""
MIN_RATIO = 1.08
"""Slowing of the median kernel from which on a clock is blamed; below it is noise and temperature."""
MIN_AGREEING = 0.75
"""Share of the time of arithmetic-bound launches that slows down by at least half of it."""
MAX_UNEVEN = 1.1
"""Largest over smallest factor of the quartiles of a launch that moved as a whole."""
MIN_NS = 5_000
"""Shorter kernels are held by latency, which the clock of the multiprocessors moves less."""
ARITHMETIC = frozenset({"gemm", "moe", "convolution"})
"""Families that slow down with the clock; the others wait for memory, whose clock is another."""


@dataclass(frozen=True)
class Throttle:
    """A stretch in which one device ran slower."""

    start_ns: int
    """Its first moment on the capture's clock."""
    end_ns: int
    """Its last."""
    ratio: float
    """Time of arithmetic kernels in it over outside."""
    memory_ratio: float | None
    """The same of the other kernels; None without some."""
    excess_ns: int
    """Time of all compute kernels in it above what they take outside."""
    rows: Int64s
    """Rows of those kernels."""
    factor: Floats
    """New time over measured, one a row."""


def find_throttle(capture: Capture, work: DeviceWork) -> Throttle | None:
    """The stretch of the window in which all kernels of a device are slower than outside; None if there is none.

    Compared are only launches of the same kernel with the same grid and operator shapes, without attention,
    whose work grows with the context.
    """
    chosen = np.flatnonzero(work.in_window() & (work.kind == COMPUTE))
    duration = (work.end - work.start)[chosen]
    usable = duration >= MIN_NS
    chosen, duration = chosen[usable], duration[usable]
    if len(chosen) < MIN_GROUPS * MIN_CALLS or work.span_ns <= 0:
        return None
    key = _by_place(
        same_launch(capture, work.row[chosen]), capture.ids("kernel", "step_id")[work.row[chosen]]
    )
    family = work.family[chosen]
    follows = ~np.isin(family, _codes(work, ATTENTION))
    key = np.where(follows, key, NO_ID)
    _, group, count = np.unique(key, return_inverse=True, return_counts=True)
    group = group.reshape(-1)
    follows &= count[group] >= MIN_CALLS
    if not follows.any():
        return None
    normal = _ratio_to_median(group, duration, len(count))
    at = np.minimum(
        (work.start[chosen] - work.window_start_ns) * NUM_BINS // work.span_ns, NUM_BINS - 1
    ).clip(0)
    arithmetic = follows & np.isin(family, _codes(work, ARITHMETIC))
    if len(np.unique(group[arithmetic])) < MIN_GROUPS:
        return None
    span = _slow_bins(at[arithmetic], normal[arithmetic], duration[arithmetic])
    if span is None:
        return None
    inside = (at >= span[0]) & (at < span[1])
    ratio, agreeing = _agreement(group, normal, duration, arithmetic, inside)
    if ratio < MIN_RATIO or agreeing < MIN_AGREEING:
        return None
    others = follows & ~arithmetic
    memory, _ = _agreement(group, normal, duration, others, inside)
    memory_ratio = memory if others[inside].any() and others[~inside].any() else None
    slowed = np.where(
        arithmetic | np.isin(family, _codes(work, ATTENTION)), ratio, memory_ratio or 1.0
    )
    factor = 1 / np.maximum(slowed[inside], 1.0)
    excess = duration[inside] * (1 - factor)
    where = work.start[chosen[inside]]
    return Throttle(
        int(where.min()),
        int(work.end[chosen[inside]].max()),
        ratio,
        memory_ratio,
        int(excess.sum()),
        work.row[chosen[inside]].astype(np.int64),
        factor,
    )


def _by_place(key: Int64s, step: NDArray[np.int32]) -> Int64s:
    """The key with the place among its like in the step, so that layers of other shapes stay apart.

    The key alone where steps are unknown or too few to follow one place.
    """
    if len(np.unique(step[step != NO_ID])) < MIN_CALLS:
        return key
    order = np.lexsort((np.arange(len(key)), key, step))
    is_first = np.ones(len(key), bool)
    is_first[1:] = (key[order][1:] != key[order][:-1]) | (step[order][1:] != step[order][:-1])
    position = np.arange(len(key))
    place = np.empty(len(key), np.int64)
    place[order] = position - np.maximum.accumulate(np.where(is_first, position, 0))
    result: Int64s = key * (int(place.max(initial=0)) + 1) + place
    return result


def _codes(work: DeviceWork, names: frozenset[str]) -> list[int]:
    return [at for at, name in enumerate(work.families) if name in names]


def _ratio_to_median(group: Int64s, duration: Int64s, num: int) -> Floats:
    """Each duration over the median of its group."""
    order = np.lexsort((duration, group))
    count = np.bincount(group, minlength=num)
    first = np.cumsum(count) - count
    median = duration[order][first + (count - 1) // 2]
    result: Floats = duration / np.maximum(median[group], 1)
    return result


def _slow_bins(at: Int64s, normal: Floats, weight: Int64s) -> tuple[int, int] | None:
    """The bins [low, high) that differ most from the rest by being slower; None if that is where it begins."""
    time = np.bincount(at, weights=weight, minlength=NUM_BINS)
    value = np.bincount(at, weights=np.log(np.maximum(normal, 1e-3)) * weight, minlength=NUM_BINS)
    total, whole = np.cumsum(np.append(0.0, time)), np.cumsum(np.append(0.0, value))
    low, high = np.meshgrid(np.arange(NUM_BINS + 1), np.arange(NUM_BINS + 1), indexing="ij")
    inside = total[high] - total[low]
    outside = total[-1] - inside
    usable = (high - low >= MIN_BINS) & (NUM_BINS - high + low >= MIN_BINS)
    usable &= (inside > 0) & (outside > 0)
    if not usable.any():
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_in = (whole[high] - whole[low]) / inside
        mean_out = (whole[-1] - (whole[high] - whole[low])) / outside
        score = np.where(
            usable & (mean_in > mean_out), (mean_in - mean_out) ** 2 * inside * outside, -1.0
        )
    best = int(np.argmax(score))
    # A slow start is a clock on its way up: the rest of the window is not throttled.
    if score.flat[best] <= 0 or low.flat[best] < MIN_BINS:
        return None
    return int(low.flat[best]), int(high.flat[best])


def _is_shifted(within: Floats, without: Floats) -> bool:
    """Whether a launch moved as a whole: inside above outside, or all quartiles by nearly the same factor.

    The first is three quarters of the calls against three quarters; the second is for products of several shapes
    that share a launch.
    """
    inner, outer = (np.quantile(values, (0.25, 0.5, 0.75)) for values in (within, without))
    factors = inner / outer
    return bool(inner[0] > outer[2] or factors.max() <= MAX_UNEVEN * factors.min())


def _agreement(
    group: Int64s,
    normal: Floats,
    duration: Int64s,
    chosen: NDArray[np.bool_],
    inside: NDArray[np.bool_],
) -> tuple[float, float]:
    """(slowing of the median launch, share of the launches' time that slows like it).

    A launch slows like it by at least half of it, and as a whole (`_is_shifted`): work that merely varies does not.
    """
    ratios, weights, apart = [], [], []
    order = np.flatnonzero(chosen)
    order = order[np.argsort(group[order], kind="stable")]
    bounds = np.append(np.flatnonzero(np.diff(group[order], prepend=-1)), len(order))
    time = np.add.reduceat(duration[order], bounds[:-1]) if len(order) else np.zeros(0)
    for at in np.argsort(-time, kind="stable")[:MAX_GROUPS].tolist():
        members = order[bounds[at] : bounds[at + 1]]
        within = normal[members[inside[members]]]
        without = normal[members[~inside[members]]]
        if len(within) < 3 or len(without) < 3:
            continue
        ratios.append(float(np.median(within) / np.median(without)))
        apart.append(_is_shifted(within, without))
        weights.append(float(duration[members].sum()))
    if len(ratios) < MIN_GROUPS:
        return 1.0, 0.0
    ratio, weight = np.array(ratios), np.array(weights)
    by_ratio = np.argsort(ratio)
    seen = np.cumsum(weight[by_ratio])
    median = float(ratio[by_ratio][np.searchsorted(seen, seen[-1] / 2)])
    like = (ratio >= 1 + (median - 1) / 2) & np.array(apart)
    return median, float(weight[like].sum() / weight.sum())
