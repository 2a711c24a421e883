"""Overload is found where it is, and only there."""

from __future__ import annotations

import numpy as np
import pytest
from small_engines import FirstCome, curve, workload

from tokenpath.simulate.loop_overload import OverloadWatch
from tokenpath.simulate.loop_run import simulate_workload
from tokenpath.simulate.recorder import NOT_SEEN
from tokenpath.simulate.replica import Replica

MS = 1_000_000
# One request at a time, 1 ms each: 1,000 requests a second.
STEP = curve(MS)


def _poisson(size: int, per_s: float, seed: int) -> np.ndarray:
    gaps = np.random.default_rng(seed).exponential(1e9 / per_s, size)
    return np.cumsum(gaps).astype(np.int64)


class _Fluid:
    """A server that ends `per_s` requests a second as long as any is there."""

    def __init__(self, arrival: np.ndarray, per_s: float, slots: int) -> None:
        service = int(1e9 / per_s)
        ends = []
        free = 0
        for at in arrival.tolist():
            free = max(free, at) + service
            ends.append(free)
        self.arrival, self.ends, self.slots = arrival, np.array(ends), slots
        self.num_sent = self.num_finished = self.num_waiting = self.num_running = 0

    def look(self, now: int) -> None:
        self.num_sent = int(np.searchsorted(self.arrival, now, "right"))
        self.num_finished = int(np.searchsorted(self.ends, now, "right"))
        inside = self.num_sent - self.num_finished
        self.num_running = min(inside, self.slots)
        self.num_waiting = inside - self.num_running


def _watched(arrival: np.ndarray, per_s: float, slots: int = 8) -> OverloadWatch:
    server = _Fluid(arrival, per_s, slots)
    watch = OverloadWatch(workload(arrival), server, server)
    for index, now in enumerate(arrival.tolist()):
        if (index + 1) % watch._every == 0:
            server.look(now)
        server.num_sent = index + 1
        if watch.must_stop(index, now):
            break
    return watch


def test_an_overloaded_run_is_stopped_and_names_the_capacity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tokenpath.simulate.loop_overload.STOP_FROM", 1200)
    done = simulate_workload(workload(_poisson(6000, 1500, 1)), [Replica([FirstCome(1)], STEP)])
    assert done.overload is not None
    assert done.overload.is_stopped
    assert done.overload.sentence == (
        "arrival rate exceeds capacity 999 req/s (1,504 req/s arrive; stopped after 1,500 requests, 1.00 s)"
    )
    assert done.num_sent < 3000
    rows = done.rows.requests[0]
    assert (rows.finished_ns != NOT_SEEN).sum() == done.num_finished


def test_it_is_only_said_where_asked_and_in_short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    load = workload(_poisson(500, 1500, 2))
    done = simulate_workload(load, [Replica([FirstCome(1)], STEP)])
    assert done.num_finished == 500
    assert done.overload is not None
    assert not done.overload.is_stopped
    monkeypatch.setattr("tokenpath.simulate.loop_overload.STOP_FROM", 0)
    load = workload(_poisson(1500, 1500, 2))
    done = simulate_workload(load, [Replica([FirstCome(1)], STEP)], stops_on_overload=False)
    assert done.num_finished == 1500
    assert done.overload is not None


def test_a_closed_loop_is_never_overloaded() -> None:
    load = workload([0] * 1500, concurrency=50)
    done = simulate_workload(load, [Replica([FirstCome(1)], STEP)])
    assert done.overload is None
    assert done.num_finished == 1500


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("per_s", [500, 900, 970])
def test_a_load_below_capacity_is_not_called_overload(per_s: float, seed: int) -> None:
    assert _watched(_poisson(30_000, per_s, seed), 1000.0).found is None


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("per_s", [1100, 1300, 5000])
def test_a_load_above_capacity_is_found_and_measured(per_s: float, seed: int) -> None:
    found = _watched(_poisson(30_000, per_s, seed), 1000.0).found
    assert found is not None
    assert found.num_sent <= 20_000
    assert found.capacity_per_s == pytest.approx(1000, rel=0.02)
    assert found.arrival_per_s == pytest.approx(per_s, rel=0.05)


@pytest.mark.parametrize("seed", range(2))
def test_a_burst_that_will_drain_is_not_overload(seed: int) -> None:
    # Five times as fast as can be served for a while, then slow: all will be well before the end.
    burst = _poisson(6000, 5000, seed)
    calm = burst[-1] + _poisson(24_000, 600, seed + 100)
    assert _watched(np.concatenate((burst, calm)), 1000.0).found is None


def test_a_batch_that_fills_up_is_not_overload() -> None:
    # Nothing ends in the first second, and many run.
    assert _watched(_poisson(20_000, 800, 3), 1000.0, slots=2000).found is None


def test_all_at_once_is_a_burst() -> None:
    done = simulate_workload(workload([0] * 1500), [Replica([FirstCome(8)], STEP)])
    assert done.overload is None
    assert done.num_finished == 1500
