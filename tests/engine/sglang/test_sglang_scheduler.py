"""Each rule of SGLang's scheduler on a workload small enough to read."""

from __future__ import annotations

import numpy as np
import pytest
from sglang_cases import request, settings

from tokenpath.core.errors import InputError, UsageError
from tokenpath.engine.scheduler import Kind
from tokenpath.engine.sglang.admission import PrefillPass, Verdict
from tokenpath.engine.sglang.cache import Cache
from tokenpath.engine.sglang.scheduler import SglangScheduler
from tokenpath.engine.sglang.sequence import Batch, Sequence


def test_prefill_comes_before_decode_and_is_not_mixed_with_it(drive) -> None:
    requests = [request(0, 10, 3), request(1, 20, 2, at=1)]
    run = drive(SglangScheduler(settings()), requests)
    assert run.shape == [
        [(0, 0, 10)],
        [(1, 0, 20)],  # arrived during the first step: request 0 waits with its decode
        [(0, 10, 1), (1, 20, 1)],
        [(0, 11, 1)],
    ]
    assert run.finished == [1, 0]


def test_a_mixed_batch_lets_decodes_ride_along(drive) -> None:
    requests = [request(0, 10, 4), request(1, 40, 2, at=1)]
    chosen = settings(enable_mixed_chunk=True, chunked_prefill_size=20, max_running_requests=8)
    run = drive(SglangScheduler(chosen), requests)
    assert run.shape == [
        [(0, 0, 10)],
        [(1, 0, 19), (0, 10, 1)],  # one token of the chunk is the decode's
        [(1, 19, 19), (0, 11, 1)],
        [(1, 38, 2), (0, 12, 1)],
        [(1, 40, 1)],
    ]


def test_chunks_end_on_pages_and_the_rest_of_the_batch_goes_to_the_next(drive) -> None:
    requests = [request(0, 50, 1), request(1, 10, 1)]
    chosen = settings(chunked_prefill_size=32, page_size=8, max_total_tokens=400)
    run = drive(SglangScheduler(chosen), requests)
    assert run.shape == [
        [(0, 0, 32)],
        [(0, 32, 18), (1, 0, 8)],  # 18 tokens take 3 pages: 8 tokens are left
        [(1, 8, 2)],
    ]


def test_without_chunks_the_first_prompt_may_exceed_the_cap_and_the_next_waits(drive) -> None:
    requests = [request(0, 50, 2), request(1, 10, 1), request(2, 10, 1)]
    chosen = settings(chunked_prefill_size=None, max_prefill_tokens=30)
    run = drive(SglangScheduler(chosen), requests)
    assert run.shape[:2] == [[(0, 0, 50)], [(1, 0, 10), (2, 0, 10)]]


def test_rows_limit_the_running(drive) -> None:
    requests = [request(i, 5, 2) for i in range(3)]
    run = drive(SglangScheduler(settings(max_running_requests=2)), requests)
    assert [len(step) for step in run.shape] == [2, 2, 1, 1]


def test_a_prefix_in_the_tree_is_not_computed_again_but_for_the_last_token(drive) -> None:
    ids = list(range(1, 11))
    requests = [request(0, 10, 1, ids), request(1, 10, 1, ids, at=5), request(2, 12, 1, ids, at=9)]
    run = drive(SglangScheduler(settings()), requests)
    assert run.shape == [[(0, 0, 10)], [(1, 9, 1)], [(2, 10, 2)]]
    assert [d.num_cached.tolist() for d, _ in run.steps] == [[0], [9], [10]]


def test_only_whole_pages_are_shared(drive) -> None:
    ids = list(range(1, 11))
    requests = [request(0, 10, 1, ids), request(1, 12, 1, ids, at=5)]
    run = drive(SglangScheduler(settings(page_size=4)), requests)
    assert run.shape == [[(0, 0, 10)], [(1, 8, 4)]]


def test_known_outputs_are_shared_as_well(drive) -> None:
    ids = list(range(1, 21))  # ten of the prompt and ten of the output
    requests = [request(0, 10, 10, ids), request(1, 25, 1, ids, at=50)]
    run = drive(SglangScheduler(settings()), requests)
    # The last token was emitted, but never computed.
    assert run.shape[-1] == [(1, 19, 6)]


def test_outputs_are_lost_before_their_prompt(drive) -> None:
    ids = list(range(1, 9))
    requests = [request(0, 8, 8, ids), request(1, 27, 2, at=20), request(2, 9, 1, ids, at=40)]
    # 15 of 40 tokens are in the tree when 27 are needed: 7 outputs go, 8 tokens of the prompt stay.
    run = drive(SglangScheduler(settings(max_total_tokens=40)), requests)
    assert run.shape[-1] == [(2, 8, 1)]


def test_room_is_kept_for_the_share_of_outputs_that_is_expected() -> None:
    # Pool of 100. When the first runs, 60 tokens are free and 19 outputs are expected of it at ratio 1:
    # 41 are left, and the second would need 20 + 20 + 1.
    scheduler = SglangScheduler(
        settings(max_total_tokens=100, schedule_conservativeness=2.0, max_new_tokens=None)
    )
    scheduler.add(request(0, 40, 20))
    scheduler.add(request(1, 20, 20))
    decision = scheduler.schedule(0)
    assert decision.request.tolist() == [0]
    scheduler.complete(decision, 1)
    assert scheduler.schedule(1).request.tolist() == [0], "the second does not fit, so decode"
    assert scheduler.running.is_full


def test_the_ratio_falls_with_every_decode_and_starts_again_when_idle() -> None:
    scheduler = SglangScheduler(settings(new_token_ratio_decay_steps=10))
    scheduler.add(request(0, 5, 20))
    seen = []
    now = 0
    while scheduler.num_running or scheduler.num_waiting:
        scheduler.complete(scheduler.schedule(now), now + 1)
        now += 1
        seen.append(round(scheduler.ratio.current, 4))
    assert seen[0] == 0.7, "a prefill changes nothing"
    assert seen[1] == round(0.7 - (0.7 - 0.098) / 10, 4)
    assert seen[-1] == 0.098, "0.14 of its start is the least"
    scheduler.add(request(1, 5, 1, at=now))
    assert scheduler.ratio.current < 0.7, "it arrived while the last step ran"
    scheduler.complete(scheduler.schedule(now), now + 1)
    scheduler.add(request(2, 5, 1, at=now + 7))
    assert scheduler.ratio.current == 0.7


def test_retraction_takes_who_has_emitted_least_and_then_the_longest_prompt() -> None:
    chosen = settings(
        max_total_tokens=100,
        schedule_conservativeness=0.0,
        disable_radix_cache=True,
        retract_decode_steps=5,
    )
    scheduler = SglangScheduler(chosen)
    for i, prompt in enumerate([10, 20, 15]):
        scheduler.add(request(i, prompt, 30))
    shape = []
    now = 0
    while True:
        decision = scheduler.schedule(now)
        now += 1
        if len(decision.preempted):
            break
        shape.append(decision.request.tolist())
        scheduler.complete(decision, now)
    # 45 of 100 tokens are prompts: three requests decode 18 times, then one token is left.
    assert shape == [[0, 1], [2]] + [[0, 1, 2]] * 18
    assert decision.preempted.tolist() == [1], "all have emitted 19, and it has the longest prompt"
    assert decision.request.tolist() == [0, 2]
    # As if the other two, with 38 of 60 tokens emitted, would end 5 steps on.
    assert scheduler.ratio.current == pytest.approx((38 + 10) / 61)
    assert scheduler.waiting[-1].request.index == 1, "to the tail of the queue"


def test_of_unequal_progress_the_least_is_lost(drive) -> None:
    chosen = settings(max_total_tokens=80, schedule_conservativeness=0.0, disable_radix_cache=True)
    requests = [request(0, 30, 30), request(1, 5, 30, at=3)]
    assert drive(SglangScheduler(chosen), requests).preempted == [1]


def test_a_retracted_request_computes_its_outputs_again(drive) -> None:
    chosen = settings(max_total_tokens=100, schedule_conservativeness=0.0, disable_radix_cache=True)
    requests = [request(0, 10, 30), request(1, 20, 30), request(2, 15, 30)]
    run = drive(SglangScheduler(chosen), requests)
    resumed = [
        (d.request.tolist(), d.num_tokens.tolist())
        for d, _ in run.steps
        if Kind.RESUMED in d.kind.tolist()
    ]
    assert run.preempted == [1]
    assert resumed == [([1], [20 + 19])]


def test_a_retracted_request_leaves_only_its_prompt_in_the_tree(drive) -> None:
    ids = list(range(1, 21))
    chosen = settings(max_total_tokens=100, schedule_conservativeness=0.0)
    requests = [request(0, 10, 30), request(1, 20, 30, ids), request(2, 15, 30)]
    run = drive(SglangScheduler(chosen), requests)
    assert run.preempted == [1]
    resumed = next(d for d, _ in run.steps if Kind.RESUMED in d.kind.tolist())
    assert resumed.request.tolist() == [1]
    assert resumed.num_cached.tolist() in ([0], [20]), "none of its 19 outputs"


def test_the_last_request_is_aborted_when_even_it_does_not_fit() -> None:
    scheduler = SglangScheduler(settings(disable_radix_cache=True))
    scheduler.add(request(0, 10, 5))
    scheduler.complete(scheduler.schedule(0), 1)
    free, scheduler.cache.free_pages = scheduler.cache.free_pages, 0  # as if a prefill held all
    assert len(scheduler.schedule(1).request) == 0
    assert scheduler.num_running == 0
    scheduler.cache.free_pages += free
    assert scheduler.num_free_blocks == scheduler.num_usable_blocks
    scheduler.add(request(1, 10, 5))
    outcome = scheduler.complete(scheduler.schedule(2), 3)
    assert outcome.finished.tolist() == [0], "told with the next result"


def test_a_prefill_under_way_goes_on_where_no_other_would_be_admitted() -> None:
    chosen = settings(max_total_tokens=100, chunked_prefill_size=16)
    cache = Cache(chosen)
    running = Sequence(request(0, 10, 200), 200, cache.tree.root)
    under_way = Sequence(request(1, 60, 1), 1, cache.tree.root)
    under_way.fill_len, under_way.prefix_len = 60, 32
    room = PrefillPass(chosen, cache, Batch([running]), 1.0, 0)
    assert room.verdict() is Verdict.NO_TOKEN
    assert room.add_chunked(under_way) is False
    assert (under_way.extend_end, room.admitted) == (48, [under_way])


def test_with_fixed_lengths_the_ends_are_played_through(drive) -> None:
    # The second ends while the first has 15 of its 20 tokens to go, and gives back 45 tokens.
    requests = [request(0, 30, 20), request(1, 45, 5)]
    fixed = settings(max_total_tokens=100, ignore_eos=True, disable_radix_cache=True)
    assert len(drive(SglangScheduler(fixed), requests).shape[0]) == 2
    estimated = settings(
        max_total_tokens=100, schedule_conservativeness=2.0, disable_radix_cache=True
    )
    assert len(drive(SglangScheduler(estimated), requests).shape[0]) == 1


def test_under_overlap_a_step_is_decided_when_the_one_before_it_starts() -> None:
    scheduler = SglangScheduler(settings(disable_overlap_schedule=False))
    scheduler.add(request(0, 10, 4))
    first = scheduler.schedule(0)
    scheduler.add(request(1, 10, 4))  # arrives while the first step runs
    scheduler.complete(first, 1)
    second = scheduler.schedule(1)
    assert second.request.tolist() == [0], "decided before it arrived"
    scheduler.complete(second, 2)
    assert scheduler.schedule(2).request.tolist() == [1]


def test_under_overlap_the_last_token_is_foreseen_only_if_it_is_the_limit(drive) -> None:
    one = [request(0, 10, 3)]
    known = drive(SglangScheduler(settings(disable_overlap_schedule=False)), one)
    assert [len(step) for step in known.shape] == [1, 1, 1]
    # It asks for more than it emits: one more step is under way when its end is seen, for nothing.
    asks = SglangScheduler(settings(disable_overlap_schedule=False, max_new_tokens=50))
    asks.add(one[0])
    emitted = []
    for now in range(4):
        decision = asks.schedule(now)
        emitted.append(asks.complete(decision, now + 1).num_emitted.tolist())
    assert emitted == [[1], [1], [1], [0]]


def test_longest_prefix_match_serves_the_cached_first(drive) -> None:
    warm = list(range(100, 140))
    requests = [
        request(0, 40, 1, warm),
        request(1, 10, 1, at=5),
        request(2, 45, 1, warm, at=5),
    ]
    run = drive(SglangScheduler(settings(schedule_policy="lpm")), requests)
    assert run.steps[1][0].request.tolist() == [2, 1]


def test_one_of_a_group_without_cached_prefix_goes_ahead_of_the_others(drive) -> None:
    shared = list(range(100, 140))
    requests = [request(0, 41, 1, shared), request(1, 42, 1, shared), request(2, 43, 1)]
    chosen = settings(schedule_policy="lpm", prefill_max_requests=2)
    run = drive(SglangScheduler(chosen), requests)
    assert run.shape == [[(0, 0, 41), (2, 0, 43)], [(1, 40, 2)]]


def test_longest_prefix_match_leaves_a_long_queue_as_it_is(drive) -> None:
    warm = list(range(100, 140))
    cold = [request(i, 5, 1, at=5) for i in range(1, 129)]
    last = request(200, 45, 1, warm, at=5)
    run = drive(
        SglangScheduler(settings(schedule_policy="lpm", max_total_tokens=9000)),
        [request(0, 40, 1, warm), *cold, last],
    )
    assert run.steps[1][0].request.tolist()[0] == 1
    shorter = drive(
        SglangScheduler(settings(schedule_policy="lpm", max_total_tokens=9000)),
        [request(0, 40, 1, warm), *cold[:-1], last],
    )
    assert shorter.steps[1][0].request.tolist()[0] == 200


def test_depth_first_weight_takes_the_branch_with_most_requests(drive) -> None:
    a, b = [1] * 10, [2] * 10
    requests = [
        request(0, 10, 1, a),
        request(1, 10, 1, b),
        request(2, 12, 1, a, at=5),
        request(3, 12, 1, at=5),
        request(4, 12, 1, b, at=5),
        request(5, 13, 1, b, at=5),
    ]
    run = drive(SglangScheduler(settings(schedule_policy="dfs-weight")), requests)
    assert run.steps[1][0].request.tolist() == [4, 5, 2, 3]


def test_longest_output_first(drive) -> None:
    requests = [request(0, 5, 2), request(1, 5, 9), request(2, 5, 4)]
    run = drive(SglangScheduler(settings(schedule_policy="lof", prefill_max_requests=1)), requests)
    assert [step[0][0] for step in run.shape[:3]] == [1, 2, 0]


def test_priority_preempts_who_is_worse_by_more_than_the_threshold(drive) -> None:
    chosen = settings(
        max_running_requests=1,
        enable_priority_scheduling=True,
        priority_scheduling_preemption_threshold=3,
    )
    close = [request(0, 5, 4, priority=5), request(1, 5, 2, priority=2, at=1)]
    assert drive(SglangScheduler(chosen), close).preempted == []
    far = [request(0, 5, 4, priority=5), request(1, 5, 2, priority=1, at=1)]
    run = drive(SglangScheduler(chosen), far)
    assert run.preempted == [0]
    assert run.finished == [1, 0]


def test_the_interval_gives_decodes_their_turn(drive) -> None:
    requests = [request(0, 5, 9), request(1, 5, 2, at=1), request(2, 5, 2, at=1)]
    chosen = settings(prefill_decode_interval=2, prefill_max_requests=1)
    run = drive(SglangScheduler(chosen), requests)
    first = ["prefill" if step[0][1] == 0 else "decode" for step in run.shape]
    assert first == ["prefill", "decode", "decode"] * 3 + ["decode"] * 2


def test_what_cannot_run_is_refused_with_the_limit() -> None:
    scheduler = SglangScheduler(settings(max_total_tokens=100))
    with pytest.raises(InputError, match="do not fit") as refused:
        scheduler.add(request(7, 90, 9))
    assert "8 output tokens" in str(refused.value)
    scheduler.add(request(8, 90, 8))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"schedule_policy": "random"}, "schedule_policy"),
        ({"page_size": 16, "chunked_prefill_size": 100}, "the nearest is 96"),
        ({"page_size": 2000}, "less than a page"),
        ({"max_running_requests": 0}, "at least 1"),
    ],
)
def test_settings_that_sglang_refuses(changed: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        settings(**changed)
    assert message in str(refused.value)


def test_the_turns_of_schedule_and_complete_are_kept() -> None:
    scheduler = SglangScheduler(settings())
    assert len(scheduler.schedule(0).request) == 0
    scheduler.add(request(0, 5, 1))
    decision = scheduler.schedule(0)
    with pytest.raises(UsageError):
        scheduler.schedule(1)
    outcome = scheduler.complete(decision, 1)
    assert np.array_equal(outcome.finished, [0])
    with pytest.raises(UsageError):
        scheduler.complete(decision, 2)


def test_priorities_need_a_policy_that_knows_them() -> None:
    with pytest.raises(UsageError, match="fcfs, lof"):
        settings(enable_priority_scheduling=True, schedule_policy="lpm")
