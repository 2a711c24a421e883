"""Least squares with coefficients that may not be negative: costs are never below nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]

_TOLERANCE = 1e-10
"""Of the largest possible gradient: below it a coefficient stays at 0."""


def non_negative_least_squares(matrix: Float64s, target: Float64s) -> Float64s:
    """The x >= 0 that makes |matrix x - target| smallest; one of them where columns depend on each other.

    `matrix` is [rows, columns], `target` [rows]. The active-set method of Lawson and Hanson, Solving Least
    Squares Problems (1974), chapter 23, on normal equations of unit diagonal: right for tens of columns.
    ValueError for numbers that are not finite.
    """
    if not (np.isfinite(matrix).all() and np.isfinite(target).all()):
        raise ValueError("least squares of numbers that are not finite")
    gram, moment = matrix.T @ matrix, matrix.T @ target
    scale = np.sqrt(np.diag(gram))
    scale[scale == 0] = 1.0
    gram = gram / np.outer(scale, scale)
    moment = moment / scale
    limit = _TOLERANCE * max(float(np.abs(moment).max(initial=0.0)), np.finfo(float).tiny)
    size = len(moment)
    is_free = np.zeros(size, np.bool_)
    result = np.zeros(size)
    # Each round frees one column; more rounds than this only happen when rounding makes it circle.
    for _ in range(10 * size + 10 if size else 0):
        gradient = np.where(is_free, -np.inf, moment - gram @ result)
        entering = int(np.argmax(gradient))
        if gradient[entering] <= limit:
            break
        is_free[entering] = True
        result = _back_inside(gram, moment, is_free, result)
        if not is_free[entering]:
            # It depends on the free ones: freeing it again would circle.
            break
    return result / scale


def _back_inside(
    gram: Float64s, moment: Float64s, is_free: NDArray[np.bool_], result: Float64s
) -> Float64s:
    """The solution on the free columns, having bound those (in `is_free`) that would go below 0."""
    while True:
        free = np.flatnonzero(is_free)
        solution = np.zeros(len(moment))
        solution[free] = np.linalg.lstsq(gram[np.ix_(free, free)], moment[free], rcond=1e-12)[0]
        below = is_free & (solution <= 0)
        if not below.any():
            return solution
        room = result[below] - solution[below]
        ratio = np.where(room > 0, result[below] / np.where(room > 0, room, 1.0), 0.0)
        step = float(ratio.min())
        result = result + step * (solution - result)
        bound = np.flatnonzero(below)[ratio <= step]
        is_free[bound] = False
        result[~is_free] = 0.0
