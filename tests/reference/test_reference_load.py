"""Real workloads and measured requests: what is read against what stands beside the files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenpath.capture.capture import Capture
from tokenpath.ingest import read


@pytest.fixture
def serving(reference_data: Path) -> Path:
    """The folder of serving data."""
    return reference_data / "serving"


def table(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def request(capture: Capture, column: str) -> list[Any]:
    values: list[Any] = capture["request"][column].to_pylist()
    return values


@pytest.mark.parametrize(("name", "num_rows"), [("code", 8_819), ("conv", 19_366)])
def test_azure(serving: Path, name: str, num_rows: int) -> None:
    path = serving / "traces" / "azure2023" / f"AzureLLMInferenceTrace_{name}.csv"
    capture = read([path])
    rows = list(table(path))
    assert len(rows) in (num_rows, num_rows - 1)
    assert request(capture, "prompt_tokens") == [int(row["ContextTokens"]) for row in rows]
    assert request(capture, "output_tokens") == [int(row["GeneratedTokens"]) for row in rows]
    ends = [row["TIMESTAMP"][-7:] for row in rows]
    assert [time % 10**9 // 100 for time in request(capture, "arrival_ns")] == [
        int(e) for e in ends
    ]
    assert (np.diff(request(capture, "arrival_ns")) >= 0).all()
    assert capture["source"]["clock"].to_pylist() == ["epoch"]
    assert capture.num_rows("skip") == 0


def test_mooncake(serving: Path) -> None:
    path = serving / "traces" / "mooncake" / "conversation_trace.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    capture = read([path])
    assert len(rows) == 12_031
    assert request(capture, "arrival_ns") == [row["timestamp"] * 1_000_000 for row in rows]
    assert request(capture, "prompt_tokens") == [row["input_length"] for row in rows]
    assert request(capture, "output_tokens") == [row["output_length"] for row in rows]


def test_lengths(serving: Path) -> None:
    path = serving / "lengths" / "sharegpt_vicuna_in_out.csv"
    rows = list(table(path))
    capture = read([path])
    assert capture.num_rows("request") == len(rows) == 81_494
    assert sum(request(capture, "output_tokens")) == sum(int(row["output_length"]) for row in rows)


def test_requests_of_a_simulators_measured_run(serving: Path) -> None:
    """Two clocks stand in one row: only those of the arrival's are kept, the others are counted."""
    folder = serving / "llmservingsim" / "bench" / "RTXPRO6000__Llama-3.1-8B"
    columns = {
        "arrival_s": "arrival_time",
        "first_token_s": "first_token_ts",
        "prompt_tokens": "input_toks",
        "output_tokens": "output_toks",
    }
    path = folder / "vllm__requests.jsonl"
    capture = read([path], columns=columns)
    assert capture.num_rows("request") == 300
    assert request(capture, "request_id")[0] == "bench-0"
    assert request(capture, "arrival_ns")[0] == 1_777_142_838_338_653_000
    lost = dict(
        zip(*(capture["skip"][name].to_pylist() for name in ("reason", "num_events")), strict=True)
    )
    assert lost["stamp on another clock"] == 300


def test_requests_of_llm_pilot(serving: Path) -> None:
    path = next((serving / "llm_pilot").glob("raw_sample*.csv"))
    columns = {
        "arrival_ms": "start_timestamp",
        "finished_ms": "end_timestamp",
        "e2e_ms": "latency_ms",
        "prompt_tokens": "n_input_tokens",
        "output_tokens": "n_output_tokens",
    }
    capture = read([path], columns=columns)
    rows = list(table(path))
    assert capture.num_rows("request") == len(rows) == 245
    assert request(capture, "arrival_ns") == [int(r["start_timestamp"]) * 10**6 for r in rows]
    assert request(capture, "output_tokens") == [int(r["n_output_tokens"]) for r in rows]


def test_result_of_inferencex_as_vllm_writes_it(serving: Path, tmp_path: Path) -> None:
    """The keys of each measured row in the shape of a result file."""
    rows = list(table(serving / "inferencex" / "decode_slo.csv"))
    assert len(rows) == 124
    paths = []
    for number, row in enumerate(rows):
        result = {"backend": "vllm", **{k: _value(v) for k, v in row.items() if v}}
        for key in ("median_ttft", "p99_ttft", "median_tpot", "p99_tpot", "median_e2el"):
            result[f"{key}_ms"] = float(row[key]) * 1000
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps(result))
    capture = read(paths)
    found: dict[tuple[int, str, str], float] = {}
    for figure in capture["summary"].to_pylist():
        found[figure["source_id"], figure["name"], figure["statistic"]] = figure["value"]
    for number, row in enumerate(rows):
        assert found[number, "latency.ttft", "p50"] == pytest.approx(float(row["median_ttft"]))
        assert found[number, "latency.tpot", "p99"] == pytest.approx(float(row["p99_tpot"]))
        assert found[number, "requests.completed", "count"] == int(row["completed"])
        assert found[number, "throughput.tokens_output", "rate"] == float(row["output_throughput"])


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_measured_requests_with_a_map(reference_data: Path, tmp_path: Path) -> None:
    """Our own run's requests, renamed so that only the map makes them known: TTFT as stated."""
    folder = reference_data / "engine" / "vllm-cpu" / "load"
    path = tmp_path / "renamed.csv"
    text = (folder / "m40.requests.csv").read_text()
    path.write_text(text.replace("req,", "name,", 1).replace("arrival_us", "sent", 1))
    columns = {"request_id": "name", "arrival_us": "sent", "finished_us": "end_us"}
    capture = read([path], columns=columns)
    runs = {run["run"]: run for run in json.loads((folder / "runs.json").read_text())["runs"]}
    ttft = [
        (first - sent) / 1e6
        for first, sent in zip(
            request(capture, "first_token_ns"), request(capture, "arrival_ns"), strict=True
        )
    ]
    assert len(ttft) == runs["m40"]["n"]
    assert ttft == pytest.approx([float(row["ttft_ms"]) for row in table(path)], abs=0.0011)
    assert sum(request(capture, "output_tokens")) == runs["m40"]["output_tokens"]
