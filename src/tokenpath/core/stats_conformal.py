"""Conformal intervals: coverage that holds for any model, as long as cases are exchangeable.

Sources: split: Lei and others, Distribution-Free Predictive Inference For Regression, JASA 113 (2018);
jackknife+: Barber, Candes, Ramdas and Tibshirani, Annals of Statistics 49 (2021), theorem 1: at least
1 - 2 alpha in the worst case, near 1 - alpha as a rule.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]


def conformal_quantile(scores: Float64s, level: float) -> float:
    """The score that a new case exceeds with probability 1 - level at most; inf for too few scores.

    It is the ceil((n + 1) level)-th smallest: the plain quantile would be too small by 1 in n.
    """
    rank = math.ceil((len(scores) + 1) * level - 1e-9)
    if rank > len(scores):
        return math.inf
    if rank < 1:
        return -math.inf
    return float(np.partition(scores, rank - 1)[rank - 1])


def split_conformal(residuals: Float64s, level: float = 0.9) -> tuple[float, float]:
    """(low, high) to add to a new prediction, from residuals measured - predicted of cases left out.

    Each side misses half of 1 - level. Infinite sides for fewer than 2 / (1 - level) - 1 residuals.
    """
    side = (1 + level) / 2
    return -conformal_quantile(-residuals, side), conformal_quantile(residuals, side)


def jackknife_plus(
    left_out_residuals: Float64s, left_out_predictions: Float64s, level: float = 0.9
) -> tuple[float, float]:
    """Interval of a new case; entry i of both is of the model fitted without case i.

    `left_out_residuals`: |measured - predicted| at case i; `left_out_predictions`: its prediction for the
    new case. ValueError where the lengths differ.
    """
    if len(left_out_residuals) != len(left_out_predictions):
        raise ValueError(
            f"{len(left_out_residuals)} residuals and {len(left_out_predictions)} predictions"
        )
    low = -conformal_quantile(left_out_residuals - left_out_predictions, level)
    high = conformal_quantile(left_out_predictions + left_out_residuals, level)
    return low, high
