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
_MAX_GAP_RATIO = 0.25
"""Most logarithms of such ratios are below this between two records of one run; of two runs they are not."""
MAX_AWAY_NS = 20 * SKEW_NS
"""Steps farther apart than this on epoch clocks are not the same one."""
_BEAM = 96
"""Rows on either side of the likeliest one that are kept once a sequence has been located."""

_ELSEWHERE = 1e-9
"""A sequence is located when all rows farther from the likeliest one are less probable together than this."""
_MAX_CELLS = 2**25
"""Pairs of steps looked at, 8 bytes each; a sequence that is not located by then is not aligned."""


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
    start, size = _band(observed, reference)
    emission = _Emission(observed, reference)
    bands = [_Band(start, _scaled(emission.at(0, start + np.arange(size))))]
    num_cells = size
    for step in range(1, num_observed):
        before = bands[-1]
        start, size = _next_band(before, num_rows)
        num_cells += size
        if num_cells > _MAX_CELLS:
            return Alignment(np.full(num_observed, -1), np.zeros(num_observed))
        columns = start + np.arange(size)
        arrived = np.zeros(size)
        for missed, weight in enumerate(_moves(emission, step, columns)):
            arrived += weight * _window(before.values, start - 1 - missed - before.start, size)
        bands.append(_Band(start, _scaled(arrived * emission.at(step, columns))))
    return _checked(_decode(bands, emission, num_rows), observed, reference)


def _checked(found: Alignment, observed: Series, reference: Series) -> Alignment:
    """Without what another run would give as well: a probability says which row, not whether any is right.

    Steps whose epoch times are far apart are not the same; nor are any where the times between them, on
    the whole, have nothing to do with each other.
    """
    known = found.row >= 0
    if observed.is_epoch and reference.is_epoch:
        away = observed.start_ns - reference.start_ns[found.row]
        known &= (away > -MAX_AWAY_NS) & (away < MAX_AWAY_NS)
    rows = np.flatnonzero(known)
    pairs = rows[1:][np.diff(rows) == 1]
    if len(pairs):
        seen, stated = (
            np.log(np.maximum(start[now] - start[then], 0) + float(_GAP_FLOOR_NS))
            for start, now, then in (
                (observed.start_ns, pairs, pairs - 1),
                (reference.start_ns, found.row[pairs], found.row[pairs - 1]),
            )
        )
        if np.median(np.abs(seen - stated)) > _MAX_GAP_RATIO:
            known = np.zeros(len(known), bool)
    return Alignment(np.where(known, found.row, -1), np.where(known, found.probability, 0.0))


@dataclass(frozen=True)
class _Band:
    """The rows that an observed step may be, one after the other."""

    start: int
    """The first of them."""
    values: Float64s
    """Their probabilities, given the steps so far."""


def _decode(bands: list[_Band], emission: _Emission, num_rows: int) -> Alignment:
    row, probability = np.full(len(bands), -1, np.int64), np.zeros(len(bands))
    backward = np.ones(len(bands[-1].values))
    for step in range(len(bands) - 1, -1, -1):
        start = bands[step].start
        posterior = _scaled(bands[step].values * backward)
        best = int(np.argmax(posterior))
        if posterior[best] > 0.5 and start + best < num_rows:
            row[step], probability[step] = start + best, posterior[best]
        if step:
            columns = start + np.arange(len(backward))
            reached = backward * emission.at(step, columns)
            at, size = bands[step - 1].start, len(bands[step - 1].values)
            before = np.zeros(size)
            for missed, weight in enumerate(_moves(emission, step, columns)):
                before += _window(weight * reached, at + 1 + missed - start, size)
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
        self._log_known: dict[int, Float64s] = {}

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
        chance = WRONG_SHAPE * float(self._frequency[step])
        result: Float64s = np.where(same, 1 - WRONG_SHAPE + chance, chance)
        return result

    def gap(self, step: int, columns: Int64s, distance: int) -> Float64s:
        """How likely the time since the observed step before is, if that one was `distance` rows before."""
        seen = self.observed.start_ns[step] - self.observed.start_ns[step - 1]
        known = self._log_gap(distance)[np.minimum(columns, len(self.reference) - 1)]
        away = np.abs(np.log(max(int(seen), 0) + _GAP_FLOOR_NS) - known)
        result = np.zeros(len(columns))
        for weight, scale in GAP_SCALES:
            result += weight / (2 * scale) * np.exp(away / -scale)
        return result

    def _log_gap(self, distance: int) -> Float64s:
        """For each row the logarithm of the time since the row so many before."""
        if distance not in self._log_known:
            start = self.reference.start_ns
            then = np.concatenate((np.repeat(start[:1], distance), start))[: len(start)]
            gap = np.maximum(start - then, 0) + float(_GAP_FLOOR_NS)
            self._log_known[distance] = np.log(gap).astype(np.float64)
        return self._log_known[distance]


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
    near = MAX_AWAY_NS
    low = int(np.searchsorted(reference.start_ns, observed.start_ns[0] - near)) - _BEAM
    high = int(np.searchsorted(reference.start_ns, observed.start_ns[0] + near)) + _BEAM
    low = max(0, min(low, num_rows - 1))
    return low, max(1, min(high, num_rows) - low)


def _next_band(band: _Band, num_rows: int) -> tuple[int, int]:
    """(first row, number of rows) for the next step: the band narrows once it is known where it is.

    It moves on with the likeliest row; one that holds the whole reference stays.
    """
    start, size = band.start, len(band.values)
    best = int(np.argmax(band.values))
    near = band.values[max(0, best - _BEAM // 2) : best + _BEAM // 2 + 1].sum()
    if size > 2 * _BEAM and 1 - near < _ELSEWHERE:
        return max(0, start + best + 1 - _BEAM), 2 * _BEAM
    if size >= num_rows:
        return start, size
    return max(start, min(start + best + 1 - size // 2, num_rows - 1)), size


def _moves(emission: _Emission, step: int, columns: Int64s) -> list[Float64s]:
    """Weights of arriving at each row from 1, 2, ... rows before."""
    weights = [(1 - MISSED) * emission.gap(step, columns, 1)]
    for missed in range(1, MAX_MISSED + 1):
        share = MISSED * 0.5**missed
        weights.append(share * emission.gap(step, columns, missed + 1))
    return weights


def _window(values: Float64s, first: int, size: int) -> Float64s:
    """result[k] = values[first + k], 0 beyond the ends."""
    result = np.zeros(size)
    low, high = max(first, 0), min(first + size, len(values))
    if low < high:
        result[low - first : high - first] = values[low:high]
    return result


def _scaled(values: Float64s) -> Float64s:
    total = values.sum()
    # Nothing fits: every row is as likely as any other.
    return values / total if total > 0 else np.full(len(values), 1 / len(values))
