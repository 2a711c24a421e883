"""Fit the cost of steps, and measure how wrong the fit is on steps that were left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.errors import InputError
from tokenpath.core.stats_bootstrap import block_resample
from tokenpath.core.stats_nnls import non_negative_least_squares
from tokenpath.simulate.calibrate.form import Form, forms_for
from tokenpath.simulate.calibrate.noise import StepNoise, noise_of
from tokenpath.simulate.calibrate.observe import StepObservations
from tokenpath.simulate.step_model import Float64s, StepCurve, StepError

Int64s = NDArray[np.int64]

MIN_STEPS = 20
"""Fewer steps than this are not fitted: nothing would be left to measure the error on."""
MIN_RUNS_LEFT_OUT = 3
"""From so many runs on each run is left out whole; with fewer, blocks of time are."""
NUM_BLOCKS = 10
"""Blocks of time that each run is cut into, fewer where a block would have less than `_MIN_BLOCK` steps."""
_MIN_BLOCK = 4
PROBABILITIES = (0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.995)
"""Where the quantiles of the error are stored."""
_ROUNDS = 12
_CLIP_SIGMAS = 4.0
"""A step that deviates by more robust standard deviations is a stall: its excess is not fitted."""
_MIN_STALL_FACTOR = 2.0
"""And is at least so many times as long: steps of a slow minute are no stalls."""
_NORMAL_MAD = 1.4826
"""Standard deviation of a normal law over its median absolute deviation."""
_NUM_DRAWS = 20
_MIN_GAIN = 0.1
"""Share of the loss that a richer form must take: pieces go wrong where other runs leave their range."""


@dataclass(frozen=True, slots=True)
class FittedSteps:
    """A curve, its error on what it was not fitted to, and what intervals are made of."""

    curve: StepCurve
    """Latency of a step."""
    form: Form
    """Its terms."""
    weights: Float64s
    """ns per unit of each term."""
    error: StepError
    """On runs left out where there are three or more, else on blocks of time left out."""
    log_speed: Float64s
    """log(measured / predicted) of the summed cost, stalls set aside, of each part left out: how speed wanders."""
    log_decode_speed: Float64s
    """The same of steps of decode only, of the parts that have such."""
    log_prefill_speed: Float64s
    """The same of steps with prefill."""
    draws: tuple[StepCurve, ...]
    """Curves fitted to resampled blocks of time: how unsure the coefficients are."""
    stall_share: float
    """Time beyond what is fitted, of all time: stalls that no feature explains."""
    noise: StepNoise | None
    """How single steps differ from the curve, in order of time."""


def fit_observations(runs: Sequence[StepObservations], *, seed: int = 0) -> FittedSteps:
    """Fit all runs together. InputError for fewer than MIN_STEPS steps in all."""
    features = np.concatenate([run.features for run in runs])
    cost = np.concatenate([run.cost_ns for run in runs])
    if len(cost) < MIN_STEPS:
        raise InputError(
            f"{len(cost)} steps to calibrate on",
            allowed=f"at least {MIN_STEPS} steps with work",
            next_step="record a longer run",
        )
    block = _blocks([run.num_steps for run in runs])
    run_of = np.repeat(np.arange(len(runs)), [run.num_steps for run in runs])
    parts = run_of if len(runs) >= MIN_RUNS_LEFT_OUT else block
    form = _choose(forms_for(features), features, cost, block)
    predicted = _left_out(form, features, cost, parts)
    weights = _fit(form, features, cost)
    random = np.random.default_rng(seed)
    is_mixed = features[:, 0] > 0
    calm = _without_stalls(cost, predicted, is_mixed)

    def log_speed(mask: NDArray[np.bool_]) -> Float64s:
        return _log_speed(calm[mask], predicted[mask], parts[mask])

    return FittedSteps(
        curve=form.curve(weights),
        form=form,
        weights=weights,
        error=_error(cost, predicted, parts, len(runs)),
        log_speed=log_speed(np.ones(len(cost), np.bool_)),
        log_decode_speed=log_speed(~is_mixed),
        log_prefill_speed=log_speed(is_mixed),
        draws=tuple(_draws(form, features, cost, weights, random)),
        stall_share=_stall_share(form, features, cost, weights),
        noise=noise_of(cost, np.maximum(form.design(features) @ weights, 1.0), is_mixed, run_of),
    )


def step_error(cost_ns: Float64s, predicted_ns: Float64s, measured_on: str) -> StepError:
    """How far predictions are off. ValueError where there is nothing to compare."""
    if len(cost_ns) == 0:
        raise ValueError("no step to measure an error on")
    ratio = np.log(cost_ns / predicted_ns)
    return StepError(
        measured_on=measured_on,
        num_steps=len(cost_ns),
        mean_abs_relative=float(np.abs(predicted_ns / cost_ns - 1).mean()),
        bias_relative=float(predicted_ns.sum() / cost_ns.sum() - 1),
        quantiles={at: float(np.quantile(ratio, at)) for at in PROBABILITIES},
    )


def _blocks(sizes: Sequence[int]) -> Int64s:
    """Number of the block of time of each step, over all runs."""
    numbers: list[Int64s] = []
    for size in sizes:
        first = numbers[-1][-1] + 1 if numbers and len(numbers[-1]) else 0
        num_blocks = max(min(NUM_BLOCKS, size // _MIN_BLOCK), 1)
        numbers.append(first + np.arange(size, dtype=np.int64) * num_blocks // max(size, 1))
    return np.concatenate(numbers)


def _choose(forms: Sequence[Form], features: Float64s, cost: Float64s, block: Int64s) -> Form:
    """The simplest form whose loss on blocks left out is not clearly beaten by a richer one."""
    if len(forms) == 1:
        return forms[0]
    losses = []
    for form in forms:
        predicted = _left_out(form, features, cost, block)
        off = np.abs(np.log(cost / predicted))
        weight = np.bincount(block)
        by_step = np.bincount(block, off) / weight
        by_sum = np.abs(np.log(np.bincount(block, cost) / np.bincount(block, predicted)))
        losses.append(by_step + by_sum)
    chosen = 0
    for place in range(1, len(forms)):
        gain = losses[chosen] - losses[place]
        # One standard error of the paired difference: Breiman and others, CART (1984), section 3.4.3.
        clearly = gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain))
        if clearly and gain.mean() > _MIN_GAIN * losses[chosen].mean():
            chosen = place
    return forms[chosen]


def _left_out(form: Form, features: Float64s, cost: Float64s, parts: Int64s) -> Float64s:
    """Prediction of each part by a fit to all others."""
    predicted = np.empty(len(cost))
    near = None
    for part in np.unique(parts):
        inside = parts == part
        weights = near = _fit(form, features[~inside], cost[~inside], near)
        predicted[inside] = np.maximum(form.design(features[inside]) @ weights, 1.0)
    return predicted


def _fit(form: Form, features: Float64s, cost: Float64s, near: Float64s | None = None) -> Float64s:
    """Weights whose predictions add up to the measured time, stalls set aside.

    Weighted least squares with weights 1 / prediction (variance grows with the mean, McCullagh and Nelder,
    Generalized Linear Models (1989), chapter 9): at its optimum the predictions of every kind of step with
    a constant of its own sum to what was measured. Queues multiply a bias of the sum; a median fit has one.
    `near`: weights of a fit to much the same steps, to start from.
    """
    design = form.design(features)
    if near is None:
        near = non_negative_least_squares(design / cost[:, None], np.ones(len(cost)))
    weights = near
    for _ in range(_ROUNDS):
        predicted = np.maximum(design @ weights, 1.0)
        target = _without_stalls(cost, predicted, features[:, 0] > 0)
        root = 1 / np.sqrt(predicted)
        before = weights
        weights = non_negative_least_squares(design * root[:, None], target * root)
        if np.allclose(weights, before, rtol=1e-3, atol=0):
            break
    return weights


def _without_stalls(cost: Float64s, predicted: Float64s, is_mixed: NDArray[np.bool_]) -> Float64s:
    """Costs, pulled in to `_CLIP_SIGMAS` robust standard deviations of their kind of step."""
    target = cost.copy()
    for mask in (is_mixed, ~is_mixed):
        if not mask.any():
            continue
        ratio = np.log(cost[mask] / predicted[mask])
        middle = np.median(ratio)
        sigma = _NORMAL_MAD * float(np.median(np.abs(ratio - middle)))
        reach = max(_CLIP_SIGMAS * sigma, np.log(_MIN_STALL_FACTOR))
        target[mask] = predicted[mask] * np.exp(np.clip(ratio, middle - reach, middle + reach))
    return target


def _stall_share(form: Form, features: Float64s, cost: Float64s, weights: Float64s) -> float:
    predicted = np.maximum(form.design(features) @ weights, 1.0)
    target = _without_stalls(cost, predicted, features[:, 0] > 0)
    return float((cost - target).sum() / cost.sum())


def _error(cost: Float64s, predicted: Float64s, parts: Int64s, num_runs: int) -> StepError:
    num = len(np.unique(parts))
    what = (
        f"each of {num_runs} runs left out"
        if num_runs >= MIN_RUNS_LEFT_OUT
        else f"{num} blocks of time left out"
    )
    return step_error(cost, predicted, what)


def _log_speed(cost: Float64s, predicted: Float64s, parts: Int64s) -> Float64s:
    measured, expected = np.bincount(parts, cost), np.bincount(parts, predicted)
    is_there = expected > 0
    result: Float64s = np.log(measured[is_there] / expected[is_there])
    return result


def _draws(
    form: Form,
    features: Float64s,
    cost: Float64s,
    weights: Float64s,
    random: np.random.Generator,
) -> list[StepCurve]:
    draws = []
    for _ in range(_NUM_DRAWS):
        rows = block_resample(len(cost), 2 * NUM_BLOCKS, random)
        draws.append(form.curve(_fit(form, features[rows], cost[rows], weights)))
    return draws
