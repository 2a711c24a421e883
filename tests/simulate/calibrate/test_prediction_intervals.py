"""Prediction intervals hold what they promise, by simulation, and say so where nothing was measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from invented_engine import TRUE, capture, features

from tokenpath.core.stats_bootstrap import Interval
from tokenpath.simulate.calibrate import fit_steps, scale_curve, scale_parts
from tokenpath.simulate.calibrate.intervals import RunScore, predict, speed_from_error, widening
from tokenpath.simulate.calibrate.speed import speed_of
from tokenpath.simulate.step_model import StepCurve, StepError

TABLE = features(np.random.default_rng(0), 200)


@dataclass(frozen=True)
class Plain:
    """A model of another source."""

    curve: StepCurve = TRUE
    error: StepError | None = None
    origin: str = "invented"


def total(curve: StepCurve, seed: int) -> dict[str, float]:
    """Time of a run whose workload varies by 1 %."""
    chance = np.random.default_rng(seed).normal(1.0, 0.01)
    return {"wall_s": float(curve.step_ns(TABLE).sum() / 1e9 * chance)}


@pytest.mark.parametrize("num_runs", [3, 6])
@pytest.mark.parametrize("sigma", [0.02, 0.05])
def test_the_speed_of_a_new_run_is_covered(num_runs: int, sigma: float) -> None:
    random = np.random.default_rng(num_runs)
    hits = []
    for _ in range(400):
        seen = random.normal(0, sigma, num_runs)
        speed = speed_of(seen, seen, seen)
        low, high = np.quantile(speed.sigma * random.standard_t(speed.freedom, 400), [0.05, 0.95])
        hits.append(low <= random.normal(0, sigma) <= high)
    assert 0.85 <= np.mean(hits) <= 0.98


def test_intervals_cover_runs_of_other_speeds() -> None:
    random = np.random.default_rng(1)
    captures = []
    for speed in random.lognormal(0, 0.05, 5):
        table = features(random, 200)
        captures.append(
            capture(table, TRUE.step_ns(table) * speed * random.lognormal(0, 0.05, 200))
        )
    model = fit_steps(captures)
    interval = predict(total, model, num_draws=60)["wall_s"]
    new = [total(scale_curve(TRUE, speed), 7)["wall_s"] for speed in random.lognormal(0, 0.05, 200)]
    assert 0.75 <= np.mean([interval.holds(value) for value in new]) <= 1.0
    assert interval.low < interval.point < interval.high


def test_the_same_seed_gives_the_same_interval_and_another_does_not() -> None:
    first, again = (predict(total, Plain(), num_draws=10, seed=3) for _ in range(2))
    assert first == again
    assert predict(total, Plain(), num_draws=10, seed=4) != first


def test_a_replay_has_one_workload() -> None:
    seeds: list[int] = []

    def run(curve: StepCurve, seed: int) -> dict[str, float]:
        seeds.append(seed)
        return {"x": 1.0}

    assert predict(run, Plain(), num_draws=5, seed=2, vary_workload=False)["x"].low == 1.0
    assert set(seeds) == {2}
    predict(run, Plain(), num_draws=5, seed=2)
    assert len(set(seeds)) == 6


def test_a_model_without_measured_error_is_given_a_wide_one() -> None:
    quantiles = {0.25: -0.02, 0.5: 0.0, 0.75: 0.02}
    measured = Plain(error=StepError("runs left out", 40, 0.03, 0.0, quantiles))
    wide, narrow = (predict(total, model)["wall_s"] for model in (Plain(), measured))
    assert wide.high - wide.low > 4 * (narrow.high - narrow.low)
    assert speed_from_error(measured).sigma == pytest.approx(0.02 / 0.6745)


def test_past_runs_widen_and_never_narrow() -> None:
    right = RunScore({"x": 1.0}, {"x": Interval(1.0, 0.9, 1.1, 0.9)})
    wrong = RunScore({"x": 1.21}, {"x": Interval(1.0, 0.9, 1.1, 0.9)})
    assert widening((), 0.9) == 1.0
    assert widening([right] * 20, 0.9) == 1.0
    # Three of twenty would have needed twice the reach, on a log scale.
    assert widening([right] * 17 + [wrong] * 3, 0.9) == pytest.approx(2.0)
    plain = predict(total, Plain(), num_draws=10)["wall_s"]
    wider = predict(total, Plain(), num_draws=10, scores=[right] * 17 + [wrong] * 3)["wall_s"]
    assert np.log(wider.high / wider.point) == pytest.approx(2 * np.log(plain.high / plain.point))


def test_levels_and_draws_are_checked() -> None:
    for level, draws in ((0.0, 10), (1.0, 10), (0.9, 1)):
        with pytest.raises(ValueError, match="level"):
            predict(total, Plain(), level=level, num_draws=draws)


def test_figures_may_be_nothing_or_negative() -> None:
    def run(curve: StepCurve, seed: int) -> dict[str, float]:
        return {"none": 0.0, "less": -float(curve.step_ns(TABLE).mean())}

    found = predict(run, Plain(), num_draws=10)
    assert found["none"] == Interval(0.0, 0.0, 0.0, 0.9)
    assert found["less"].low < found["less"].point < found["less"].high


def test_parts_of_a_curve_are_scaled_each() -> None:
    decode = TABLE[:, 0] == 0
    scaled = scale_parts(TRUE, 1.2, 0.9)
    assert scaled.step_ns(TABLE[decode]) == pytest.approx(1.2 * TRUE.step_ns(TABLE[decode]))
    alone = TABLE[~decode] * [1, 1, 1, 1, 0, 0, 0]
    assert scaled.step_ns(alone) == pytest.approx(0.9 * TRUE.step_ns(alone))
    assert scale_curve(TRUE, 3.0).step_ns(TABLE) == pytest.approx(3 * TRUE.step_ns(TABLE))
