"""Quantiles of histograms that are kept as cumulative counts, with what is known of them and no more.

A histogram says in which bucket a quantile lies, not where in it. Prometheus' histogram_quantile draws a
straight line through the bucket (promql/quantile.go); with a first bucket that reaches to 0.3 s, every
median below that is such a line's invention. Here the answer is the bucket.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class QuantileBounds:
    """Where a quantile lies: above `lower`, up to and including `upper`."""

    quantile: float
    """The quantile asked for, 0 to 1."""
    lower: float
    """Bound of the bucket before, exclusive; -inf for the first bucket of values that may be negative."""
    upper: float
    """Bound of the bucket, inclusive; +inf for the last one."""
    num_observations: float
    """Observations in all."""

    @property
    def resolution(self) -> float:
        """Width of the bucket: what the histogram cannot tell apart."""
        return self.upper - self.lower

    @property
    def is_bounded(self) -> bool:
        """Whether both ends are known."""
        return math.isfinite(self.lower) and math.isfinite(self.upper)

    @property
    def is_in_first_bucket(self) -> bool:
        """Whether nothing but the lowest possible value bounds it from below."""
        return self.lower <= 0


def quantile_bounds(
    bounds: Sequence[float],
    cumulative: Sequence[float],
    quantile: float,
    *,
    lowest: float = 0.0,
) -> QuantileBounds | None:
    """The bucket that holds a quantile; None if there are no observations.

    `bounds` are the buckets' inclusive upper bounds (label `le`), rising, the last one +inf or not;
    `cumulative` are the counts of observations up to each bound. `lowest` is the least value that can be
    observed: 0 for times and counts. The quantile q is the smallest value that at least a share q of the
    observations does not exceed. ValueError for a quantile outside 0 to 1, bounds that do not rise or
    counts that fall.
    """
    if not 0 <= quantile <= 1:
        raise ValueError(f"a quantile lies between 0 and 1, not at {quantile}")
    if len(bounds) != len(cumulative):
        raise ValueError(f"{len(bounds)} bounds, {len(cumulative)} counts")
    if any(math.isnan(bound) for bound in bounds) or not _rises(bounds, strictly=True):
        raise ValueError("bounds of buckets must rise")
    if any(not count >= 0 for count in cumulative) or not _rises(cumulative, strictly=False):
        raise ValueError("counts of buckets must not fall")
    total = cumulative[-1] if cumulative else 0
    if not total > 0:
        return None
    # At least one observation: the quantile 0 is the smallest value.
    rank = max(quantile * total, min(1, total))
    lower = lowest
    for bound, count in zip(bounds, cumulative, strict=True):
        # A product such as 0.07 * 100 may exceed the whole number that it stands for.
        if count >= rank * (1 - 1e-12):
            return QuantileBounds(quantile, min(lower, bound), bound, total)
        lower = max(lowest, bound)
    raise AssertionError("the last count is the total")


def difference(after: Sequence[float], before: Sequence[float]) -> list[float] | None:
    """Counts of a window from cumulative counts at its ends; None after a reset, when they have fallen."""
    if len(after) != len(before):
        raise ValueError(f"{len(after)} counts after, {len(before)} before")
    counts = [a - b for a, b in zip(after, before, strict=True)]
    return None if any(count < 0 for count in counts) else counts


def _rises(values: Sequence[float], *, strictly: bool) -> bool:
    pairs = itertools.pairwise(values)
    return all(a < b if strictly else a <= b for a, b in pairs)
