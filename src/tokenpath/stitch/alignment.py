"""Aligns two records of one sequence of steps, when neither names the other's numbers.

A hidden Markov model: the state at observed step i is the row j of the reference that it is. Both run
forward in time, mostly one by one; either may have missed some. What is observed is the shape of a step
(requests and tokens), its time where both clocks count from the epoch, and the time since the step before.
Forward and backward passes (Rabiner, A Tutorial on Hidden Markov Models, 1989) give the probability of each
row, so an alignment that repeats or that the data cannot tell apart says so by a low one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

WRONG_SHAPE = 1e-3
"""Probability that a step's shape differs between two records of it, as of a label that counts otherwise."""
MISSED = 0.02
"""Probability that the reference has steps between two that the observer saw one after the other."""
MAX_MISSED = 8
"""At most so many in a row."""
SKEW_NS = 50_000_000
"""Scale of the difference of two epoch clocks and of the delays between the two records."""
GAP_SCALES = ((0.6, 0.02), (0.25, 0.12), (0.15, 0.5))
"""Weights and scales of the logarithm of the ratio of two records of the time between two steps: mostly
they agree to some per cent, but now and then one of the two recorders is held up."""
_GAP_FLOOR_NS = 1_000_000
"""Below this, delays of the two records count for more than the time itself."""
_BEAM = 96
"""Rows on either side of the likeliest one that are kept once a sequence has been located."""


@dataclass(frozen=True)
class Series:
    """Steps of one record, in order of time."""

    start_ns: Int64s
    """When each began."""
    num_requests: Int64s
    """Requests scheduled; -1 for unknown."""
    num_tokens: Int64s
    """Tokens scheduled; -1 for unknown."""
    is_epoch: bool
    """Whether times count from 1970 rather than from an unknown origin."""

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True)
class Alignment:
    """For each observed step the row of the reference that it is."""

    row: Int64s
    """The likeliest row; -1 where none is likelier than all others together."""
    probability: Float64s
    """Its probability, given both records; 0 where the row is -1."""


def align(observed: Series, reference: Series) -> Alignment:
    """Find the observed steps in the reference."""
    num_observed, num_rows = len(observed), len(reference)
    if num_observed == 0 or num_rows == 0:
        return Alignment(np.full(num_observed, -1), np.zeros(num_observed))
    first, size = _band(observed, reference)
    emission = _Emission(observed, reference)
    forward = np.zeros((num_observed, size))
    starts = np.empty(num_observed, np.int64)
    starts[0] = first
    columns = first + np.arange(size)
    forward[0] = _scaled(emission.at(0, columns))
    transitions = []
    for step in range(1, num_observed):
        starts[step] = _next_band(int(starts[step - 1]), forward[step - 1], num_rows, size)
        columns = starts[step] + np.arange(size)
        moves = _moves(emission, step, columns)
        transitions.append(moves)
        arrived = np.zeros(size)
        for missed, weight in enumerate(moves):
            arrived += weight * _shifted(
                forward[step - 1], int(starts[step] - starts[step - 1]) - 1 - missed
            )
        forward[step] = _scaled(arrived * emission.at(step, columns))
    return _decode(forward, starts, transitions, emission, num_rows)


def _decode(
    forward: Float64s,
    starts: Int64s,
    transitions: list[list[Float64s]],
    emission: _Emission,
    num_rows: int,
) -> Alignment:
    num_observed, size = forward.shape
    row, probability = np.full(num_observed, -1, np.int64), np.zeros(num_observed)
    backward = np.ones(size)
    for step in range(num_observed - 1, -1, -1):
        posterior = _scaled(forward[step] * backward)
        best = int(np.argmax(posterior))
        if posterior[best] > 0.5 and starts[step] + best < num_rows:
            row[step], probability[step] = starts[step] + best, posterior[best]
        if step:
            columns = starts[step] + np.arange(size)
            reached = backward * emission.at(step, columns)
            before = np.zeros(size)
            for missed, weight in enumerate(transitions[step - 1]):
                offset = int(starts[step] - starts[step - 1]) - 1 - missed
                before += _shifted(weight * reached, -offset)
            backward = _scaled(before)
    # Where no order of rows fits (a step seen twice), the passes lose the thread: order is kept here.
    highest = np.maximum.accumulate(np.concatenate(([-1], row[:-1])))
    broken = (row >= 0) & (row <= highest)
    return Alignment(np.where(broken, -1, row), np.where(broken, 0.0, probability))


class _Emission:
    """How likely the observed step i is, if it is row j."""

    def __init__(self, observed: Series, reference: Series) -> None:
        self.observed, self.reference = observed, reference
        self._has_times = observed.is_epoch and reference.is_epoch
        self._frequency = _frequencies(observed, reference)

    def at(self, step: int, columns: Int64s) -> Float64s:
        """For rows by number; 0 for those beyond the end."""
        inside = (columns >= 0) & (columns < len(self.reference))
        rows = np.clip(columns, 0, len(self.reference) - 1)
        likelihood = self._of_shape(step, rows)
        if self._has_times:
            away = np.abs(self.observed.start_ns[step] - self.reference.start_ns[rows])
            likelihood = likelihood * np.exp(-np.minimum(away / SKEW_NS, 600.0))
        result: Float64s = np.where(inside, likelihood, 0.0)
        return result

    def _of_shape(self, step: int, rows: Int64s) -> Float64s:
        same = np.ones(len(rows), bool)
        for values, known in (
            (self.observed.num_requests, self.reference.num_requests),
            (self.observed.num_tokens, self.reference.num_tokens),
        ):
            if values[step] >= 0:
                same &= (known[rows] == values[step]) | (known[rows] < 0)
        return np.where(same, 1 - WRONG_SHAPE, 0.0) + WRONG_SHAPE * self._frequency[step]

    def gap(self, step: int, columns: Int64s, distance: int) -> Float64s:
        """How likely the time since the observed step before is, if that one was `distance` rows before."""
        last = len(self.reference) - 1
        now, then = np.clip(columns, 0, last), np.clip(columns - distance, 0, last)
        seen = self.observed.start_ns[step] - self.observed.start_ns[step - 1]
        known = self.reference.start_ns[now] - self.reference.start_ns[then]
        ratio = np.log((max(int(seen), 0) + _GAP_FLOOR_NS) / (np.maximum(known, 0) + _GAP_FLOOR_NS))
        result = np.zeros(len(columns))
        for weight, scale in GAP_SCALES:
            result += weight / (2 * scale) * np.exp(-np.abs(ratio) / scale)
        return result


def _frequencies(observed: Series, reference: Series) -> Float64s:
    """How often each observed shape occurs in the reference, smoothed."""
    width = int(max(observed.num_tokens.max(), reference.num_tokens.max(), 0)) + 2
    known = (reference.num_requests + 1) * width + reference.num_tokens + 1
    wanted = (observed.num_requests + 1) * width + observed.num_tokens + 1
    known = np.sort(known)
    count = np.searchsorted(known, wanted, "right") - np.searchsorted(known, wanted, "left")
    result: Float64s = (count + 1) / (len(known) + 1)
    return result


def _band(observed: Series, reference: Series) -> tuple[int, int]:
    """First row and number of rows that the first observed step may be."""
    num_rows = len(reference)
    if not (observed.is_epoch and reference.is_epoch):
        return 0, num_rows
    near = 20 * SKEW_NS
    low = int(np.searchsorted(reference.start_ns, observed.start_ns[0] - near)) - _BEAM
    high = int(np.searchsorted(reference.start_ns, observed.start_ns[0] + near)) + _BEAM
    low = max(0, min(low, num_rows - 1))
    return low, max(1, min(high, num_rows) - low)


def _next_band(start: int, forward: Float64s, num_rows: int, size: int) -> int:
    """The band moves on with the likeliest row; it stays where it holds the whole reference."""
    if size >= num_rows:
        return start
    best = start + int(np.argmax(forward)) + 1
    return max(start, min(best - size // 2, num_rows - 1))


def _moves(emission: _Emission, step: int, columns: Int64s) -> list[Float64s]:
    """Weights of arriving at each row from 1, 2, ... rows before."""
    weights = [(1 - MISSED) * emission.gap(step, columns, 1)]
    for missed in range(1, MAX_MISSED + 1):
        share = MISSED * 0.5**missed
        weights.append(share * emission.gap(step, columns, missed + 1))
    return weights


def _shifted(values: Float64s, by: int) -> Float64s:
    """result[k] = values[k + by], 0 beyond the ends."""
    result = np.zeros(len(values))
    if by >= 0:
        result[: len(values) - by] = values[by:] if by < len(values) else 0.0
    else:
        result[-by:] = values[:by] if -by < len(values) else 0.0
    return result


def _scaled(values: Float64s) -> Float64s:
    total = values.sum()
    # Nothing fits: every row is as likely as any other.
    return values / total if total > 0 else np.full(len(values), 1 / len(values))
