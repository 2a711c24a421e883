"""Step logs and client files of real vLLM runs: the numbers of their manifest, and the laws between them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ingest.compare import difference, lost, rows
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.ingest.reader import Options
from tokenpath.ingest.vllm_load.reader import VllmLoadReader
from tokenpath.ingest.vllm_steps.reader import VllmStepsReader

LOGGED = ("m20", "m40", "m40b", "m55", "p25", "p25b", "p40", "s25", "o40")
ALL = (*LOGGED, "n25", "n40")


@pytest.fixture(scope="module")
def load(reference_data: Path) -> Path:
    return reference_data / "engine" / "vllm-cpu" / "load"


@pytest.fixture(scope="module")
def manifest(reference_data: Path) -> dict[str, list[str]]:
    """The manifest's row of each run."""
    text = (reference_data / "engine" / "vllm-cpu" / "MANIFEST.md").read_text()
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 11 and re.fullmatch(r"[a-z]\d+b?", cells[0]):
            found[cells[0]] = cells
    return found


def steps_of(load: Path, run: str, scanner: str = "auto") -> Capture:
    capture = VllmStepsReader().read([load / f"{run}.steps.jsonl.gz"], Options(scanner=scanner))
    validate(capture)
    return capture


def client_of(load: Path, run: str) -> Capture:
    names = (f"{run}.requests.csv", f"{run}.tokens.jsonl.gz")
    capture = VllmLoadReader().read([load / name for name in names], Options())
    validate(capture)
    return capture


@pytest.mark.parametrize("run", LOGGED)
def test_steps_and_preemptions_are_those_of_the_manifest(
    load: Path, manifest: dict[str, list[str]], run: str
) -> None:
    capture = steps_of(load, run)
    assert capture.num_rows("step") == int(manifest[run][6])
    assert sum(rows(capture, "step", "num_preempted")) == int(manifest[run][7])
    assert sum(rows(capture, "request", "num_preemptions")) == int(manifest[run][7])
    assert lost(capture) == {}
    assert rows(capture, "source", "clock") == ["epoch"]


@pytest.mark.parametrize("run", LOGGED)
def test_both_scanners_agree(load: Path, run: str) -> None:
    assert difference(steps_of(load, run, "slow"), steps_of(load, run, "fast")) is None


@pytest.mark.parametrize("run", LOGGED)
def test_a_log_agrees_with_the_client_about_each_request(load: Path, run: str) -> None:
    engine, client = steps_of(load, run), client_of(load, run)
    same = ("request_id", "prompt_tokens", "cached_tokens", "output_tokens", "num_preemptions")
    assert rows(engine, "request", *same) == rows(client, "request", *same)
    emitted: dict[str, int] = {}
    for request, number in rows(engine, "request_step", "request_id", "num_emitted"):
        emitted[request] = emitted.get(request, 0) + number
    assert emitted == dict(rows(engine, "request", "request_id", "output_tokens"))
    assert engine.num_rows("token") == client.num_rows("token") == sum(emitted.values())
    # The client knows of a token only after the engine does.
    of_engine = dict(zip(*_tokens(engine), strict=True))
    of_client = dict(zip(*_tokens(client), strict=True))
    assert of_engine.keys() == of_client.keys()
    assert all(of_client[token] > at for token, at in of_engine.items())


def _tokens(capture: Capture) -> tuple[list[tuple[str, int]], list[int]]:
    return rows(capture, "token", "request_id", "index"), rows(capture, "token", "at_ns")


@pytest.mark.parametrize("run", LOGGED)
def test_shares_sum_to_their_steps(load: Path, run: str) -> None:
    capture = steps_of(load, run)
    step = capture.ids("request_step", "step_id")
    tokens = capture.int64("request_step", "num_tokens")
    codes, texts = capture.codes("request_step", "phase")
    for phase in ("prefill", "decode"):
        mask = codes == texts.index(phase)
        summed = np.bincount(step[mask], tokens[mask], capture.num_rows("step"))
        assert np.array_equal(summed, capture.int64("step", f"num_{phase}_tokens", 0))
    # No speculation in these runs: a decode computes one token and emits one.
    assert set(tokens[codes == texts.index("decode")].tolist()) == {1}


def test_the_seven_recomputes_of_o40_are_prefill(load: Path) -> None:
    shares = rows(steps_of(load, "o40"), "request_step", "is_resumed", "phase", "num_tokens")
    resumed = [(phase, tokens) for is_resumed, phase, tokens in shares if is_resumed]
    assert len(resumed) == 7
    assert {phase for phase, _ in resumed} == {"prefill"}
    assert 75 in [tokens for _, tokens in resumed]


@pytest.mark.parametrize("run", ALL)
def test_latencies_of_the_client_are_those_of_the_manifest(
    load: Path, manifest: dict[str, list[str]], run: str
) -> None:
    capture = client_of(load, run)
    arrival = capture.int64("request", "arrival_ns")
    if run in ("n25", "n40"):
        both = manifest.get("n25, n40", ["164 / 531, 6123 / 10779", "2346 / 6426, 9684 / 15600"])
        cells = [cell.split(", ")[run == "n40"] for cell in both[-2:]]
    else:
        cells = manifest[run][8:10]
    for column, cell in zip(("first_token_ns", "finished_ns"), cells, strict=True):
        milliseconds = (capture.int64("request", column) - arrival) / 1e6
        for percent, expected in zip((50, 95), cell.split(" / "), strict=True):
            found = float(np.percentile(milliseconds, percent, method="higher"))
            assert found == pytest.approx(float(expected), abs=1.0), (run, column, percent)
