"""Workloads of real traces: what is read is what is in the files, what is fitted draws the like of it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from tokenpath import api
from tokenpath.simulate.workload.describe import describe
from tokenpath.simulate.workload.files import read_workload
from tokenpath.simulate.workload.fit import fit
from tokenpath.simulate.workload.inference_perf import LoadStage, SharedPrefixChat, inference_perf
from tokenpath.simulate.workload.reuse import matches
from tokenpath.simulate.workload.servegen import draw_servegen, read_servegen


@pytest.fixture(scope="module")
def traces(reference_data: Path) -> Path:
    return reference_data / "serving" / "traces"


@pytest.mark.parametrize("name", ["code", "conv"])
def test_azure_is_read_to_the_row(traces: Path, name: str) -> None:
    path = traces / "azure2023" / f"AzureLLMInferenceTrace_{name}.csv"
    with path.open(newline="") as stream:
        expected = list(csv.DictReader(stream))
    read = read_workload(path)
    assert (read.format, read.skips) == ("azure", ())
    workload = read.workload
    assert workload.num_requests == len(expected)
    assert workload.prompt_tokens.tolist() == [int(row["ContextTokens"]) for row in expected]
    assert workload.output_tokens.tolist() == [int(row["GeneratedTokens"]) for row in expected]
    stamps = np.array([row["TIMESTAMP"] for row in expected], "datetime64[ns]").astype(np.int64)
    assert np.array_equal(workload.arrival_ns, stamps - stamps[0])


def test_azure_conversations_are_fitted_and_drawn_alike(traces: Path) -> None:
    workload = read_workload(traces / "azure2023" / "AzureLLMInferenceTrace_conv.csv").workload
    model = fit(workload)
    drawn = model.errors["drawn"]
    for name in ("rate_per_s", "gap_cv", "mean_prompt_tokens", "mean_output_tokens"):
        assert drawn[name]["drawn"] == pytest.approx(drawn[name]["measured"], rel=0.06), name
    # Chance alone has 1 at every scale; the trace has 16 over a minute.
    minute = drawn["dispersion_60_s"]
    assert minute["measured"] > 10
    assert minute["drawn"] == pytest.approx(minute["measured"], rel=0.5)
    assert model.errors["pairs"]["sample"] < 0.1 < model.errors["pairs"]["copula"]


def test_azure_code_bursts_longer_than_its_gaps_tell(traces: Path) -> None:
    workload = read_workload(traces / "azure2023" / "AzureLLMInferenceTrace_code.csv").workload
    minute = fit(workload).errors["drawn"]["dispersion_60_s"]
    assert minute["measured"] > 100
    assert 0.7 < minute["drawn"] / minute["measured"] < 1.4


def test_mooncake_shares_what_its_ids_say(traces: Path) -> None:
    path = traces / "mooncake" / "conversation_trace.jsonl"
    seen: set[int] = set()
    num_ids = num_again = 0
    with path.open() as stream:
        for line in stream:
            ids = json.loads(line)["hash_ids"]
            num_ids += len(ids)
            num_again += len(seen.intersection(ids))
            seen.update(ids)
    read = read_workload(path)
    assert (read.format, read.skips) == ("mooncake", ())
    assert read.workload.num_requests == 12_031
    assert len(read.workload.hashes) == num_ids == 288_500
    assert int(matches(read.workload).granules.sum()) == num_again == 105_710
    found = describe(read.workload)
    assert found.reuse is not None
    # In tokens, not ids: the last granule of a prompt is not full.
    assert found.reuse.ideal_hit_ratio == pytest.approx(0.3736, abs=1e-4)
    assert found.arrivals is not None
    assert found.arrivals.rounded_to_s == 3.0


def test_what_is_drawn_for_mooncake_is_shared_alike(traces: Path) -> None:
    workload = read_workload(traces / "mooncake" / "conversation_trace.jsonl").workload
    drawn = fit(workload).errors["drawn"]
    assert drawn["ideal_hit_ratio"]["drawn"] == pytest.approx(0.3736, abs=0.02)
    for keep, within in (("60", 0.05), ("600", 0.03)):
        row = drawn[f"hit_ratio_kept_{keep}_s"]
        assert row["drawn"] == pytest.approx(row["measured"], abs=within), keep


def test_servegen_keeps_rates_and_lengths(traces: Path) -> None:
    clients = read_servegen([traces / "servegen"])
    assert clients.skips == ()
    with_load = [client for client in clients.clients if client.windows is not None]
    assert len(with_load) == 12
    begin, end = 36_000.0, 39_600.0
    expected = 0.0
    for client in with_load:
        windows = client.windows
        assert windows is not None
        inside = (windows.begin_s >= begin) & (windows.begin_s < end)
        expected += float(windows.rate_per_s[inside].sum()) * 600
    drawn = draw_servegen(clients, begin_s=begin, duration_s=end - begin)
    assert drawn.num_requests == pytest.approx(expected, abs=100)
    found = describe(drawn)
    assert found.arrivals is not None
    assert found.arrivals.dispersions[1].index > 5


def test_prompts_of_a_recorded_run_share_what_its_cache_found(reference_data: Path) -> None:
    """The run had room for everything: its hits are those of an infinite cache."""
    path = reference_data / "engine" / "vllm-cpu" / "load" / "m40.requests.csv"
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    hit = sum(int(row["cached_tokens"]) for row in rows) / sum(
        int(row["prompt_tokens"]) for row in rows
    )
    stated = describe(read_workload(path).workload)
    assert stated.reuse is not None
    assert stated.reuse.ideal_hit_ratio == pytest.approx(hit, abs=1e-9)
    steps = path.with_name("m40.steps.jsonl.gz")
    recorded = describe(api.workload(steps).workload)
    assert recorded.reuse is not None
    assert recorded.reuse.ideal_hit_ratio == pytest.approx(hit, abs=0.002)
    assert recorded.num_requests == stated.num_requests == 200


def test_inference_perf_sends_the_tokens_that_servers_counted(reference_data: Path) -> None:
    """The runs name multi-turn chat, yet their prompts do not grow: 4 % more tokens than configured."""
    path = reference_data / "serving" / "blis_training_h100" / "stage_metrics.csv"
    with path.open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["failures"] == "0"]
    assert len(rows) >= 10
    for row in rows:
        stage = LoadStage(float(row["rate"]), float(row["duration_s"]))
        chat = SharedPrefixChat(
            int(row["num_unique_system_prompts"]),
            int(row["users_per_system_prompt"]),
            int(row["system_prompt_len"]),
            int(row["question_len"]),
            int(row["output_len"]),
            retokenised=1.04,
        )
        workload = inference_perf([stage], chat)
        assert workload.num_requests == int(row["requests"])
        sent = float(row["tput_input_tokens_per_sec"]) / float(row["tput_requests_per_sec"])
        assert workload.prompt_tokens.mean() == pytest.approx(sent, rel=0.02), row["exp"]
