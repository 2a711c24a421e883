"""Step logs of tokenpath's recorder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest.samples import Sample

CONFIG = {"ev": "config", "vllm": "0.32.0", "max_num_seqs": 2, "num_blocks": 11, "run": "a"}


def add(request: str, at_us: int, prompt: int) -> dict[str, Any]:
    return {"ev": "add", "t_us": at_us, "req": request, "prompt": prompt, "max_tokens": 9}


def step(number: int, at_us: int, *shares: list[Any], **more: Any) -> dict[str, Any]:
    """10 us of scheduling, execution from 20 to 50 us, outputs from 60 to 70 us."""
    return {
        "ev": "step", "step": number, "t_us": at_us, "sched_us": 10, "exec_t_us": at_us + 20,
        "exec_us": 30, "out_t_us": at_us + 60, "update_us": 10, "tokens": 1, "reqs": list(shares),
        "running": 1, "waiting": 0, "free_blocks": 8, "kv_usage": 0.2, **more,
    }  # fmt: skip


RECORDS = [
    CONFIG,
    add("A", 5, 8),
    step(7, 10, ["A", "new", 4, 4, 1]),
    add("B", 95, 3),
    step(8, 100, ["A", "run", 8, 1, 1], ["B", "new", 0, 3, 1]),
    step(9, 200, ["A", "run", 9, 1, 1], preempted=["B"]),
    step(10, 300, ["A", "run", 10, 1, 1], ["B", "resumed", 0, 4, 1], done={"A": "length"}),
    step(11, 400, ["B", "run", 4, 1, 1], done={"B": "stop"}),
    step(12, 500),
]


def write(path: Path, records: list[Any], *, compact: bool = True) -> Path:
    separators = (",", ":") if compact else None
    path.write_text("".join(json.dumps(record, separators=separators) + "\n" for record in records))
    return path


def planted(folder: Path, secret: str) -> Path:
    config = {**CONFIG, "run": secret, "scheduler": secret, "bases": [secret], secret: secret}
    records = [
        config,
        add(secret, 5, 8),
        step(1, 10, [secret, "new", 0, 8, 1], done={secret: secret}),
    ]
    return write(folder / "t.steps.jsonl", [*records, step(2, 20, preempted=[secret])])


def many(folder: Path, num_events: int) -> Path:
    steps = [step(n, 100 * n, ["A", "run", n + 7, 1, 1]) for n in range(1, num_events)]
    return write(folder / "t.steps.jsonl", [*RECORDS[:3], *steps])


SAMPLES = [
    Sample(
        "vllm_steps",
        "vllm_steps",
        lambda folder: write(folder / "t.steps.jsonl", [*RECORDS, {"ev": "nap"}, 3]),
        {
            ("step", "number", "phase", "start_ns", "end_ns", "schedule_end_ns"): [
                (7, "prefill", 10_000, 80_000, 20_000),
                (8, "mixed", 100_000, 170_000, 110_000),
                (9, "decode", 200_000, 270_000, 210_000),
                (10, "mixed", 300_000, 370_000, 310_000),
                (11, "decode", 400_000, 470_000, 410_000),
                (12, None, 500_000, 570_000, 510_000),
            ],
            ("step", "num_prefill_tokens", "sum_prefill_kv_tokens", "num_decode_requests"): [
                (4, 4, 0), (3, 0, 1), (0, 0, 1), (4, 0, 1), (0, 0, 1), (0, 0, 0),
            ],
            ("step", "sum_decode_kv_tokens", "num_preempted", "kv_used_blocks"): [
                (0, 0, 2), (9, 0, 2), (10, 1, 2), (11, 0, 2), (5, 0, 2), (0, 0, 2),
            ],
            ("step", "kv_total_blocks"): [10] * 6,
            ("step", "execute_start_ns", "execute_end_ns", "output_ns"): [
                (n * 1000 + 20_000, n * 1000 + 50_000, n * 1000 + 60_000)
                for n in (10, 100, 200, 300, 400, 500)
            ],
            ("request", "request_id", "queued_ns", "scheduled_ns", "first_token_ns"): [
                ("A", 5_000, 10_000, 80_000), ("B", 95_000, 100_000, 170_000),
            ],
            ("request", "finished_ns", "cached_tokens", "output_tokens", "num_preemptions"): [
                (370_000, 4, 4, 0), (470_000, 0, 3, 1),
            ],
            ("request", "observer", "finish_reason"): [("engine", "length"), ("engine", "stop")],
            ("request_step", "request_id", "step_id", "phase", "num_computed_before"): [
                ("A", 0, "prefill", 4), ("A", 1, "decode", 8), ("B", 1, "prefill", 0),
                ("A", 2, "decode", 9), ("A", 3, "decode", 10), ("B", 3, "prefill", 0),
                ("B", 4, "decode", 4),
            ],
            ("request_step", "is_resumed"): [False] * 5 + [True, False],
            ("token", "request_id", "index", "at_ns"): [
                ("A", 0, 80_000), ("A", 1, 170_000), ("B", 0, 170_000), ("A", 2, 270_000),
                ("A", 3, 370_000), ("B", 1, 370_000), ("B", 2, 470_000),
            ],
            ("source", "clock", "profiler"): [("monotonic", "tokenpath recorder, vLLM 0.32.0")],
            ("source_note", "code"): ["clock-unknown"],
        },
        {"unknown event": 1, "damaged record": 1},
        planted,
        many,
        # An event is a row of three tables.
        bytes_an_event=700,
    )
]  # fmt: skip
