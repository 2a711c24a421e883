"""A short trace in the log of a long run: found in seconds, and given up where that would take minutes."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tokenpath.stitch import alignment
from tokenpath.stitch.alignment import Series, align

NUM_ROWS, NUM_SEEN = 40_000, 600


def test_a_trace_of_unknown_clock_in_a_long_log() -> None:
    rng = np.random.default_rng(0)
    start = np.cumsum(rng.integers(5_000_000, 40_000_000, NUM_ROWS))
    requests = rng.integers(1, 60, NUM_ROWS)
    tokens = requests + 100 * rng.integers(0, 5, NUM_ROWS)
    first = NUM_ROWS // 2
    # Two steps are missing in the trace.
    rows = np.setdiff1d(np.arange(first, first + NUM_SEEN), [first + 100, first + 101])
    late = rng.integers(0, 300_000, len(rows))
    seen = Series(start[rows] - start[first] + late, requests[rows], tokens[rows], False)
    began = time.process_time()
    found = align(seen, Series(start, requests, tokens, True))
    assert time.process_time() - began < 8
    assert (found.row == rows).all()
    assert found.probability.min() > 0.9


def test_a_trace_that_fits_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "_MAX_CELLS", 2**21)
    start = 10_000_000 * np.arange(NUM_ROWS)
    alike = np.full(NUM_ROWS, 8)
    seen = Series(start[:20_000], alike[:20_000], alike[:20_000], False)
    began = time.process_time()
    found = align(seen, Series(start, alike, alike, True))
    assert time.process_time() - began < 5
    assert (found.row == -1).all()
