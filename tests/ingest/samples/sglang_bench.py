"""Results of SGLang's bench_serving, in the shape that its serving.py writes: a run a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest.samples import Sample

RESULT: dict[str, Any] = {
    "tag": None,
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": float("inf"),
    "max_concurrency": 4,
    "sharegpt_output_len": None,
    "random_input_len": 1024,
    "random_output_len": 512,
    "random_range_ratio": 0.5,
    "server_info": {"model_path": "m/Tiny", "tp_size": 2, "api_key": "abc", "host": "gpu-7"},
    "duration": 4.0,
    "completed": 2,
    "total_input_tokens": 30,
    "total_output_tokens": 6,
    "total_output_tokens_retokenized": 5,
    "request_throughput": 0.5,
    "total_throughput": 9.0,
    "mean_e2e_latency_ms": 250.0,
    "p90_itl_ms": 12.5,
    "concurrency": 0.125,
    "accept_length": None,
    "max_concurrent_requests": 2,
}
LISTS: dict[str, list[Any]] = {
    "input_lens": [10, 20],
    "output_lens": [3, 3],
    "ttfts": [0.5, 0.25],
    "itls": [[0.0125, 0.0125], [0.001, 0.0020000000000000001]],
    "generated_texts": ["a b c", "d e f"],
    "errors": ["", ""],
}


def write(folder: Path, *results: dict[str, Any]) -> Path:
    path = folder / "out.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in results), encoding="utf-8")
    return path


def planted(folder: Path, secret: str) -> Path:
    texts = dict.fromkeys(("tag", "backend", "dataset_name", "request_rate"), secret)
    info = {"server_info": {"model_path": secret, "api_key": secret, "args": [secret]}}
    lists = {"generated_texts": [secret], "errors": [secret], "ttfts": [0.1]}
    return write(folder, {**RESULT, **texts, **info, **lists})


def many(folder: Path, num_events: int) -> Path:
    lists = {"input_lens": [7] * num_events, "ttfts": [0.1234567] * num_events}
    return write(folder, {**RESULT, **lists})


SAMPLES = [
    Sample(
        "sglang_bench",
        "sglang_bench",
        lambda folder: write(folder, RESULT, {**RESULT, **LISTS, "max_concurrency": None}),
        {
            (
                *("request", "request_id", "arrival_ns", "prompt_tokens", "output_tokens"),
                *("stated_ttft_ns", "stated_decode_ns"),
            ): [
                ("#1.0", None, 10, 3, 500_000_000, 25_000_000),
                ("#1.1", None, 20, 3, 250_000_000, 3_000_000),
            ],
            ("summary", "name", "statistic", "value", "labels"): [
                (name, statistic, value, f'{{"run": "{run}"}}')
                for run in (0, 1)
                for name, statistic, value in (
                    ("run.duration", "total", 4.0),
                    ("requests.completed", "count", 2.0),
                    ("tokens.prompt", "total", 30.0),
                    ("tokens.generated", "total", 6.0),
                    ("tokens.generated_retokenised", "total", 5.0),
                    ("throughput.requests", "rate", 0.5),
                    ("throughput.tokens_total", "rate", 9.0),
                    ("latency.e2e", "mean", 0.25),
                    ("latency.itl", "p90", 0.0125),
                    ("requests.concurrency", "mean", 0.125),
                    ("requests.concurrency", "max", 2.0),
                )
            ],
        },
        {"generated text": 2, "token without a start of its request": 6, "private setting": 4},
        planted,
        many,
    ),
]
