"""TensorRT-LLM: iterations with and without time stamps, requests of one server and of two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest.samples import Sample

ITERATION = {
    "iter": 17, "iterLatencyMS": 16.5, "numActiveRequests": 5, "numQueuedRequests": 3,
    "gpuMemUsage": 4_000_000_000, "attentionDpRank": 1,
    "kvCacheStats": {"maxNumBlocks": 1000, "usedNumBlocks": 600, "cacheHitRate": 0.75},
    "inflightBatchingStats": {
        "numContextRequests": 2, "numGenRequests": 3, "numPausedRequests": 1, "numCtxTokens": 256,
        "numCtxKvTokens": 64, "numGenKvTokens": 900,
    },
}  # fmt: skip
TIMES = {
    "arrival_time": 12.25, "first_scheduled_time": 12.5, "first_token_time": 13.0,
    "last_token_time": 14.0, "kv_cache_transfer_start": 0,
}  # fmt: skip
REQUEST = {
    "request_id": 7,
    "perf_metrics": {"first_iter": 1, "last_iter": 9, "timing_metrics": TIMES},
}
SPLIT = {
    "ctx_server": "a:1", "gen_server": "b:1", "disagg_server_arrival_time": 1_700_000_000.5,
    "disagg_server_first_token_time": 1_700_000_001.5,
    "ctx_perf_metrics": {
        "request_id": 8, "perf_metrics": {"timing_metrics": {"arrival_time": 1_700_000_000.75}},
    },
    "gen_perf_metrics": {
        "request_id": 9, "perf_metrics": {"timing_metrics": {"last_token_time": 1_700_000_002.0}},
    },
}  # fmt: skip
AT = 1_700_000_000_000_000_000


def write(folder: Path, records: list[Any], *, as_list: bool = False) -> Path:
    path = folder / "t.json"
    lines = "".join(json.dumps(record) + "\n" for record in records)
    path.write_text(json.dumps(records, indent=1) if as_list else lines)
    return path


def planted(folder: Path, secret: str) -> Path:
    request = {"request_id": secret, "perf_metrics": {"timing_metrics": TIMES, secret: secret}}
    split = {**SPLIT, "ctx_server": secret, "gen_server": secret}
    stats = {**ITERATION, "timestamp": secret, secret: secret}
    return write(folder, [{**ITERATION, "schedulerMode": secret}, stats, request, split])


def many(folder: Path, num_events: int) -> Path:
    return write(folder, [{**ITERATION, "iter": number} for number in range(num_events)])


SAMPLES = [
    Sample(
        "trtllm_iterations",
        "trtllm_stats",
        lambda folder: write(
            folder, [ITERATION, {**ITERATION, "iter": 18}, {"iterLatencyMS": "x"}, 3], as_list=True
        ),
        {
            ("step", "number", "engine_id", "phase", "start_ns", "end_ns"): [
                (17, 1, "mixed", 0, 16_500_000),
                (18, 1, "mixed", 16_500_000, 33_000_000),
            ],
            ("step", "num_prefill_requests", "num_prefill_tokens", "sum_prefill_kv_tokens"): [
                (2, 256, 64),
                (2, 256, 64),
            ],
            ("step", "num_decode_requests", "sum_decode_kv_tokens", "num_running", "num_queued"): [
                (3, 900, 5, 3),
                (3, 900, 5, 3),
            ],
            ("step", "kv_used_blocks", "kv_total_blocks"): [(600, 1000), (600, 1000)],
            ("counter_sample", "name", "value", "unit"): [
                ("requests.running", 5.0, "request"),
                ("requests.waiting", 3.0, "request"),
                ("gpuMemUsage", 4e9, "byte"),
                ("kv.usage", 0.6, "ratio"),
                ("prefix.hit_rate", 0.75, "ratio"),
            ]
            * 2,
            ("source_note", "code"): ["step-times-unknown"],
        },
        {"damaged record": 2},
        planted,
        many,
    ),
    Sample(
        "trtllm_stamps",
        "trtllm_stats",
        lambda folder: write(folder, [{**ITERATION, "timestamp": "11-14-2023 22:13:20.500000"}]),
        {
            ("step", "start_ns", "end_ns"): [(AT + 483_500_000, AT + 500_000_000)],
            ("source", "clock"): ["monotonic"],
            ("source_note", "code"): ["clock-unknown"],
        },
        {},
        planted,
    ),
    Sample(
        "trtllm_requests",
        "trtllm_stats",
        lambda folder: write(folder, [REQUEST, {"request_id": 1, "perf_metrics": {}}]),
        {
            ("request", "request_id", "observer", "arrival_ns", "scheduled_ns"): [
                ("7", "engine", 12_250_000_000, 12_500_000_000),
            ],
            ("request", "first_token_ns", "last_token_ns"): [(13_000_000_000, 14_000_000_000)],
            ("source", "clock"): ["monotonic"],
            ("source_note", "code"): ["clock-unknown"],
        },
        {"request without a time": 1},
        planted,
    ),
    Sample(
        "trtllm_split_requests",
        "trtllm_stats",
        lambda folder: write(folder, [SPLIT], as_list=True),
        {
            (
                "request",
                "request_id",
                "observer",
                "arrival_ns",
                "first_token_ns",
                "last_token_ns",
            ): [
                ("9", "engine", AT + 750_000_000, None, None),
                ("9", "engine", None, None, AT + 2_000_000_000),
                ("9", "gateway", AT + 500_000_000, AT + 1_500_000_000, None),
            ],
            ("source", "clock"): ["epoch"],
            ("source_note", "code"): ["prefill-instance-ttft"],
        },
        {},
        planted,
    ),
]
