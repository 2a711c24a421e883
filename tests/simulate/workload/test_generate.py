"""Workloads from numbers: streams of chance are kept apart, content ids mean what they should."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpath.core.errors import LimitExceeded, UsageError
from tokenpath.simulate.workload import generate
from tokenpath.simulate.workload.arrivals import Poisson
from tokenpath.simulate.workload.changing_rates import (
    MarkovModulated,
    Pieces,
    RateTable,
    Stages,
)
from tokenpath.simulate.workload.generate import SharedPrefix
from tokenpath.simulate.workload.inference_perf import LoadStage, SharedPrefixChat, inference_perf
from tokenpath.simulate.workload.lengths import Fixed, Lognormal, TwoLaws, Uniform
from tokenpath.simulate.workload.sessions import Sessions, sessions
from tokenpath.simulate.workload.workload import NO_REQUEST, Workload

RNG = np.random.default_rng(0)


def _ids(workload: Workload, index: int) -> list[int]:
    return workload.hashes[workload.hash_start[index] : workload.hash_start[index + 1]].tolist()


def _common(first: list[int], second: list[int]) -> int:
    for place, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return place
    return min(len(first), len(second))


def test_lengths_do_not_move_arrivals_nor_the_other_lengths() -> None:
    first = generate.poisson(3.0, 500, Lognormal(300, 1.0), 100, seed=7)
    second = generate.poisson(3.0, 500, 64, Uniform(1, 900), seed=7)
    third = generate.poisson(9.0, 500, Lognormal(300, 1.0), Uniform(1, 900), seed=7)
    assert np.array_equal(first.arrival_ns, second.arrival_ns)
    assert np.array_equal(first.prompt_tokens, third.prompt_tokens)
    assert np.array_equal(second.output_tokens, third.output_tokens)
    assert not np.array_equal(
        first.arrival_ns, generate.poisson(3.0, 500, 64, 100, seed=8).arrival_ns
    )


def test_a_prefix_adds_its_tokens_and_moves_nothing_else() -> None:
    plain = generate.poisson(3.0, 400, 64, 10, seed=2)
    shared = generate.poisson(3.0, 400, 64, 10, prefix=SharedPrefix(5, 100), seed=2)
    assert np.array_equal(plain.arrival_ns, shared.arrival_ns)
    assert (shared.prompt_tokens == 164).all()
    assert len(plain.hashes) == 0
    assert {tuple(_ids(shared, index)) for index in range(400)} == {
        tuple(range(group * 6, group * 6 + 6)) for group in range(5)
    }


def test_popular_prefixes_come_more_often() -> None:
    workload = generate.all_at_once(20_000, 10, 1, prefix=SharedPrefix(3, 16, popularity=1.0))
    counts = np.bincount(workload.hashes)
    assert counts / counts.sum() == pytest.approx(np.array([6, 3, 2]) / 11, abs=0.02)


def test_a_closed_loop_sends_all_at_once_and_says_how_many() -> None:
    workload = generate.closed_loop(8, 100, 10, 20)
    assert workload.concurrency == 8
    assert (workload.arrival_ns == 0).all()
    with pytest.raises(UsageError, match="in flight"):
        generate.closed_loop(0, 100, 10, 20)


def test_either_requests_or_duration() -> None:
    lengths = TwoLaws(Fixed(1), Fixed(1))
    assert generate.open_loop(Poisson(10.0), lengths, duration_s=50.0).num_requests > 300
    for wrong in (
        {},
        {"num_requests": 3, "duration_s": 1.0},
        {"num_requests": -1},
        {"duration_s": 1e12},
    ):
        with pytest.raises(UsageError):
            generate.open_loop(Poisson(10.0), lengths, **wrong)


def test_too_many_ids_are_refused_before_they_are_made() -> None:
    with pytest.raises(LimitExceeded, match="content ids"):
        generate.all_at_once(1_000_000, 1, 1, prefix=SharedPrefix(1, 1_000_000))


@pytest.mark.slow
def test_a_million_requests_take_about_a_second_of_cpu() -> None:
    begin = time.process_time()
    workload = generate.poisson(100.0, 1_000_000, Lognormal(500, 1.0), Lognormal(200, 0.8))
    assert workload.num_requests == 1_000_000
    assert time.process_time() - begin < 5.0


@given(
    turns=st.integers(1, 6),
    question=st.integers(1, 90),
    answer=st.integers(1, 90),
    system=st.integers(1, 120),
    granule=st.integers(1, 40),
)
def test_a_turn_repeats_all_before_it(
    turns: int, question: int, answer: int, system: int, granule: int
) -> None:
    spec = Sessions(
        turns=turns,
        turn=TwoLaws(Fixed(question), Fixed(answer)),
        mean_think_s=1.0,
        prefix=SharedPrefix(2, system),
        granule_tokens=granule,
    )
    workload = sessions(Poisson(1.0), 5, spec, seed=turns)
    assert workload.num_requests == 5 * turns
    for index in range(workload.num_requests):
        turn = index % turns
        assert workload.prompt_tokens[index] == system + question + turn * (question + answer)
        before = int(workload.after[index])
        assert before == (index - 1 if turn else NO_REQUEST)
        assert (workload.think_ns[index] > 0) == (turn > 0)
        if turn:
            # All whole granules of the turn before and its answer are repeated, unless they are shared.
            whole = (workload.prompt_tokens[before] + answer) // granule
            assert _common(_ids(workload, before), _ids(workload, index)) == whole
        for other in range(index):
            if workload.session[other] != workload.session[index]:
                common = _common(_ids(workload, other), _ids(workload, index))
                assert common in (0, system // granule)


def test_a_session_ends_before_its_context_is_too_long() -> None:
    spec = Sessions(10, TwoLaws(Fixed(50), Fixed(50)), max_context_tokens=420)
    workload = sessions(Poisson(1.0), 3, spec)
    assert workload.num_requests == 12
    assert (workload.prompt_tokens + workload.output_tokens).max() <= 420


def test_inference_perf_sends_its_prompts_round_and_round() -> None:
    chat = SharedPrefixChat(3, 2, 100, 60, 20)
    workload = inference_perf([LoadStage(5, 10), LoadStage(10, 3)], chat, between_stages_s=2.0)
    assert workload.num_requests == 80
    assert workload.arrival_ns[49] == 10_000_000_000
    assert workload.arrival_ns[50] > 12_000_000_000
    assert (workload.prompt_tokens == 160).all()
    assert _ids(workload, 0) == _ids(workload, 6) == _ids(workload, 50)
    assert len({tuple(_ids(workload, index)) for index in range(6)}) == 6
    assert len({tuple(_ids(workload, index)[:6]) for index in range(6)}) == 3
    assert (workload.after == NO_REQUEST).all()


def test_inference_perf_as_a_chat_waits_and_grows() -> None:
    chat = SharedPrefixChat(3, 2, 100, 60, 20, multi_turn=True)
    stages = [LoadStage(5, 10), LoadStage(10, 3)]
    workload = inference_perf(stages, chat)
    assert workload.after[:8].tolist() == [NO_REQUEST] * 6 + [0, 1]
    assert workload.after[50] == NO_REQUEST
    assert workload.prompt_tokens[6] == 160 + 80
    assert _common(_ids(workload, 0), _ids(workload, 6)) == 180 // 16
    # A new stage begins new sessions, under the same system prompts.
    assert _common(_ids(workload, 0), _ids(workload, 50)) == 100 // 16
    short = inference_perf(stages, chat, max_model_tokens=300)
    assert (short.prompt_tokens + short.output_tokens).max() <= 300
    follower = np.flatnonzero(short.after >= 0)
    assert (short.session[short.after[follower]] == short.session[follower]).all()
    assert (short.after[follower] < follower).all()


def test_poisson_of_inference_perf_counts_each_second() -> None:
    workload = inference_perf(
        [LoadStage(20, 400)], SharedPrefixChat(1, 1, 0, 1, 1), arrival="poisson", seed=4
    )
    per_second = np.bincount(workload.arrival_ns[:-200] // 1_000_000_000)
    assert per_second.var() / per_second.mean() == pytest.approx(1.0, abs=0.35)
    with pytest.raises(UsageError):
        inference_perf([LoadStage(1, 1)], SharedPrefixChat(1, 1, 0, 1, 1), arrival="bursty")


def test_an_empty_workload_is_one() -> None:
    workload = generate.poisson(1.0, 0, 1, 1, prefix=SharedPrefix(1, 64))
    assert workload.num_requests == 0
    assert workload.hash_start.tolist() == [0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: generate.poisson(1e-300, 10, 1, 1),
        lambda: generate.poisson(1.0, 10**12, 1, 1),
        lambda: generate.gamma(1.0, 1e-200, 10, 1, 1),
        lambda: generate.gamma(1.0, 1e200, 10, 1, 1),
        lambda: MarkovModulated((1.0, 2.0), (1e-300, 1e-300)).times_s(RNG, 10),
        lambda: Stages(((Poisson(1e9), 1e9),)).times_s(RNG, 10),
        lambda: RateTable((0.0, 1e9), (1e9,)).all_times_s(RNG),
        lambda: Pieces((5_000_000, 5_000_000), 1e-300).times_s(RNG, 10),
        lambda: SharedPrefix(10**12, 5),
        lambda: SharedPrefix(5, 5, float("nan")),
        lambda: Sessions(1, TwoLaws(Fixed(1), Fixed(1)), float("nan")),
        lambda: Sessions(1, TwoLaws(Fixed(1), Fixed(1)), float("inf")),
        lambda: sessions(Poisson(1.0), 10, Sessions(2**31, TwoLaws(Fixed(1), Fixed(1)))),
        lambda: sessions(Poisson(1.0), 10, Sessions(2, TwoLaws(Fixed(1), Fixed(1)), 1e300)),
        lambda: inference_perf([LoadStage(1e9, 1e9)], SharedPrefixChat(1, 1, 1, 1, 1)),
        lambda: SharedPrefixChat(0, 1, 1, 1, 1),
        lambda: LoadStage(0, 1),
    ],
)
def test_sizes_beyond_all_bounds_are_refused_at_once(make: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        make()
