"""The event loop: order of events, conservation, queueing laws, determinism."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_engines import FirstCome, curve, workload

from tokenpath.api.explain import explain
from tokenpath.capture.parquet import read_capture, write_capture
from tokenpath.capture.validate import validate
from tokenpath.core.errors import InputError
from tokenpath.simulate.loop_run import simulate_workload
from tokenpath.simulate.recorder import NOT_SEEN, RunRows
from tokenpath.simulate.recorder_tables import RunFacts, capture_of_run
from tokenpath.simulate.replica import Replica, ReplicaSettings
from tokenpath.simulate.router import Router
from tokenpath.simulate.step_model import StepCurve
from tokenpath.simulate.workload.workload import Workload

MS = 1_000_000


def run(
    load: Workload,
    step: StepCurve,
    *,
    num_replicas: int = 1,
    slots: int = 8,
    blocks: int = 100_000,
    settings: ReplicaSettings | None = None,
    round_trip_ns: int = 0,
    make: Callable[[], FirstCome] | None = None,
    router: Router | None = None,
) -> RunRows:
    make = make or (lambda: FirstCome(slots, blocks))
    replicas = [Replica([make()], step, settings) for _ in range(num_replicas)]
    return simulate_workload(load, replicas, router, round_trip_ns=round_trip_ns).rows


def facts(num_endpoints: int = 1) -> RunFacts:
    return RunFacts("test", "vllm", [100_000] * num_endpoints)


def test_one_request_takes_a_step_a_token() -> None:
    rows = run(workload([5], 10, 3), curve(100, 10, 1))
    request = rows.requests[0]
    assert rows.steps.start_ns.tolist() == [5, 205, 306]
    assert rows.steps.end_ns.tolist() == [205, 306, 407]
    assert request.first_token_ns.tolist() == [205]
    assert request.finished_ns.tolist() == [407]
    assert rows.steps.features.tolist() == [
        [1, 10, 0, 55, 0, 0, 0],
        [0, 0, 0, 0, 1, 1, 11],
        [0, 0, 0, 0, 1, 1, 12],
    ]


def test_what_arrives_as_a_step_ends_is_in_the_next_step() -> None:
    rows = run(workload([0, 100], 1, 2), curve(100))
    assert rows.steps.start_ns.tolist() == [0, 100, 200]
    assert rows.shares is not None
    assert rows.shares.request.tolist() == [0, 0, 1, 1]


def test_a_turn_is_sent_after_its_predecessor_and_the_thinking() -> None:
    load = workload([0, 0, 5000], 1, 1, after=[-1, 0, 1], think_ns=[0, 50, 10])
    rows = run(load, curve(100), round_trip_ns=7)
    assert rows.requests[0].queued_ns.tolist() == [0, 100 + 7 + 50, 5000]


def test_closed_loop_keeps_its_concurrency() -> None:
    rows = run(workload([0] * 20, 1, 3, concurrency=4), curve(100), slots=100)
    request = rows.requests[0]
    for at in range(0, int(request.finished_ns.max()), 50):
        assert ((request.queued_ns <= at) & (at < request.finished_ns)).sum() == 4
    assert request.queued_ns[:4].tolist() == [0] * 4


def test_steps_decided_ahead_wait_for_the_one_that_runs() -> None:
    ahead = ReplicaSettings(steps_in_flight=2)
    rows = run(workload([0, 10], 1, 3), curve(100), settings=ahead)
    # The second request comes too late for the step decided at 0, and is in the one decided at 100.
    assert rows.steps.decided_ns.tolist() == [0, 0, 100, 200, 300]
    assert rows.steps.start_ns.tolist() == [0, 100, 200, 300, 400]
    assert rows.requests[0].first_token_ns.tolist() == [100, 300]


def test_pipeline_stages_work_on_different_steps() -> None:
    stages = ReplicaSettings(steps_in_flight=4, num_stages=4)

    class Single(FirstCome):
        """Decides steps of one request each."""

        def schedule(self, now_ns: int):
            self.slots = len(self.running) + 1 if self.waiting else self.slots
            return super().schedule(now_ns)

    rows = run(workload([0, 1, 2, 3], 1, 1), curve(400), settings=stages, make=Single)
    assert rows.steps.end_ns.tolist() == [400, 500, 600, 700]


def test_a_scheduler_that_lets_time_pass_is_asked_again() -> None:
    class EveryMicrosecond(FirstCome):
        """Admits at whole microseconds only."""

        wake_ns: int | None = None

        def schedule(self, now_ns: int):
            self.wake_ns = None
            if now_ns % 1000 and not self.running:
                self.wake_ns = -(-now_ns // 1000) * 1000
                self.slots = 0
            else:
                self.slots = 8
            return super().schedule(now_ns)

    rows = run(workload([5, 10, 1500], 1, 1), curve(100), make=EveryMicrosecond)
    assert rows.requests[0].scheduled_ns.tolist() == [1000, 1000, 2000]


def test_a_request_that_can_never_run_is_refused_and_the_others_go_on() -> None:
    load = workload([0, 0, 0], [5, 500, 5], 2, after=[-1, -1, 1])
    done = simulate_workload(load, [Replica([FirstCome(blocks=100)], curve(10))])
    assert done.refusals == [(1, "too long")]
    assert (done.num_sent, done.num_finished) == (3, 3)
    assert done.rows.requests[0].is_rejected.tolist() == [False, True, False]


def test_requests_that_wait_for_ever_are_an_error() -> None:
    class Never(FirstCome):
        """Admits nobody."""

        def _fits(self, request) -> bool:
            return False

    with pytest.raises(InputError, match="1 requests wait for ever"):
        simulate_workload(workload([0]), [Replica([Never()], curve(10))])


@st.composite
def _workloads(draw: st.DrawFn) -> Workload:
    size = draw(st.integers(1, 25))

    def ints(low: int, high: int) -> st.SearchStrategy[list[int]]:
        return st.lists(st.integers(low, high), min_size=size, max_size=size)

    after = [draw(st.sampled_from([-1, *range(index)])) for index in range(size)]
    return workload(
        np.sort(draw(ints(0, 2000))),
        draw(ints(1, 30)),
        draw(ints(1, 12)),
        after=after,
        think_ns=draw(ints(0, 300)),
        concurrency=draw(st.sampled_from([None, 1, 3])),
    )


@settings(max_examples=40)
@given(_workloads(), st.integers(1, 3), st.integers(1, 4), st.sampled_from([0, 1, 77]))
def test_requests_are_conserved_and_no_token_comes_before_its_prefill(
    load: Workload, num_replicas: int, slots: int, round_trip_ns: int
) -> None:
    step = curve(90, 3, 2)
    rows = run(load, step, num_replicas=num_replicas, slots=slots, round_trip_ns=round_trip_ns)
    request, shares, steps = rows.requests[0], rows.shares, rows.steps
    assert shares is not None
    assert (request.finished_ns != NOT_SEEN).all()
    assert (request.output_tokens == load.output_tokens).all()
    assert (request.queued_ns <= request.scheduled_ns).all()
    assert (request.scheduled_ns < request.first_token_ns).all()
    assert (request.first_token_ns <= request.finished_ns).all()
    # Every prompt token is computed once; a token leaves with the last of them and with each decode.
    size = load.num_requests
    computed = np.bincount(shares.request, shares.num_tokens, size)
    assert (computed == load.prompt_tokens + load.output_tokens - 1).all()
    before_prefill_ends = (shares.num_emitted > 0) & (
        shares.num_computed_before + shares.num_tokens < load.prompt_tokens[shares.request]
    )
    assert not before_prefill_ends.any()
    for endpoint in range(num_replicas):
        mine = steps.endpoint == endpoint
        start, end = steps.start_ns[mine], steps.end_ns[mine]
        # Each replica runs one step at a time, and none rests while it has a request.
        assert (start[1:] >= end[:-1]).all()
        here = request.endpoint == endpoint
        for rest, until in zip(end[:-1], start[1:], strict=True):
            has_work = (request.queued_ns[here] < until) & (request.finished_ns[here] > rest)
            assert rest == until or not has_work.any()
    again = run(load, step, num_replicas=num_replicas, slots=slots, round_trip_ns=round_trip_ns)
    for one, other in zip(vars(steps).values(), vars(again.steps).values(), strict=True):
        assert (one == other).all()


def _exponential(size: int, mean_ns: float, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).exponential(mean_ns, size).round().astype(np.int64)


def _lindley(arrival: np.ndarray, service: np.ndarray) -> np.ndarray:
    """Waiting times of a queue with one server (Lindley 1952), exactly."""
    # W[n+1] = max(0, W[n] + S[n] - (A[n+1] - A[n])): a walk minus its minimum so far.
    steps = np.concatenate(([0], np.cumsum(service[:-1] - np.diff(arrival))))
    result: np.ndarray = steps - np.minimum.accumulate(steps)
    return result


@pytest.mark.parametrize("load_factor", [0.5, 0.8])
@pytest.mark.parametrize("is_constant", [False, True])
def test_one_at_a_time_it_is_an_mm1_or_md1_queue(load_factor: float, is_constant: bool) -> None:
    # Service is the prompt's length at 1 us a token. The run equals Lindley's recursion to the ns; that, on
    # many more requests, has the mean wait of M/M/1, rho / (1 - rho) services, or half of it for M/D/1
    # (Pollaczek-Khinchine; Kleinrock, Queueing Systems I, 1975).
    size, mean_tokens = 1_000_000, 1000
    tokens = np.maximum(1, _exponential(size, mean_tokens, 1))
    if is_constant:
        tokens = np.full(size, mean_tokens)
    arrival = np.cumsum(_exponential(size, mean_tokens * 1000 / load_factor, 2))
    wait = _lindley(arrival, tokens * 1000)
    expected = load_factor / (1 - load_factor) * mean_tokens * 1000 * (0.5 if is_constant else 1)
    assert wait.mean() == pytest.approx(expected, rel=0.03)
    few = slice(0, 700)
    rows = run(workload(arrival[few], tokens[few], 1), curve(0, 1000), slots=1, blocks=10**9)
    request = rows.requests[0]
    assert (request.scheduled_ns - request.queued_ns).tolist() == wait[few].tolist()


def test_several_servers_behind_one_queue_are_mmc() -> None:
    # Three replicas behind a router that sends each to the one that is free first are M/M/3: Erlang C.
    size, mean_tokens, servers, load_factor = 200_000, 1000, 3, 0.8
    tokens = np.maximum(1, _exponential(size, mean_tokens, 4))
    arrival = np.cumsum(_exponential(size, mean_tokens * 1000 / load_factor / servers, 5))
    free = [0] * servers
    wait = np.empty(size, np.int64)
    for index, (at, service) in enumerate(
        zip(arrival.tolist(), (tokens * 1000).tolist(), strict=True)
    ):
        begin = max(at, free[0])
        wait[index] = begin - at
        heapq.heapreplace(free, begin + service)
    offered = servers * load_factor
    full = offered**servers / math.factorial(servers) / (1 - load_factor)
    erlang_c = full / (sum(offered**n / math.factorial(n) for n in range(servers)) + full)
    expected = erlang_c * mean_tokens * 1000 / (servers * (1 - load_factor))
    assert wait.mean() == pytest.approx(expected, rel=0.05)

    class FirstFree:
        """A router that keeps the common queue: the replica that will be free first."""

        def __init__(self) -> None:
            self.free = [0] * servers

        def choose(self, request, session, endpoints):
            chosen = min(range(servers), key=lambda number: (self.free[number], number))
            begin = max(request.arrival_ns, self.free[chosen])
            self.free[chosen] = begin + request.prompt_tokens * 1000
            return endpoints[chosen]

    few = slice(0, 600)
    load = workload(arrival[few], tokens[few], 1)
    rows = run(load, curve(0, 1000), slots=1, blocks=10**9, num_replicas=3, router=FirstFree())
    request = rows.requests[0]
    assert (request.scheduled_ns - request.queued_ns).tolist() == wait[few].tolist()


def test_littles_law() -> None:
    size = 300
    arrival = np.cumsum(_exponential(size, MS / 3, 5))
    rows = run(workload(arrival, 5, 20), curve(MS / 10, 100, 1000), slots=64)
    request, steps = rows.requests[0], rows.steps
    stay = (request.finished_ns - request.scheduled_ns).sum()
    # Requests in each step times its length: all time that requests spend admitted.
    inside = ((steps.features[:, 0] + steps.features[:, 4]) * (steps.end_ns - steps.start_ns)).sum()
    assert stay == inside


def test_explain_reads_a_simulated_run() -> None:
    size = 40
    arrival = np.cumsum(_exponential(size, MS / 2, 6))
    load = workload(arrival, 20, 15)
    capture = capture_of_run(run(load, curve(MS / 8, 2000, 1000)), load, facts(), tokens=True)
    validate(capture)
    found = explain(capture)
    kinds = {funnel.title.split(",")[0]: funnel for funnel in found.report.request_funnels}
    assert {"time to first token", "first token to last"} <= set(kinds)
    for funnel in kinds.values():
        if funnel.rows[0].key == "latency":
            parts = {row.key: row.duration_ns for row in funnel.rows[1:]}
            assert sum(parts.values()) == funnel.rows[0].duration_ns
            assert "unresolved" not in parts
    assert capture.num_rows("token") == load.output_tokens.sum()


def test_the_hosts_clock_has_no_part_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    load = workload(np.arange(50) * 70, 20, 9)
    first = run(load, curve(100, 2, 1))
    for name in ("time", "time_ns", "monotonic", "perf_counter", "perf_counter_ns", "sleep"):
        monkeypatch.setattr(time, name, lambda *_: pytest.fail("asked what time it is"))
    again = run(load, curve(100, 2, 1))
    monkeypatch.undo()
    assert (first.steps.end_ns == again.steps.end_ns).all()


def test_a_workload_out_of_order_is_refused() -> None:
    with pytest.raises(InputError, match="request 1 is sent before request 0"):
        run(workload([5, 4]), curve(1))
    with pytest.raises(InputError, match="request 0 waits for request 0"):
        run(workload([0], after=[0]), curve(1))


def test_the_same_run_is_the_same_bytes(tmp_path: Path) -> None:
    arrival = np.cumsum(_exponential(50, MS, 8))
    load = workload(arrival, 20, 9)
    for name in ("one", "two"):
        capture = capture_of_run(run(load, curve(MS, 2000, 10)), load, facts(), tokens=True)
        write_capture(capture, tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert "token.parquet" in files
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    validate(read_capture(tmp_path / "one"))
