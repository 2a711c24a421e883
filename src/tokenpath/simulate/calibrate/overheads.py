"""What requests spend outside the engine: from the client to the queue, and from the engine back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture

Int64s = NDArray[np.int64]

_UNKNOWN = -(2**63)
_PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_MIN_DELAYS = 5
"""Fewer delays than this are no distribution."""


@dataclass(frozen=True, slots=True)
class Delay:
    """A distribution of delays, ns."""

    num: int
    """Delays measured."""
    mean_ns: float
    """Mean: what a mean latency of clients has on top."""
    quantiles: dict[float, float]
    """Quantiles by probability."""


@dataclass(frozen=True, slots=True)
class Overheads:
    """Delays that no step explains. None: the capture does not show both sides."""

    arrival: Delay | None
    """Client's sending to entering the engine's queue, of requests that no running step held up: HTTP,
    tokeniser, hand-over. An engine takes requests between steps; waiting for one to end is not overhead."""
    first_token: Delay | None
    """End of the step that emitted the first token to the client's having it."""
    delivery: Delay | None
    """The same for the last token."""

    @property
    def round_trip_ns(self) -> float:
        """Mean of arrival and delivery together: what E2E has on top; 0 where not measured."""
        return sum(delay.mean_ns for delay in (self.arrival, self.delivery) if delay is not None)


def overheads_of(capture: Capture) -> Overheads:
    """Delays between what the client and the engine saw of the same requests."""
    codes, names = capture.codes("request", "observer")
    if "client" not in names or "engine" not in names:
        return Overheads(None, None, None)
    ids, _ = capture.codes("request", "request_id")
    pairs = _pairs(ids, codes == names.index("client"), codes == names.index("engine"))
    times = {
        name: capture.int64("request", name, _UNKNOWN)
        for name in ("arrival_ns", "queued_ns", "first_token_ns", "last_token_ns")
    }
    queued = np.where(times["queued_ns"] == _UNKNOWN, times["arrival_ns"], times["queued_ns"])
    client, engine = pairs
    return Overheads(
        arrival=_delay(*_not_held_up(capture, times["arrival_ns"][client], queued[engine])),
        first_token=_delay(times["first_token_ns"][engine], times["first_token_ns"][client]),
        delivery=_delay(times["last_token_ns"][engine], times["last_token_ns"][client]),
    )


def _pairs(
    ids: NDArray[np.int32], is_client: NDArray[np.bool_], is_engine: NDArray[np.bool_]
) -> tuple[Int64s, Int64s]:
    """Rows of the client and of the engine about the same request, where each has exactly one."""
    sides = []
    for mask in (is_client, is_engine):
        rows = np.flatnonzero(mask & (ids >= 0))
        _, first, counts = np.unique(ids[rows], return_index=True, return_counts=True)
        sides.append(rows[first[counts == 1]])
    _, client, engine = np.intersect1d(ids[sides[0]], ids[sides[1]], return_indices=True)
    return sides[0][client], sides[1][engine]


def _not_held_up(capture: Capture, sent: Int64s, queued: Int64s) -> tuple[Int64s, Int64s]:
    """Those between whose sending and queueing no step of the scheduler ran, if it recorded steps."""
    codes, names = capture.codes("step", "observer")
    rows = np.flatnonzero(codes == names.index("scheduler")) if "scheduler" in names else codes[:0]
    if not len(rows):
        return sent, queued
    start = np.sort(capture.int64("step", "start_ns")[rows])
    end = np.sort(capture.int64("step", "end_ns")[rows])
    # Steps that had begun before it was queued, less those that had ended when it was sent.
    is_free = np.searchsorted(start, queued, "left") <= np.searchsorted(end, sent, "right")
    return sent[is_free], queued[is_free]


def _delay(begin: Int64s, end: Int64s) -> Delay | None:
    known = (begin != _UNKNOWN) & (end != _UNKNOWN)
    delays = (end[known] - begin[known]).astype(np.float64)
    # Clocks of two hosts that were not aligned would give negative delays: those tell nothing.
    if len(delays) < _MIN_DELAYS or np.median(delays) < 0:
        return None
    return Delay(
        num=len(delays),
        mean_ns=float(delays.mean()),
        quantiles={at: float(np.quantile(delays, at)) for at in _PROBABILITIES},
    )
