"""Figures of many requests: exact on small inputs, laws on random ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explain.serving import capture_of, run
from tokenpath.explain.latency import PARTS, Latency, latencies
from tokenpath.explain.latency_table import (
    cliffs_delta,
    latency_table,
    part_figures,
    percentile,
    tpot_ns,
)

KEYS = [key for key, _ in PARTS]


@pytest.mark.parametrize(
    ("percent", "expected"), [(50, 2), (75, 3), (76, 4), (99, 4), (100, 4), (1, 1), (0, 1)]
)
def test_nearest_rank(percent: float, expected: int) -> None:
    assert percentile(np.array([4, 1, 3, 2]), percent) == expected


ints = st.lists(st.integers(-9, 9), min_size=1, max_size=8)


@given(ints, ints)
def test_cliffs_delta_is_what_counting_pairs_gives(one: list[int], other: list[int]) -> None:
    pairs = [(a > b) - (a < b) for a in one for b in other]
    assert cliffs_delta(np.array(one), np.array(other)) == pytest.approx(sum(pairs) / len(pairs))


def latency_of(total: list[int], queue: list[int], kind: str = "ttft") -> Latency:
    parts = np.zeros((len(total), len(PARTS)), np.int64)
    parts[:, KEYS.index("queue")] = queue
    parts[:, KEYS.index("own_compute")] = np.array(total) - np.array(queue)
    names = [str(number) for number in range(len(total))]
    return Latency(kind, "client", names, np.array(total), parts, np.full(len(total), 3))


def test_what_the_slow_ones_have_more_of() -> None:
    """20 requests; the two slowest waited 1,000 longer and computed as long as the others."""
    total = [100 + number for number in range(18)] + [1100, 1101]
    queue = [0] * 18 + [1000, 1000]
    queue_part, own = part_figures(latency_of(total, queue))
    assert (queue_part.key, own.key) == ("queue", "own_compute")
    assert queue_part.slow_minus_rest_ns == 1000
    assert queue_part.effect == 1.0
    assert own.slow_minus_rest_ns == pytest.approx(100.5 - 108.5)
    assert queue_part.mean_ns + own.mean_ns == pytest.approx(sum(total) / 20)


def test_too_few_requests_have_no_slow_tenth() -> None:
    (part,) = part_figures(latency_of([5] * 19, [5] * 19))
    assert part.slow_minus_rest_ns is None
    assert part.effect is None
    assert "slowest" not in (latency_table(latency_of([5] * 19, [5] * 19)).note or "")


def test_time_per_output_token() -> None:
    found = tpot_ns(latency_of([100, 7], [0, 0], "decode"))
    assert found is not None
    assert found.tolist() == [50, 3]
    assert tpot_ns(latency_of([100], [0])) is None


@given(st.integers(0, 10**5))
def test_means_of_parts_add_up_to_the_mean(seed: int) -> None:
    for latency in latencies(capture_of(run(seed, 5))):
        figures = part_figures(latency)
        assert sum(part.mean_ns for part in figures) == pytest.approx(latency.total_ns.mean())
        table = latency_table(latency)
        assert [row[1] for row in table.rows] == sorted(
            [row[1] for row in table.rows], reverse=True
        )
        assert all(len(row) == len(table.columns) for row in table.rows)
