"""KV that comes from a tier or from a prefill instance: blocks for it, and nothing of the budget of tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tokenpath.engine.config import EngineConfig
from tokenpath.engine.scheduler import AskingScheduler, EngineRequest, Kind, Scheduler
from tokenpath.engine.sglang import SglangScheduler, SglangSettings
from tokenpath.engine.trtllm import TrtllmScheduler, TrtllmSettings
from tokenpath.engine.vllm import VllmScheduler


def _vllm(budget: int, blocks: int, is_compiled: bool = False) -> Scheduler:
    config = EngineConfig(
        blocks + 1, block_size=10, max_num_seqs=8, max_num_batched_tokens=budget, max_model_len=1000
    )
    return VllmScheduler(config, is_compiled=is_compiled)


def _vllm_in_machine_code(budget: int, blocks: int) -> Scheduler:
    return _vllm(budget, blocks, is_compiled=True)


def _sglang(budget: int, blocks: int) -> Scheduler:
    return SglangScheduler(
        SglangSettings(
            max_total_tokens=blocks * 10,
            page_size=10,
            max_running_requests=8,
            context_length=1000,
            chunked_prefill_size=budget,
            max_prefill_tokens=budget,
            disable_overlap_schedule=True,
        )
    )


def _trtllm(budget: int, blocks: int) -> Scheduler:
    return TrtllmScheduler(
        TrtllmSettings(
            num_blocks=blocks,
            tokens_per_block=10,
            max_batch_size=8,
            max_num_tokens=budget,
            max_seq_len=1000,
            enable_chunked_context=True,
            disable_overlap_scheduler=True,
        )
    )


ENGINES = [_vllm, _vllm_in_machine_code, _sglang, _trtllm]
Make = Callable[[int, int], Scheduler]


def _asked(make: Make, elsewhere: int, budget: int = 100, blocks: int = 500) -> Scheduler:
    scheduler = make(budget, blocks)
    assert isinstance(scheduler, AskingScheduler)
    scheduler.ask(lambda _request, cached, _is_first: max(cached, elsewhere))
    return scheduler


@pytest.mark.parametrize("make", ENGINES)
def test_it_takes_blocks_and_no_tokens_of_the_budget(make: Make) -> None:
    scheduler = _asked(make, elsewhere=499)
    for index in range(4):
        scheduler.add(EngineRequest(index, 500, 3))
    decision = scheduler.schedule(0)
    # Without it, one prompt alone would take five steps.
    assert decision.request.tolist() == [0, 1, 2, 3]
    assert decision.num_tokens.tolist() == [1] * 4
    assert decision.num_computed_before.tolist() == [499] * 4
    assert decision.num_cached.tolist() == [0] * 4
    assert scheduler.num_usable_blocks - scheduler.num_free_blocks == 4 * 50
    assert scheduler.complete(decision, 1).num_emitted.tolist() == [1] * 4
    finished: list[int] = []
    while len(finished) < 4:
        decision = scheduler.schedule(2)
        assert decision.num_tokens.tolist() == [1] * len(decision.request)
        finished += scheduler.complete(decision, 3).finished.tolist()
    assert scheduler.num_free_blocks == scheduler.num_usable_blocks


@pytest.mark.parametrize("make", ENGINES)
def test_the_rest_of_a_prompt_is_computed_in_chunks(make: Make) -> None:
    scheduler = _asked(make, elsewhere=250)
    scheduler.add(EngineRequest(0, 500, 1))
    steps = []
    while scheduler.num_waiting + scheduler.num_running:
        decision = scheduler.schedule(0)
        steps.append((decision.num_computed_before.tolist(), decision.num_tokens.tolist()))
        scheduler.complete(decision, 1)
    assert steps == [([250], [100]), ([350], [100]), ([450], [50])]


@pytest.mark.parametrize("make", ENGINES)
def test_the_last_token_is_computed_and_a_longer_hit_stays(make: Make) -> None:
    scheduler = _asked(make, elsewhere=10_000)
    scheduler.add(EngineRequest(0, 50, 1, hashes=np.array([1, 2, 3, 4, 5]), hash_granule_tokens=10))
    decision = scheduler.schedule(0)
    assert (decision.num_computed_before.tolist(), decision.num_tokens.tolist()) == ([49], [1])
    scheduler.complete(decision, 1)
    other = _asked(make, elsewhere=0)
    for index in range(2):
        hashes = np.array([1, 2, 3, 4, 5])
        other.add(EngineRequest(index, 51, 1, hashes=hashes, hash_granule_tokens=10))
        decision = other.schedule(index)
        other.complete(decision, index)
    assert decision.num_cached.tolist() == decision.num_computed_before.tolist() == [50]


def test_a_preempted_request_is_asked_again_and_told_apart() -> None:
    heard: list[tuple[int, bool]] = []
    scheduler = _vllm(100, 12)
    assert isinstance(scheduler, AskingScheduler)

    def elsewhere(request: int, cached: int, is_first: bool) -> int:
        heard.append((request, is_first))
        return 45 if is_first else cached

    scheduler.ask(elsewhere)
    for index in range(2):
        scheduler.add(EngineRequest(index, 50, 40))
    kinds: list[tuple[int, int, int]] = []
    for now in range(200):
        decision = scheduler.schedule(now)
        columns = (decision.request, decision.kind, decision.num_computed_before)
        kinds += [entry for entry in zip(*(c.tolist() for c in columns), strict=True) if entry[1]]
        scheduler.complete(decision, now)
    assert kinds[:2] == [(0, Kind.NEW, 45), (1, Kind.NEW, 45)]
    assert kinds[2][:2] == (1, Kind.RESUMED)
    assert kinds[2][2] < 45
    assert heard[:2] == [(0, True), (1, True)]
    assert (1, False) in heard
