"""Intervals hold what they promise, by simulation; least squares with bounds meet their optimum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpath.core.stats_bootstrap import (
    block_resample,
    bootstrap_interval,
    paired_difference,
)
from tokenpath.core.stats_conformal import conformal_quantile, jackknife_plus, split_conformal
from tokenpath.core.stats_nnls import non_negative_least_squares


@settings(max_examples=200)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 30))
def test_least_squares_meet_the_conditions_of_their_optimum(seed, columns, rows):
    random = np.random.default_rng(seed)
    matrix, target = random.normal(size=(rows, columns)), random.normal(size=rows)
    found = non_negative_least_squares(matrix, target)
    gradient = matrix.T @ (target - matrix @ found)
    scale = np.linalg.norm(matrix, axis=0) * np.linalg.norm(target) + 1e-12
    assert (found >= 0).all()
    assert (gradient / scale < 1e-5).all()
    assert np.all(np.abs(gradient[found > 0] / scale[found > 0]) < 1e-5)


def test_least_squares_give_back_what_made_the_data():
    matrix = np.random.default_rng(1).uniform(size=(50, 4)) * [1, 1e3, 1e6, 1]
    true = np.array([3.0, 0.0, 2e-5, 7.0])
    assert non_negative_least_squares(matrix, matrix @ true) == pytest.approx(true, abs=1e-9)


def test_least_squares_of_equal_or_empty_columns_end():
    matrix = np.ones((5, 3))
    matrix[:, 2] = 0
    assert non_negative_least_squares(matrix, np.full(5, 2.0)).sum() == pytest.approx(2.0)
    assert non_negative_least_squares(np.zeros((0, 0)), np.zeros(0)).size == 0
    with pytest.raises(ValueError, match="not finite"):
        non_negative_least_squares(np.full((2, 1), np.nan), np.ones(2))


@pytest.mark.parametrize(("method", "least"), [("bca", 0.85), ("percentile", 0.80)])
def test_bootstrap_interval_of_a_skewed_mean_covers(method, least):
    random = np.random.default_rng(5)
    hits = [
        bootstrap_interval(
            random.exponential(size=30), np.mean, num_resamples=300, method=method, seed=case
        ).holds(1.0)
        for case in range(150)
    ]
    assert least <= np.mean(hits) <= 0.97


def test_bias_correction_moves_a_biased_statistic():
    sample = np.random.default_rng(3).normal(size=20)
    plain = bootstrap_interval(sample, np.var, method="percentile")
    corrected = bootstrap_interval(sample, np.var, method="bca")
    # The variance with n in its denominator is too small: BCa reads higher percentiles.
    assert corrected.low > plain.low
    assert corrected.high > plain.high


def test_bootstrap_of_equal_rows_is_a_point():
    interval = bootstrap_interval(np.full(5, 2.0), np.mean)
    assert (interval.low, interval.point, interval.high) == (2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match="two rows"):
        bootstrap_interval(np.ones(1), np.mean)
    with pytest.raises(ValueError, match="two rows, bca or percentile"):
        bootstrap_interval(np.ones(3), np.mean, method="magic")


def test_pairs_show_a_difference_that_samples_alone_would_hide():
    random = np.random.default_rng(0)
    shared = random.normal(scale=10, size=40)
    ours, theirs = shared + random.normal(scale=0.1, size=40), shared + 1.0
    assert paired_difference(ours, theirs, np.mean).high < 0
    assert paired_difference(ours, ours, np.mean).holds(0.0)
    with pytest.raises(ValueError, match="pairs of 2 and 3"):
        paired_difference(np.ones(2), np.ones(3), np.mean)


def test_a_block_resample_is_whole_blocks():
    rows = block_resample(100, 10, np.random.default_rng(2))
    assert len(rows) == 100
    assert set(rows[::10] % 10) == {0}
    assert (np.diff(rows.reshape(10, 10), axis=1) == 1).all()


def test_conformal_quantile_counts_the_new_case():
    scores = np.arange(1.0, 10.0)
    assert conformal_quantile(scores, 0.9) == 9.0
    assert conformal_quantile(scores, 0.91) == math.inf
    assert conformal_quantile(scores, 0.5) == 5.0
    assert conformal_quantile(scores[:0], 0.5) == math.inf


@pytest.mark.parametrize("size", [19, 25, 60])
def test_split_conformal_covers_at_least_its_level(size):
    random = np.random.default_rng(size)
    hits = []
    for _ in range(3000):
        low, high = split_conformal(random.gamma(2.0, size=size) - 1.0, 0.9)
        hits.append(low <= random.gamma(2.0) - 1.0 <= high)
    # Both sides are rounded up to a whole case: never below the level, above it by at most 2 in size + 1.
    assert 0.885 <= np.mean(hits) <= 0.9 + 2 / (size + 1) + 0.015


def test_jackknife_plus_covers_a_new_case():
    random = np.random.default_rng(11)
    hits = []
    for _ in range(1500):
        sample = random.normal(size=20)
        left_out = (sample.sum() - sample) / 19
        low, high = jackknife_plus(np.abs(sample - left_out), left_out, 0.9)
        hits.append(low <= random.normal() <= high)
    assert 0.88 <= np.mean(hits) <= 0.96
    with pytest.raises(ValueError, match="2 residuals"):
        jackknife_plus(np.ones(2), np.ones(3))
