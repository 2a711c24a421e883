"""The recorded OpenTelemetry spans of run o40 against the load client's and the step log's own figures."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenpath.capture.capture import Capture
from tokenpath.ingest import read

MS = 1_000_000


@pytest.fixture(scope="module")
def o40(reference_data: Path) -> Capture:
    return read([reference_data / "engine/vllm-cpu/otel/o40.otlp_traces.jsonl.gz"])


@pytest.fixture(scope="module")
def pairs(reference_data: Path, o40: Capture) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each request of the client's record with ours; the client's times in epoch nanoseconds."""
    load = reference_data / "engine/vllm-cpu/load"
    runs = json.loads((load / "runs.json").read_text(encoding="utf-8"))["runs"]
    (run,) = (run for run in runs if run["run"] == "o40")
    ours = {row["request_id"]: row for row in o40["request"].to_pylist()}
    found = []
    with (load / "o40.requests.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            times = {
                key: run["t0_unix_ns"] + 1000 * int(value)
                for key, value in row.items()
                if key.endswith("_us")
            }
            found.append(({**row, **times}, ours[row["req"]]))
    return found


def test_every_span_and_every_request(o40: Capture) -> None:
    assert o40.num_rows("request") == 83
    assert o40.num_rows("span") == 95
    assert o40.num_rows("skip") == 0
    assert set(o40["request"]["observer"].to_pylist()) == {"engine"}


def test_each_of_the_80_requests_joins_by_id_and_by_trace(
    pairs: list[tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    assert len(pairs) == 80
    for client, ours in pairs:
        assert ours["trace_id"] == client["trace_id"]
        assert ours["prompt_tokens"] == int(client["prompt_tokens"])
        assert ours["output_tokens"] == int(client["output_tokens"])


def test_derived_times_agree_with_the_engine(
    pairs: list[tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    """Late by the hand-over from engine to API server: 0.5 to 3 ms, 0.7 ms in the median."""
    for ours_of, client_of in (("queued_ns", "engine_add_us"), ("scheduled_ns", "first_sched_us")):
        late = np.array([ours[ours_of] - client[client_of] for client, ours in pairs])
        assert late.min() > 0
        assert np.median(late) < 1 * MS
        assert late.max() < 4 * MS


def test_the_order_of_the_client_and_the_engine(
    pairs: list[tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    for client, ours in pairs:
        assert client["arrival_us"] < ours["arrival_ns"] < ours["queued_ns"] < ours["scheduled_ns"]
        assert ours["scheduled_ns"] < ours["first_token_ns"] < client["first_token_us"]
        assert ours["first_token_ns"] <= ours["last_token_ns"] <= ours["finished_ns"]
        assert ours["finished_ns"] < client["end_us"] + 1 * MS
