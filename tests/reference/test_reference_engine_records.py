"""Stat-logger records, log lines and a llama.cpp response of real servers, beside the step log of the same run."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.compare import lost, rows
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.ingest.engine_log.reader import EngineLogReader
from tokenpath.ingest.llama_cpp.reader import LlamaCppReader
from tokenpath.ingest.reader import Options, Reader
from tokenpath.ingest.vllm_stats.reader import VllmStatsReader
from tokenpath.ingest.vllm_steps.reader import VllmStepsReader


@pytest.fixture(scope="module")
def engine(reference_data: Path) -> Path:
    return reference_data / "engine"


def read(reader: Reader, path: Path) -> Capture:
    capture = reader.read([path], Options())
    validate(capture)
    return capture


def steps_of(engine: Path, run: str) -> Capture:
    return read(VllmStepsReader(), engine / f"vllm-cpu/load/{run}.steps.jsonl.gz")


@pytest.mark.parametrize("run", ["o40", "p40"])
def test_stat_logger_and_step_log_agree(engine: Path, run: str) -> None:
    capture = read(VllmStatsReader(), engine / f"vllm-cpu/stats/{run}.stat_logger.jsonl.gz")
    log = steps_of(engine, run)
    same = ("request_id", "prompt_tokens", "cached_tokens", "output_tokens", "num_preemptions")
    assert sorted(rows(capture, "request", *same)) == sorted(rows(log, "request", *same))
    samples = rows(capture, "counter_sample", "name", "value")
    emitted = sum(rows(log, "request", "output_tokens"))
    assert max(value for name, value in samples if name == "tokens.generated") == emitted
    gaps = [value for name, value in samples if name in ("latency.ttft", "latency.itl")]
    assert len(gaps) == emitted
    preempted = sum(rows(log, "step", "num_preempted"))
    assert max(value for name, value in samples if name == "preemptions") == preempted
    ends = dict(rows(log, "request", "request_id", "finished_ns"))
    for name, at in rows(capture, "request", "request_id", "finished_ns"):
        assert 0 <= at - ends[name] < 30_000_000, "the API server hears of it after the engine"


def test_iterations_of_o40_have_the_tokens_of_the_steps(engine: Path) -> None:
    capture = read(VllmStatsReader(), engine / "vllm-cpu/stats/o40.stat_logger.jsonl.gz")
    columns = ("num_prefill_tokens", "num_decode_tokens")
    iterations = [a + b for a, b in rows(capture, "step", *columns)]
    steps = [a + b for a, b in rows(steps_of(engine, "o40"), "step", *columns)]
    assert iterations == [tokens for tokens in steps if tokens]
    assert len(iterations) == 916


def test_the_log_of_o40(engine: Path) -> None:
    capture = read(EngineLogReader(), engine / "vllm-cpu/logs/o40.iteration_log.txt")
    assert rows(capture, "step", "number") == list(range(393))
    assert rows(capture, "source", "num_events") == [400]
    assert lost(capture) == {}
    # The first 48 iterations are warm-up; the rest are those of the records.
    records = read(VllmStatsReader(), engine / "vllm-cpu/stats/o40.stat_logger.jsonl.gz")
    columns = ("number", "num_prefill_requests", "num_prefill_tokens", "num_decode_tokens")
    known = {row[0]: row for row in rows(records, "step", *columns)}
    for row in rows(capture, "step", *columns):
        assert known.get(row[0], row) == row
    running = [v for n, v in rows(capture, "counter_sample", "name", "value") if "running" in n]
    assert running == [5.0, 8.0]


def test_a_response_of_llama_cpp(engine: Path) -> None:
    path = engine / "llama-cpp/chat_completion_with_timings.json"
    capture = read(LlamaCppReader(), path)
    columns = ("prompt_tokens", "cached_tokens", "output_tokens", "finish_reason")
    assert rows(capture, "request", *columns) == [(34, 0, 48, "length")]
    stated = ("stated_prefill_ns", "stated_decode_ns")
    assert rows(capture, "request", *stated) == [(3_166_067_000, 10_995_481_000)]
    assert "im_end" not in "".join(str(capture[name].to_pydict()) for name in capture)
