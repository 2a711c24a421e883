"""Gaps between tokens of a run while it goes on: what `request` detail and streamed runs do not keep."""

from __future__ import annotations

import numpy as np

from tokenpath.simulate.recorder import Int64s, ShareRows, ShareSink

BIN_RATIO = 1.005
"""Width of a bin: percentiles are read as its upper edge, so at most half a per cent too high."""
_FIRST_NS = 1_000.0
_NUM_BINS = 4200
_NOT_YET = -1


class TokenGaps:
    """A `ShareSink` that counts gaps by size, and passes the shares on if there is another sink."""

    def __init__(self, num_requests: int, then: ShareSink | None = None) -> None:
        """`then` gets everything that this one gets."""
        self._last_ns = np.full(num_requests, _NOT_YET, np.int64)
        self._counts = np.zeros(_NUM_BINS + 1, np.int64)
        self._sum_ns = 0
        self._then = then

    def write(self, shares: ShareRows, end_ns: Int64s) -> None:
        """Count the gaps of a batch of shares; `end_ns` are the ends of their steps, in order of time."""
        emits = np.flatnonzero(shares.num_emitted > 0)
        # In order of time within each request, since steps are.
        order = emits[np.argsort(shares.request[emits], kind="stable")]
        request, at = shares.request[order], end_ns[order]
        before = np.empty_like(at)
        before[1:] = at[:-1]
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = request[1:] != request[:-1]
        before[is_first] = self._last_ns[request[is_first]]
        is_last = np.roll(is_first, -1)
        self._last_ns[request[is_last]] = at[is_last]
        gaps = (at - before)[before != _NOT_YET]
        # Tokens of one step come together.
        num_together = int((shares.num_emitted[emits] - 1).sum())
        self._counts += np.bincount(bins_of(gaps), minlength=_NUM_BINS + 1)
        self._counts[0] += num_together
        self._sum_ns += int(gaps.sum())
        if self._then is not None:
            self._then.write(shares, end_ns)

    @property
    def is_last(self) -> bool:
        """Whether nobody else wants the shares: then a loop may count gaps itself."""
        return self._then is None

    def add(self, counts: Int64s, sum_ns: int) -> None:
        """Gaps that were counted elsewhere, by bin, and their sum."""
        self._counts += counts
        self._sum_ns += sum_ns

    def statistics(self) -> dict[str, float]:
        """Mean and percentiles, ns; empty without a gap. Gaps up to a microsecond count as that long."""
        total = int(self._counts.sum())
        if total == 0:
            return {}
        reached = np.cumsum(self._counts)
        found = {"mean": self._sum_ns / total}
        for percent in (50, 90, 99):
            place = int(np.searchsorted(reached, np.ceil(percent / 100 * total)))
            found[f"p{percent}"] = _FIRST_NS * BIN_RATIO**place
        return found


def bins_of(gaps_ns: Int64s) -> Int64s:
    """The bin of each gap; the last one holds all that is longer."""
    bins = np.ceil(np.log(np.maximum(gaps_ns, _FIRST_NS) / _FIRST_NS) / np.log(BIN_RATIO))
    return np.minimum(bins, _NUM_BINS).astype(np.int64)


def longest_gaps_ns() -> Int64s:
    """The longest gap of each bin but the last, ns: the same bins for those who compare whole numbers."""
    bins = np.arange(_NUM_BINS)
    near = np.floor(_FIRST_NS * BIN_RATIO**bins).astype(np.int64)[:, np.newaxis] + np.arange(-2, 3)
    fits: Int64s = np.where(bins_of(near) <= bins[:, np.newaxis], near, 0).max(axis=1)
    return fits
