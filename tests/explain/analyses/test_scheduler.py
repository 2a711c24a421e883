"""Why requests wait: the right cause first, a gain near the truth, silence where all is well."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from explain.analyses.service_programs import (
    MS,
    Asked,
    Limits,
    findings,
    fresh,
    mean_latency_ns,
    requests,
    run,
)
from tokenpath.api import explain
from tokenpath.capture.capture import build_table

HEALTHY = Limits()
CALM = requests(80, 60 * MS)


def gain_without(asked: list[Asked], healthy: Limits) -> float:
    """Truth: the mean latency of requests that were served, minus that of the same ones served well."""
    again = fresh(asked)
    run(again, healthy)
    return mean_latency_ns(asked) - mean_latency_ns(again)


def test_a_service_with_room_has_no_findings() -> None:
    assert not findings(run(fresh(CALM), HEALTHY))


@pytest.mark.parametrize(
    ("code", "limits"),
    [
        ("batch-limit", replace(HEALTHY, max_running=4)),
        ("step-overhead", replace(HEALTHY, host_ns=5 * MS)),
        ("token-budget", replace(HEALTHY, budget=48)),
    ],
)
def test_the_cause_is_first_and_its_gain_near_the_truth(code: str, limits: Limits) -> None:
    asked = fresh(CALM)
    first = findings(run(asked, limits))[0]
    assert first.code == code
    assert first.gain_ns == pytest.approx(gain_without(asked, HEALTHY), rel=0.2)
    assert first.confidence is not None
    assert first.effort is not None


def test_padding_costs_what_batches_of_like_lengths_would_save() -> None:
    asked, limits = fresh(CALM), replace(HEALTHY, static=True)
    first = findings(run(asked, limits))[0]
    even = fresh(asked)
    for one in even:
        one.output = round(sum(other.output for other in even) / len(even))
    run(even, limits)
    assert first.code == "padding"
    assert first.gain_ns == pytest.approx(mean_latency_ns(asked) - mean_latency_ns(even), rel=0.2)
    assert first.details["continuous_gain_ns"] == pytest.approx(
        gain_without(asked, HEALTHY), rel=0.2
    )


def test_more_than_can_be_served_is_overload_and_no_batch_limit() -> None:
    limits = replace(HEALTHY, base_ns=MS, decode_ns=500_000, max_running=16)
    found = findings(run(requests(200, 8 * MS), limits))
    assert found[0].code == "overload"
    assert float(str(found[0].details["load"])) > 1.2
    assert "batch-limit" not in [finding.code for finding in found]


def test_long_prompts_among_short_ones_interfere() -> None:
    asked = requests(80, 60 * MS, prompt=100)
    for number in range(5, 80, 12):
        asked[number].prompt = 6_000
    limits = replace(HEALTHY, budget=8192)
    first = findings(run(asked, limits))[0]
    assert first.code == "prefill-interference"
    assert first.details["num_long"] == 7


def test_one_engine_with_most_of_the_work() -> None:
    from explain.analyses.service_programs import capture, serve

    busy, calm = requests(120, 12 * MS), requests(12, 120 * MS, seed=1)
    limits = replace(HEALTHY, decode_ns=600_000)
    for one in busy:
        one.engine = 1
    for one in calm:
        one.name = f"c{one.name}"
    steps = serve(busy, limits) + serve(calm, limits)
    first = findings(capture([*busy, *calm], steps, {"max_num_seqs": 64}))[0]
    assert first.code == "dp-imbalance"
    assert first.place == {"engine": "1"}


def test_names_and_order_of_rows_do_not_matter() -> None:
    limits = replace(HEALTHY, max_running=4)
    plain = findings(run(fresh(CALM), limits))
    names = {one.name: f"0{hash(one.name) % 10**9}" for one in CALM}
    num = len(run(fresh(CALM), limits)["request_step"])
    order = np.random.default_rng(0).permutation(num).tolist()
    renamed = findings(run(fresh(CALM), limits, names=names, order=order))
    assert [(f.code, f.gain_ns) for f in renamed] == [(f.code, f.gain_ns) for f in plain]


def test_a_tokeniser_that_takes_its_time() -> None:
    made = run(fresh(CALM), HEALTHY, send_ns=lambda one: 1 * MS + 400_000 * one.prompt)
    first = findings(made)[0]
    assert first.code == "slow-tokeniser"
    mean = 400_000 * sum(one.prompt for one in CALM) / len(CALM)
    assert first.gain_ns == pytest.approx(mean, rel=0.15)


def test_a_slow_way_back() -> None:
    first = findings(run(fresh(CALM), HEALTHY, back_ns=85 * MS))[0]
    assert first.code == "slow-delivery"
    assert first.gain_ns == pytest.approx(80 * MS, rel=0.05)


def test_a_client_that_measures_itself() -> None:
    """The server's own latencies do not contain the way: it is the client's."""
    made = run(fresh(CALM), HEALTHY, back_ns=85 * MS)
    rows = [row for row in made["request"].to_pylist() if row["observer"] == "engine"]
    served = {
        "source_id": [1] * len(rows),
        "request_id": [row["request_id"] for row in rows],
        "observer": ["engine"] * len(rows),
        "stated_e2e_ns": [row["last_token_ns"] - row["arrival_ns"] + MS for row in rows],
    }
    source = pa.concat_tables([made["source"], made["source"]])
    request = pa.concat_tables(
        [made["request"], build_table("request", served)], promote_options="default"
    )
    made = made.replace(
        {"source": source, "request": request.unify_dictionaries().combine_chunks()}
    )
    assert findings(made)[0].code == "client-bound"


@pytest.mark.parametrize(
    ("name", "is_overload"), [("m20", False), ("m40", False), ("m55", True), ("p40", True)]
)
def test_real_runs(name: str, is_overload: bool) -> None:
    data = os.environ.get("TOKENPATH_REFERENCE_DATA")
    if data is None:
        pytest.skip("TOKENPATH_REFERENCE_DATA is not set")
    load = Path(data) / "engine" / "vllm-cpu" / "load"
    report = explain([load / f"{name}.requests.csv", load / f"{name}.steps.jsonl.gz"]).report
    codes = [finding.code for finding in report.findings]
    assert ("overload" in codes) == is_overload
    assert codes[0] == "overload" or not is_overload
