"""Prediction intervals on the outputs of a simulation: what another run of the same kind would show.

Three things differ from run to run: the speed of the machine, what the fit could not know (its coefficients,
by resampled blocks of time), and chance in the workload (its seed). Each draw simulates once with all three
drawn; an output's interval is between quantiles of the draws. Where runs were measured and simulated before,
what the simulation gets wrong beyond speed is added: conformal scores of those runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tokenpath.core.stats_bootstrap import Interval
from tokenpath.simulate.calibrate.model import CalibratedStepModel
from tokenpath.simulate.calibrate.speed import RunSpeed
from tokenpath.simulate.step_model import StepCurve, StepModel

Run = Callable[[StepCurve, int], Mapping[str, float]]
"""Simulates with a curve and a seed of the workload; figures by name, None-free."""

DEFAULT_LEVEL = 0.9
DEFAULT_DRAWS = 40
_UNMEASURED_SIGMA = 0.25
"""Spread of log(measured / predicted) that a model without measured error is given: two in three within
about a quarter, as rooflines are (AIConfigurator's TPOT on machines it has tables for: median 16 %)."""
_UNMEASURED_FREEDOM = 8.0
_NORMAL_MIDDLE = 0.6745
"""A standard normal variable stays within it half of the time."""


@dataclass(frozen=True, slots=True)
class RunScore:
    """A run that was measured and simulated: figures by name."""

    measured: Mapping[str, float]
    """What was measured."""
    predicted: Mapping[str, Interval]
    """What was predicted, with its interval, before the run was seen."""


def predict(
    run: Run,
    model: StepModel,
    *,
    level: float = DEFAULT_LEVEL,
    num_draws: int = DEFAULT_DRAWS,
    seed: int = 0,
    vary_workload: bool = True,
    scores: Sequence[RunScore] = (),
) -> dict[str, Interval]:
    """Point and interval of every figure that `run` gives.

    The point is the run with the model's own curve and `seed`. `vary_workload`: draws have seeds of their
    own; without, the workload is known (a replay) and only the engine differs. `scores` of runs left out
    widen the intervals until they would have held `level` of those. Figures that a draw lacks are judged on
    the draws that have them. ValueError for a level outside 0 to 1 or fewer than two draws.
    """
    if not 0 < level < 1 or num_draws < 2:
        raise ValueError(f"level {level} and {num_draws} draws: 0 < level < 1, at least 2 draws")
    random = np.random.default_rng(seed)
    point = run(model.curve, seed)
    drawn: dict[str, list[float]] = {name: [] for name in point}
    for number in range(num_draws):
        curve = draw_curve(model, random)
        figures = run(curve, seed + 1 + number if vary_workload else seed)
        for name, values in drawn.items():
            if name in figures:
                values.append(figures[name])
    inside = {
        name: _between(point[name], np.array(values), level) for name, values in drawn.items()
    }
    stretch = widening(scores, level)
    return {name: _widened(interval, stretch) for name, interval in inside.items()}


def draw_curve(model: StepModel, random: np.random.Generator) -> StepCurve:
    """A curve that another run could have, as unsure as the model says it is."""
    if isinstance(model, CalibratedStepModel):
        return model.sample(random)
    return speed_from_error(model).sample(model.curve, random)


def speed_from_error(model: StepModel) -> RunSpeed:
    """The law of a run's log speed from a model's error on data left out; wide where it was never measured.

    Half of the error's quantile range from 0.25 to 0.75 over the normal law's.
    """
    error = model.error
    if error is None:
        return _even(_UNMEASURED_SIGMA, _UNMEASURED_FREEDOM, 0)
    low, high = (_read(error.quantiles, at) for at in (0.25, 0.75))
    middle = math.log1p(min(max(error.bias_relative, -0.9), 10.0))
    sigma = math.hypot((high - low) / 2 / _NORMAL_MIDDLE, middle)
    freedom = float(max(min(error.num_steps, 60) / 2, 3))
    return _even(max(sigma, 0.01), freedom, error.num_steps)


def _even(sigma: float, freedom: float, num: int) -> RunSpeed:
    return RunSpeed(sigma, sigma, sigma, freedom, num)


def widening(scores: Sequence[RunScore], level: float) -> float:
    """Factor on the reach of intervals on a log scale, so that `level` of past figures lie inside.

    The score of a figure is the factor that its interval would have needed. Runs count alike, whatever
    number of figures they have; it never narrows, and without scores it is 1.
    """
    needed, weights = [], []
    for score in scores:
        factors = [
            _needed(interval, score.measured[name])
            for name, interval in score.predicted.items()
            if name in score.measured
        ]
        known = [factor for factor in factors if factor is not None]
        needed += known
        weights += [1 / len(known)] * len(known)
    if not needed:
        return 1.0
    order = np.argsort(needed)
    shares = np.cumsum(np.array(weights)[order]) / (sum(weights) + 1)
    # The new run is one more, with a factor as large as any: conformal, by whole runs.
    place = int(np.searchsorted(shares, level))
    worst = float(np.array(needed)[order][min(place, len(needed) - 1)])
    return max(worst, 1.0)


def _between(point: float, draws: np.ndarray, level: float) -> Interval:
    """Quantiles of the draws, one rank further out than plain ones, and never without the point."""
    if len(draws) < 2:
        return Interval(point, point, point, level)
    ordered = np.sort(draws)
    # Of n draws and the new run, each order is as likely: rank (n + 1) p, as in conformal prediction.
    low = (len(ordered) + 1) * (1 - level) / 2 - 1
    places = np.arange(len(ordered))
    low_value = float(np.interp(low, places, ordered))
    high_value = float(np.interp(len(ordered) - 1 - low, places, ordered))
    return Interval(point, min(low_value, point), max(high_value, point), level)


def _widened(interval: Interval, factor: float) -> Interval:
    if factor == 1.0 or interval.low == interval.high:
        return interval
    point = interval.point
    if interval.low <= 0:
        return Interval(
            point,
            point - factor * (point - interval.low),
            point + factor * (interval.high - point),
            interval.level,
        )
    return Interval(
        point,
        point * (interval.low / point) ** factor,
        point * (interval.high / point) ** factor,
        interval.level,
    )


def _needed(interval: Interval, measured: float) -> float | None:
    """How much longer the side of an interval had to be; None where it has no length to judge by."""
    if interval.holds(measured):
        return 0.0
    if min(interval.low, interval.point, measured) <= 0:
        reach = (
            interval.high - interval.point
            if measured > interval.point
            else (interval.point - interval.low)
        )
        return abs(measured - interval.point) / reach if reach > 0 else None
    end = interval.high if measured > interval.point else interval.low
    reach = abs(math.log(end / interval.point))
    return abs(math.log(measured / interval.point)) / reach if reach > 0 else None


def _read(quantiles: Mapping[float, float], at: float) -> float:
    known = sorted(quantiles)
    return float(np.interp(at, known, [quantiles[key] for key in known])) if known else 0.0
