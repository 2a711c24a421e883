"""Times of tokens from a first one and the gaps between them, exactly.

A generator keeps its clock as a double and writes the shortest text that gives the same double back.
So a double is what there is to read: each is split into whole nanoseconds and a rest before anything is
added, which loses less than a thousandth of a nanosecond however many are summed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.units import NS_PER_S

EPOCH_FROM_NS = 10**18
"""Larger stamps count from 1970: 2001-09-09. No machine's uptime reaches 31 years."""

_LIMIT_NS = 2**62


def token_times(first_ns: int, gaps_s: Sequence[float]) -> NDArray[np.int64] | None:
    """When each token came, from the first one's time and the gaps in seconds.

    None where a gap is no number, negative, or too long for int64 nanoseconds.
    """
    if not all(type(gap) in (float, int) for gap in gaps_s) or abs(first_ns) > _LIMIT_NS:
        return None
    try:
        gaps = np.array(gaps_s, np.float64)
    except OverflowError:
        return None
    if not np.isfinite(gaps).all() or (gaps < 0).any():
        return None
    if math.fsum(gaps) * NS_PER_S > _LIMIT_NS:
        return None
    scaled = gaps * NS_PER_S
    whole = np.floor(scaled)
    # The rests are summed apart: a sum of doubles of some seconds would lose them.
    sums = np.cumsum(whole.astype(np.int64)) + np.rint(np.cumsum(scaled - whole)).astype(np.int64)
    times = np.empty(len(gaps) + 1, np.int64)
    times[0] = first_ns
    times[1:] = first_ns + sums
    return times


def is_epoch(time_ns: int) -> bool:
    """Whether a stamp counts from 1970."""
    return time_ns >= EPOCH_FROM_NS
