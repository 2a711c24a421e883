"""Two records of one sequence of steps: found again, never guessed, probabilities that hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpath.stitch.alignment import Alignment, Series, align


def steps_of(rng: np.random.Generator, size: int, num_shapes: int) -> Series:
    """A scheduler's steps: few shapes, durations that depend on the shape, and noise."""
    shape = rng.integers(0, num_shapes, size)
    duration = (8 + 3 * shape + rng.exponential(4, size)) * 1e6
    start = np.cumsum(duration).astype(np.int64) + 1_790_000_000 * 10**9
    return Series(start, 1 + shape, 10 + 7 * shape, is_epoch=True)


def observed_of(
    reference: Series, rows: np.ndarray, rng: np.random.Generator, *, is_epoch: bool
) -> Series:
    """What a profiler would have: other delays, another origin of time, now and then another count."""
    start = reference.start_ns[rows] + rng.integers(0, 2_000_000, len(rows))
    if not is_epoch:
        start = start - start[0]
    tokens = np.where(rng.random(len(rows)) < 0.001, 999, reference.num_tokens[rows])
    return Series(start, reference.num_requests[rows], tokens, is_epoch=is_epoch)


@pytest.mark.parametrize("is_epoch", [True, False])
@pytest.mark.parametrize("size", [3, 40, 400])
def test_a_window_of_steps_is_found(is_epoch: bool, size: int) -> None:
    rng = np.random.default_rng(size)
    reference = steps_of(rng, 2000, 12)
    rows = np.arange(700, 700 + size)
    found = align(observed_of(reference, rows, rng, is_epoch=is_epoch), reference)
    linked = found.row >= 0
    assert (found.row[linked] == rows[linked]).all()
    assert linked.mean() >= (0.99 if is_epoch or size > 3 else 0)


def test_missed_steps_on_either_side() -> None:
    rng = np.random.default_rng(5)
    whole = steps_of(rng, 1500, 12)
    rows = np.arange(300, 900)
    rows = rows[rng.random(len(rows)) > 0.01]
    found = align(observed_of(whole, rows, rng, is_epoch=False), whole)
    linked = found.row >= 0
    assert linked.mean() > 0.98
    assert (found.row[linked] == rows[linked]).all()


def test_what_cannot_be_told_apart_is_not_linked() -> None:
    """All steps alike, no common clock: any window is as good as any other."""
    start = np.arange(100) * 10**7
    alike = Series(start, np.full(100, 4), np.full(100, 4), is_epoch=False)
    window = Series(start[:10], np.full(10, 4), np.full(10, 4), is_epoch=False)
    found = align(window, alike)
    assert (found.row == -1).all()
    assert (found.probability == 0).all()


def test_nothing_to_align() -> None:
    none = Series(*(np.zeros(0, np.int64),) * 3, is_epoch=True)
    one = Series(*(np.ones(1, np.int64),) * 3, is_epoch=True)
    assert align(none, one).row.tolist() == []
    assert align(one, none).row.tolist() == [-1]


def test_probabilities_are_calibrated() -> None:
    """Of the links given a probability of about p, a share of about p is right."""
    rng = np.random.default_rng(11)
    stated: list[float] = []
    right: list[bool] = []
    for _ in range(500):
        reference = steps_of(rng, 300, int(rng.integers(1, 4)))
        first, size = int(rng.integers(0, 280)), int(rng.integers(1, 12))
        rows = np.arange(first, first + size)
        found = align(observed_of(reference, rows, rng, is_epoch=False), reference)
        # Links of one window are right or wrong together: one of each counts.
        linked = np.flatnonzero(found.row >= 0)[:1]
        stated += found.probability[linked].tolist()
        right += (found.row[linked] == rows[linked]).tolist()
    p, hit = np.array(stated), np.array(right)
    assert len(p) > 200
    for low, high in ((0.5, 0.8), (0.8, 0.95), (0.95, 1.01)):
        some = (p >= low) & (p < high)
        if some.sum() >= 30:
            error = 2.5 * np.sqrt(0.25 / some.sum())
            assert hit[some].mean() >= p[some].mean() - error, (low, hit[some].mean(), some.sum())
    assert hit[p > 0.99].mean() > 0.97


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 60))
def test_laws(seed: int, size: int, num_rows: int) -> None:
    """Rows are rows of the reference; a link has more than half of the probability; order is kept."""
    rng = np.random.default_rng(seed)
    reference = steps_of(rng, num_rows, 3)
    rows = np.sort(rng.integers(0, num_rows, size))
    found: Alignment = align(observed_of(reference, rows, rng, is_epoch=False), reference)
    assert found.row.shape == found.probability.shape == (size,)
    linked = found.row >= 0
    assert ((found.probability > 0.5) == linked).all()
    assert (found.probability <= 1 + 1e-9).all()
    assert (found.row < num_rows).all()
    assert (np.diff(found.row[linked]) > 0).all()
