"""Reports of inference-perf, in the shape of its reportgen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest.samples import Sample

REQUEST: dict[str, Any] = {
    "start_time": 100.5,
    "end_time": 101.0,
    "request": '{"prompt": "a b c"}',
    "response": "d e",
    "info": {
        "request_metrics": {"text": {"input_tokens": 7}, "image": None},
        "response_metrics": {
            "output_tokens": 3,
            "server_usage": {
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 4},
            },
            "output_token_times": [100.625, 100.625, 100.75],
        },
        "lora_adapter": None,
        "input_tokens": 7,
    },
    "error": None,
}
OLD = {
    **REQUEST,
    "info": {"input_tokens": 7, "output_tokens": 2, "output_token_times": [100.625]},
}
FAILED = {
    "start_time": 100.75,
    "end_time": 102.0,
    "request": "{}",
    "response": None,
    "info": {"request_metrics": {"text": {"input_tokens": 9}}, "response_metrics": None},
    "error": {"error_type": "TimeoutError", "error_msg": "boom"},
}
SUMMARY: dict[str, Any] = {
    "benchmark_time_seconds": 8.0,
    "load_summary": {
        "count": 3,
        "schedule_delay": {"mean": 0.25, "min": 0.0, "max": 0.5, "median": 0.25},
        "requested_rate": 2.0,
        "achieved_rate": 1.5,
    },
    "successes": {
        "count": 2,
        "latency": {
            "request_latency": {"mean": 0.5, "p0.1": 0.25, "p99.9": 0.75},
            "normalized_time_per_output_token": {"mean": 0.05},
            "inter_token_latency": None,
        },
        "throughput": {"requests_per_sec": 0.25, "images_per_sec": 0.0},
        "prompt_tokens": {"total": 20.0, "cached": 5.0, "uncached": 15.0, "mean": 10.0},
        "token_count_mismatches": 1,
    },
    "failures": {
        "count": 1,
        "request_latency": {"mean": 1.25},
        "by_label": {"504": {"count": 1, "messages": [{"message": "boom"}]}},
    },
}


def write(folder: Path, report: object) -> Path:
    path = folder / "lifecycle_metrics.json"
    path.write_text(json.dumps(report, indent=2), encoding="utf-8")
    return path


def planted_requests(folder: Path, secret: str) -> Path:
    info = {**REQUEST["info"], "lora_adapter": secret, "labels": {"x": secret}}
    error = {"error_type": secret, "error_msg": secret}
    request = {**REQUEST, "request": secret, "response": secret, "info": info, "error": error}
    return write(folder, [request])


def planted_summary(folder: Path, secret: str) -> Path:
    load = {**SUMMARY["load_summary"], "note": secret}
    failures = {"count": 1, "by_label": {secret: {"messages": [{"message": secret}]}}}
    successes = {**SUMMARY["successes"], "throughput": {secret: 1.0}}
    return write(
        folder, {**SUMMARY, "load_summary": load, "successes": successes, "failures": failures}
    )


SAMPLES = [
    Sample(
        "inference-perf requests",
        "inference_perf",
        lambda folder: write(folder, [REQUEST, OLD, FAILED]),
        {
            (
                *("request", "request_id", "arrival_ns", "first_token_ns", "last_token_ns"),
                *("finished_ns", "prompt_tokens", "cached_tokens", "output_tokens"),
                "finish_reason",
            ): [
                (
                    *("#0", 100_500_000_000, 100_625_000_000, 100_750_000_000, 101_000_000_000),
                    *(7, 4, 3, None),
                ),
                (
                    *("#1", 100_500_000_000, 100_625_000_000, 100_625_000_000, 101_000_000_000),
                    *(7, None, 2, None),
                ),
                ("#2", 100_750_000_000, None, None, 102_000_000_000, 9, None, None, "error"),
            ],
            ("token", "request_id", "index", "at_ns"): [
                ("#0", 0, 100_625_000_000),
                ("#0", 1, 100_625_000_000),
                ("#0", 2, 100_750_000_000),
            ],
        },
        {"prompt or generated text": 5, "token time that matches no count of tokens": 1},
        planted_requests,
        lambda folder, number: write(folder, [REQUEST] * number),
        bytes_an_event=2500,  # a request has 900 bytes of text, held as bytes and as characters
    ),
    Sample(
        "inference-perf summary",
        "inference_perf",
        lambda folder: write(folder, SUMMARY),
        {
            ("summary", "name", "statistic", "value", "labels"): [
                ("run.duration", "total", 8.0, None),
                ("requests.total", "count", 3.0, None),
                ("latency.schedule_delay", "mean", 0.25, None),
                ("latency.schedule_delay", "min", 0.0, None),
                ("latency.schedule_delay", "max", 0.5, None),
                ("latency.schedule_delay", "p50", 0.25, None),
                ("requests.completed", "count", 2.0, None),
                ("latency.e2e", "mean", 0.5, None),
                ("latency.e2e", "p0.1", 0.25, None),
                ("latency.e2e", "p99.9", 0.75, None),
                ("latency.e2e_per_token", "mean", 0.05, None),
                ("throughput.requests", "rate", 0.25, None),
                ("images_per_sec", "rate", 0.0, None),
                ("tokens.prompt", "total", 20.0, None),
                ("prefix.hit_tokens", "total", 5.0, None),
                ("size.isl", "mean", 10.0, None),
                ("token_count_mismatches", "count", 1.0, None),
                ("requests.failed", "count", 1.0, None),
                ("latency.e2e", "mean", 1.25, '{"status": "failed"}'),
            ],
            ("setting", "name", "value"): [
                ("load.requested_rate", "2.0"),
                ("load.achieved_rate", "1.5"),
            ],
        },
        {"messages of a kind of failure": 1},
        planted_summary,
    ),
]
