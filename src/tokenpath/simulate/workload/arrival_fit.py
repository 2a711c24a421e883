"""Which arrival process made these arrivals: candidates, judged on stretches that they were not fitted to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.errors import UsageError
from tokenpath.simulate.workload.arrivals import (
    DAY_S,
    MAX_CV,
    MIN_CV,
    ArrivalProcess,
    AtOnce,
    Constant,
    Diurnal,
    Gamma,
    Poisson,
    Weibull,
)
from tokenpath.simulate.workload.chance import Floats, Purpose, stream
from tokenpath.simulate.workload.changing_rates import MarkovModulated, Pieces, RateTable
from tokenpath.simulate.workload.likelihood import (
    Blocks,
    TwoStates,
    fit_two_states,
    gamma_shape,
    renewal_scores,
    two_state_scores,
    weibull_shape_of,
)
from tokenpath.simulate.workload.statistics import (
    Dispersion,
    dispersions,
    rounding_s,
    spread_ties_s,
)
from tokenpath.simulate.workload.workload import Int64s

NUM_BLOCKS = 40
"""Stretches of the span; a process fitted to the even ones is judged on the odd ones, and the reverse."""
MAX_GAPS = 2_000
"""Gaps of a block that are judged; more would say nothing new."""
MIN_ARRIVALS = 100
"""Below it nothing but a rate can be told."""
CONSTANT_CV = 0.02
"""Gaps that vary less are taken for a constant rate."""
DISPERSION_SLACK = 0.25
NUM_PIECES = 8
"""Stretches of `pieces` in the span of the recording."""
MAX_PIECE_ARRIVALS = 20_000
PIECES_BETTER_BY = 1.5
NUM_DRAWS = 3
"""Draws over which the dispersion of a candidate is measured."""
TABLE_BLOCKS = (1, 2, 4, 8)
"""Blocks that share a rate, in the tables that are tried."""

Chosen = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process with its score."""

    kind: str
    """`poisson`, `gamma`, `weibull`, `markov_modulated`, `diurnal`, `rate_table`, `rate_table_gamma_10`, `pieces`, ..."""
    num_parameters: int
    """Numbers that were fitted."""
    log_likelihood: float | None
    """Mean log density of a gap on blocks that it was not fitted to, in nats; higher is better. None for
    `pieces`, which have no density."""
    behind_best: float | None
    """How much lower than the best; None likewise."""
    behind_error: float | None
    """Standard error of that difference, over blocks; None likewise."""
    dispersion_error: float
    """Mean distance of the logarithms of its dispersion and of the measured one, over all scales: 0.1 is 10 %."""


@dataclass(frozen=True, slots=True)
class ArrivalFit:
    """The process chosen, and what it was chosen from."""

    process: ArrivalProcess
    """The process, fitted to all arrivals."""
    kind: str
    """Which candidate it is."""
    candidates: tuple[Candidate, ...]
    """All that were tried, best first; empty for too few arrivals."""
    rounded_to_s: float | None
    """What times were rounded to in the source; they were spread within it."""


@dataclass(frozen=True, slots=True)
class _Trial:
    kind: str
    num_parameters: int
    score: Callable[[Chosen, Chosen], Floats | None]
    """Fitted to the first blocks, log densities of the second ones' gaps; None where no fit exists."""
    make: Callable[[], ArrivalProcess]
    """The process fitted to all."""


@dataclass(frozen=True, slots=True)
class _Scored:
    trial: _Trial
    scores: Floats
    process: ArrivalProcess
    dispersion_error: float


def fit_arrivals(arrival_ns: Int64s) -> ArrivalFit:
    """The process behind ascending arrivals.

    Gaps alone would choose a process whose bursts last too short: only candidates whose dispersion is nearly as
    close to the measured one as that of the closest (DISPERSION_SLACK) are looked at. Of those within one
    standard error of the likeliest on held-out stretches, the one with the fewest parameters is taken (the
    one-standard-error rule of Breiman et al., 1984). Where the dispersion of no candidate is close, and that of
    recorded stretches in random order is much closer, those are taken. UsageError for no arrival.
    """
    if not len(arrival_ns):
        raise UsageError("no arrival to fit to", where="workload")
    if arrival_ns[-1] == arrival_ns[0]:
        return ArrivalFit(AtOnce(), "at_once", (), None)
    rounded_to = rounding_s(arrival_ns)
    times = spread_ties_s(arrival_ns, rounded_to)
    gaps = np.diff(times)
    rate = (len(times) - 1) / float(times[-1] - times[0])
    if float(gaps.std() / gaps.mean()) < CONSTANT_CV:
        return ArrivalFit(Constant(rate), "constant", (), rounded_to)
    if len(times) < MIN_ARRIVALS:
        return ArrivalFit(Poisson(rate), "poisson", (), rounded_to)
    blocks = Blocks.of(times, NUM_BLOCKS, MAX_GAPS)
    measured = dispersions(times, 2 * (rounded_to or 0.0))
    scored = [
        _Scored(trial, scores, process, _dispersion_error(process, len(times), measured))
        for trial in _trials(blocks, rate)
        if (scores := _held_out(trial)) is not None and (process := trial.make()) is not None
    ]
    picked = _pick(scored)
    likeliest = max(scored, key=lambda entry: _mean(entry.scores)).scores
    candidates = [_candidate(entry, likeliest) for entry in scored]
    candidates.sort(key=lambda found: -(found.log_likelihood or 0.0))
    process, kind = picked.process, picked.trial.kind
    closest = min(entry.dispersion_error for entry in scored)
    if closest > DISPERSION_SLACK:
        pieces = Pieces.of(times[:MAX_PIECE_ARRIVALS], NUM_PIECES)
        error = _dispersion_error(pieces, len(times), measured)
        candidates.append(Candidate("pieces", len(pieces.gaps_us), None, None, None, error))
        if error * PIECES_BETTER_BY < closest:
            process, kind = pieces, "pieces"
    return ArrivalFit(process, kind, tuple(candidates), rounded_to)


def _pick(scored: list[_Scored]) -> _Scored:
    closest = min(entry.dispersion_error for entry in scored)
    near = [entry for entry in scored if entry.dispersion_error <= closest + DISPERSION_SLACK]
    top = max(near, key=lambda entry: _mean(entry.scores)).scores
    behind = [(entry, *_behind(entry.scores, top)) for entry in near]
    return min(
        ((entry, below) for entry, below, error in behind if below <= error),
        key=lambda found: (found[0].trial.num_parameters, found[1]),
    )[0]


def _candidate(entry: _Scored, likeliest: Floats) -> Candidate:
    behind, behind_error = _behind(entry.scores, likeliest)
    return Candidate(
        entry.trial.kind,
        entry.trial.num_parameters,
        _mean(entry.scores),
        behind,
        behind_error,
        entry.dispersion_error,
    )


def _behind(scores: Floats, best: Floats) -> tuple[float, float]:
    """How far below the best, per gap and mean over blocks, with its standard error."""
    behind = _per_block(best) - _per_block(scores)
    behind = behind[~np.isnan(behind)]
    if len(behind) < 2:
        return float(behind.sum()), math.inf
    return float(behind.mean()), float(behind.std(ddof=1)) / math.sqrt(len(behind))


def _dispersion_error(
    process: ArrivalProcess, num_arrivals: int, measured: tuple[Dispersion, ...]
) -> float:
    distances = []
    for seed in range(NUM_DRAWS):
        drawn = process.times_s(stream(seed, Purpose.ARRIVAL), num_arrivals)
        found = {entry.window_s: entry.index for entry in dispersions(drawn)}
        distances += [
            abs(math.log(max(found[entry.window_s], 1e-9) / max(entry.index, 1e-9)))
            for entry in measured
            if entry.window_s in found
        ]
    return float(np.mean(distances)) if distances else 0.0


def _held_out(trial: _Trial) -> Floats | None:
    even = np.arange(NUM_BLOCKS) % 2 == 0
    first, second = trial.score(even, ~even), trial.score(~even, even)
    if first is None or second is None:
        return None
    scores = np.full((NUM_BLOCKS, first.shape[1]), np.nan)
    scores[~even], scores[even] = first, second
    return scores


def _mean(scores: Floats) -> float:
    return float(np.nanmean(scores))


def _per_block(scores: Floats) -> Floats:
    known = ~np.isnan(scores)
    count = known.sum(axis=1)
    total = np.where(known, scores, 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _trials(blocks: Blocks, rate: float) -> list[_Trial]:
    trials = [
        _renewal(blocks, "poisson", rate),
        _renewal(blocks, "gamma", rate),
        _renewal(blocks, "weibull", rate),
        _two_states(blocks, rate),
    ]
    for num_together in TABLE_BLOCKS:
        trials += [_table(blocks, num_together, law) for law in ("poisson", "gamma", "weibull")]
    if blocks.times_s[-1] >= 2 * DAY_S:
        trials.append(_diurnal(blocks))
    return trials


def _shape(gaps: Floats, law: str) -> float:
    known = gaps[~np.isnan(gaps)]
    if law == "poisson" or len(known) < 10:
        return 1.0
    return gamma_shape(known) if law == "gamma" else weibull_shape_of(known)


def _cv(law: str, shape: float) -> float:
    if law == "weibull":
        square = math.expm1(math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape))
    else:
        square = 1 / shape
    return min(max(math.sqrt(max(square, 0.0)), MIN_CV), MAX_CV)


def _renewal(blocks: Blocks, law: str, rate: float) -> _Trial:
    def score(fitted: Chosen, judged: Chosen) -> Floats | None:
        own_rate = _mean_rate(blocks, fitted)
        shape = _shape(blocks.gaps_s[fitted], law)
        rates = np.full(int(judged.sum()), own_rate)
        return renewal_scores(blocks.gaps_s[judged], rates, law, shape)

    def make() -> ArrivalProcess:
        shape = _shape(np.diff(blocks.times_s)[None].clip(1e-6), law)
        if law == "poisson":
            return Poisson(rate)
        return (Gamma if law == "gamma" else Weibull)(rate, _cv(law, shape))

    return _Trial(law, 1 if law == "poisson" else 2, score, make)


def _two_states(blocks: Blocks, rate: float) -> _Trial:
    def score(fitted: Chosen, judged: Chosen) -> Floats | None:
        states = fit_two_states(blocks, fitted)
        return None if states is None else two_state_scores(blocks.gaps_s[judged], states)

    def make() -> ArrivalProcess:
        states = fit_two_states(blocks, np.ones(NUM_BLOCKS, bool))
        return Poisson(rate) if states is None else _to_process(states, rate)

    return _Trial("markov_modulated", 4, score, make)


def _to_process(states: TwoStates, rate: float) -> MarkovModulated:
    process = MarkovModulated(states.rates_per_s, states.stays_s)
    # The mean rate is known better than the states are: keep it.
    factor = rate / process.rate_per_s
    rates = (states.rates_per_s[0] * factor, states.rates_per_s[1] * factor)
    return MarkovModulated(rates, states.stays_s)


def _table(blocks: Blocks, num_together: int, law: str) -> _Trial:
    def rates_from(fitted: Chosen) -> Floats:
        """Rate of every block, where only some may be looked at."""
        group = np.arange(NUM_BLOCKS) // num_together
        count = np.bincount(group[fitted], blocks.num_arrivals[fitted], minlength=group[-1] + 1)
        width = np.bincount(group[fitted], minlength=group[-1] + 1) * blocks.width_s
        known = width > 0
        middle = np.arange(len(count), dtype=np.float64)
        # A block that may not be looked at has the rate between its neighbours.
        rates = np.interp(middle, middle[known], count[known] / width[known])
        return np.asarray(np.maximum(rates[group], 0.1 / blocks.width_s))

    def score(fitted: Chosen, judged: Chosen) -> Floats | None:
        rates = rates_from(fitted)
        shape = _shape(blocks.gaps_s[fitted] * rates[fitted][:, None], law)
        return renewal_scores(blocks.gaps_s[judged], rates[judged], law, shape)

    def make() -> ArrivalProcess:
        rates = rates_from(np.ones(NUM_BLOCKS, bool))
        shape = _shape(blocks.gaps_s * rates[:, None], law)
        edges = np.arange(0, NUM_BLOCKS + 1, num_together) * blocks.width_s
        return RateTable(
            tuple(edges.tolist()),
            tuple(rates[::num_together].tolist()),
            cv=_cv(law, shape),
            law="gamma" if law == "poisson" else law,
            repeats=True,
        )

    kind = "rate_table" if law == "poisson" else f"rate_table_{law}"
    num_parameters = NUM_BLOCKS // num_together + (law != "poisson")
    return _Trial(f"{kind}_{NUM_BLOCKS // num_together}", num_parameters, score, make)


def _diurnal(blocks: Blocks) -> _Trial:
    middle = (np.arange(NUM_BLOCKS) + 0.5) * blocks.width_s

    def wave(fitted: Chosen) -> Diurnal:
        turn = 2 * math.pi * middle[fitted] / DAY_S
        design = np.stack([np.ones(len(turn)), np.cos(turn), np.sin(turn)], axis=1)
        (mean, even, odd), *_ = np.linalg.lstsq(design, blocks.rates_per_s[fitted], rcond=None)
        swing = min(math.hypot(even, odd) / max(mean, 1e-12), 1.0)
        return Diurnal(
            max(float(mean), 1e-9), swing, DAY_S, math.atan2(odd, even) / (2 * math.pi) * DAY_S
        )

    def score(fitted: Chosen, judged: Chosen) -> Floats | None:
        found = wave(fitted)
        turn = 2 * math.pi * (middle[judged] - (found.peak_s or 0.0)) / DAY_S
        rates = found.rate_per_s * np.maximum(1 + found.swing * np.cos(turn), 0.01)
        return renewal_scores(blocks.gaps_s[judged], rates, "poisson", 1.0)

    return _Trial("diurnal", 3, score, lambda: wave(np.ones(NUM_BLOCKS, bool)))


def _mean_rate(blocks: Blocks, chosen: Chosen) -> float:
    count = max(int(blocks.num_arrivals[chosen].sum()), 1)
    return count / (blocks.width_s * float(chosen.sum()))
