"""Gaps counted while a run goes on, beside those read from its tables."""

from __future__ import annotations

import numpy as np
import pytest

from tokenpath.simulate.recorder import ShareRows
from tokenpath.simulate.summary import statistics
from tokenpath.simulate.token_gaps import BIN_RATIO, TokenGaps


def shares(request: list[int], emitted: list[int]) -> ShareRows:
    size = len(request)
    zero = np.zeros(size, np.int64)
    return ShareRows(
        step=np.arange(size),
        request=np.array(request),
        is_prefill=zero.astype(np.bool_),
        num_tokens=zero + 1,
        num_computed_before=zero,
        num_emitted=np.array(emitted),
        is_resumed=zero.astype(np.bool_),
    )


def test_gaps_go_on_over_batches_and_first_tokens_have_none() -> None:
    gaps = TokenGaps(3)
    gaps.write(shares([0, 1, 0, 2], [1, 1, 1, 0]), np.array([10, 20, 2_010, 3_000]) * 1_000)
    gaps.write(shares([1, 0, 1], [1, 1, 1]), np.array([4_020, 6_010, 8_020]) * 1_000)
    exact = np.array([2_000, 4_000, 4_000, 4_000]) * 1_000.0
    found = gaps.statistics()
    assert found["mean"] == exact.mean()
    for name in ("p50", "p90", "p99"):
        wanted = statistics(exact)[name]
        assert wanted * (1 - 1e-9) <= found[name] <= wanted * BIN_RATIO


def test_tokens_of_one_step_come_together() -> None:
    gaps = TokenGaps(1)
    gaps.write(shares([0, 0], [1, 3]), np.array([0, 9_000_000]))
    assert gaps.statistics()["mean"] == 3_000_000
    assert gaps.statistics()["p50"] == 1_000


@pytest.mark.parametrize("num_batches", [1, 7])
def test_random_runs_have_the_statistics_of_all_gaps(num_batches: int) -> None:
    random = np.random.default_rng(5)
    request = random.integers(0, 20, 4_000)
    end = np.cumsum(random.integers(1_000, 9_000_000, 4_000))
    gaps = TokenGaps(20)
    for rows in np.array_split(np.arange(4_000), num_batches):
        gaps.write(shares(request[rows].tolist(), [1] * len(rows)), end[rows])
    exact = np.concatenate([np.diff(end[request == r]) for r in range(20)]).astype(np.float64)
    found, wanted = gaps.statistics(), statistics(exact)
    assert found["mean"] == pytest.approx(wanted["mean"])
    for name in ("p50", "p90", "p99"):
        assert wanted[name] * (1 - 1e-9) <= found[name] <= wanted[name] * BIN_RATIO


def test_no_gap_has_no_statistics() -> None:
    gaps = TokenGaps(2)
    gaps.write(shares([0, 1], [1, 1]), np.array([1, 2]))
    assert gaps.statistics() == {}
