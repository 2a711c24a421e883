"""Bootstrap intervals: what a statistic would have been on other data of the same kind.

Sources: Efron and Tibshirani, An Introduction to the Bootstrap (1993): percentile interval, chapter 13; BCa,
chapter 14; resampling of blocks for data in order of time: Kuensch, Annals of Statistics 17 (1989).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]
Statistic = Callable[[Float64s], float]
"""A number from a sample, rows first."""

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Interval:
    """A number and the range that it may lie in."""

    point: float
    """The number itself."""
    low: float
    """Lower end."""
    high: float
    """Upper end."""
    level: float
    """Probability that the range is meant to have, 0 to 1."""

    def holds(self, value: float) -> bool:
        """Whether a value lies inside, ends included."""
        return self.low <= value <= self.high


def bootstrap_interval(
    sample: Float64s,
    statistic: Statistic,
    *,
    level: float = 0.9,
    num_resamples: int = 2000,
    seed: int = 0,
    method: str = "bca",
) -> Interval:
    """Interval of a statistic of independent rows by `bca` (bias-corrected, accelerated) or `percentile`.

    BCa falls back to percentiles where its corrections are not defined: all resamples alike, or all on one
    side. ValueError for a sample of fewer than two rows or an unknown method.
    """
    size = len(sample)
    if size < 2 or method not in ("bca", "percentile"):
        raise ValueError(f"a bootstrap of {size} rows by {method!r}: two rows, bca or percentile")
    random = np.random.default_rng(seed)
    point = statistic(sample)
    draws = np.array(
        [statistic(sample[random.integers(0, size, size)]) for _ in range(num_resamples)]
    )
    ends = np.array([(1 - level) / 2, (1 + level) / 2])
    if method == "bca":
        ends = _corrected(ends, draws, point, sample, statistic)
    low, high = np.quantile(draws, ends)
    return Interval(point, float(low), float(high), level)


def paired_difference(
    ours: Float64s,
    theirs: Float64s,
    statistic: Statistic,
    *,
    level: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """statistic(ours) - statistic(theirs) of the same cases: both are resampled together, by percentiles.

    An interval that holds 0 means: no difference shown. ValueError where the lengths differ or are below 2.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"pairs of {len(ours)} and {len(theirs)} cases")
    pairs = np.stack((ours, theirs), axis=-1)

    def difference(sample: Float64s) -> float:
        return statistic(sample[..., 0]) - statistic(sample[..., 1])

    return bootstrap_interval(
        pairs,
        difference,
        level=level,
        num_resamples=num_resamples,
        seed=seed,
        method="percentile",
    )


def block_resample(num_rows: int, num_blocks: int, random: np.random.Generator) -> Int64s:
    """Rows of a resample of contiguous blocks: what neighbours share stays together."""
    edges = np.linspace(0, num_rows, num_blocks + 1).round().astype(np.int64)
    chosen = random.integers(0, num_blocks, num_blocks)
    return np.concatenate([np.arange(edges[block], edges[block + 1]) for block in chosen])


def _corrected(
    ends: Float64s, draws: Float64s, point: float, sample: Float64s, statistic: Statistic
) -> Float64s:
    """Probabilities to read instead of `ends`: Efron and Tibshirani, equations 14.10, 14.14 and 14.15."""
    # Ties count half, so that a discrete statistic is not called biased.
    below = float((draws < point).mean() + (draws == point).mean() / 2)
    if not 0 < below < 1:
        return ends
    bias = _NORMAL.inv_cdf(below)
    size = len(sample)
    keep = ~np.eye(size, dtype=np.bool_)
    left_out = np.array([statistic(sample[keep[row]]) for row in range(size)])
    distance = left_out.mean() - left_out
    spread = float((distance**2).sum())
    acceleration = float((distance**3).sum()) / (6 * spread**1.5) if spread > 0 else 0.0
    corrected = []
    for end in ends:
        normal = bias + _NORMAL.inv_cdf(float(end))
        room = 1 - acceleration * normal
        if room <= 0:
            return ends
        corrected.append(_NORMAL.cdf(bias + normal / room))
    return np.array(corrected)
