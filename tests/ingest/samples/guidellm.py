"""Reports of GuideLLM: the form of 0.2 and 0.3, and that of 0.4 and later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest.samples import Sample

T0 = 1_700_000_000.25


def distribution(mean: float, count: int = 2) -> dict[str, Any]:
    summary = {"mean": mean, "median": mean, "mode": mean, "variance": 0.0, "std_dev": 0.0}
    extremes = {"min": mean, "max": mean, "count": count, "total_sum": mean * count}
    return {**summary, **extremes, "percentiles": {"p001": mean, "p05": mean, "p999": mean}}


def by_status(mean: float) -> dict[str, Any]:
    return {
        "successful": distribution(mean),
        "errored": distribution(0.0, 0),
        "incomplete": distribution(0.0, 0),
        "total": distribution(0.0, 0),
    }


METRICS = {
    "requests_per_second": by_status(4.0),
    "request_latency": by_status(0.5),
    "time_to_first_token_ms": by_status(125.0),
    "time_per_output_token_ms": by_status(20.0),
    "inter_token_latency_ms": by_status(25.0),
}
TOTALS = {"successful": 1, "errored": 1, "incomplete": 0, "total": 2}
OLD_REQUEST = {
    "type_": "generative_text_response",
    "request_id": "1b4e28ba-2fa1-11d2-883f-0016d3cca427",
    "request_type": "text_completions",
    "scheduler_info": {"targeted_start_time": T0, "queued_time": -1},
    "prompt": "a b c",
    "output": "d e f",
    "prompt_tokens": 3,
    "output_tokens": 5,
    "start_time": T0,
    "end_time": T0 + 0.25,
    "first_token_time": T0 + 0.125,
    "last_token_time": T0 + 0.1875,
}
FAILED = {**OLD_REQUEST, "request_id": "two", "first_token_time": None, "error": "boom"}


def old(*requests: dict[str, Any]) -> dict[str, Any]:
    benchmark = {
        "type_": "generative_benchmark",
        "id_": "b-1",
        "run_id": "r-1",
        "args": {
            "strategy": {"type_": "concurrent", "streams": 4},
            "max_number": 2,
            "warmup_number": None,
            "warmup_duration": None,
        },
        "run_stats": {"start_time": T0},
        "worker": {"backend_type": "openai_http", "backend_target": "http://gpu-7:8000",
                   "backend_model": "m/Tiny"},
        "metrics": METRICS,
        "duration": 2.0,
        "request_totals": TOTALS,
        "requests": {
            "successful": [OLD_REQUEST, *requests],
            "incomplete": [],
            "errored": [FAILED],
        },
    }  # fmt: skip
    return {"benchmarks": [benchmark]}


def new() -> dict[str, Any]:
    request = {
        "type_": "generative_request_stats",
        "request_id": "own",
        "response_id": "chatcmpl-7f00aa",
        "request_args": "{}",
        "output": "d e f",
        "info": {
            "request_id": "own",
            "timings": {
                "targeted_start": T0,
                "request_start": T0 + 0.5,
                "first_token_iteration": T0 + 0.75,
                "last_token_iteration": T0 + 1,
                "token_iterations": 5,
                "request_end": T0 + 1.25,
                "resolve_end": T0 + 2,
            },
        },
        "input_metrics": {"text_tokens": 9, "cached_tokens": 4},
        "output_metrics": {"text_tokens": 5},
        "prompt_tokens": 9,
        "output_tokens": 5,
    }
    benchmark = {
        "type_": "generative_benchmark",
        "config": {
            "run_id": "r-1",
            "strategy": {"type_": "constant", "rate": 2.0},
            "warmup": {"percent": 0.1, "value": None, "mode": "requests"},
            "backend": {"kind": "openai_http", "model": "m/Tiny", "api_key": "abc"},
        },
        "scheduler_metrics": {"requests_made": TOTALS},
        "metrics": {"request_totals": {**TOTALS, "errored": 0}, **METRICS},
        "requests": {"successful": [request], "incomplete": [], "errored": []},
        "duration": 2.0,
    }
    return {
        "metadata": {"version": 2, "guidellm_version": "0.8.1", "platform": "Linux-6"},
        "config": {"spec": "x"},
        "benchmarks": [benchmark, benchmark],
    }


def write(folder: Path, report: dict[str, Any]) -> Path:
    path = folder / "benchmarks.json"
    path.write_text(json.dumps(report), encoding="utf-8")
    return path


def planted(folder: Path, secret: str) -> Path:
    texts = dict.fromkeys(("request_id", "prompt", "output", "error"), secret)
    report = old({**OLD_REQUEST, **texts})
    report["benchmarks"][0]["worker"]["backend_model"] = secret
    report["benchmarks"][0]["args"]["note"] = secret
    report["benchmarks"][0]["extras"] = {"tag": secret, "list": [secret]}
    return write(folder, {"metadata": {"guidellm_version": secret, "platform": secret}, **report})


def many(folder: Path, num_events: int) -> Path:
    return write(folder, old(*[{**OLD_REQUEST, "output": ""}] * num_events))


def figures(*names: tuple[str, float]) -> list[tuple[str, str, float]]:
    statistics = ("mean", "p50", "std", "min", "max", "count", "total", "p0.1", "p5", "p99.9")
    return [
        (name, one, {"std": 0.0, "count": 2.0, "total": 2 * mean}.get(one, mean))
        for name, mean in names
        for one in statistics
    ]


SAMPLES = [
    Sample(
        "guidellm of 0.2",
        "guidellm",
        lambda folder: write(folder, old()),
        {
            (
                *("request", "request_id", "model", "arrival_ns", "first_token_ns"),
                *("last_token_ns", "finished_ns", "prompt_tokens", "output_tokens"),
                "finish_reason",
            ): [
                (
                    *("1b4e28ba-2fa1-11d2-883f-0016d3cca427", "m/Tiny", 1_700_000_000_250_000_000),
                    *(1_700_000_000_375_000_000, 1_700_000_000_437_500_000),
                    *(1_700_000_000_500_000_000, 3, 5, None),
                ),
                (
                    *("two", "m/Tiny", 1_700_000_000_250_000_000, None, None),
                    *(1_700_000_000_500_000_000, 3, 5, "error"),
                ),
            ],
            ("summary", "name", "statistic", "value"): [
                ("run.duration", "total", 2.0),
                ("requests.completed", "count", 1.0),
                ("requests.failed", "count", 1.0),
                ("requests.incomplete", "count", 0.0),
                ("requests.total", "count", 2.0),
                *figures(
                    ("throughput.requests", 4.0),
                    ("latency.e2e", 0.5),
                    ("latency.ttft", 0.125),
                    ("latency.decode_per_token", 0.02),
                    ("latency.tpot", 0.025),
                ),
            ],
            ("source", "clock"): ["epoch"],
        },
        {"prompt or generated text": 4, "statistic that is not kept": 10, "private setting": 1},
        planted,
        many,
        bytes_an_event=1500,
    ),
    Sample(
        "guidellm of 0.8",
        "guidellm",
        lambda folder: write(folder, new()),
        {
            (
                *("request", "request_id", "arrival_ns", "first_token_ns", "last_token_ns"),
                *("finished_ns", "prompt_tokens", "cached_tokens", "output_tokens"),
            ): [
                (
                    *("7f00aa", 1_700_000_000_750_000_000, 1_700_000_001_000_000_000),
                    *(1_700_000_001_250_000_000, 1_700_000_001_500_000_000, 9, 4, 5),
                ),
            ]
            * 2,
            ("source", "profiler"): ["GuideLLM 0.8.1"],
        },
        {
            "prompt or generated text": 4,
            "statistic that is not kept": 20,
            "private setting": 2,
            "time of a token between first and last": 6,
        },
        planted,
    ),
]
