"""Records of a vLLM stat-logger plug-in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest.samples import Sample

DETAILS = {
    "iteration_index": 48, "num_ctx_requests": 1, "num_ctx_tokens": 512,
    "num_generation_requests": 2, "num_generation_tokens": 2, "elapsed_ms": 183.25,
}  # fmt: skip
REQUEST = {
    "request_id": "cmpl-a-1-0-1a2b3c4d", "finish_reason": 1, "e2e_latency": 1.25,
    "num_prompt_tokens": 169, "num_generation_tokens": 59, "num_cached_tokens": 128,
    "num_preemptions": 2, "queued_time": 0.5, "prefill_time": 0.0625, "decode_time": 1.0,
    "mean_time_per_output_token": 0.017,
}  # fmt: skip


def record(at_s: float | None, since_us: int | None, **more: Any) -> dict[str, Any]:
    iteration = None
    if at_s is not None:
        iteration = {
            "iteration_timestamp": at_s,
            "num_generation_tokens": 3,
            "num_preempted_reqs": 1,
        }
        iteration |= more
    scheduler = {"num_running_reqs": 3, "num_waiting_reqs": 1, "kv_cache_usage": 0.25}
    result = {"ev": "stats", "engine": 0, "scheduler": scheduler, "iteration": iteration}
    return result if since_us is None else {**result, "t_us": since_us}


def with_details(at_s: float, since_us: int, **more: Any) -> dict[str, Any]:
    result = record(at_s, since_us, **more)
    result["scheduler"]["iteration_details"] = DETAILS
    return result


RECORDS = [
    record(None, 1_000),
    with_details(1_700_000_000.5, 2_000, time_to_first_tokens_iter=[0.25]),
    record(1_700_000_001.0, None, finished_requests=[REQUEST, {}]),
    {"ev": "nap"},
    record(None, None),
]
AT = 1_700_000_000_500_000_000


def write(folder: Path, records: list[Any]) -> Path:
    path = folder / "t.stat_logger.jsonl"
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in records))
    return path


def planted(folder: Path, secret: str) -> Path:
    request = {**REQUEST, "request_id": secret, "finish_reason": secret}
    return write(folder, [record(1.5, 9, finished_requests=[request], **{secret: secret})])


def many(folder: Path, num_events: int) -> Path:
    return write(folder, [with_details(1.7e9 + n, n) for n in range(num_events)])


SAMPLES = [
    Sample(
        "vllm_stats",
        "vllm_stats",
        lambda folder: write(folder, RECORDS),
        {
            ("step", "number", "phase", "start_ns", "end_ns"): [
                (48, "mixed", AT - 183_250_000, AT),
            ],
            ("step", "num_prefill_tokens", "num_decode_tokens", "num_running", "num_preempted"): [
                (512, 2, 3, 1),
            ],
            ("request", "request_id", "choice", "finished_ns", "finish_reason"): [
                ("a-1", 0, AT + 500_000_000, "length"),
            ],
            ("request", "stated_e2e_ns", "stated_queue_ns", "stated_prefill_ns"): [
                (1_250_000_000, 500_000_000, 62_500_000),
            ],
            ("request", "stated_decode_ns", "stated_tpot_ns", "cached_tokens", "output_tokens"): [
                (1_000_000_000, 17_000_000, 128, 59),
            ],
            ("counter_sample", "at_ns", "name", "kind", "value", "unit"): [
                (AT - 1_000_000, "requests.running", "gauge", 3.0, "request"),
                (AT - 1_000_000, "requests.waiting", "gauge", 1.0, "request"),
                (AT - 1_000_000, "kv.usage", "gauge", 0.25, "ratio"),
                (AT, "requests.running", "gauge", 3.0, "request"),
                (AT, "requests.waiting", "gauge", 1.0, "request"),
                (AT, "kv.usage", "gauge", 0.25, "ratio"),
                (AT, "tokens.generated", "counter", 3.0, "token"),
                (AT, "preemptions", "counter", 1.0, "1"),
                (AT, "latency.ttft", "gauge", 0.25, "s"),
                (AT + 500_000_000, "requests.running", "gauge", 3.0, "request"),
                (AT + 500_000_000, "requests.waiting", "gauge", 1.0, "request"),
                (AT + 500_000_000, "kv.usage", "gauge", 0.25, "ratio"),
                (AT + 500_000_000, "tokens.generated", "counter", 6.0, "token"),
                (AT + 500_000_000, "preemptions", "counter", 2.0, "1"),
            ],
            ("source_note", "code"): ["context-is-not-prefill", "prefill-is-wall-time"],
            ("source", "clock"): ["epoch"],
        },
        {"unknown event": 1, "record without a time": 1, "request without an id": 1},
        planted,
        many,
    )
]  # fmt: skip
