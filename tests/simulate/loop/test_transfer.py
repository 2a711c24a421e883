"""Prefill and decode instances: the KV crosses a link, first come, first served."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_engines import FirstCome, curve, workload

from tokenpath.api.explain import explain
from tokenpath.capture.validate import validate
from tokenpath.core.errors import UsageError
from tokenpath.core.hardware import load_catalogue
from tokenpath.engine.config import EngineConfig
from tokenpath.engine.vllm import VllmScheduler
from tokenpath.simulate.loop_run import Simulated, simulate_disaggregated
from tokenpath.simulate.recorder import NOT_SEEN
from tokenpath.simulate.recorder_tables import RunFacts, capture_of_run
from tokenpath.simulate.replica import Replica
from tokenpath.simulate.transfer import (
    ANSWERED_BY,
    Link,
    Ports,
    TransferSettings,
    find_link,
)
from tokenpath.simulate.workload.workload import Workload

# 1 byte a ns, and 1 byte of KV a token.
SLOW = Link("test", 1e9, 0)


def run(
    load: Workload, num_prefill: int = 1, num_decode: int = 1, link: Link = SLOW, **how: object
) -> Simulated:
    transfer = TransferSettings(link, lambda tokens: float(tokens), **how)
    prefill = [Replica([FirstCome()], curve(10, 1)) for _ in range(num_prefill)]
    decode = [Replica([FirstCome()], curve(20, 1, 1)) for _ in range(num_decode)]
    return simulate_disaggregated(load, prefill, decode, transfer)


def test_one_request_is_prefilled_sent_and_decoded() -> None:
    done = run(workload([0], 100, 3), link=Link("test", 1e9, 7), answered_by="transfer")
    rows = done.rows
    prefilled, arrived = 110, 110 + 100 + 7
    assert rows.requests[0].finished_ns.tolist() == [prefilled]
    assert rows.requests[1].queued_ns.tolist() == [arrived]
    # Two decode steps, 20 ns and 1 for its request each.
    assert rows.requests[1].finished_ns.tolist() == [arrived + 42]
    assert rows.steps.features.tolist()[1] == [0, 0, 0, 0, 1, 1, 101]
    assert rows.users is not None
    assert rows.users.first_token_ns.tolist() == [arrived]
    assert rows.users.output_tokens.tolist() == [3]


@pytest.mark.parametrize(
    ("source", "first_token"), [("prefill", 110), ("transfer", 210), ("decode", 231)]
)
def test_who_gives_the_first_token_decides_what_the_user_waits_for(
    source: str, first_token: int
) -> None:
    rows = run(workload([0], 100, 3), answered_by=source).rows
    assert rows.users is not None
    assert rows.users.first_token_ns.tolist() == [first_token]
    assert rows.users.output_tokens.tolist() == [3]
    assert rows.shares is not None
    assert rows.shares.num_emitted.sum() == 3


def test_a_port_sends_one_after_the_other() -> None:
    ports = Ports(Link("test", 1e9, 5))
    assert ports.send(0, 0, 100, 10) == 115
    assert ports.send(0, 1, 100, 20) == 215
    assert ports.send(1, 2, 100, 20) == 125
    # The target's port counts as well as the source's.
    assert ports.send(2, 2, 10, 30) == 135


def test_what_was_sent_during_prefill_is_not_sent_again() -> None:
    rows = run(workload([0], 100, 3), sent_before_end=0.75, answered_by="transfer").rows
    assert rows.requests[1].queued_ns.tolist() == [110 + 25]


def test_a_single_token_needs_no_decode_instance() -> None:
    done = run(workload([0], 100, 1), answered_by="transfer")
    assert done.num_finished == 1
    assert done.rows.requests[1].queued_ns.tolist() == [NOT_SEEN]


def test_decode_instances_hold_transfers_back() -> None:
    load = workload([0] * 6, 10, 50)
    free = run(load).rows
    held = run(load, decode_queue_limit=1).rows
    one_by_one = held.requests[1].queued_ns
    assert free.requests[1].queued_ns.max() < one_by_one.max()
    assert (held.requests[1].finished_ns != NOT_SEEN).all()


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 60), st.integers(1, 8)), min_size=1),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(ANSWERED_BY),
    st.sampled_from([None, 1, 2]),
)
def test_requests_are_conserved_and_come_in_order(
    rows: list[tuple[int, int, int]],
    num_prefill: int,
    num_decode: int,
    source: str,
    limit: int | None,
) -> None:
    arrival, prompt, output = (np.array(column) for column in zip(*sorted(rows), strict=True))
    load = workload(arrival, prompt, output)
    done = run(load, num_prefill, num_decode, answered_by=source, decode_queue_limit=limit)
    assert done.num_finished == done.num_sent == len(rows)
    users, (first, second), shares = done.rows.users, done.rows.requests, done.rows.shares
    assert users is not None
    assert shares is not None
    assert (users.output_tokens == output).all()
    assert (users.first_token_ns >= first.finished_ns).all()
    handed_on = second.queued_ns != NOT_SEEN
    assert (second.queued_ns[handed_on] >= (first.finished_ns + prompt)[handed_on]).all()
    # No prompt is computed twice, but for its last token where the decode instance repeats that.
    again = 1 if source == "decode" else 0
    computed = np.bincount(shares.request, shares.num_tokens, len(rows))
    assert (computed == prompt + output - 1 + again).all()


def test_explain_follows_a_request_from_prefill_to_decode() -> None:
    load = workload(np.arange(30) * 500, 100, 5)
    for source in ANSWERED_BY:
        done = run(load, 2, 2, answered_by=source)
        facts = RunFacts("test", "vllm", [10_000] * 4)
        capture = capture_of_run(done.rows, load, facts, tokens=True)
        validate(capture)
        assert capture.num_rows("token") == load.output_tokens.sum()
        report = explain(capture).report
        assert len(report.request_funnels) == 2
        for funnel in report.request_funnels:
            whole, *parts = funnel.rows
            assert sum(part.duration_ns for part in parts) == whole.duration_ns


def test_links_have_names_and_rates() -> None:
    hardware = load_catalogue()["h100-sxm5-80gb"]
    assert find_link("scale-up", hardware).bytes_per_s == hardware.scale_up_bytes_per_s
    assert find_link("infiniband-ndr").bytes_per_s == 50e9
    with pytest.raises(UsageError, match="infiniband-ndr"):
        find_link("carrier-pigeon", hardware)
    with pytest.raises(UsageError, match="bytes per second"):
        Link("none", 0.0)


def test_kv_that_came_takes_nothing_of_the_budget_of_a_decode_step() -> None:
    load = workload([0] * 6, 200, 5)
    config = EngineConfig(1000, max_num_seqs=8, max_num_batched_tokens=8, max_model_len=400)
    whole = EngineConfig(1000, max_num_seqs=8, max_num_batched_tokens=4096, max_model_len=400)
    decode = Replica([VllmScheduler(config, is_compiled=False)], curve(20, 1, 1))
    prefill = Replica([VllmScheduler(whole, is_compiled=False)], curve(10, 1))
    done = simulate_disaggregated(
        load, [prefill], [decode], TransferSettings(Link("test", 1e15, 0), float)
    )
    steps = done.rows.steps
    decoding = steps.features[steps.endpoint == 1]
    # All six come at once and run together: four steps, no prefill in any.
    assert decoding[:, 0].tolist() == [0] * 4
    assert decoding[:, 4].tolist() == [6] * 4
    assert decoding[0, 6] == 6 * 201
