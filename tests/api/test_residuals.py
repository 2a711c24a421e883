"""Stages of measured and simulated latency add up, and a slower engine shows where it is slower."""

from __future__ import annotations

import numpy as np
import pytest

from tokenpath.api.residuals import STAGES, residual_table, stage_residuals
from tokenpath.capture.capture import Capture
from tokenpath.engine.config import EngineConfig
from tokenpath.engine.vllm import VllmScheduler
from tokenpath.simulate.loop_run import simulate_workload
from tokenpath.simulate.recorder_tables import RunFacts, capture_of_run
from tokenpath.simulate.replica import Replica
from tokenpath.simulate.step_model import StepCurve
from tokenpath.simulate.workload.workload import NO_REQUEST, Workload

CONFIG = EngineConfig(num_blocks=500, max_num_batched_tokens=256, max_num_seqs=4)


def run(decode_ns: float = 5e6, prefill_token_ns: float = 2e4) -> Capture:
    random = np.random.default_rng(0)
    work = Workload(
        name="invented",
        state="synthetic",
        arrival_ns=np.cumsum(random.integers(1, 10**8, 25)),
        prompt_tokens=random.integers(10, 400, 25),
        output_tokens=random.integers(1, 30, 25),
        priority=np.zeros(25, np.int64),
        after=np.full(25, NO_REQUEST),
        think_ns=np.zeros(25, np.int64),
        session=np.arange(25),
        hash_start=np.zeros(26, np.int64),
        hashes=np.empty(0, np.int64),
        hash_granule_tokens=16,
    )
    curve = StepCurve(
        knots=np.array([1.0, 2.0]),
        mixed_ns=np.full(2, decode_ns),
        decode_ns=np.full(2, decode_ns),
        device_coefficients=np.array([0, prefill_token_ns, 0, 0, 0, 0, 0]),
        host_ns=0.0,
        host_coefficients=np.zeros(7),
        is_overlapped=False,
    )
    replica = Replica([VllmScheduler(CONFIG, is_compiled=False)], curve)
    rows = simulate_workload(work, [replica], detail="step").rows
    return capture_of_run(rows, work, RunFacts("invented", "vllm", [499]), tokens=False)


@pytest.fixture(scope="module")
def usual() -> Capture:
    return run()


def mean_e2e_ns(capture: Capture) -> float:
    return float(
        (capture.int64("request", "last_token_ns") - capture.int64("request", "queued_ns")).mean()
    )


def test_stages_add_up_to_the_mean_latency_on_both_sides(usual: Capture) -> None:
    other = run(decode_ns=7e6)
    found = stage_residuals(usual, other)
    assert sum(r.measured_ns for r in found) == pytest.approx(mean_e2e_ns(usual))
    assert sum(r.simulated_ns for r in found) == pytest.approx(mean_e2e_ns(other))
    assert {r.stage for r in found} <= {key for key, _ in STAGES}


def test_a_capture_has_no_residual_against_itself(usual: Capture) -> None:
    assert all(r.residual_ns == 0 for r in stage_residuals(usual, usual))


def test_slower_prompts_show_in_prefill_more_than_in_decode(usual: Capture) -> None:
    found = {r.stage: r for r in stage_residuals(usual, run(prefill_token_ns=3e4))}
    assert found["prefill"].residual_ns > 0.15 * found["prefill"].measured_ns
    assert abs(found["decode"].residual_ns) < 0.15 * found["decode"].measured_ns
    assert found["queue"].residual_ns > 0


def test_captures_without_requests_have_no_stages(usual: Capture) -> None:
    assert stage_residuals(Capture({}), usual) == []
    assert residual_table([]).rows[-1][:4] == ["all", 0, 0, 0]


def test_the_table_ends_with_the_sum(usual: Capture) -> None:
    table = residual_table(stage_residuals(usual, run(decode_ns=6e6)))
    *stages, total = table.rows
    assert total[0] == "all"
    assert total[3] == pytest.approx(sum(row[3] for row in stages))
