"""The compiled loop gives what the plain loop gives, to the bit."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulate.loop.small_engines import workload
from tokenpath.engine.config import EngineConfig
from tokenpath.engine.vllm.scheduler import VllmScheduler
from tokenpath.simulate.compiled.run import CompiledRun
from tokenpath.simulate.loop_run import Simulated, simulate_workload
from tokenpath.simulate.replica import Replica, ReplicaSettings
from tokenpath.simulate.router import Router, RouterSettings, make_router
from tokenpath.simulate.step_model import NUM_FEATURES, StepCurve
from tokenpath.simulate.token_gaps import TokenGaps, bins_of, longest_gaps_ns
from tokenpath.simulate.workload.workload import NO_REQUEST, Workload

CURVE = StepCurve(
    np.array([1.0, 16.0, 64.0]),
    np.array([900.3, 1400.7, 3333.1]),
    np.array([500.5, 600.25, 900.125]),
    np.linspace(0.1, 1.3, NUM_FEATURES),
    120.6,
    np.linspace(0.3, 0.01, NUM_FEATURES),
    True,
)
NOISY = replace(CURVE, noise=np.random.default_rng(3).lognormal(0, 0.4, (2, 37)))
ROUTERS = ("round-robin", "least-load", "prefix-affine", "kv-aware")


@st.composite
def configs(draw: st.DrawFn) -> EngineConfig:
    return EngineConfig(
        num_blocks=draw(st.integers(14, 60)),
        block_size=4,
        max_num_seqs=draw(st.integers(1, 8)),
        max_num_batched_tokens=draw(st.sampled_from((8, 33, 64))),
        max_model_len=60,
        policy=draw(st.sampled_from(("fcfs", "priority"))),
        enable_prefix_caching=draw(st.booleans()),
        async_scheduling=draw(st.booleans()),
        scheduler_reserve_full_isl=draw(st.booleans()),
        long_prefill_token_threshold=draw(st.sampled_from((0, 9))),
        watermark=draw(st.sampled_from((0.0, 0.07))),
    )


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    size = draw(st.integers(1, 16))

    def column(least: int, most: int) -> list[int]:
        return draw(st.lists(st.integers(least, most), min_size=size, max_size=size))

    prompts = column(1, 62)
    after = [
        draw(st.integers(0, i - 1)) if i and draw(st.booleans()) else NO_REQUEST
        for i in range(size)
    ]
    chains = column(0, 2)
    return workload(
        np.sort(column(0, 9000)),
        prompts,
        column(1, 12),
        after=after,
        think_ns=column(0, 400),
        session=column(0, 3),
        hashes=[[100 * c + i for i in range(p // 4)] for c, p in zip(chains, prompts, strict=True)],
        granule=4,
        concurrency=draw(st.sampled_from((None, 1, 3))),
    )


@st.composite
def runs(draw: st.DrawFn) -> tuple[Workload, EngineConfig, list[ReplicaSettings], RouterSettings]:
    config = draw(configs())
    depth = 2 if config.async_scheduling else draw(st.integers(1, 3))
    stages = 1 if config.async_scheduling else draw(st.integers(1, depth))
    ready = draw(st.sampled_from(([0], [0, 0], [0, 2500, 0])))
    replicas = [ReplicaSettings(depth, stages, at) for at in ready]
    router = RouterSettings(draw(st.sampled_from(ROUTERS)), draw(st.booleans()))
    return draw(workloads()), config, replicas, router


def plain(
    load: Workload,
    config: EngineConfig,
    replicas: list[ReplicaSettings],
    router: Router,
    curve: StepCurve,
) -> Simulated:
    made = [Replica([VllmScheduler(config, is_compiled=False)], curve, one) for one in replicas]
    return simulate_workload(load, made, router, round_trip_ns=70)


def assert_same(one: object, other: object) -> None:
    for column in fields(one):
        mine, theirs = getattr(one, column.name), getattr(other, column.name)
        assert mine.dtype == theirs.dtype, column.name
        assert mine.tolist() == theirs.tolist(), column.name


def check(run: tuple, *, is_compiled: bool, keeps_shares: bool) -> None:
    load, config, replicas, router = run
    curve = NOISY if load.num_requests % 2 else CURVE
    expected = plain(load, config, replicas, make_router(router), curve)
    fast = CompiledRun(
        load,
        config,
        curve,
        replicas,
        make_router(router),
        round_trip_ns=70,
        keeps_shares=keeps_shares,
        is_compiled=is_compiled,
    )
    assert fast.run() == expected.end_ns
    rows = fast.rows()
    assert_same(expected.rows.requests[0], rows.requests[0])
    assert_same(expected.rows.steps, rows.steps)
    if keeps_shares:
        assert expected.rows.shares is not None
        assert_same(expected.rows.shares, rows.shares)
    assert (fast.num_sent, fast.num_finished) == (expected.num_sent, expected.num_finished)
    assert [r for r, _ in fast.refusals] == [r for r, _ in expected.refusals]


def test_gaps_are_counted_as_from_shares():
    load = workload(np.arange(40) * 700, 9, np.arange(40) % 13 + 1)
    config = EngineConfig(40, block_size=4, max_num_seqs=5, max_model_len=60)
    from_shares, counted = (TokenGaps(load.num_requests) for _ in range(2))
    made = [Replica([VllmScheduler(config, is_compiled=False)], CURVE)]
    simulate_workload(load, made, sink=from_shares)
    run = CompiledRun(
        load, config, CURVE, [ReplicaSettings()], keeps_shares=True, sink=counted, is_compiled=False
    )
    run.run()
    assert counted.statistics() == from_shares.statistics() != {}
    assert run.rows().shares is None


def test_bins_in_whole_numbers_are_those_of_the_logarithm():
    longest = longest_gaps_ns()
    assert (bins_of(longest) == np.arange(len(longest))).all()
    assert (bins_of(longest + 1) == np.arange(len(longest)) + 1).all()


@settings(max_examples=80)
@given(run=runs(), keeps_shares=st.booleans())
def test_as_python(run, keeps_shares):
    check(run, is_compiled=False, keeps_shares=keeps_shares)


@pytest.mark.timeout(300)  # a new machine compiles first, for 10 to 60 s
@settings(max_examples=80)
@given(run=runs(), keeps_shares=st.booleans())
def test_as_machine_code(run, keeps_shares):
    check(run, is_compiled=True, keeps_shares=keeps_shares)
