"""Latency parts add up exactly, and equal those that a slow walk along the clock finds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explain.serving import Engine, Request, capture_of, run
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.explain.latency import PARTS, Latency, latencies

KEYS = [key for key, _ in PARTS]


def by_kind(capture: Capture) -> dict[tuple[str, str], Latency]:
    return {(found.observer, found.kind): found for found in latencies(capture)}


def slow_parts(engine: Engine, request: Request, observer: str, kind: str) -> dict[str, int]:
    """The same parts of one request by walking from step to step."""
    parts = dict.fromkeys(KEYS, 0)
    emitting = [
        number
        for number, step in enumerate(engine.steps)
        if any(name == request.name and emits for name, _, _, _, emits in step["members"])
    ]
    assert request.first_step is not None
    first, last = request.first_step, emitting[0]
    if kind == "ttft":
        start = engine.steps[first]["marks"][0]
        parts["send"] = request.queued_ns - request.sent_ns if observer == "client" else 0
        parts["queue"] = start - request.queued_ns
        if observer == "client":
            parts["delivery"] = request.client_ns[0] - request.tokens_ns[0]
    else:
        first, last = emitting[0] + 1, emitting[-1]
        if observer == "client":
            late = [
                seen - gave for seen, gave in zip(request.client_ns, request.tokens_ns, strict=True)
            ]
            parts["delivery"] = late[-1] - late[0]
    mine = [
        number
        for number in range(first, last + 1)
        if any(member[0] == request.name for member in engine.steps[number]["members"])
    ]
    if kind == "decode" and mine:
        parts["transition"] = (
            engine.steps[mine[0]]["marks"][0] - engine.steps[emitting[0]]["marks"][4]
        )
        first = mine[0]
    for number in range(first, last + 1):
        a, b, c, d, e = engine.steps[number]["marks"]
        if number > first:
            parts["gaps"] += a - engine.steps[number - 1]["marks"][4]
        members = {member[0]: member for member in engine.steps[number]["members"]}
        if request.name not in members:
            parts["not_scheduled"] += e - a
            continue
        parts["scheduling"] += b - a
        parts["gaps"] += c - b
        parts["output"] += e - d
        tokens = members[request.name][2]
        total = sum(member[2] for member in members.values())
        own = (d - c) * tokens // total
        decode = sum(member[2] for member in members.values() if member[1] == "decode")
        prefill = total - decode
        others = prefill if tokens <= 1 and decode else max(prefill - tokens, 0)
        by_prefill = min((d - c) * others // total, d - c - own)
        parts["own_compute"] += own
        parts["others_prefill"] += by_prefill
        parts["others_decode"] += d - c - own - by_prefill
    return parts


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 12), st.sampled_from([16, 64, 512]))
def test_parts_equal_those_of_a_slow_walk(seed: int, num_requests: int, budget: int) -> None:
    engine = run(seed, num_requests, budget)
    capture = capture_of(engine)
    validate(capture)
    found = by_kind(capture)
    assert set(found) == {(o, k) for o in ("client", "engine") for k in ("ttft", "decode")}
    of_name = {request.name: request for request in engine.requests}
    for (observer, kind), latency in found.items():
        assert (latency.parts_ns.sum(axis=1) == latency.total_ns).all()
        assert (latency.parts_ns[:, KEYS.index("unresolved")] == 0).all()
        for name, parts in zip(latency.request_id, latency.parts_ns.tolist(), strict=True):
            expected = slow_parts(engine, of_name[name], observer, kind)
            assert dict(zip(KEYS, parts, strict=True)) == expected, (name, observer, kind)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_sums_close_without_the_parts_of_steps(seed: int) -> None:
    """A log that only has starts and ends: the whole step is the forward pass."""
    found = by_kind(capture_of(run(seed), parts=False))
    for latency in found.values():
        assert (latency.parts_ns.sum(axis=1) == latency.total_ns).all()
        for part in ("scheduling", "output", "unresolved"):
            assert (latency.parts_ns[:, KEYS.index(part)] == 0).all()


def without(capture: Capture, *tables: str) -> Capture:
    return Capture({name: capture[name] for name in capture if name not in tables})


def test_without_steps_the_engine_is_one_part() -> None:
    found = by_kind(without(capture_of(run(3)), "step", "request_step"))
    ttft = found["client", "ttft"]
    assert (ttft.parts_ns.sum(axis=1) == ttft.total_ns).all()
    assert (ttft.parts_ns[:, KEYS.index("unresolved")] > 0).any()
    assert (ttft.parts_ns[:, KEYS.index("queue")] > 0).any()
    assert (ttft.parts_ns[:, KEYS.index("own_compute")] == 0).all()
    decode = found["client", "decode"]
    assert (decode.parts_ns[:, KEYS.index("unresolved")] == decode.total_ns).all()


def test_only_a_client() -> None:
    """Nothing of the inside is known, and nothing is invented."""
    capture = without(capture_of(run(3)), "step", "request_step")
    table = capture["request"]
    client = [value == "client" for value in table["observer"].to_pylist()]
    only = capture.replace({"request": table.filter(client)})
    (decode, ttft) = sorted(latencies(only), key=lambda latency: latency.kind)
    for latency in (decode, ttft):
        assert (latency.parts_ns[:, KEYS.index("unresolved")] == latency.total_ns).all()


def test_no_requests() -> None:
    assert latencies(Capture({})) == []


@pytest.mark.parametrize("seed", range(3))
def test_two_engines_do_not_mix(seed: int) -> None:
    """Data-parallel ranks have steps at the same time; each request belongs to one."""
    from tokenpath.capture.combine import combine

    one, two = run(seed), run(seed + 100)
    for request in two.requests:
        request.name = "b" + request.name
    for step in two.steps:
        step["members"] = [("b" + name, *rest) for name, *rest in step["members"]]
    both = by_kind(combine([capture_of(one), capture_of(two)]))
    alone = by_kind(capture_of(one))
    for key, latency in alone.items():
        together = dict(zip(both[key].request_id, both[key].parts_ns.tolist(), strict=True))
        for name, parts in zip(latency.request_id, latency.parts_ns.tolist(), strict=True):
            assert together[name] == parts


def test_communication_in_a_step_that_a_profiler_saw() -> None:
    """It is taken out before the forward pass is shared, and every request of the step waits for it."""
    from explain.test_thread import with_kernels

    engine = run(4)
    before = capture_of(engine)
    after = with_kernels(before, 3)
    execute = engine.steps[3]["marks"][3] - engine.steps[3]["marks"][2]
    alone = min(200, execute)
    column = KEYS.index("communication")
    members = {member[0] for member in engine.steps[3]["members"]}
    seen: dict[str, int] = {}
    for latency in by_kind(after).values():
        assert (latency.parts_ns.sum(axis=1) == latency.total_ns).all()
        if latency.observer == "engine":
            for name, parts in zip(latency.request_id, latency.parts_ns, strict=True):
                seen[name] = seen.get(name, 0) + int(parts[column])
    assert {name: value for name, value in seen.items() if value} == dict.fromkeys(members, alone)
    for key, latency in by_kind(before).items():
        assert (latency.total_ns == by_kind(after)[key].total_ns).all()
