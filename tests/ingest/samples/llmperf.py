"""Results of LLMPerf, in the shape of its token_benchmark_ray.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest.samples import Sample

RESPONSE: dict[str, Any] = {
    "error_code": None,
    "error_msg": "",
    "inter_token_latency_s": 0.05,
    "ttft_s": 0.123456789,
    "end_to_end_latency_s": 0.5,
    "request_output_throughput_token_per_s": 20.0,
    "number_total_tokens": 110,
    "number_output_tokens": 10,
    "number_input_tokens": 100,
}
FAILED = {
    **RESPONSE,
    "error_code": 503,
    "error_msg": "boom",
    "ttft_s": 0,
    "end_to_end_latency_s": 0,
    "number_output_tokens": 0,
}
SUMMARY: dict[str, Any] = {
    "version": "2023-08-31",
    "name": "m-Tiny_550_150_summary",
    "model": "m/Tiny",
    "num_concurrent_requests": 4,
    "additional_sampling_params": "{}",
    "results_inter_token_latency_s_quantiles_p25": 0.04,
    "results_inter_token_latency_s_mean": 0.05,
    "results_ttft_s_quantiles_p99": 0.5,
    "results_ttft_s_stddev": 0.25,
    "results_number_input_tokens_min": "100",
    "results_num_requests_started": 10,
    "results_error_rate": 0.1,
    "results_number_errors": 1,
    "results_error_code_frequency": "{503: 1}",
    "results_num_completed_requests_per_min": 30.0,
    "timestamp": 1700000000,
}


def write(folder: Path, result: object) -> Path:
    path = folder / "result.json"
    path.write_text(json.dumps(result, indent=4), encoding="utf-8")
    return path


def planted_responses(folder: Path, secret: str) -> Path:
    return write(folder, [{**RESPONSE, "error_msg": secret, "error_code": secret}, secret])


def planted_summary(folder: Path, secret: str) -> Path:
    texts = dict.fromkeys(("name", "model", "note", "results_error_code_frequency"), secret)
    return write(folder, {**SUMMARY, **texts, f"results_{secret}": 1})


SAMPLES = [
    Sample(
        "llmperf responses",
        "llmperf",
        lambda folder: write(folder, [RESPONSE, FAILED, "ttft_s"]),
        {
            (
                *("request", "request_id", "arrival_ns", "stated_ttft_ns", "stated_e2e_ns"),
                *("prompt_tokens", "output_tokens", "finish_reason"),
            ): [
                ("#0", None, 123_456_789, 500_000_000, 100, 10, None),
                ("#1", None, None, None, 100, None, "error"),
            ],
        },
        {"message of a failure": 1, "response that is none": 1},
        planted_responses,
        lambda folder, number: write(folder, [RESPONSE] * number),
        bytes_an_event=1000,  # a response has 350 bytes of text, held as bytes and as characters
    ),
    Sample(
        "llmperf summary",
        "llmperf",
        lambda folder: write(folder, SUMMARY),
        {
            ("summary", "name", "statistic", "value"): [
                ("latency.e2e_per_token", "p25", 0.04),
                ("latency.e2e_per_token", "mean", 0.05),
                ("latency.ttft", "p99", 0.5),
                ("latency.ttft", "std", 0.25),
                ("requests.total", "count", 10.0),
                ("requests.error_ratio", "mean", 0.1),
                ("requests.failed", "count", 1.0),
                ("throughput.requests", "rate", 0.5),
            ],
        },
        {"figure that is not kept": 2},
        planted_summary,
    ),
]
