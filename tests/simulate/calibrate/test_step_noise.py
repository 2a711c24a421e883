"""Steps differ from the curve as they did where it was fitted: seeded, in blocks, and no faster in sum."""

from __future__ import annotations

import numpy as np
import pytest
from invented_engine import TRUE, capture, features

from simulate.loop.small_engines import FirstCome, workload
from tokenpath.simulate.calibrate import fit_steps
from tokenpath.simulate.calibrate.noise import NUM_FACTORS, StepNoise, noise_of
from tokenpath.simulate.loop_run import simulate_workload
from tokenpath.simulate.replica import Replica


def _steps(num: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    table = features(random, num)
    noise = random.lognormal(0, 0.1, num) * np.where(random.random(num) < 0.01, 5.0, 1.0)
    return table, TRUE.step_ns(table), noise


def test_a_draw_has_the_spread_of_the_steps_and_their_sum() -> None:
    table, true, noise = _steps(3000)
    is_mixed = table[:, 0] > 0
    found = noise_of(true * noise, true, is_mixed, np.zeros(3000, np.int64))
    assert found is not None
    for kind, mask in ((0, ~is_mixed), (1, is_mixed)):
        drawn = np.concatenate([found.draw(seed)[kind] for seed in range(5)])
        mean = (true * noise)[mask].sum() / true[mask].sum()
        assert drawn.mean() == pytest.approx(mean, rel=0.01)
        ours, theirs = (np.quantile(np.log(x), [0.05, 0.5, 0.95]) for x in (drawn, noise[mask]))
        assert ours == pytest.approx(theirs, abs=0.03)
        assert drawn.max() > 3
    # The sum of any draw is that of all: how runs differ in speed is drawn apart.
    assert np.ptp([found.draw(seed)[0].mean() for seed in range(9)]) < 1e-9


def test_the_speed_of_whole_runs_is_no_noise_of_steps() -> None:
    table, true, _ = _steps(400)
    run = np.repeat([0, 1], 200)
    assert noise_of(true * np.where(run, 1.2, 0.9), true, table[:, 0] > 0, run) is None


def test_neighbours_stay_neighbours() -> None:
    slow_wave = 0.2 * np.sin(np.arange(1000) / 30)
    drawn = np.log(StepNoise(tuple(slow_wave.tolist()), ()).draw(1))
    alike = np.corrcoef(drawn[0, :-1], drawn[0, 1:])[0, 1]
    assert alike > 0.9
    assert (drawn[1] == 0).all()
    assert drawn.shape == (2, NUM_FACTORS)


def test_the_same_seed_gives_the_same_run_and_another_another() -> None:
    table, true, noise = _steps(200)
    model = fit_steps(capture(table, true * noise))
    ends = []
    for seed in (1, 1, 2):
        curve = model.sample(np.random.default_rng(seed))
        assert curve.noise is not None
        load = workload(np.arange(20) * 10**6, 50, 10)
        rows = simulate_workload(load, [Replica([FirstCome(4)], curve)]).rows
        ends.append(rows.steps.end_ns.tolist())
    assert ends[0] == ends[1] != ends[2]


def test_little_is_kept_of_long_recordings() -> None:
    table, true, noise = _steps(20_000)
    found = noise_of(true * noise, true, table[:, 0] > 0, np.zeros(20_000, np.int64))
    assert found is not None
    assert len(found.decode) == len(found.mixed) == 2048
