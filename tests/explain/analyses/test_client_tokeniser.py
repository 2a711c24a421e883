"""A tokeniser that works prompts off in turn, seen from a client whose requests two sources name differently."""

from __future__ import annotations

import numpy as np
import pytest

from explain.analyses.service_programs import (
    MS,
    Asked,
    Limits,
    capture,
    findings,
    fresh,
    requests,
    run,
    serve,
)
from tokenpath.capture.capture import Capture, build_table


def in_turn(asked: list[Asked], ns_per_token: int) -> dict[str, int]:
    """What each request waits for one tokeniser, its own prompt included."""
    free, ways = 0, {}
    for one in sorted(asked, key=lambda one: one.sent):
        free = max(free, one.sent) + ns_per_token * one.prompt
        ways[one.name] = free - one.sent
    return ways


def test_prompts_in_a_queue_before_the_tokeniser() -> None:
    asked = fresh(requests(120, 40 * MS, prompt=400))
    ways = in_turn(asked, 90_000)
    made = run(asked, Limits(), send_ns=lambda one: 1 * MS + ways[one.name])
    finding = next(one for one in findings(made) if one.code == "slow-tokeniser")
    again = fresh(asked)
    run(again, Limits())
    lost = np.mean([one.tokens[-1] for one in asked]) - np.mean([one.tokens[-1] for one in again])
    assert finding.gain_ns == pytest.approx(float(lost), rel=0.1)
    assert finding.details["ns_per_token"] == pytest.approx(90_000, rel=0.05)


def test_a_fast_tokeniser_is_no_finding() -> None:
    asked = fresh(requests(120, 40 * MS, prompt=400))
    ways = in_turn(asked, 2_000)
    made = run(asked, Limits(), send_ns=lambda one: 1 * MS + ways[one.name])
    assert not [one for one in findings(made) if one.code == "slow-tokeniser"]


def test_rows_that_no_engine_knows_do_not_thin_out_the_delivery() -> None:
    asked = fresh(requests(80, 60 * MS))
    made = capture(asked, serve(asked, Limits()), {"max_num_seqs": 64}, back_ns=200 * MS)
    plain = next(one for one in findings(made) if one.code == "slow-delivery")
    mixed = next(one for one in findings(_twice(made)) if one.code == "slow-delivery")
    assert mixed.gain_ns == plain.gain_ns


def _twice(made: Capture) -> Capture:
    """The client's rows once more, as a load generator that knows no ids of the server writes them."""
    rows = made["request"].to_pylist()
    rows += [{**row, "request_id": f"#{at}"} for at, row in enumerate(rows) if row["observer"] == "client"]  # fmt: skip
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    return made.replace({"request": build_table("request", columns)})
