"""Quantiles of histograms: the bucket, never a number inside it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpath.core.histogram import difference, quantile_bounds

VLLM_QUEUE = [0.3, 0.5, 0.8, 1.0, math.inf]


def test_a_median_below_the_first_bound_is_not_known_better() -> None:
    """An empty queue and one of 290 ms look the same."""
    found = quantile_bounds(VLLM_QUEUE, [90, 95, 99, 100, 100], 0.5)
    assert found is not None
    assert (found.lower, found.upper) == (0.0, 0.3)
    assert found.resolution == 0.3
    assert found.is_in_first_bucket


def test_p99_lies_in_its_bucket() -> None:
    found = quantile_bounds(VLLM_QUEUE, [90, 95, 99, 100, 100], 0.99)
    assert found is not None
    assert (found.lower, found.upper, found.num_observations) == (0.5, 0.8, 100)
    assert not found.is_in_first_bucket
    assert found.is_bounded


def test_beyond_the_last_bound_there_is_no_upper_one() -> None:
    found = quantile_bounds(VLLM_QUEUE, [0, 0, 0, 0, 4], 0.5)
    assert found is not None
    assert (found.lower, found.upper) == (1.0, math.inf)
    assert not found.is_bounded


def test_a_whole_rank_that_floats_miss() -> None:
    """0.07 * 100 is 7.000000000000001; the seventh observation is meant."""
    found = quantile_bounds([1.0, 2.0], [7, 100], 0.07)
    assert found is not None
    assert found.upper == 1.0


@pytest.mark.parametrize("counts", [[], [0, 0]])
def test_no_observations(counts: list[float]) -> None:
    assert quantile_bounds([1.0, math.inf][: len(counts)], counts, 0.5) is None


@pytest.mark.parametrize(
    ("bounds", "counts", "quantile"),
    [
        ([1.0], [1], 1.5),
        ([1.0], [1, 2], 0.5),
        ([2.0, 1.0], [1, 2], 0.5),
        ([1.0, 1.0], [1, 2], 0.5),
        ([1.0, 2.0], [3, 2], 0.5),
        ([1.0, math.nan], [1, 2], 0.5),
        ([1.0], [math.nan], 0.5),
    ],
)
def test_nonsense_is_refused(bounds: list[float], counts: list[float], quantile: float) -> None:
    with pytest.raises(ValueError, match=r"quantile|bounds|counts"):
        quantile_bounds(bounds, counts, quantile)


def test_a_window_and_a_reset() -> None:
    assert difference([5, 9], [2, 3]) == [3, 6]
    assert difference([1, 9], [2, 3]) is None
    with pytest.raises(ValueError, match="2 counts after"):
        difference([1, 2], [1])


@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=50),
    st.lists(st.integers(1, 99), min_size=1, max_size=8, unique=True),
    st.floats(0, 1),
)
def test_the_true_quantile_lies_within(
    values: list[float], bounds: list[int], quantile: float
) -> None:
    """Law: the observation of that rank lies above `lower` (or is the lowest) and not above `upper`."""
    rising = [float(bound) for bound in sorted(bounds)] + [math.inf]
    counts = [sum(value <= bound for value in values) for bound in rising]
    found = quantile_bounds(rising, counts, quantile)
    assert found is not None
    rank = max(1, math.ceil(quantile * len(values) * (1 - 1e-12)))
    true = sorted(values)[rank - 1]
    assert true <= found.upper
    assert true > found.lower or found.lower == 0.0
