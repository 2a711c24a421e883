"""What AIPerf and genai-perf write: records, Perf Analyzer's export, aggregates as JSON and CSV."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest.samples import Sample

START = 1_700_000_000_123_456_789


def metric(value: Any, unit: str) -> dict[str, Any]:
    return {"value": value, "unit": unit}


RECORD: dict[str, Any] = {
    "metadata": {
        "session_num": 0,
        "x_request_id": "4c1b7f30-9d5e-4b52-8f0e-1f2f3a4b5c6d",
        "request_start_ns": START,
        "request_end_ns": START + 40_000_000,
        "worker_id": "worker_gpu-7",
        "record_processor_id": "rp_1",
        "benchmark_phase": "profiling",
        "was_cancelled": False,
    },
    "metrics": {
        "time_to_first_token": metric(10.5, "ms"),
        "request_latency": metric(30.5, "ms"),
        "inter_token_latency": metric(10.0, "ms"),
        "inter_chunk_latency": metric([8.0, 12.0], "ms"),
        "input_sequence_length": metric(100, "tokens"),
        "output_sequence_length": metric(3, "tokens"),
    },
    "error": None,
}
FAILED = {
    "metadata": {**RECORD["metadata"], "x_request_id": None, "benchmark_phase": "warmup"},
    "metrics": {"error_isl": metric(100, "tokens")},
    "error": {"code": 503, "message": "boom"},
}
EXPORT: dict[str, Any] = {
    "experiments": [
        {
            "experiment": {"mode": "concurrency", "value": 2},
            "requests": [
                {
                    "timestamp": START,
                    "request_inputs": {"payload": "a b c"},
                    "response_timestamps": [START + 5, START + 9, START + 10, START + 11],
                    "response_outputs": [
                        {"response": 'data: {"choices":[{"delta":{"content":"d"}}]}'},
                        {"response": 'data: {"choices":[{"delta":{"content":"e"}}]}'},
                        {"response": 'data: {"choices":[],"usage":{"completion_tokens":2}}'},
                        {"response": "data: [DONE]"},
                    ],
                },
                {"timestamp": START + 1, "request_inputs": {}, "response_timestamps": []},
            ],
            "window_boundaries": [START, START + 100],
        }
    ],
    "version": "2.59",
    "service_kind": "openai",
    "endpoint": "v1/chat/completions",
}
SUMMARY: dict[str, Any] = {
    "request_throughput": {"unit": "requests/sec", "avg": 2.5},
    "request_latency": {"unit": "ms", "avg": 40.0, "p50": 39.0, "p99": 50.0, "std": 1.5},
    "inter_token_latency": {"unit": "ms", "avg": 10.0, "p1": 9.0},
    "output_sequence_length": {"unit": "tokens", "avg": 3.0, "max": 4},
    "error_request_count": {"unit": "requests", "avg": 1.0},
    "http_req_blocked": {"unit": "ms", "avg": 0.25},
    "input_config": {"loadgen": {"concurrency": 8}, "endpoint": {"url": "http://gpu-7"}},
    "telemetry_data": {"summary": {}},
}
CSV = """\
Metric,avg,min,max,p99,p95,p90,p75,p50,p25,p10,p5,p1
Time To First Token (ms),18.26,10.00,"1,250.50",20.00,,,,,,,,

Metric,Value
Request Throughput (per sec),2.50
Request Count,12
GPU,power
"""


def write_lines(folder: Path, *records: dict[str, Any]) -> Path:
    path = folder / "profile_export.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    return path


def write(folder: Path, document: dict[str, Any]) -> Path:
    path = folder / "profile_export.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def write_csv(folder: Path, text: str = CSV) -> Path:
    path = folder / "profile_export_genai_perf.csv"
    path.write_text(text, encoding="utf-8")
    return path


def planted_records(folder: Path, secret: str) -> Path:
    metadata = {**RECORD["metadata"], "x_request_id": secret, "worker_id": secret}
    return write_lines(
        folder, {**RECORD, "metadata": metadata, "payload": secret, "error": {"message": secret}}
    )


def planted_export(folder: Path, secret: str) -> Path:
    request = {**EXPORT["experiments"][0]["requests"][0], "request_inputs": {"p": secret}}
    request["response_outputs"] = [{"response": secret}] * 4
    experiment = {"experiment": {"mode": secret, "value": secret}, "requests": [request]}
    return write(folder, {**EXPORT, "experiments": [experiment], "endpoint": secret, secret: 1})


def planted_summary(folder: Path, secret: str) -> Path:
    texts = {"aiperf_version": secret, "input_config": {"note": secret, "models": [secret]}}
    return write(folder, {**SUMMARY, **texts, "x": {"unit": secret, "avg": 1.0}})


def planted_csv(folder: Path, secret: str) -> Path:
    quoted = secret.replace('"', '""')
    return write_csv(folder, CSV + f'"{quoted}","{quoted}"\n')


SAMPLES = [
    Sample(
        "aiperf records",
        "aiperf",
        lambda folder: write_lines(folder, RECORD, FAILED),
        {
            (
                *("request", "request_id", "arrival_ns", "first_token_ns", "last_token_ns"),
                *("finished_ns", "prompt_tokens", "output_tokens", "stated_tpot_ns"),
                "finish_reason",
            ): [
                (
                    *("4c1b7f30-9d5e-4b52-8f0e-1f2f3a4b5c6d", START, START + 10_500_000),
                    *(START + 30_500_000, START + 40_000_000, 100, 3, 10_000_000, None),
                ),
                ("#1", START, None, None, START + 40_000_000, None, None, None, "error"),
            ],
            ("token", "index", "at_ns"): [
                (0, START + 10_500_000),
                (1, START + 18_500_000),
                (2, START + 30_500_000),
            ],
            ("source", "clock"): ["epoch"],
        },
        {},
        planted_records,
        lambda folder, number: write_lines(folder, *[RECORD] * number),
        bytes_an_event=900,  # a record has 700 bytes, and a block of 2 MiB of them is split at once
    ),
    Sample(
        "perf analyzer export",
        "aiperf",
        lambda folder: write(folder, EXPORT),
        {
            (
                *("request", "request_id", "arrival_ns", "first_token_ns", "last_token_ns"),
                *("finished_ns", "output_tokens", "finish_reason"),
            ): [
                ("#0", START, START + 5, START + 9, START + 11, 2, None),
                ("#1", START + 1, None, None, None, None, "error"),
            ],
            ("token", "index", "at_ns"): [(0, START + 5), (1, START + 9)],
            ("setting", "name", "value"): [
                ("version", "2.59"),
                ("service_kind", "openai"),
                ("experiment.mode", "concurrency"),
                ("experiment.value", "2"),
            ],
        },
        {
            "prompt or generated text": 6,
            "private setting": 1,
            "part of the export that is not read": 1,
        },
        planted_export,
    ),
    Sample(
        "aiperf summary",
        "aiperf",
        lambda folder: write(folder, SUMMARY),
        {
            ("summary", "name", "statistic", "value", "unit"): [
                ("throughput.requests", "rate", 2.5, "1/s"),
                ("latency.e2e", "mean", 0.04, "s"),
                ("latency.e2e", "p50", 0.039, "s"),
                ("latency.e2e", "p99", 0.05, "s"),
                ("latency.e2e", "std", 0.0015, "s"),
                ("latency.tpot", "mean", 0.01, "s"),
                ("latency.tpot", "p1", 0.009, "s"),
                ("size.osl", "mean", 3.0, "token"),
                ("size.osl", "max", 4.0, "token"),
                ("requests.failed", "count", 1.0, "1"),
                ("http_req_blocked", "mean", 0.25, "ms"),
            ],
        },
        {"private setting": 1, "part of the summary that is not read": 1},
        planted_summary,
    ),
    Sample(
        "genai-perf csv",
        "aiperf",
        write_csv,
        {
            ("summary", "name", "statistic", "value"): [
                ("latency.ttft", "mean", 0.01826),
                ("latency.ttft", "min", 0.01),
                ("latency.ttft", "max", 1.2505),
                ("latency.ttft", "p99", 0.02),
                ("throughput.requests", "rate", 2.5),
                ("requests.completed", "count", 12.0),
            ],
        },
        {"figure that is no number": 1},
        planted_csv,
    ),
]
