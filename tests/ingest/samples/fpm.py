"""Forward-pass metrics: MessagePack with and without the parts of the message, arrays, JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest.packing import pack
from ingest.samples import Sample
from tokenpath.ingest.fpm.record import QUEUED, SCHEDULED


def metrics(counter: int, wall_s: float, scheduled: list[Any], **more: Any) -> dict[str, Any]:
    """A message; `scheduled` in the order of the struct."""
    return {
        "version": 1,
        "worker_id": "w",
        "dp_rank": 1,
        "counter_id": counter,
        "wall_time": wall_s,
        "scheduled_requests": dict(zip(SCHEDULED, scheduled, strict=True)),
        "queued_requests": dict(zip(QUEUED, [2, 70, 0.5, 1, 9, 0.0], strict=True)),
        **more,
    }


def positional(message: dict[str, Any]) -> list[Any]:
    return [
        list(value.values()) if isinstance(value, dict) else value for value in message.values()
    ]


PREFILL = [1, 512, 0.0, 64, 0, 0, 0.0]
DECODE = [0, 0, 0.0, 0, 3, 3000, 0.5]
MIXED = [1, 100, 0.0, 0, 3, 3003, 0.5]
IDLE = [0, 0, 0.0, 0, 0, 0, 0.0]
MESSAGES = [
    metrics(1, 0.020, PREFILL),
    metrics(2, 0.010, DECODE),
    metrics(5, 0.0125, MIXED),
    metrics(6, 0.0, IDLE),
]
STEPS = {
    ("step", "number", "phase", "engine_id", "num_queued"): [
        (1, "prefill", 1, 3),
        (2, "decode", 1, 3),
        (5, "mixed", 1, 3),
    ],
    ("step", "num_prefill_requests", "num_prefill_tokens", "sum_prefill_kv_tokens"): [
        (1, 512, 64),
        (0, 0, 0),
        (1, 100, 0),
    ],
    ("step", "num_decode_requests", "num_decode_tokens", "sum_decode_kv_tokens"): [
        (0, None, 0),
        (3, None, 3000),
        (3, None, 3003),
    ],
}
LAID = [(0, 20_000_000), (20_000_000, 30_000_000), (30_000_000, 42_500_000)]
NOTES = ["step-times-unknown", "messages-dropped"]
SKIPPED = {"dropped by the publisher": 2, "idle heartbeat": 1}


def write(path: Path, values: list[Any]) -> Path:
    path.write_bytes(b"".join(map(pack, values)))
    return path


def in_parts(message: dict[str, Any], received_ns: int) -> list[Any]:
    return [received_ns, b"", message["counter_id"].to_bytes(8, "big"), pack(message)]


def as_json(folder: Path) -> Path:
    path = folder / "t.fpm.jsonl"
    path.write_text("".join(json.dumps(message) + "\n" for message in MESSAGES))
    return path


def planted(folder: Path, secret: str) -> Path:
    message = metrics(1, 0.1, PREFILL, worker_id=secret)
    message[secret] = secret
    return write(folder / "t.fpm.msgpack", [message])


def many(folder: Path, num_events: int) -> Path:
    values = [metrics(number, 0.01, DECODE) for number in range(num_events)]
    return write(folder / "t.fpm.msgpack", values)


SAMPLES = [
    Sample(
        "fpm_maps",
        "fpm",
        lambda folder: write(folder / "t.fpm.msgpack", MESSAGES),
        {
            **STEPS,
            ("step", "start_ns", "end_ns"): LAID,
            ("source", "clock"): ["monotonic"],
            ("source_note", "code"): NOTES,
        },
        SKIPPED,
        planted,
        many,
    ),
    Sample(
        "fpm_arrays",
        "fpm",
        lambda folder: write(folder / "t.fpm.msgpack", [positional(m) for m in MESSAGES]),
        {**STEPS, ("step", "start_ns", "end_ns"): LAID},
        SKIPPED,
        planted,
    ),
    Sample(
        "fpm_parts",
        "fpm",
        lambda folder: write(
            folder / "t.fpm.msgpack",
            [in_parts(m, 10**18 + 10**9 * number) for number, m in enumerate(MESSAGES)],
        ),
        {
            **STEPS,
            ("step", "start_ns", "end_ns"): [
                (10**18 - 20_000_000, 10**18),
                (10**18 + 990_000_000, 10**18 + 10**9),
                (10**18 + 1_987_500_000, 10**18 + 2 * 10**9),
            ],
            ("source", "clock"): ["epoch"],
            ("source_note", "code"): ["messages-dropped"],
        },
        SKIPPED,
        planted,
    ),
    Sample(
        "fpm_json",
        "fpm",
        as_json,
        {**STEPS, ("step", "start_ns", "end_ns"): LAID},
        SKIPPED,
        planted,
    ),
]
