"""Results of `vllm bench serve`, in the shape that its serve.py writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest.samples import Sample

SETTINGS: dict[str, Any] = {
    "date": "20260102-030405",
    "endpoint_type": "openai",
    "backend": "openai",
    "label": None,
    "model_id": "m/Tiny",
    "tokenizer_id": "m/Tiny",
    "num_prompts": 3,
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": 2,
}
TOTALS: dict[str, Any] = {
    "duration": 2.0,
    "completed": 2,
    "failed": 1,
    "total_input_tokens": 30,
    "total_output_tokens": 5,
    "request_throughput": 1.0,
    "request_goodput": None,
    "output_throughput": 2.5,
    "total_token_throughput": 17.5,
}
LATENCIES: dict[str, Any] = {
    "mean_ttft_ms": 75.0,
    "median_ttft_ms": 75.0,
    "std_ttft_ms": 25.0,
    "p99_ttft_ms": 99.5,
    "mean_tpot_ms": 10.25,
    "mean_itl_ms": 10.25,
    "p99.9_itl_ms": 20.5,
}
LISTS: dict[str, list[Any]] = {
    "input_lens": [10, 20, 30],
    "output_lens": [3, 2, 0],
    "ttfts": [0.1, 0.05, 0.0],
    "itls": [[0.010000001, 0.0200000004], [], []],
    "start_times": [1000.5, 1000.75, 1001.0],
    "latencies": [0.135, 0.0625, 0.5],
    "generated_texts": ["a b c", "d e", ""],
    "errors": ["", "", "boom"],
}


def result(*, is_detailed: bool = True, **changes: Any) -> dict[str, Any]:
    lists = LISTS if is_detailed else {}
    return {**SETTINGS, **TOTALS, **lists, **LATENCIES, **changes}


def write(folder: Path, *results: dict[str, Any]) -> Path:
    path = folder / "result.json"
    path.write_text("\n".join(json.dumps(one) for one in results), encoding="utf-8")
    return path


def planted(folder: Path, secret: str) -> Path:
    lists = {"generated_texts": [secret], "errors": [secret], "input_lens": [1], "output_lens": [1]}
    names = ("date", "backend", "model_id", "tokenizer_id", "label", "request_rate", "note", "host")
    return write(folder, result(**lists, **dict.fromkeys(names, secret)))


def many(folder: Path, num_events: int) -> Path:
    lists = {
        "input_lens": [7] * num_events,
        "output_lens": [1] * num_events,
        "ttfts": [0.1234567] * num_events,
        "start_times": [1000.125] * num_events,
    }
    return write(folder, {**SETTINGS, **TOTALS, **lists})


SAMPLES = [
    Sample(
        "vllm_bench",
        "vllm_bench",
        lambda folder: write(folder, result()),
        {
            (
                *("request", "request_id", "arrival_ns", "first_token_ns", "last_token_ns"),
                *("finished_ns", "prompt_tokens", "output_tokens", "finish_reason"),
            ): [
                ("#0", 1000_500000000, 1000_600000000, 1000_630000001, 1000_635000000, 10, 3, None),
                ("#1", 1000_750000000, 1000_800000000, 1000_800000000, 1000_812500000, 20, 2, None),
                ("#2", 1001_000000000, None, None, 1001_500000000, 30, None, "error"),
            ],
            ("token", "request_id", "index", "at_ns"): [
                ("#0", 0, 1000_600000000),
                ("#0", 1, 1000_610000001),
                ("#0", 2, 1000_630000001),
            ],
            ("summary", "name", "statistic", "value", "unit"): [
                ("run.duration", "total", 2.0, "s"),
                ("requests.completed", "count", 2.0, "1"),
                ("requests.failed", "count", 1.0, "1"),
                ("tokens.prompt", "total", 30.0, "token"),
                ("tokens.generated", "total", 5.0, "token"),
                ("throughput.requests", "rate", 1.0, "1/s"),
                ("throughput.tokens_output", "rate", 2.5, "token/s"),
                ("throughput.tokens_total", "rate", 17.5, "token/s"),
                ("latency.ttft", "mean", 0.075, "s"),
                ("latency.ttft", "p50", 0.075, "s"),
                ("latency.ttft", "std", 0.025, "s"),
                ("latency.ttft", "p99", 0.0995, "s"),
                ("latency.tpot", "mean", 0.01025, "s"),
                ("latency.itl", "mean", 0.01025, "s"),
                ("latency.itl", "p99.9", 0.0205, "s"),
            ],
            ("source", "clock"): ["monotonic"],
        },
        {"generated text": 3, "stream chunk that is no single token": 1},
        planted,
        many,
    ),
]
