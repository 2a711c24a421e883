"""Requests that several sources, engines, clocks or choices have a part in: no number is made of two of them."""

from __future__ import annotations

from typing import Any

import pytest

from explain.serving import SOURCE
from tokenpath.capture.capture import Capture, build_table
from tokenpath.explain.latency import PARTS, Latency, latencies
from tokenpath.explain.latency_table import tpot_ns

MS = 10**6
EPOCH = 1_700_000_000 * 10**9


def table(name: str, rows: list[dict[str, Any]]) -> Any:
    keys = dict.fromkeys(key for row in rows for key in row)
    return build_table(name, {key: [row.get(key) for row in rows] for key in keys})


def step(start: int, end: int, source: int = 0, engine: int | None = None) -> dict[str, Any]:
    return {
        "source_id": source,
        "engine_id": engine,
        "name": "s",
        "observer": "scheduler",
        "start_ns": start,
        "end_ns": end,
        "num_prefill_tokens": 0,
        "num_decode_tokens": 2,
    }


def share(step_id: int, tokens: int = 1, emitted: int = 1, name: str = "r") -> dict[str, Any]:
    return {
        "source_id": 0,
        "request_id": name,
        "step_id": step_id,
        "phase": "decode",
        "num_tokens": tokens,
        "num_emitted": emitted,
    }


def seen(observer: str, source: int = 0, name: str = "r", **moments: int) -> dict[str, Any]:
    row = {"source_id": source, "request_id": name, "observer": observer}
    return row | {key if "tokens" in key else f"{key}_ns": at for key, at in moments.items()}


def capture(
    requests: list[dict[str, Any]],
    steps: list[dict[str, Any]],
    shares: list[dict[str, Any]],
    clocks: tuple[str, ...] = ("epoch",),
) -> Capture:
    tables = {
        "source": [SOURCE | {"clock": clock} for clock in clocks],
        "request": requests,
        "step": steps,
        "request_step": shares,
    }
    return Capture({name: table(name, rows) for name, rows in tables.items() if rows})


def parts_of(found: Capture, observer: str, kind: str) -> dict[str, int]:
    (latency,) = [one for one in latencies(found) if (one.observer, one.kind) == (observer, kind)]
    assert (latency.parts_ns.sum(axis=1) == latency.total_ns).all()
    values = latency.parts_ns[0].tolist()
    return {key: value for (key, _), value in zip(PARTS, values, strict=True) if value}


def of(found: Capture, observer: str, kind: str) -> Latency:
    return next(one for one in latencies(found) if (one.observer, one.kind) == (observer, kind))


def test_two_choices_of_a_request_share_a_step_once() -> None:
    """Each choice has a share of the same step; the step passes once."""
    found = capture(
        [
            seen("engine", queued=0, arrival=0, first_token=20 * MS, last_token=40 * MS),
            seen("engine", queued=0, arrival=0, first_token=20 * MS, last_token=30 * MS),
        ],
        [step(10 * MS, 20 * MS), step(20 * MS, 30 * MS), step(30 * MS, 40 * MS)],
        [share(0), share(0), share(1), share(1), share(2)],
    )
    assert parts_of(found, "engine", "ttft") == {"queue": 10 * MS, "own_compute": 10 * MS}
    assert parts_of(found, "engine", "decode") == {
        "own_compute": 15 * MS,
        "others_decode": 5 * MS,
    }


def test_time_per_token_is_that_of_one_observer() -> None:
    """The count of tokens and the times come from the same observer."""
    found = capture(
        [
            seen("client", arrival=0, first_token=10, last_token=1010, output_tokens=11),
            seen("engine", arrival=0, first_token=10, last_token=1010, output_tokens=21),
        ],
        [],
        [],
    )
    for observer, expected in (("client", 100), ("engine", 50)):
        tpot = tpot_ns(of(found, observer, "decode"))
        assert tpot is not None
        assert tpot.tolist() == [expected]


def test_the_last_of_several_choices_ends_the_request() -> None:
    found = capture(
        [
            seen("engine", arrival=0, first_token=20, last_token=30, output_tokens=2),
            seen("engine", arrival=0, first_token=10, last_token=110, output_tokens=11),
        ],
        [],
        [],
    )
    assert of(found, "engine", "ttft").total_ns.tolist() == [10]
    decode = of(found, "engine", "decode")
    assert decode.total_ns.tolist() == [100]
    assert decode.num_output_tokens.tolist() == [11]


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_prefill_and_decode_instances_follow_one_another(turned: bool, counted: bool) -> None:
    """The first token is that of the decode instance; what lies between the two is the transition."""
    steps = [step(10 * MS, 20 * MS, 0), step(35 * MS, 40 * MS, 1), step(40 * MS, 50 * MS, 1)]
    rows = [
        seen("engine", 0, queued=5 * MS, first_token=20 * MS, last_token=20 * MS, output_tokens=1),
        seen("engine", 1, queued=25 * MS, first_token=40 * MS, last_token=50 * MS, output_tokens=2),
        seen("client", 2, arrival=0, first_token=42 * MS, last_token=53 * MS, output_tokens=2),
    ]
    if not counted:
        del rows[0]["output_tokens"]
    if turned:
        steps = [one | {"source_id": 1 - one["source_id"]} for one in steps]
        rows = [rows[1] | {"source_id": 0}, rows[0] | {"source_id": 1}, rows[2]]
    found = capture(rows, steps, [share(0, 2), share(1, 2), share(2, 2)], ("epoch",) * 3)
    assert parts_of(found, "client", "ttft") == {
        "send": 5 * MS,
        "queue": 5 * MS,
        "own_compute": 15 * MS,
        "transition": 15 * MS,
        "delivery": 2 * MS,
    }
    assert parts_of(found, "client", "decode") == {"own_compute": 10 * MS, "delivery": 1 * MS}
    assert of(found, "engine", "ttft").total_ns.tolist() == [35 * MS]
    assert of(found, "engine", "decode").total_ns.tolist() == [10 * MS]
    assert of(found, "engine", "decode").num_output_tokens.tolist() == [2]


def test_two_engines_at_the_same_time_are_not_taken_for_one() -> None:
    """A request with the same id in both cannot be followed, whichever engine comes last."""
    found = capture(
        [seen("client", arrival=0, first_token=50 * MS, last_token=60 * MS)],
        [step(10 * MS, 20 * MS, 0), step(15 * MS, 40 * MS, 0, 1)],
        [share(0), share(1)],
    )
    assert parts_of(found, "client", "ttft") == {"unresolved": 50 * MS}


@pytest.mark.parametrize("client", ["epoch", "monotonic"])
def test_clocks_of_unknown_origin_are_not_subtracted(client: str) -> None:
    """Whichever of the two counts from 1970, nothing is known of the way between client and engine."""
    engine = "monotonic" if client == "epoch" else "epoch"
    of_client, of_engine = (EPOCH if clock == "epoch" else 0 for clock in (client, engine))
    moments = {"arrival": 0, "first_token": 30 * MS, "last_token": 45 * MS}
    inside = {"queued": MS, "scheduled": 2 * MS, "first_token": 20 * MS, "last_token": 30 * MS}
    found = capture(
        [
            seen("client", 1, **{key: at + of_client for key, at in moments.items()}),
            seen("engine", 0, **{key: at + of_engine for key, at in inside.items()}),
        ],
        [step(of_engine + start * MS, of_engine + (start + 10) * MS) for start in (10, 20)],
        [share(0, 2), share(1, 2)],
        (engine, client),
    )
    assert parts_of(found, "client", "ttft") == {"unresolved": 30 * MS}
    # How long the engine took for the tokens needs no common clock.
    assert parts_of(found, "client", "decode") == {"own_compute": 10 * MS, "delivery": 5 * MS}
    assert parts_of(found, "engine", "ttft") == {"queue": 9 * MS, "own_compute": 10 * MS}


def test_a_latency_is_made_of_times_of_one_clock() -> None:
    """Two sources know a request of the engine, each on a clock of its own."""
    found = capture(
        [
            seen("engine", 0, queued=5),
            seen("engine", 1, arrival=EPOCH, first_token=EPOCH + 30, last_token=EPOCH + 40),
        ],
        [],
        [],
        ("monotonic", "epoch"),
    )
    assert of(found, "engine", "ttft").total_ns.tolist() == [30]


def test_a_token_seen_before_its_step_has_ended_says_that_clocks_differ() -> None:
    found = capture(
        [seen("client", arrival=0, first_token=19 * MS, last_token=30 * MS)],
        [step(10 * MS, 20 * MS)],
        [share(0)],
    )
    assert parts_of(found, "client", "ttft") == {"unresolved": 19 * MS}


@pytest.mark.parametrize("tokens", [1, 11])
def test_two_runs_that_name_their_requests_alike(tokens: int) -> None:
    """No latency reaches from one into the other."""
    found = capture(
        [
            seen("client", 0, arrival=0, first_token=10, last_token=110, output_tokens=tokens),
            seen("client", 1, arrival=5000, first_token=5030, last_token=5230, output_tokens=21),
        ],
        [],
        [],
        ("epoch", "epoch"),
    )
    assert of(found, "client", "ttft").total_ns.tolist() == [10]
    decode = of(found, "client", "decode")
    assert (decode.total_ns.tolist(), decode.num_output_tokens.tolist()) == ([100], [tokens])


def test_two_records_of_one_engine() -> None:
    """What the one does not know of the way to the first token the other does."""
    found = capture(
        [
            seen("engine", 0, first_token=30, last_token=50),
            seen("engine", 1, arrival=2, queued=10, first_token=31, last_token=52),
        ],
        [],
        [],
        ("epoch", "epoch"),
    )
    assert of(found, "engine", "ttft").total_ns.tolist() == [20]
    assert of(found, "engine", "decode").total_ns.tolist() == [20]
