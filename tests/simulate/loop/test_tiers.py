"""KV tiers: what goes down, what comes up, and what that costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_engines import FirstCome, curve, workload

from tokenpath.capture.validate import validate
from tokenpath.core.errors import UsageError
from tokenpath.engine.config import EngineConfig
from tokenpath.engine.vllm import VllmScheduler
from tokenpath.simulate.loop_run import Simulated, simulate_workload
from tokenpath.simulate.recorder_tables import RunFacts, capture_of_run
from tokenpath.simulate.replica import Replica
from tokenpath.simulate.tiers import Tier, TierSettings, TierStore

# 1 byte a token; the host gives 1 byte a ns, the disk one in 10 ns.
HOST, DISK = Tier("host", 40, 1e9), Tier("disk", 1000, 1e8, latency_ns=5)


def _store(*tiers: Tier, **more: object) -> TierStore:
    return TierStore(TierSettings(tiers or (HOST, DISK), 1.0, **more))


def test_content_is_found_from_the_start_without_gaps() -> None:
    store = _store()
    store.store([1, 2, 3], 10, 30)
    assert store.find([1, 2, 9, 3], 10, 0, 100) == 20
    assert store.find([9, 1, 2], 10, 0, 100) == 0
    # What is on the GPU need not be in a tier.
    assert store.find([9, 2, 3], 10, 10, 100) == 30
    # The prompt's last token is always computed.
    assert store.find([1, 2, 3], 10, 0, 29) == 29


def test_only_whole_granules_go_down() -> None:
    store = _store()
    store.store([1, 2, 3], 10, 29)
    assert store.find([1, 2, 3], 10, 0, 100) == 20


def test_what_the_host_has_no_room_for_goes_to_disk_oldest_first() -> None:
    store = _store()
    store.store([1, 2, 3, 4, 5, 6], 10, 60)
    assert (store.num_held_bytes("host"), store.num_held_bytes("disk")) == (40, 20)
    # 1 and 2 come from disk: 20 bytes in 200 ns and 5; 3 from the host in 10.
    assert store.load([1, 2, 3], 10, 0, 30, 0) == 205
    assert store.loaded_tokens == {"host": 10, "disk": 20}
    # The next load waits for the disk.
    assert store.load([1], 10, 0, 10, 50) == 305


def test_a_little_is_computed_rather_than_loaded() -> None:
    store = _store(min_tokens=15)
    store.store([1, 2], 10, 20)
    assert store.find([1], 10, 0, 100) == 0
    assert store.find([1, 2], 10, 0, 100) == 20


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=8), max_size=40))
def test_no_tier_holds_more_than_it_can_and_nothing_twice(prompts: list[list[int]]) -> None:
    store = _store(Tier("host", 50, 1e9), Tier("disk", 70, 1e8))
    for ids in prompts:
        until = store.find(ids, 10, 0, 10**6)
        if until:
            store.load(ids, 10, 0, until, 0)
        store.store(ids, 10, 10 * len(ids))
        held = [set(one) for one in store._held]
        assert not held[0] & held[1]
        assert store.num_held_bytes("host") == 10 * len(held[0]) <= 50
        assert store.num_held_bytes("disk") == 10 * len(held[1]) <= 70


def _run(is_layerwise: bool, tiers: tuple[Tier, ...]) -> tuple[Simulated, np.ndarray, np.ndarray]:
    load = workload([0, 10_000], [100, 120], 1, hashes=[[1, 2], [1, 2]], granule=50)
    settings = TierSettings(tiers, 1.0, is_layerwise)
    replica = Replica([FirstCome()], curve(10, 5), tiers=settings)
    done = simulate_workload(load, [replica])
    rows = done.rows
    return done, rows.steps.features, rows.steps.end_ns - rows.steps.start_ns


def test_a_second_prompt_loads_what_the_first_has_computed() -> None:
    host = (Tier("host", 1000, 1e9),)
    done, features, length = _run(True, host)
    assert features[:, 1].tolist() == [100, 20]
    assert features[:, 2].tolist() == [0, 100]
    # 100 bytes take 100 ns, the rest of the prompt 110: the longer of both, or one after the other.
    assert length.tolist() == [510, 110]
    assert _run(False, host)[2].tolist() == [510, 210]
    assert done.loaded_tokens == {"host": 100}
    facts = RunFacts("test", "vllm", [10_000], loaded_tokens=done.loaded_tokens)
    load = workload([0, 10_000], [100, 120], 1)
    capture = capture_of_run(done.rows, load, facts, tokens=False)
    validate(capture)
    assert capture["summary"].to_pylist()[0]["value"] == 100


def test_a_slow_tier_is_what_the_step_waits_for() -> None:
    assert _run(True, (Tier("disk", 1000, 1e8),))[2].tolist() == [510, 1000]


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match="rate above 0"):
        Tier("host", 1, 0)
    with pytest.raises(UsageError, match="one or more"):
        TierStore(TierSettings((), 1.0))


def test_what_is_loaded_takes_nothing_of_the_budget_of_a_step() -> None:
    load = workload([0, 10_000], [160, 176], 1, hashes=[[1, 2], [1, 2]], granule=80)
    config = EngineConfig(
        13,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        max_model_len=400,
        enable_prefix_caching=False,
    )
    settings = TierSettings((Tier("host", 1000, 1e9),), 1.0)
    replica = Replica([VllmScheduler(config, is_compiled=False)], curve(10, 5), tiers=settings)
    done = simulate_workload(load, [replica])
    assert done.rows.steps.features[:, 1:3].tolist() == [[64, 0], [64, 64], [32, 128], [16, 160]]
    assert done.loaded_tokens == {"host": 160}
    # The GPU's own cache found nothing, and says so.
    assert done.rows.requests[0].cached_tokens.tolist() == [0, 0]
