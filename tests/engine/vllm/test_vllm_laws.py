"""What holds for every workload: nothing is lost, nothing is done early, Python and machine code agree."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpath.engine.config import EVICTIONS, EngineConfig
from tokenpath.engine.scheduler import Decision, EngineRequest, Kind
from tokenpath.engine.vllm import VllmScheduler, machine_code
from tokenpath.engine.vllm import layout as at
from tokenpath.engine.vllm import scheduler as scheduler_module

BLOCK = 4
LONGEST = 48


@st.composite
def configs(draw: st.DrawFn) -> EngineConfig:
    is_chunked = draw(st.booleans())
    eviction = draw(st.sampled_from(EVICTIONS))
    return EngineConfig(
        num_blocks=draw(st.integers(LONGEST // BLOCK + 1, 40)),
        block_size=BLOCK,
        max_num_seqs=draw(st.integers(1, 6)),
        max_num_batched_tokens=draw(st.integers(6, 80)) if is_chunked else LONGEST,
        max_model_len=LONGEST,
        policy=draw(st.sampled_from(("fcfs", "fcfs", "priority"))),
        enable_chunked_prefill=is_chunked,
        enable_prefix_caching=draw(st.booleans()),
        watermark=draw(st.sampled_from((0.0, 0.1))),
        long_prefill_token_threshold=draw(st.sampled_from((0, 7))),
        scheduler_reserve_full_isl=draw(st.booleans()),
        async_scheduling=draw(st.booleans()),
        eviction=eviction,
        eviction_ttl_ns=3 if eviction == "ttl" else None,
    )


@st.composite
def workloads(draw: st.DrawFn) -> list[EngineRequest]:
    """Requests, arriving at given steps, some with a common prefix."""
    shapes = draw(
        st.lists(
            st.tuples(
                st.integers(1, LONGEST - 1),
                st.integers(1, 20),
                st.integers(0, 3),
                st.integers(0, 2),
                st.integers(0, 2),
            ),
            min_size=1,
            max_size=14,
        )
    )
    requests, now = [], 0
    for index, (prompt, output, gap, priority, chain) in enumerate(shapes):
        now += gap
        hashes = np.arange(prompt // BLOCK) + 100 * chain
        requests.append(EngineRequest(index, prompt, output, now, priority, hashes, BLOCK))
    return requests


@dataclass
class Run:
    """What happened to each request."""

    decisions: list[Decision] = field(default_factory=list)
    emitted: dict[int, int] = field(default_factory=dict)
    finished: list[int] = field(default_factory=list)
    num_preempted: int = 0


def drive(
    config: EngineConfig, requests: list[EngineRequest], *, is_compiled: bool | None = False
) -> Run:
    """All requests to their end; the laws of every moment are checked on the way."""
    scheduler = VllmScheduler(config, is_compiled=is_compiled)
    depth = 2 if config.async_scheduling else 1
    run, flight, waiting, now = Run(), [], list(requests), 0
    computed = dict.fromkeys(range(len(requests)), 0)
    while len(run.finished) < len(requests):
        while waiting and waiting[0].arrival_ns <= now:
            scheduler.add(waiting.pop(0))
        while len(flight) < depth:
            decision = scheduler.schedule(now)
            run.decisions.append(decision)
            run.num_preempted += len(decision.preempted)
            for r in decision.preempted.tolist():
                computed[r] = 0
            check_decision(config, decision, computed)
            check_blocks(scheduler)
            if len(decision.request):
                flight.append(decision)
            elif not len(decision.preempted):
                break
        if flight:
            decision = flight.pop(0)
            outcome = scheduler.complete(decision, now)
            check_blocks(scheduler)
            for r, before, n, tokens in zip(
                decision.request.tolist(),
                decision.num_computed_before.tolist(),
                decision.num_tokens.tolist(),
                outcome.num_emitted.tolist(),
                strict=True,
            ):
                if tokens:
                    assert before + n >= requests[r].prompt_tokens, "a token before its prefill"
                run.emitted[r] = run.emitted.get(r, 0) + tokens
            run.finished += outcome.finished.tolist()
            known = len(requests) - len(waiting)
            assert scheduler.num_waiting + scheduler.num_running + len(run.finished) == known
        now += 1
        assert now < 20_000, "the run does not end"
    assert scheduler.num_free_blocks == scheduler.num_usable_blocks
    return run


def check_decision(config: EngineConfig, decision: Decision, computed: dict[int, int]) -> None:
    assert decision.num_scheduled_tokens <= config.max_num_batched_tokens
    assert len(set(decision.request.tolist())) == len(decision.request) <= config.max_num_seqs
    assert (decision.num_tokens > 0).all()
    for r, kind, before, n in zip(
        decision.request.tolist(),
        decision.kind.tolist(),
        decision.num_computed_before.tolist(),
        decision.num_tokens.tolist(),
        strict=True,
    ):
        assert kind != Kind.RUN or before == computed[r], "tokens computed twice or never"
        computed[r] = before + n


def check_blocks(scheduler: VllmScheduler) -> None:
    """Used + free = usable, and each block is held as often as it is counted."""
    m = scheduler._memory
    held = np.zeros(len(m.blocks), np.int64)
    for place in range(scheduler.num_running):
        np.add.at(held, scheduler.held_blocks(int(m.lists[at.RUNNING_LIST, place])), 1)
    assert (held == m.blocks[:, at.REF]).all()
    assert held[0] == 0
    assert np.count_nonzero(held) + scheduler.num_free_blocks == scheduler.num_usable_blocks


@settings(max_examples=150)
@given(config=configs(), requests=workloads())
def test_nothing_is_lost_and_nothing_is_done_early(config, requests):
    run = drive(config, requests)
    assert sorted(run.finished) == list(range(len(requests)))
    for request in requests:
        whole = min(request.output_tokens, config.max_model_len - request.prompt_tokens)
        assert run.emitted[request.index] == whole


@settings(max_examples=60)
@given(config=configs(), requests=workloads())
def test_first_come_first_served(config, requests):
    if config.policy == "fcfs":
        run = drive(config, requests)
        kinds = [(d.request[d.kind == Kind.NEW]).tolist() for d in run.decisions]
        assert [r for step in kinds for r in step] == list(range(len(requests)))


@pytest.mark.timeout(300)  # a new machine compiles first, for 10 to 40 s
@settings(max_examples=60)
@given(config=configs(), requests=workloads())
def test_machine_code_decides_what_python_decides(config, requests):
    one = drive(config, requests)
    other = drive(config, requests, is_compiled=True)
    assert one.finished == other.finished
    for mine, theirs in zip(one.decisions, other.decisions, strict=True):
        for name in Decision.__dataclass_fields__:
            assert (getattr(mine, name) == getattr(theirs, name)).all()


@settings(max_examples=60)
@given(requests=workloads(), num_seqs=st.integers(1, 6), more=st.integers(0, 5))
def test_a_pool_for_all_that_may_run_at_once_never_preempts(requests, num_seqs, more):
    config = EngineConfig(
        num_blocks=1 + num_seqs * (LONGEST // BLOCK) + more,
        block_size=BLOCK,
        max_num_seqs=num_seqs,
        max_num_batched_tokens=16,
        max_model_len=LONGEST,
        enable_prefix_caching=False,
    )
    assert drive(config, requests).num_preempted == 0


def test_more_blocks_may_preempt_more_until_they_hold_all_that_may_run():
    """Why "more blocks, never more preemptions" is no law: a larger pool admits more at once."""
    requests = [EngineRequest(i, 24, 8) for i in range(2)]
    preemptions = [
        drive(
            EngineConfig(
                num_blocks=1 + usable,
                block_size=BLOCK,
                max_num_seqs=2,
                max_num_batched_tokens=64,
                max_model_len=LONGEST,
                enable_prefix_caching=False,
            ),
            requests,
        ).num_preempted
        for usable in range(8, 18)
    ]
    assert preemptions == [0, 0, 0, 0, 1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize("is_kept", [False, True])
def test_machine_code_takes_over_in_the_middle_when_it_is_worth_it(monkeypatch, is_kept):
    """The first steps in Python, the others as compiled (here: counted, and run in Python all the same)."""
    requests = [EngineRequest(i, 9, 20, i) for i in range(12)]
    config = EngineConfig(30, BLOCK, 64, 6, LONGEST)
    expected = drive(config, requests)
    monkeypatch.setattr(scheduler_module, "LOAD_FROM_ENTRIES", 50)
    monkeypatch.setattr(scheduler_module, "COMPILE_FROM_ENTRIES", 100)
    monkeypatch.setattr(machine_code, "is_at_hand", lambda: is_kept)
    switched = []
    original = VllmScheduler._bound

    def bound(scheduler):
        if scheduler._is_compiled:
            switched.append(scheduler._num_entries)
            scheduler._is_compiled = False
        return original(scheduler)

    monkeypatch.setattr(VllmScheduler, "_bound", bound)
    run = drive(config, requests, is_compiled=None)
    assert run.finished == expected.finished
    assert switched[0] in (range(50, 60) if is_kept else range(100, 110))
