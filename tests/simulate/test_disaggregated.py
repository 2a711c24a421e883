"""A deployment with separate prefill and decode replicas, as `--set` describes it, and the laws it keeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulate.loop.small_engines import workload
from tokenpath.api.simulate import simulate
from tokenpath.core.errors import UsageError
from tokenpath.simulate.deploy import Ran, deploy
from tokenpath.simulate.scenario import Scenario, with_settings
from tokenpath.simulate.summary import summarise
from tokenpath.simulate.workload.workload import Workload

BASE = Scenario(model="llama-3.1-8b", gpu="H100", decode_replicas=1)
KV_BYTES = 2 * 32 * 8 * 128 * 2
"""Of a token of Llama 3.1 8B: keys and values, 32 layers, 8 heads of 128, 2 bytes each."""


def _run(load: Workload, *settings: str, engine: str = "sglang") -> Ran:
    scenario = with_settings(replace(BASE, engine=engine), settings)
    return deploy(scenario, load).run(load, stops_on_overload=False)


def _ttft_ns(ran: Ran) -> float:
    found = summarise(ran.capture, observer="client")
    assert found is not None
    return found.latency_ns["ttft"]["mean"]


def _rate(ran: Ran) -> float:
    """Requests a second while the whole load was there."""
    ends = np.sort(ran.simulated.rows.requests[-1].finished_ns)
    half = len(ends) // 2
    return float(half / (ends[-1] - ends[-1 - half]) * 1e9)


def test_time_to_first_token_holds_the_transfer_to_the_nanosecond() -> None:
    load = workload([0], 3000, 20)
    link = ("transfer.bytes_per_s=2e9", "transfer.latency_ns=30us")
    at_once = _ttft_ns(_run(load, *link, "transfer.answered_by=prefill"))
    with_kv = _ttft_ns(_run(load, *link))
    assert with_kv - at_once == 3000 * KV_BYTES / 2 + 30_000
    # Two ranks have a port each for half of the heads.
    ranks = ("tp=2", "decode.tp=2")
    halves = [_ttft_ns(_run(load, *link, *ranks, *more)) for more in ((), ("decode.tp=1",))]
    assert halves[1] - halves[0] == 3000 * KV_BYTES / 4
    # vLLM's decode instance computes the last token again and answers itself.
    vllm = _run(load, *link, engine="vllm").simulated.rows
    assert vllm.users is not None
    decode = vllm.requests[1]
    assert vllm.users.first_token_ns.tolist() == decode.first_token_ns.tolist()
    assert decode.first_token_ns[0] > decode.queued_ns[0]
    assert decode.queued_ns[0] - vllm.requests[0].finished_ns[0] == 3000 * KV_BYTES / 2 + 30_000


def test_the_slowest_stage_sets_the_rate() -> None:
    load = workload([0] * 60, 2000, 2)
    fast = "transfer.bytes_per_s=1e15"
    one, two = (_rate(_run(load, fast, *more)) for more in ((), ("replicas=2",)))
    assert two == pytest.approx(2 * one, rel=0.1)
    # A port carries what its rate allows, whoever computes how fast.
    slow = _rate(_run(load, "transfer.bytes_per_s=1e9", "replicas=2"))
    assert slow == pytest.approx(1e9 / (2000 * KV_BYTES), rel=0.03)
    decode_bound = workload([0] * 64, 16, 200)
    settings = (fast, "decode.max_running_requests=4")
    one, two = (
        _run(decode_bound, *settings, f"decode_replicas={number}").simulated.end_ns
        for number in (1, 2)
    )
    assert one == pytest.approx(2 * two, rel=0.1)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_every_request_is_computed_once_and_ends(engine: str) -> None:
    random = np.random.default_rng(0)
    load = workload(
        np.cumsum(random.integers(0, 10**8, 40)),
        random.integers(50, 2000, 40),
        random.integers(1, 60, 40),
    )
    rows = _run(load, "decode_replicas=2", engine=engine).simulated.rows
    assert rows.users is not None
    assert rows.users.output_tokens.tolist() == load.output_tokens.tolist()
    by_stage = [rows.steps.features[rows.steps.endpoint == 0]]
    by_stage.append(rows.steps.features[rows.steps.endpoint > 0])
    assert by_stage[0][:, 1].sum() == load.prompt_tokens.sum()
    assert by_stage[0][:, 4].sum() == 0
    again = 40 if engine == "vllm" else 0
    assert by_stage[1][:, 1].sum() == again
    assert by_stage[1][:, 5].sum() == load.output_tokens.sum() - 40


def test_decode_replicas_have_settings_of_their_own() -> None:
    load = workload([0, 10**9], 500, 10)
    scenario = with_settings(BASE, ["decode.tp=2", "decode.num_blocks=900", "decode_replicas=2"])
    found = deploy(scenario, load)
    assert found.num_gpus == 1 + 2 * 2
    assert found.decode is not None
    assert found.decode.num_blocks == 900
    assert found.decode.step_model is not found.step_model
    assert found.settings()["decode.tp"] == "2"
    done = simulate(scenario, load, num_draws=4)
    assert done.intervals["mean_tpot_ns"].low < done.intervals["mean_tpot_ns"].high
    assert 0 < (done.summary.utilisation or 0) <= 1
    same = deploy(with_settings(BASE, ["decode.num_blocks=900"]), load)
    assert same.decode is not None
    assert same.decode.step_model is same.step_model
    for setting, says in (
        ("decode.engine=vllm", "no 'engine' of their own"),
        ("decode.tp=zwei", "whole number"),
        ("decode.router.policy=kv-aware", "of their own"),
    ):
        with pytest.raises(UsageError, match=says):
            with_settings(BASE, [setting])


def test_without_a_model_the_bytes_of_a_token_are_named() -> None:
    load = workload([0], 100, 5)
    model = deploy(BASE, load).step_model
    bare = Scenario(engine="vllm", num_blocks=500, decode_replicas=1)
    with pytest.raises(UsageError, match="KV bytes of a token"):
        deploy(bare, load, model).run(load)
    named = with_settings(bare, ["transfer.kv_bytes_per_token=1e6", "transfer.bytes_per_s=1e9"])
    rows = deploy(named, load, model).run(load).simulated.rows
    assert rows.requests[1].queued_ns[0] - rows.requests[0].finished_ns[0] == 10**8 + 10_000
