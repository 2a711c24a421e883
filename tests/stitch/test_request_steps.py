"""Shares of requests in steps, inferred and compared with a small engine that knows them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explain.serving import Engine, Request, capture_of
from tokenpath.capture.capture import Capture, build_table
from tokenpath.capture.combine import combine
from tokenpath.capture.validate import validate
from tokenpath.stitch.request_steps import LINKED_BY, with_request_steps


def serve(seed: int, num: int, *, max_running: int = 6, late_ns: int = 0) -> Engine:
    """First come, first served, one token a step, no preemption; records of tokens are late."""
    rng = np.random.default_rng(seed)
    at, requests = 10**9, []
    for number in range(num):
        at += int(rng.integers(1, 40_000_000))
        requests.append(
            Request(f"r{number}", at, at, int(rng.integers(1, 200)), int(rng.integers(1, 40)))
        )
    now, steps = requests[0].queued_ns, []
    while any(request.emitted < request.output for request in requests):
        active = [r for r in requests if r.queued_ns <= now and r.emitted < r.output][:max_running]
        if not active:
            now = min(r.queued_ns for r in requests if r.emitted < r.output)
            continue
        now += int(rng.integers(100_000, 400_000))
        end = now + int(rng.integers(8_000_000, 20_000_000))
        members, left = [], 256
        for request in active:
            need = request.prompt + request.emitted - request.computed
            tokens = min(need, left)
            if tokens == 0:
                continue
            left -= tokens
            emits = tokens == need
            phase = "decode" if request.emitted else "prefill"
            members.append((request.name, phase, tokens, request.computed, emits))
            if request.first_step is None:
                request.first_step = len(steps)
            request.computed += tokens
            if emits:
                request.emitted += 1
                seen = end + (int(rng.exponential(late_ns)) if late_ns else 0)
                request.tokens_ns.append(seen)
                request.client_ns.append(seen)
        steps.append({"marks": [now, now, now, end, end], "members": members})
        now = end
    return Engine(requests, steps)


def stripped(capture: Capture) -> Capture:
    return Capture({name: capture[name] for name in capture if name != "request_step"})


def shares(capture: Capture) -> dict[tuple[str, int], dict[str, Any]]:
    rows = capture["request_step"].to_pylist()
    return {(row["request_id"], row["step_id"]): row for row in rows}


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 25))
def test_exact_times_give_the_true_shares(seed: int, num: int) -> None:
    capture = capture_of(serve(seed, num))
    inferred = with_request_steps(stripped(capture))
    validate(inferred)
    truth, found = shares(capture), shares(inferred)
    assert set(found) == set(truth)
    for key, row in found.items():
        assert row["linked_by"] == LINKED_BY
        assert row["confidence"] == 1.0
        for name in ("phase", "num_tokens", "num_emitted"):
            assert row[name] == truth[key][name], (key, name)


def test_late_records_cost_little_and_say_so() -> None:
    right = found_in_all = in_all = 0
    stated = []
    for seed in range(20):
        capture = capture_of(serve(seed, 30, late_ns=6_000_000))
        truth, found = shares(capture), shares(with_request_steps(stripped(capture)))
        right += len(set(found) & set(truth))
        found_in_all += len(found)
        in_all += len(truth)
        stated += [row["confidence"] for row in found.values()]
    assert right >= 0.98 * found_in_all
    assert right >= 0.95 * in_all
    assert np.mean(stated) <= right / found_in_all + 0.02


def test_a_preempted_request_is_left_out() -> None:
    """Its ends lie further apart than its tokens; when it stood still nobody says."""
    engine = serve(5, 6)
    slow = max(engine.requests, key=lambda request: request.output)
    slow.tokens_ns[-1] += 500_000_000
    slow.client_ns[-1] += 500_000_000
    engine.steps += [
        {
            "marks": [at, at, at, at + 9_000_000, at + 9_000_000],
            "members": [("x", "decode", 1, 5, True)],
        }
        for at in range(engine.steps[-1]["marks"][4] + 1_000_000, slow.tokens_ns[-1], 10_000_000)
    ]
    capture = capture_of(engine)
    found = shares(with_request_steps(stripped(capture)))
    assert slow.name not in {name for name, _ in found}
    assert {name for name, _ in found} == {r.name for r in engine.requests} - {slow.name}


def test_stated_shares_stand() -> None:
    capture = capture_of(serve(3, 4))
    assert with_request_steps(capture) is capture


@pytest.mark.parametrize("missing", ["step", "request"])
def test_without_steps_or_requests_nothing_is_inferred(missing: str) -> None:
    capture = stripped(capture_of(serve(3, 4)))
    bare = Capture({name: capture[name] for name in capture if name != missing})
    assert with_request_steps(bare) is bare


def test_two_schedulers_are_not_told_apart() -> None:
    both = combine([stripped(capture_of(serve(1, 3))), stripped(capture_of(serve(2, 3)))])
    assert with_request_steps(both) is both


def test_times_of_nobody() -> None:
    """A request whose tokens lie outside the log gets no rows."""
    capture = stripped(capture_of(serve(3, 2)))
    row = {
        "source_id": [0],
        "request_id": ["far"],
        "observer": ["engine"],
        "arrival_ns": [10],
        "first_token_ns": [20],
        "last_token_ns": [30],
        "output_tokens": [3],
    }
    only = capture.replace({"request": build_table("request", row)})
    assert with_request_steps(only) is only
