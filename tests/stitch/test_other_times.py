"""Steps of clocks that both count from 1970 are not linked over hours, whatever else agrees."""

from __future__ import annotations

import numpy as np
import pytest

from stitch.test_links_again import capture_of, profiled
from stitch.test_step_join import scheduled
from tokenpath.stitch import link
from tokenpath.stitch.alignment import Series, align

HOUR_NS = 3600 * 10**9


@pytest.mark.parametrize("hours", [-5, -1, 1, 5])
def test_numbers_of_a_run_hours_before(hours: int) -> None:
    """An engine counts from the start anew; without shapes its numbers alone say nothing."""
    mine = profiled(0, list(range(100, 106)))
    moved = [row | {k: row[k] + hours * HOUR_NS for k in ("start_ns", "end_ns")} for row in mine]
    for clock, expected in (("epoch", 12), ("monotonic", 6)):
        found = link(capture_of(2, [*moved, *scheduled(1)], clock))
        assert found["step"]["scheduler_step_id"].null_count == expected, clock


@pytest.mark.parametrize("seed", range(5))
def test_order_and_shape_of_a_run_hours_before(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = 10**18 + np.cumsum(rng.integers(5_000_000, 40_000_000, 300))
    batch = rng.integers(1, 4, 300)
    seen = Series(start[100:140] + HOUR_NS, batch[100:140], batch[100:140], True)
    assert (align(seen, Series(start, batch, batch, True)).row == -1).all()
    other = np.random.default_rng(seed + 1000)
    late = start[-1] + HOUR_NS + np.cumsum(other.integers(5_000_000, 40_000_000, 40))
    shape = other.integers(1, 4, 40)
    found = align(Series(late, shape, shape, True), Series(start, batch, batch, True))
    assert (found.row == -1).all()
