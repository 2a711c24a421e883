"""Numbers that say what arrivals and lengths are like."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tokenpath.simulate.workload.arrivals import NS_PER_S
from tokenpath.simulate.workload.chance import Floats, Purpose, stream
from tokenpath.simulate.workload.workload import Int64s

SCALES_S = (0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)
"""Lengths of the windows in which arrivals are counted."""
MIN_WINDOWS = 20
"""A dispersion over fewer windows says little."""
MIN_MEAN_COUNT = 0.2
"""Nor does one where windows are mostly empty: it is 1 whatever the process."""
TIED_SHARE = 0.2
"""From this share of arrivals with the time of another on, times are taken as rounded."""
SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Dispersion:
    """How unequal equal stretches of time are."""

    window_s: float
    """Length of a stretch."""
    mean_count: float
    """Arrivals in one."""
    index: float
    """Variance of the counts over their mean: 1 for Poisson arrivals at every scale."""
    peak_count: int
    """Most arrivals in one."""


@dataclass(frozen=True, slots=True)
class ArrivalFacts:
    """Arrivals of an open loop (of first turns, where there are sessions)."""

    num_arrivals: int
    """How many."""
    span_s: float
    """From the first to the last."""
    rate_per_s: float
    """Arrivals a second over the span."""
    gap_cv: float
    """Standard deviation of the gaps over their mean, 1 for Poisson; rounded times are spread first."""
    rounded_to_s: float | None
    """What times are rounded to, where many are equal; None: they are not."""
    dispersions: tuple[Dispersion, ...]
    """At the scales for which there are enough arrivals, shortest first."""


@dataclass(frozen=True, slots=True)
class LengthFacts:
    """Lengths of prompts or of outputs."""

    mean_tokens: float
    """Mean."""
    min_tokens: int
    """Fewest."""
    max_tokens: int
    """Most."""
    quantile_tokens: tuple[int, ...]
    """At `SHARES`."""
    cv: float
    """Standard deviation over mean."""


def arrival_facts(arrival_ns: Int64s) -> ArrivalFacts | None:
    """What ascending arrivals are like; None for fewer than 3 or all at once."""
    count = len(arrival_ns)
    if count < 3 or arrival_ns[-1] <= arrival_ns[0]:
        return None
    rounded_to = rounding_s(arrival_ns)
    times = spread_ties_s(arrival_ns, rounded_to)
    span = float(times[-1] - times[0])
    gaps = np.diff(times)
    return ArrivalFacts(
        num_arrivals=count,
        span_s=span,
        rate_per_s=(count - 1) / span,
        gap_cv=float(gaps.std() / gaps.mean()),
        rounded_to_s=rounded_to,
        dispersions=dispersions(times, 2 * (rounded_to or 0.0)),
    )


def dispersions(times_s: Floats, min_window_s: float = 0.0) -> tuple[Dispersion, ...]:
    """Dispersion of counts at each scale for which there are enough windows and arrivals."""
    span = float(times_s[-1] - times_s[0])
    found = []
    for scale in SCALES_S:
        num_windows = int(span / scale)
        if scale < min_window_s or num_windows < MIN_WINDOWS:
            continue
        if len(times_s) < MIN_MEAN_COUNT * num_windows:
            continue
        counts = window_counts(times_s, scale, num_windows)
        mean = float(counts.mean())
        if mean > 0:
            found.append(
                Dispersion(scale, mean, float(counts.var(ddof=1)) / mean, int(counts.max()))
            )
    return tuple(found)


def window_counts(times_s: Floats, window_s: float, num_windows: int) -> Int64s:
    """Arrivals in each of so many windows from the first arrival on."""
    place = ((times_s - times_s[0]) / window_s).astype(np.int64)
    return np.asarray(np.bincount(place[place < num_windows], minlength=num_windows), np.int64)


def rounding_s(arrival_ns: Int64s) -> float | None:
    """What times are rounded to where many are equal: the median step between different ones."""
    steps = np.diff(arrival_ns)
    steps = steps[steps > 0]
    if not len(steps) or 1 - (len(steps) + 1) / len(arrival_ns) < TIED_SHARE:
        return None
    return float(np.median(steps)) / NS_PER_S


def spread_ties_s(arrival_ns: Int64s, rounded_to_s: float | None) -> Floats:
    """Arrivals in seconds; equal ones spread by chance over what they were rounded to."""
    times = arrival_ns / NS_PER_S
    if rounded_to_s is None:
        return np.asarray(times)
    distinct, counts = np.unique(arrival_ns, return_counts=True)
    width = np.minimum(rounded_to_s, np.append(np.diff(distinct) / NS_PER_S, rounded_to_s))
    within = stream(0, Purpose.ARRIVAL).random(len(times))
    spread = times + within * np.repeat(width, counts)
    # Within what a time was rounded to, arrivals are taken as by chance; the windows do not overlap.
    return np.asarray(np.sort(spread))


def length_facts(tokens: Int64s) -> LengthFacts | None:
    """What lengths are like; None where there are none."""
    if not len(tokens):
        return None
    quantiles = np.quantile(tokens, SHARES, method="inverted_cdf")
    mean = float(tokens.mean())
    return LengthFacts(
        mean_tokens=mean,
        min_tokens=int(tokens.min()),
        max_tokens=int(tokens.max()),
        quantile_tokens=tuple(int(value) for value in quantiles),
        cv=float(tokens.std()) / mean,
    )


def rank_correlation(first: Int64s, second: Int64s) -> float | None:
    """Spearman's rank correlation, ties at their mean rank; None where one side does not vary."""
    if len(first) < 3:
        return None
    a, b = mean_ranks(first), mean_ranks(second)
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 0 else None


def mean_ranks(values: Int64s) -> Floats:
    """Rank of each value from 0 on, equal ones at their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts + 1) / 2)[inverse])
