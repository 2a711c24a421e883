"""Request metrics of SGLang."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest.samples import Sample

RECORD = {
    "request_parameters": '{"text": "the prompt", "rid": "r1"}',
    "id": "r1", "finish_reason": {"type": "length", "length": 59}, "prompt_tokens": 169,
    "completion_tokens": 59, "cached_tokens": 128, "total_retractions": 2, "weight_version": "default",
    "e2e_latency": 1.25, "queue_time": 0.5, "decode_throughput": 50.0,
    "request_received_ts": 1_700_000_000.25, "api_server_dispatch_finish_ts": 1_700_000_000.375,
    "forward_entry_time": 1_700_000_000.5, "prefill_finished_time": 1_700_000_000.75,
    "request_finished_ts": 1_700_000_001.5,
}  # fmt: skip
BARE = {"request_parameters": "{}", "id": "r2", "finish_reason": None, "forward_entry_time": 0.0}
AT = 1_700_000_000_000_000_000


def write(folder: Path, records: list[Any]) -> Path:
    path = folder / "sglang-request-metrics-20260101_00.log"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def planted(folder: Path, secret: str) -> Path:
    texts = dict.fromkeys(("request_parameters", "id", "weight_version", secret), secret)
    return write(
        folder, [{**RECORD, **texts, "finish_reason": {"type": secret, "matched": secret}}]
    )


def many(folder: Path, num_events: int) -> Path:
    return write(folder, [{**RECORD, "id": f"r{n}"} for n in range(num_events)])


SAMPLES = [
    Sample(
        "sglang_requests",
        "sglang_requests",
        lambda folder: write(folder, [RECORD, BARE, {"request_parameters": "{}"}]),
        {
            ("request", "request_id", "observer", "arrival_ns", "queued_ns", "scheduled_ns"): [
                ("r1", "engine", AT + 250_000_000, AT + 375_000_000, AT + 500_000_000),
                ("r2", "engine", None, None, None),
            ],
            ("request", "first_token_ns", "finished_ns", "finish_reason"): [
                (AT + 750_000_000, AT + 1_500_000_000, "length"),
                (None, None, None),
            ],
            ("request", "prompt_tokens", "cached_tokens", "output_tokens", "num_preemptions"): [
                (169, 128, 59, 2),
                (None, None, None, None),
            ],
            ("request", "stated_e2e_ns", "stated_queue_ns", "stated_tpot_ns"): [
                (1_250_000_000, 500_000_000, 20_000_000),
                (None, None, None),
            ],
            ("source_note", "code"): ["first-token-at-scheduler"],
        },
        {"request without an id": 1, "prompt and parameters": 2},
        planted,
        many,
    )
]
