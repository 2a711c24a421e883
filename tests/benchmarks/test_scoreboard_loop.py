"""The light loop of the fit: waits that are settings of a recipe, and a client with more requests than slots."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.scoreboard.cases import ClosedLoop, family_of
from benchmarks.scoreboard.predict_many import in_flight
from benchmarks.scoreboard.quick_loop import MIXED, simulate

STEP_NS = 1e6
KNOTS = np.array([1.0, 16384.0])
FLAT = np.full(2, STEP_NS)


def times(
    arrival: list[float],
    output: list[int],
    *,
    slots: int = 8,
    concurrency: int = 0,
    interval: float = 1.0,
    wait_steps: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """First and last token of each request since its arrival, in steps that all take the same time."""
    count = len(output)
    first, last = np.zeros(count), np.zeros(count)
    sent = np.array(arrival or [0.0] * count) * STEP_NS
    simulate.py_func(
        sent, concurrency, np.full(count, 8.0), np.zeros(count), np.array(output, float), KNOTS, FLAT, FLAT,
        np.zeros(7), 0.0, slots, 8192, 1e9, 0.5, MIXED, 0, 0.0, interval, wait_steps, first, last,
    )  # fmt: skip
    return first / STEP_NS, last / STEP_NS


def test_a_request_waits_for_the_next_look_of_the_scheduler() -> None:
    every, _ = times([0.0, 20.5], [100, 5])
    assert every[1] == pytest.approx(1.5)
    # The first step was a prefill, so looks follow at 1, 11, 21, 31: 31 is not needed.
    tenth, _ = times([0.0, 20.5], [100, 5], interval=10.0)
    assert tenth[1] == pytest.approx(1.5)
    late, _ = times([0.0, 21.5], [100, 5], interval=10.0)
    assert late[1] == pytest.approx(10.5)


def test_an_idle_engine_looks_at_once() -> None:
    first, _ = times([0.0, 50.0], [5, 5], interval=30.0)
    assert first.tolist() == pytest.approx([1.0, 1.0])


def test_a_request_is_held_back_while_others_decode() -> None:
    first, _ = times([0.0, 10.5], [100, 5], wait_steps=20.0)
    assert first[0] == pytest.approx(1.0)
    assert first[1] == pytest.approx(21.5)


def test_a_client_with_one_more_request_than_slots_waits_for_one_completion() -> None:
    load = ClosedLoop(4, 8, 100, 1.0, num_queued=1)
    assert in_flight(load) == 5
    staggered = [25, 50, 75, 100, *[100] * 12]
    first, _ = times([], staggered, slots=4, concurrency=in_flight(load))
    # Slots end one after the other, a quarter of an output apart.
    assert np.median(first[5:13]) == pytest.approx(26, abs=2)


def test_code_llama_is_left_out_with_llama_2() -> None:
    assert family_of("codellama/CodeLlama-34b-Instruct-hf") == family_of("meta-llama/Llama-2-7b")
    assert family_of("meta-llama/Llama-3.1-8B") != family_of("meta-llama/Llama-2-7b")
