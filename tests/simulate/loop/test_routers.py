"""Routers: what each promises, alone and in front of replicas."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from small_engines import FirstCome, curve, workload

from tokenpath.core.errors import UsageError
from tokenpath.engine.scheduler import EngineRequest
from tokenpath.simulate.loop_run import simulate_workload
from tokenpath.simulate.replica import Replica, ReplicaSettings
from tokenpath.simulate.router import (
    ROUTERS,
    Endpoint,
    KvAware,
    LeastLoad,
    PrefixAffine,
    RoundRobin,
    RouterSettings,
    Sticky,
    make_router,
)


def _endpoints(*outstanding: int) -> list[Endpoint]:
    return [
        Endpoint(number, FirstCome(), num_outstanding=count, outstanding_tokens=count * 10)
        for number, count in enumerate(outstanding)
    ]


def _request(*ids: int, prompt: int = 100, granule: int = 10) -> EngineRequest:
    return EngineRequest(0, prompt, 1, 0, 0, np.array(ids, np.int64), granule)


def test_round_robin_takes_turns() -> None:
    router, endpoints = RoundRobin(), _endpoints(9, 0, 0)
    assert [router.choose(_request(), 0, endpoints).number for _ in range(4)] == [0, 1, 2, 0]


def test_least_load_takes_the_lowest_of_the_least() -> None:
    assert LeastLoad().choose(_request(), 0, _endpoints(3, 1, 1)).number == 1


def test_prefix_affine_keeps_a_prefix_together_until_it_is_too_much() -> None:
    router, endpoints = PrefixAffine(prefix_tokens=20), _endpoints(5, 5, 5, 5)
    homes = {
        prefix: router.choose(_request(1, prefix), 0, endpoints).number for prefix in range(100)
    }
    assert all(
        router.choose(_request(1, p, 7), 0, endpoints).number == at for p, at in homes.items()
    )
    # Prefixes are spread over all.
    assert min(Counter(homes.values())[number] for number in range(4)) >= 10
    endpoints[homes[0]].num_outstanding = 30
    moved = router.choose(_request(1, 0), 0, endpoints).number
    assert moved != homes[0]
    # Without one endpoint only its own prefixes move.
    without = [one for one in endpoints if one.number != homes[0]]
    for one in without:
        one.num_outstanding = 5
    for prefix, home in homes.items():
        if home != homes[0]:
            assert router.choose(_request(1, prefix), 0, without).number == home


def test_kv_aware_weighs_overlap_against_load() -> None:
    router, endpoints = KvAware(), _endpoints(0, 0)
    assert router.choose(_request(1, 2, 3), 0, endpoints).number == 0
    endpoints[0].outstanding_tokens = 25
    assert router.choose(_request(1, 2, 3, 4), 0, endpoints).number == 0
    endpoints[0].outstanding_tokens = 50
    assert router.choose(_request(1, 2, 3, 4), 0, endpoints).number == 1


def test_kv_aware_forgets_what_does_not_fit() -> None:
    router, endpoints = KvAware(capacity_tokens=30), _endpoints(0, 0)
    router.choose(_request(1, 2, 3), 0, endpoints[:1])
    router.choose(_request(4, 5), 0, endpoints[:1])
    # 1 is left of the first prompt: what it began with.
    assert router._overlap(0, [1, 2, 3]) == 1
    assert router._overlap(0, [4, 5]) == 2


def test_a_session_stays_unless_its_replica_is_gone() -> None:
    router, endpoints = Sticky(LeastLoad()), _endpoints(0, 0, 0)
    assert router.choose(_request(), 7, endpoints).number == 0
    endpoints[0].num_outstanding = 9
    assert router.choose(_request(), 7, endpoints).number == 0
    assert router.choose(_request(), 8, endpoints).number == 1
    assert router.choose(_request(), 7, endpoints[1:]).number == 1


def test_an_unknown_policy_names_those_that_exist() -> None:
    with pytest.raises(UsageError, match="least-load"):
        make_router(RouterSettings("best"))


@pytest.mark.parametrize("policy", ROUTERS)
def test_every_request_ends_behind_every_router(policy: str) -> None:
    generator = np.random.default_rng(4)
    ids = [[int(group), int(group) * 100 + 1] for group in generator.integers(0, 5, 60)]
    load = workload(np.arange(60) * 300, 20, 5, hashes=ids, granule=10)
    replicas = [Replica([FirstCome(4)], curve(50, 1, 1)) for _ in range(3)]
    done = simulate_workload(load, replicas, make_router(RouterSettings(policy)))
    assert done.num_finished == 60
    used = Counter(done.rows.requests[0].endpoint.tolist())
    assert set(used) <= {0, 1, 2}
    if policy in ("prefix-affine", "kv-aware"):
        homes = {(one[0], at) for one, at in zip(ids, done.rows.requests[0].endpoint, strict=True)}
        assert len(homes) < 12


def test_a_replica_takes_requests_only_once_it_is_ready() -> None:
    load = workload(np.arange(20) * 100, 1, 1)
    late = ReplicaSettings(ready_ns=1000)
    replicas = [Replica([FirstCome()], curve(10)), Replica([FirstCome()], curve(10), late)]
    rows = simulate_workload(load, replicas).rows.requests[0]
    assert rows.endpoint[:10].tolist() == [0] * 10
    # At equal times the replica is ready before the request arrives.
    assert set(rows.endpoint[10:12].tolist()) == {0, 1}


def test_data_parallel_schedulers_step_together() -> None:
    load = workload([0, 0, 10], [10, 50, 5], [3, 3, 3])
    rows = simulate_workload(load, [Replica([FirstCome(), FirstCome()], curve(100, 1))]).rows
    steps = rows.steps
    # The first step lasts as long as the longer prompt, for both.
    assert steps.endpoint.tolist()[:2] == [0, 1]
    assert steps.start_ns.tolist()[:2] == [0, 0]
    assert steps.end_ns.tolist()[:2] == [150, 150]
    for at in set(steps.start_ns.tolist()):
        assert len(set(steps.end_ns[steps.start_ns == at].tolist())) == 1
