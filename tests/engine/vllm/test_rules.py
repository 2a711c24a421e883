"""Rules of the vLLM scheduler that no recorded run shows: requests, steps, and what each step decides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tokenpath.core.errors import InputError
from tokenpath.engine.config import EngineConfig
from tokenpath.engine.scheduler import Decision, EngineRequest
from tokenpath.engine.vllm import VllmScheduler

SMALL = {
    "num_blocks": 101,
    "block_size": 4,
    "max_num_batched_tokens": 64,
    "max_num_seqs": 8,
    "max_model_len": 64,
}


def scheduler_of(**settings: object) -> VllmScheduler:
    return VllmScheduler(EngineConfig(**{**SMALL, **settings}), is_compiled=False)


def add(scheduler: VllmScheduler, *shapes: tuple[int, ...]) -> None:
    """Shapes are (prompt, output) or (prompt, output, priority)."""
    for shape in shapes:
        index = int(scheduler._memory.state[24])
        scheduler.add(EngineRequest(index, shape[0], shape[1], index, *shape[2:]))


def entries(decision: Decision) -> list[tuple[int, int, int]]:
    """(request, computed before, tokens) of a step."""
    columns = (decision.request, decision.num_computed_before, decision.num_tokens)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def run(scheduler: VllmScheduler, steps: int) -> list[Decision]:
    """Steps one after the other, without overlap."""
    decisions = []
    for now in range(steps):
        decisions.append(scheduler.schedule(now))
        scheduler.complete(decisions[-1], now)
    return decisions


def test_priority_gives_the_victims_tokens_to_those_behind_it():
    scheduler = scheduler_of(
        policy="priority",
        num_blocks=5,
        max_num_batched_tokens=8,
        long_prefill_token_threshold=4,
        scheduler_reserve_full_isl=False,
    )
    add(scheduler, (3, 9, 9))
    run(scheduler, 1)
    add(scheduler, (12, 1, 0), (12, 1, 0))
    (decision,) = run(scheduler, 1)
    assert entries(decision) == [(0, 3, 1), (1, 0, 4), (2, 0, 3)]
    # The first takes the last free block for its token, the second needs it: 8 - 4 tokens are left.
    (decision,) = run(scheduler, 1)
    assert decision.preempted.tolist() == [0]
    assert entries(decision) == [(1, 4, 4), (2, 3, 4)]


def test_priority_that_a_waiting_request_is_more_urgent_preempts_nobody():
    scheduler = scheduler_of(policy="priority", num_blocks=5)
    add(scheduler, (11, 4, 9))
    run(scheduler, 1)
    add(scheduler, (7, 1, 0))
    (decision,) = run(scheduler, 1)
    assert entries(decision) == [(0, 11, 1)]
    assert decision.preempted.tolist() == []


@pytest.mark.parametrize(("version", "second"), [("0.27.1", [1]), ("0.28.0", [1, 2])])
def test_a_victim_without_tokens_in_the_step_moves_the_place_since_028(version, second):
    scheduler = scheduler_of(
        policy="priority", num_blocks=4, async_scheduling=True, version=version
    )
    add(scheduler, (3, 2, 9))
    first = scheduler.schedule(0)
    add(scheduler, (4, 5, 0), (3, 5, 0))
    assert entries(scheduler.schedule(1)) == [(0, 3, 1), (1, 0, 4), (2, 0, 3)]
    scheduler.complete(first, 2)
    # All blocks are held, one each; the last token of the first is under way, the second needs a block.
    decision = scheduler.schedule(3)
    assert decision.preempted.tolist() == [0]
    assert decision.request.tolist() == second


@pytest.mark.parametrize(("version", "served"), [("0.32.0", []), ("0.33.0", [1])])
def test_priority_a_request_that_preempts_itself_ends_the_step_before_033(version, served):
    scheduler = scheduler_of(policy="priority", num_blocks=4, version=version)
    add(scheduler, (7, 5, 9))
    run(scheduler, 1)
    add(scheduler, (3, 5, 0))
    run(scheduler, 1)
    decision = scheduler.schedule(2)
    assert decision.preempted.tolist() == [0]
    assert decision.request.tolist() == served


@pytest.mark.parametrize(("version", "served"), [("0.11.2", [0, 2]), ("0.12.0", [0])])
def test_without_chunks_a_prompt_beyond_the_budget_ends_admission_since_012(version, served):
    scheduler = scheduler_of(enable_chunked_prefill=False, version=version)
    add(scheduler, (40, 1), (40, 1), (20, 1))
    assert scheduler.schedule(0).request.tolist() == served


@pytest.mark.parametrize(("version", "extra"), [("0.11.2", [(0, 4, 1)]), ("0.12.0", [])])
def test_async_decides_no_step_beyond_the_last_token_since_012(version, extra):
    scheduler = scheduler_of(async_scheduling=True, version=version)
    add(scheduler, (4, 1))
    first = scheduler.schedule(0)
    second = scheduler.schedule(1)
    assert entries(second) == extra
    assert scheduler.complete(first, 2).finished.tolist() == [0]
    assert scheduler.complete(second, 3).num_emitted.sum() == 0
    assert scheduler.num_free_blocks == scheduler.num_usable_blocks


def test_async_decides_the_next_step_on_a_token_that_is_not_there_yet():
    scheduler = scheduler_of(async_scheduling=True)
    add(scheduler, (5, 3))
    first, second = scheduler.schedule(0), scheduler.schedule(1)
    assert entries(second) == [(0, 5, 1)]
    assert scheduler.complete(first, 2).num_emitted.tolist() == [1]
    third = scheduler.schedule(3)
    assert entries(third) == [(0, 6, 1)]
    scheduler.complete(second, 4)
    assert scheduler.complete(third, 5).finished.tolist() == [0]


@pytest.mark.parametrize(("version", "admitted"), [("0.18.1", [0, 1]), ("0.19.0", [0])])
def test_a_request_that_does_not_fit_whole_is_not_admitted_since_019(version, admitted):
    scheduler = scheduler_of(num_blocks=9, max_num_batched_tokens=24, version=version)
    add(scheduler, (20, 4), (20, 4))
    assert scheduler.schedule(0).request.tolist() == admitted


@pytest.mark.parametrize(("version", "tokens"), [("0.30.0", 10), ("0.31.0", 40)])
def test_a_long_prompt_that_is_alone_is_not_cut_since_031(version, tokens):
    scheduler = scheduler_of(long_prefill_token_threshold=10, version=version)
    add(scheduler, (40, 2))
    assert entries(scheduler.schedule(0)) == [(0, 0, tokens)]


@pytest.mark.parametrize(("is_adaptive", "tokens"), [(False, 10), (True, 32)])
def test_the_cap_on_long_prompts_may_rise_to_the_fair_share(is_adaptive, tokens):
    scheduler = scheduler_of(
        long_prefill_token_threshold=10, long_prefill_token_threshold_adaptive=is_adaptive
    )
    add(scheduler, (40, 2), (40, 2))
    assert entries(scheduler.schedule(0)) == [(0, 0, tokens), (1, 0, tokens)]


def test_the_watermark_is_left_free_by_admissions_while_others_run():
    scheduler = scheduler_of(num_blocks=11, watermark=0.2)
    add(scheduler, (30, 2), (8, 2))
    # 8 of 10 blocks, then 2 more would leave none of the 2 that the watermark asks for.
    assert scheduler.schedule(0).request.tolist() == [0]
    scheduler = scheduler_of(num_blocks=11, watermark=0.2)
    add(scheduler, (38, 2))
    assert scheduler.schedule(0).request.tolist() == [0]


def test_all_but_the_last_token_may_come_from_the_cache():
    scheduler = scheduler_of()
    hashes = np.arange(8) + 100
    for index in range(2):
        scheduler.add(EngineRequest(index, 16, 1, hashes=hashes, hash_granule_tokens=4))
        (decision,) = run(scheduler, 1)
    assert entries(decision) == [(1, 12, 4)]
    assert decision.num_cached.tolist() == [12]


def test_a_request_ends_at_the_length_of_the_model():
    scheduler = scheduler_of(max_model_len=10)
    add(scheduler, (8, 50))
    decisions = run(scheduler, 3)
    assert [entries(decision) for decision in decisions] == [[(0, 0, 8)], [(0, 8, 1)], []]
    assert scheduler.num_running == 0


def test_without_prefix_caching_nothing_is_found_and_freed_blocks_are_taken_first():
    scheduler = scheduler_of(enable_prefix_caching=False)
    hashes = np.arange(8) + 100
    for index in range(2):
        scheduler.add(EngineRequest(index, 16, 1, hashes=hashes, hash_granule_tokens=4))
        (decision,) = run(scheduler, 1)
        assert entries(decision) == [(index, 0, 16)]
    assert scheduler._memory.table[0, :4].tolist() == [4, 3, 2, 1]


BAD_SETTINGS: list[tuple[dict[str, object], str]] = [
    ({"version": "0.9.2"}, "version=0.10.2"),
    ({"version": "newest"}, "version=0.32.0"),
    ({"version": "0.11.0", "policy": "priority"}, "version=0.12.0"),
    ({"version": "0.23.0", "watermark": 0.1}, "version=0.24.0"),
    ({"version": "0.30.0", "max_num_active_seqs": 2}, "version=0.31.0"),
    ({"num_blocks": 1}, "num_blocks=2"),
    ({"watermark": 1.5}, "watermark=0.99"),
    ({"policy": "lifo"}, "policy=fcfs"),
    ({"max_num_active_seqs": 9}, "max_num_active_seqs=8"),
    ({"max_num_batched_tokens": 4}, "max_num_batched_tokens=8"),
    ({"max_num_batched_tokens": 32, "enable_chunked_prefill": False}, "max_num_batched_tokens=64"),
    ({"eviction": "ttl"}, "eviction_ttl_ns=60000000000"),
    ({"eviction_ttl_ns": 5}, "or neither"),
    ({"eviction": "ttl", "eviction_ttl_ns": 0}, "eviction_ttl_ns=1"),
]


@pytest.mark.parametrize(("settings", "nearest"), BAD_SETTINGS)
def test_settings_that_cannot_work_name_the_nearest_that_can(settings, nearest):
    with pytest.raises(InputError, match=nearest):
        scheduler_of(**settings)


BAD_REQUESTS: list[tuple[Callable[[], EngineRequest], str]] = [
    (lambda: EngineRequest(0, 0, 4), "at least one"),
    (lambda: EngineRequest(0, 64, 4), "max_model_len=65"),
    (lambda: EngineRequest(0, 40, 20), "num_blocks=16"),
]


@pytest.mark.parametrize(("request_of", "nearest"), BAD_REQUESTS)
def test_requests_that_can_never_run_are_refused(request_of, nearest):
    scheduler = scheduler_of(num_blocks=12)
    with pytest.raises(InputError, match=nearest):
        scheduler.add(request_of())


def test_requests_go_by_any_numbers_that_are_given_once() -> None:
    plain, numbered = scheduler_of(num_blocks=12), scheduler_of(num_blocks=12)
    number_of = [7, 3, 5]
    for row, number in enumerate(number_of):
        plain.add(EngineRequest(row, 24, 9))
        numbered.add(EngineRequest(number, 24, 9))
    for now_ns in range(200):
        wanted, found = plain.schedule(now_ns), numbered.schedule(now_ns)
        assert found.request.tolist() == [number_of[row] for row in wanted.request]
        assert found.preempted.tolist() == [number_of[row] for row in wanted.preempted]
        assert found.num_tokens.tolist() == wanted.num_tokens.tolist()
        ended = plain.complete(wanted, now_ns).finished.tolist()
        assert numbered.complete(found, now_ns).finished.tolist() == [number_of[r] for r in ended]
    with pytest.raises(InputError, match="second time"):
        numbered.add(EngineRequest(3, 4, 4))


def test_kv_from_elsewhere_takes_nothing_of_the_budget() -> None:
    scheduler = scheduler_of(num_blocks=100, max_model_len=200)
    scheduler.ask(lambda _request, cached, _is_first: max(cached, 99))
    for row in range(3):
        scheduler.add(EngineRequest(row, 100, 2))
    decision = scheduler.schedule(0)
    assert decision.num_tokens.tolist() == [1, 1, 1]
    assert decision.num_computed_before.tolist() == [99, 99, 99]
