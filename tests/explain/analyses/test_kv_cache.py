"""KV cache and speculation: too few blocks, missed and evicted prefixes, slow tiers, rejected drafts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from explain.analyses.service_programs import (
    MS,
    Asked,
    Limits,
    capture,
    findings,
    fresh,
    mean_latency_ns,
    requests,
    run,
    serve,
)
from tokenpath.capture.capture import Capture, build_table
from tokenpath.core.finding import Finding

HEALTHY = Limits()
CALM = requests(80, 60 * MS)


def first(made: Capture) -> Finding:
    return findings(made)[0]


def test_too_few_blocks_are_a_storm_of_preemptions() -> None:
    asked = fresh(requests(80, 40 * MS, output=80))
    finding = first(run(asked, replace(HEALTHY, kv_blocks=150)))
    assert finding.code == "preemption-storm"
    again = fresh(asked)
    run(again, HEALTHY)
    assert finding.gain_ns == pytest.approx(
        mean_latency_ns(asked) - mean_latency_ns(again), rel=0.3
    )
    recomputed = finding.details["recomputed_tokens"]
    assert isinstance(recomputed, int)
    assert recomputed > 0


def test_a_stated_prefix_that_never_hits() -> None:
    asked = fresh(requests(80, 90 * MS, prompt=1_100, spread=0.05))
    made = capture(asked, serve(asked, HEALTHY), {"max_num_seqs": 64, "load.prefix_len": 1_000})
    finding = first(made)
    assert finding.code == "prefix-miss"
    again = fresh(asked)
    for one in again:
        one.cached = 1_000
    run(again, HEALTHY)
    assert finding.gain_ns == pytest.approx(
        mean_latency_ns(asked) - mean_latency_ns(again), rel=0.2
    )


def test_a_prefix_that_hits_is_no_finding() -> None:
    asked = fresh(requests(80, 90 * MS, prompt=1_100, spread=0.05))
    for one in asked[1:]:
        one.cached = 1_000
    made = capture(asked, serve(asked, HEALTHY), {"max_num_seqs": 64, "load.prefix_len": 1_000})
    assert not findings(made)


def recently_used(asked: list[Asked], num_prefixes: int, num_kept: int) -> None:
    """Let requests take turns at random among prefixes of 1,000 tokens, of which the last used ones are kept."""
    random = np.random.default_rng(3)
    kept: list[int] = []
    for one in asked:
        mine = int(random.integers(num_prefixes))
        one.cached = 1_000 if mine in kept else 0
        kept = [*(prefix for prefix in kept if prefix != mine), mine][-num_kept:]


@pytest.mark.parametrize(("num_kept", "blocks"), [(20, 1_500), (40, 4_000)])
def test_prefixes_that_do_not_fit_are_evicted(num_kept: int, blocks: int) -> None:
    asked = fresh(requests(200, 90 * MS, prompt=1_300, spread=0.05))
    recently_used(asked, 40, num_kept)
    best = fresh(asked)
    recently_used(best, 40, 40)
    limits = replace(HEALTHY, kv_blocks=blocks)
    stated = {"max_num_seqs": 64, "load.prefix_len": 1_000, "load.num_prefixes": 40}
    found = findings(capture(asked, serve(asked, limits), stated))
    if num_kept == 40:
        assert not found
        return
    run(best, limits)
    assert found[0].code == "prefix-evicted"
    lost = mean_latency_ns(asked) - mean_latency_ns(best)
    assert found[0].gain_ns == pytest.approx(lost, rel=0.2)


def test_evicted_prefixes_that_nobody_states() -> None:
    asked = fresh(requests(250, 90 * MS, prompt=1_200, spread=0.03))
    recently_used(asked, 60, 42)
    best = fresh(asked)
    recently_used(best, 60, 60)
    limits = replace(HEALTHY, kv_blocks=3_400)
    found = first(run(asked, limits))
    run(best, limits)
    assert found.code == "prefix-evicted"
    assert found.gain_ns == pytest.approx(mean_latency_ns(asked) - mean_latency_ns(best), rel=0.4)


def test_new_prompts_among_shared_ones_are_no_evictions() -> None:
    asked = fresh(requests(250, 90 * MS, prompt=1_200, spread=0.03))
    random = np.random.default_rng(5)
    for number, one in enumerate(asked):
        one.cached = 1_000 if number > 5 and random.random() < 0.5 else 0
    assert not findings(run(asked, replace(HEALTHY, kv_blocks=3_400)))


def with_events(made: Capture, events: list[tuple[str, str]]) -> Capture:
    rows: dict[str, list[Any]] = {
        "source_id": [0] * len(events),
        "at_ns": list(range(len(events))),
        "action": [action for action, _ in events],
        "block_hash": [block for _, block in events],
        "num_tokens": [16 if action == "stored" else None for action, _ in events],
    }
    return made.replace({"kv_event": build_table("kv_event", rows)})


def test_blocks_stored_again_are_evicted_prefixes() -> None:
    asked = fresh(requests(80, 90 * MS, prompt=1_000))
    made = run(asked, HEALTHY)
    blocks = [f"b{number}" for number in range(3_000)]
    events = [(action, block) for block in blocks for action in ("stored", "removed", "stored")]
    assert first(with_events(made, events)).code == "prefix-evicted"
    once = [("stored", block) for block in blocks] + [("removed", block) for block in blocks]
    assert "prefix-evicted" not in [f.code for f in findings(with_events(made, once))]


@pytest.mark.parametrize("is_stated", [True, False])
def test_requests_that_wait_for_a_tier(is_stated: bool) -> None:
    asked = fresh(CALM)
    for number, one in enumerate(asked):
        one.prompt += 400
        one.cached = 400 if number % 2 else 0
    served = fresh(asked)
    # Loaded for 0.5 ms a token, the request enters the scheduler when that is done.
    steps = serve(served, HEALTHY, lambda one: MS + one.cached * 500_000)
    for one in served:
        one.queued = one.sent + MS
    made = capture(served, steps, {"kv_connector": 1} if is_stated else None)
    finding = first(made)
    assert finding.code == "kv-load-wait"
    assert finding.gain_ns == pytest.approx(0.5 * 400 * 500_000, rel=0.25)


def speculating(asked: list[Asked], accepted: int, drafts: int = 4) -> Capture:
    """Every decode step checks `drafts` tokens, and one of `accepted` of them is kept now and then."""
    steps = serve(asked, replace(HEALTHY, base_ns=12 * MS))
    for number, step in enumerate(steps):
        extra = drafts if accepted else int(number % 10 == 0)
        step["rows"] = [
            (name, phase, tokens + drafts, before, given + extra) if phase == "decode" else
            (name, phase, tokens, before, given)
            for name, phase, tokens, before, given in step["rows"]
        ]  # fmt: skip
    return capture(asked, steps)


def test_rejected_drafts_cost_more_than_they_bring() -> None:
    finding = first(speculating(fresh(CALM), accepted=0))
    assert finding.code == "speculation-loss"
    assert float(str(finding.details["acceptance"])) < 0.1
    codes = [f.code for f in findings(speculating(fresh(CALM), accepted=1))]
    assert "speculation-loss" not in codes
