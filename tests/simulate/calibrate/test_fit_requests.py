"""Step latency is found from the times of requests alone, and predicts requests that were not fitted."""

from __future__ import annotations

import numpy as np
import pytest
from invented_engine import TRUE, features

from tokenpath.core.errors import InputError
from tokenpath.engine.config import EngineConfig
from tokenpath.engine.vllm import VllmScheduler
from tokenpath.simulate.calibrate.form import Form
from tokenpath.simulate.calibrate.requests import (
    RequestTimes,
    SimulatedSteps,
    fit_requests,
    simulated_steps,
)
from tokenpath.simulate.calibrate.scaled import ScaledForm
from tokenpath.simulate.calibrate.speed import scale_curve
from tokenpath.simulate.loop_run import simulate_workload
from tokenpath.simulate.recorder import NOT_SEEN
from tokenpath.simulate.replica import Replica
from tokenpath.simulate.step_model import StepCurve
from tokenpath.simulate.workload.workload import NO_REQUEST, Workload

CONFIG = EngineConfig(num_blocks=2000, max_num_batched_tokens=512, max_num_seqs=16)


def workload(num: int, rate_per_s: float = 6.0) -> Workload:
    random = np.random.default_rng(0)
    prompt = random.integers(20, 600, num)
    return Workload(
        name="invented",
        state="synthetic",
        arrival_ns=np.cumsum(random.exponential(1e9 / rate_per_s, num)).astype(np.int64),
        prompt_tokens=prompt,
        output_tokens=random.integers(2, 40, num),
        priority=np.zeros(num, np.int64),
        after=np.full(num, NO_REQUEST),
        think_ns=np.zeros(num, np.int64),
        session=np.arange(num),
        hash_start=np.zeros(num + 1, np.int64),
        hashes=np.empty(0, np.int64),
        hash_granule_tokens=16,
    )


def simulator(work: Workload, ranks: int = 1):
    def simulate(curve: StepCurve) -> SimulatedSteps:
        schedulers = [VllmScheduler(CONFIG) for _ in range(ranks)]
        return simulated_steps(
            simulate_workload(work, [Replica(schedulers, curve)], detail="request").rows
        )

    return simulate


FORM = Form("linear", (1, 3, 4, 6), (), ())
START = np.array([8e6, 0.0, 1e4, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("ranks", [1, 2])
def test_half_of_the_requests_predict_the_other_half(ranks: int) -> None:
    work = workload(50)
    simulate = simulator(work, ranks)
    measured = simulate(TRUE).times
    fitted = np.arange(50) % 2 == 0
    fit = fit_requests(measured, simulate, FORM, START, use=fitted, num_rounds=9)
    found = simulate(fit.curve).times
    for name in ("tpot_ns", "e2e_ns", "ttft_ns"):
        ours, theirs = getattr(found, name)()[~fitted], getattr(measured, name)()[~fitted]
        assert ours.mean() == pytest.approx(theirs.mean(), rel=0.02), name


def test_a_curve_of_the_wrong_speed_is_scaled() -> None:
    work = workload(40)
    simulate = simulator(work)
    measured = simulate(TRUE).times
    form = ScaledForm(scale_curve(TRUE, 0.6))
    fit = fit_requests(measured, simulate, form, form.unscaled(), num_rounds=9)
    assert simulate(fit.curve).times.e2e_ns().sum() == pytest.approx(
        measured.e2e_ns().sum(), rel=0.02
    )


def test_requests_without_scheduling_times_will_do() -> None:
    work = workload(40, rate_per_s=2.0)
    simulate = simulator(work)
    seen = simulate(TRUE).times
    client = RequestTimes(
        seen.queued_ns,
        np.full(40, NOT_SEEN),
        seen.first_token_ns,
        seen.last_token_ns,
        seen.output_tokens,
    )
    fit = fit_requests(client, simulate, FORM, START, num_rounds=9)
    assert simulate(fit.curve).times.tpot_ns().mean() == pytest.approx(
        seen.tpot_ns().mean(), rel=0.03
    )


def test_too_few_requests_are_an_error() -> None:
    work = workload(12)
    simulate = simulator(work)
    with pytest.raises(InputError, match="12 requests with a first and a last token"):
        fit_requests(simulate(TRUE).times, simulate, FORM, START)


def test_a_scaled_form_gives_back_its_base_and_keeps_its_sum() -> None:
    base = StepCurve(
        knots=np.array([1.0, 64.0, 512.0]),
        mixed_ns=np.array([3e6, 4e6, 9e6]),
        decode_ns=np.array([2e6, 3e6, 8e6]),
        device_coefficients=np.array([1e3, 10.0, 1.0, 0.5, 1e4, 0.0, 20.0]),
        host_ns=5e5,
        host_coefficients=np.full(7, 10.0),
        is_overlapped=False,
    )
    form = ScaledForm(base)
    table = features(np.random.default_rng(1), 100)
    assert form.curve(form.unscaled()).step_ns(table) == pytest.approx(base.step_ns(table))
    weights = np.array([1e5, 2e5, 1.5, 0.5, 2.0, 3.0])
    assert form.curve(weights).step_ns(table) == pytest.approx(form.design(table) @ weights)
    assert len(form.names()) == len(weights)
