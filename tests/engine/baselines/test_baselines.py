"""Static batching and the batching window, on workloads small enough to read, and their laws."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tokenpath.core.errors import InputError, UsageError
from tokenpath.engine.baselines import (
    StaticScheduler,
    StaticSettings,
    WindowScheduler,
    WindowSettings,
)
from tokenpath.engine.scheduler import EngineRequest

several = hypothesis_settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def request(index: int, prompt: int, output: int, at: int = 0) -> EngineRequest:
    return EngineRequest(index, prompt, output, at)


def static(**changed: Any) -> StaticSettings:
    return StaticSettings(**{"num_blocks": 64, "max_seq_len": 64, "block_size": 4, **changed})


@st.composite
def workloads(draw: st.DrawFn) -> list[EngineRequest]:
    lengths = st.tuples(st.integers(1, 30), st.integers(1, 20), st.integers(0, 40))
    return [
        request(i, *length)
        for i, length in enumerate(draw(st.lists(lengths, min_size=1, max_size=12)))
    ]


@st.composite
def all_settings(draw: st.DrawFn) -> StaticSettings:
    common = {
        "num_blocks": draw(st.integers(13, 80)),
        "max_seq_len": draw(st.integers(50, 52)),
        "block_size": 4,
        "max_batch_size": draw(st.integers(1, 8)),
        "pool": draw(st.sampled_from(["contiguous", "paged"])),
    }
    window_ns = draw(st.one_of(st.none(), st.integers(0, 20)))
    return (
        StaticSettings(**common)
        if window_ns is None
        else WindowSettings(**common, window_ns=window_ns)
    )


def scheduler_of(chosen: StaticSettings) -> StaticScheduler:
    if isinstance(chosen, WindowSettings):
        return WindowScheduler(chosen)
    return StaticScheduler(chosen)


def test_rows_are_padded_to_the_longest_prompt_and_the_longest_output(drive) -> None:
    scheduler = StaticScheduler(static())
    run = drive(scheduler, [request(0, 10, 3), request(1, 4, 1), request(2, 7, 1, at=1)])
    assert run.shape == [
        [(0, 0, 10), (1, 0, 10)],
        [(0, 10, 1), (1, 10, 1)],
        [(0, 11, 1), (1, 11, 1)],
        [(2, 0, 7)],  # waited for the whole batch
    ]
    assert [o.num_emitted.tolist() for _, o in run.steps] == [[1, 1], [1, 0], [1, 0], [1]]
    assert [o.finished.tolist() for _, o in run.steps] == [[], [], [0, 1], [2]]
    assert scheduler.num_padding_tokens == 6 + 2


def test_contiguous_rows_take_their_longest_length_paged_ones_what_they_fill() -> None:
    for pool, free in (("contiguous", 64 - 2 * 16), ("paged", 64 - 2 * 3)):
        scheduler = StaticScheduler(static(pool=pool))
        scheduler.add(request(0, 10, 3))
        scheduler.add(request(1, 4, 1))
        scheduler.schedule(0)
        assert scheduler.num_free_blocks == free


def test_a_batch_is_cut_to_what_fits_to_its_end(drive) -> None:
    # Four contiguous rows of 16 blocks fill the pool; paged rows of 30 + 2 tokens take 8.
    requests = [request(i, 30, 2) for i in range(10)]
    assert len(drive(StaticScheduler(static()), requests).shape[0]) == 4
    assert len(drive(StaticScheduler(static(pool="paged")), requests).shape[0]) == 8


def test_a_long_prompt_and_a_long_output_do_not_share_a_row_length(drive) -> None:
    requests = [request(0, 60, 2), request(1, 2, 60)]
    run = drive(StaticScheduler(static(pool="paged")), requests)
    assert [len(step) for step in run.shape[:3]] == [1, 1, 1], "60 + 60 tokens exceed a row"


def test_the_window_waits_for_others_or_for_a_full_batch(drive) -> None:
    settings = WindowSettings(
        num_blocks=64, max_seq_len=64, block_size=4, max_batch_size=3, window_ns=10, pool="paged"
    )
    run = drive(WindowScheduler(settings), [request(0, 5, 1), request(1, 5, 1, at=9)])
    assert [len(step) for step in run.shape] == [2], "both within ten"
    scheduler = WindowScheduler(settings)
    scheduler.add(request(0, 5, 1, at=3))
    assert len(scheduler.schedule(3).request) == 0
    assert scheduler.wake_ns == 13
    assert len(scheduler.schedule(12).request) == 0
    scheduler.add(request(1, 5, 1, at=12))
    scheduler.add(request(2, 5, 1, at=12))
    assert len(scheduler.schedule(12).request) == 3, "full before its time"
    assert scheduler.wake_ns is None


@several
@given(workloads(), all_settings())
def test_every_request_ends_in_order_of_arrival(
    drive, requests: list[EngineRequest], chosen: StaticSettings
) -> None:
    scheduler = scheduler_of(chosen)
    run = drive(scheduler, requests)
    order = sorted(requests, key=lambda r: (r.arrival_ns, r.index))
    assert run.finished == [r.index for r in order]
    assert run.preempted == []
    computed = sum(d.num_scheduled_tokens for d, _ in run.steps)
    # The last token of a request is emitted, never computed.
    own = sum(r.prompt_tokens + r.output_tokens - 1 for r in requests)
    assert computed == own + scheduler.num_padding_tokens


@several
@given(workloads(), all_settings())
def test_the_same_run_twice_is_the_same(
    drive, requests: list[EngineRequest], chosen: StaticSettings
) -> None:
    assert (
        drive(scheduler_of(chosen), requests).shape == drive(scheduler_of(chosen), requests).shape
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pool": "heap"}, "contiguous, paged"),
        ({"max_batch_size": 0}, "at least 1"),
        ({"max_seq_len": 300}, "max_seq_len up to 256"),
    ],
)
def test_settings_under_which_nothing_can_run(changed: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        static(**changed)
    assert message in str(refused.value)
    with pytest.raises(UsageError, match="window_ns"):
        WindowSettings(num_blocks=64, max_seq_len=64, window_ns=-1)


def test_what_cannot_run_is_refused_with_the_limit() -> None:
    with pytest.raises(InputError) as refused:
        StaticScheduler(static()).add(request(0, 60, 5))
    assert "64 tokens" in str(refused.value)


def test_the_turns_of_schedule_and_complete_are_kept() -> None:
    scheduler = StaticScheduler(static())
    assert len(scheduler.schedule(0).request) == 0
    scheduler.add(request(0, 5, 1))
    decision = scheduler.schedule(0)
    with pytest.raises(UsageError):
        scheduler.schedule(1)
    scheduler.complete(decision, 1)
    with pytest.raises(UsageError):
        scheduler.complete(decision, 2)
