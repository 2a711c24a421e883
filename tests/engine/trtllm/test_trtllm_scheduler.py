"""Each rule of TensorRT-LLM's scheduler on a workload small enough to read."""

from __future__ import annotations

import pytest
from trtllm_cases import request, settings

from tokenpath.core.errors import InputError, UsageError
from tokenpath.engine.scheduler import Kind
from tokenpath.engine.trtllm import TrtllmScheduler
from tokenpath.engine.trtllm.microbatch import model_tokens


def test_prompts_and_decodes_share_a_step_prompts_first(drive) -> None:
    requests = [request(0, 10, 3), request(1, 20, 2, at=1)]
    run = drive(TrtllmScheduler(settings()), requests)
    assert run.shape == [
        [(0, 0, 10)],
        [(1, 0, 20), (0, 10, 1)],
        [(0, 11, 1), (1, 20, 1)],
    ]


def test_a_request_starts_only_if_it_can_run_to_its_end(drive) -> None:
    # 10 blocks of 4: the first takes 3 for its prompt and reserves 7 in all; 4 for the second do not fit.
    requests = [request(0, 12, 16), request(1, 8, 8)]
    run = drive(TrtllmScheduler(settings(num_blocks=10)), requests)
    assert [step[0][0] for step in run.shape[:16]] == [0] * 16
    assert run.shape[16] == [(1, 0, 8)]
    assert run.preempted == []


def test_max_utilization_starts_both_and_pauses_the_later(drive) -> None:
    requests = [request(0, 12, 16), request(1, 8, 8)]
    tight = settings(
        num_blocks=7, capacity_scheduler_policy="max_utilization", enable_block_reuse=False
    )
    run = drive(TrtllmScheduler(tight), requests)
    assert run.shape[0] == [(0, 0, 12), (1, 0, 8)]
    # 3 + 2 blocks for the prompts and 1 each for outputs fill the pool; the next one is for request 0.
    pause = next(i for i, (d, _) in enumerate(run.steps) if len(d.preempted))
    assert run.steps[pause][0].preempted.tolist() == [1]
    assert run.shape[pause] == [(0, 16, 1)]
    resumed = next(d for d, _ in run.steps if Kind.RESUMED in d.kind.tolist())
    row = resumed.kind.tolist().index(Kind.RESUMED)
    assert resumed.num_tokens[row] == 8 + pause, "it computes its outputs again"


def test_a_paused_request_finds_what_is_left_of_its_own_blocks(drive) -> None:
    requests = [request(0, 12, 16), request(1, 8, 8)]
    tight = settings(num_blocks=8, capacity_scheduler_policy="max_utilization")
    run = drive(TrtllmScheduler(tight), requests)
    resumed = next(d for d, _ in run.steps if Kind.RESUMED in d.kind.tolist())
    # Request 0 needed 7 of 8 blocks; of the paused one's the first is lost last.
    assert resumed.request.tolist() == [1]
    assert resumed.num_cached.tolist() == [4]


def test_a_static_batch_runs_to_its_end_before_the_next(drive) -> None:
    requests = [request(0, 8, 6), request(1, 8, 2), request(2, 8, 1, at=1)]
    run = drive(TrtllmScheduler(settings(capacity_scheduler_policy="static_batch")), requests)
    assert [[entry[0] for entry in step] for step in run.shape] == [
        [0, 1], [0, 1], [0], [0], [0], [0], [2],
    ]  # fmt: skip


def test_without_chunks_the_first_that_does_not_fit_ends_the_step(drive) -> None:
    requests = [request(0, 30, 1), request(1, 30, 1), request(2, 10, 1)]
    run = drive(TrtllmScheduler(settings(max_num_tokens=50)), requests)
    assert run.shape == [[(0, 0, 30)], [(1, 0, 30), (2, 0, 10)]]


def test_chunks_first_come_first_served(drive) -> None:
    chosen = settings(max_num_tokens=53, enable_chunked_context=True)
    run = drive(TrtllmScheduler(chosen), [request(i, 30, 1) for i in range(3)])
    assert run.shape == [
        [(1, 0, 20), (0, 0, 30)],  # whole blocks of what is left; the prompt that ends comes last
        [(1, 20, 10), (2, 0, 30)],
    ]


def test_chunks_of_equal_progress(drive) -> None:
    chosen = settings(
        max_num_tokens=50, enable_chunked_context=True, context_chunking_policy="equal_progress"
    )
    run = drive(TrtllmScheduler(chosen), [request(i, 30, 1) for i in range(3)])
    assert run.shape == [
        [(0, 0, 16), (1, 0, 16), (2, 0, 16)],  # four rounds of a block each; a fifth does not fit
        [(0, 16, 14), (1, 16, 14), (2, 16, 14)],
    ]


def test_a_part_moves_behind_what_is_cached(drive) -> None:
    ids = list(range(1, 11))
    chosen = settings(max_num_tokens=16, enable_chunked_context=True)
    requests = [request(0, 10, 1, ids), request(1, 40, 1, ids, at=3)]
    run = drive(TrtllmScheduler(chosen), requests)
    # 10 tokens are found; a part of 16 behind them is cut to end with a block, at 24.
    assert run.shape[1:] == [[(1, 10, 14)], [(1, 24, 16)]]


def test_blocks_of_a_prompt_are_taken_with_its_first_part() -> None:
    scheduler = TrtllmScheduler(settings(max_num_tokens=16, enable_chunked_context=True))
    scheduler.add(request(0, 40, 5))
    free = []
    for now in range(5):
        decision = scheduler.schedule(now)
        free.append(scheduler.num_free_blocks)
        scheduler.complete(decision, now + 1)
    assert free == [90, 90, 90, 89, 89]


def test_cached_blocks_are_not_computed_again(drive) -> None:
    ids = list(range(1, 13))
    requests = [request(0, 12, 1, ids), request(1, 14, 1, ids, at=5), request(2, 12, 1, ids, at=9)]
    run = drive(TrtllmScheduler(settings()), requests)
    # The last token of a prompt is always computed; with partial reuse all before it is found.
    assert run.shape == [[(0, 0, 12)], [(1, 12, 2)], [(2, 11, 1)]]
    whole = drive(TrtllmScheduler(settings(enable_partial_reuse=False)), requests)
    assert whole.shape == [[(0, 0, 12)], [(1, 12, 2)], [(2, 8, 4)]]


def test_a_block_that_differs_later_is_reused_up_to_there(drive) -> None:
    ids = list(range(1, 13))
    other = [*ids[:6], *range(50, 56)]
    requests = [request(0, 12, 1, ids), request(1, 12, 1, other, at=5)]
    run = drive(TrtllmScheduler(settings()), requests)
    assert run.shape[1] == [(1, 6, 6)]


def test_a_request_waits_for_one_that_computes_its_prefix(drive) -> None:
    ids = list(range(1, 13))
    requests = [request(0, 12, 1, ids), request(1, 14, 1, ids), request(2, 9, 1)]
    run = drive(TrtllmScheduler(settings()), requests)
    assert run.shape == [[(0, 0, 12), (2, 0, 9)], [(1, 12, 2)]]
    unaware = settings(enable_prefix_aware_scheduling=False)
    assert len(drive(TrtllmScheduler(unaware), requests).shape) == 1


def test_the_least_recently_freed_block_is_lost_first_and_with_it_all_below(drive) -> None:
    a, b = list(range(1, 9)), list(range(11, 19))
    requests = [
        request(0, 8, 1, a),
        request(1, 8, 1, b, at=2),
        request(
            2, 8, 1, at=4
        ),  # 2 blocks: the last of `a`, then the first; their queue is in reverse
        request(3, 9, 1, a, at=6),
        request(4, 9, 1, b, at=8),
    ]
    run = drive(TrtllmScheduler(settings(num_blocks=6)), requests)
    cached = {int(d.request[0]): int(d.num_cached[0]) for d, _ in run.steps}
    assert cached[3] == 8, "two blocks were never used, so nothing was lost yet"
    tight = drive(TrtllmScheduler(settings(num_blocks=4)), requests)
    cached = {int(d.request[0]): int(d.num_cached[0]) for d, _ in tight.steps}
    assert cached[3] == 0


def test_blocks_of_a_higher_priority_outlive_others(drive) -> None:
    a = list(range(1, 9))
    requests = [
        request(0, 8, 1, a),
        request(1, 4, 6, at=2),
        request(2, 4, 6, at=20),
        request(3, 9, 1, a, at=40),
    ]
    low = settings(num_blocks=6, context_retention_priority=80, decode_retention_priority=10)
    kept = drive(TrtllmScheduler(low), requests)
    assert kept.steps[-1][0].num_cached.tolist() == [8]


def test_under_overlap_a_step_is_decided_when_the_one_before_it_starts() -> None:
    scheduler = TrtllmScheduler(settings(disable_overlap_scheduler=False))
    scheduler.add(request(0, 10, 4))
    first = scheduler.schedule(0)
    scheduler.add(request(1, 10, 4))
    scheduler.complete(first, 1)
    second = scheduler.schedule(1)
    assert second.request.tolist() == [0], "decided before the other arrived"
    scheduler.complete(second, 2)
    assert scheduler.schedule(2).request.tolist() == [1, 0]


def test_under_overlap_the_last_token_is_foreseen_only_if_it_is_the_limit(drive) -> None:
    one = [request(0, 10, 3)]
    known = drive(TrtllmScheduler(settings(disable_overlap_scheduler=False)), one)
    assert [len(step) for step in known.shape] == [1, 1, 1]
    asks = TrtllmScheduler(settings(disable_overlap_scheduler=False, max_new_tokens=50))
    asks.add(one[0])
    emitted = [asks.complete(asks.schedule(now), now + 1).num_emitted.tolist() for now in range(4)]
    assert emitted == [[1], [1], [1], [0]]


@pytest.mark.parametrize(
    ("chunk", "reusable", "remaining", "tokens"),
    [
        (20, 0, 50, 20),
        (20, 16, 50, 20),  # the part moves behind what is cached
        (40, 16, 50, 34),  # and ends with the prompt
        (50, 48, 50, 2),
        (50, 52, 50, 0),
    ],
)
def test_tokens_that_the_model_computes(
    chunk: int, reusable: int, remaining: int, tokens: int
) -> None:
    assert model_tokens(chunk, reusable, remaining) == tokens


def test_what_cannot_run_is_refused_with_the_limit() -> None:
    scheduler = TrtllmScheduler(settings(num_blocks=10, max_num_tokens=30))
    with pytest.raises(InputError, match="do not fit") as refused:
        scheduler.add(request(7, 30, 11))
    assert "40 tokens" in str(refused.value)
    with pytest.raises(InputError) as refused:
        scheduler.add(request(7, 31, 1))
    assert "max_num_tokens (30)" in str(refused.value)
    scheduler.add(request(8, 30, 10))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"capacity_scheduler_policy": "fastest"}, "capacity_scheduler_policy"),
        ({"num_blocks": 0}, "at least 1"),
        ({"enable_chunked_context": True, "max_num_tokens": 3}, "at least chunk_unit_size"),
        ({"enable_chunked_context": True, "chunk_unit_size": 6}, "a multiple of tokens_per_block"),
        ({"decode_retention_priority": 101}, "0 to 100"),
    ],
)
def test_settings_that_are_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        settings(**changed)
    assert message in str(refused.value)


def test_the_turns_of_schedule_and_complete_are_kept() -> None:
    scheduler = TrtllmScheduler(settings())
    assert len(scheduler.schedule(0).request) == 0
    scheduler.add(request(0, 5, 1))
    decision = scheduler.schedule(0)
    with pytest.raises(UsageError):
        scheduler.schedule(1)
    scheduler.complete(decision, 1)
    with pytest.raises(UsageError):
        scheduler.complete(decision, 2)
