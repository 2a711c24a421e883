"""llama.cpp: a response with timings, responses of the server's own endpoint, slots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest.samples import Sample

TIMINGS = {
    "cache_n": 6, "prompt_n": 28, "prompt_ms": 3166.067, "prompt_per_token_ms": 93.1,
    "predicted_n": 48, "predicted_ms": 10995.481, "predicted_per_second": 4.27,
}  # fmt: skip
CHAT = {
    "choices": [{"finish_reason": "length", "index": 0, "message": {"content": "an answer"}}],
    "model": "m.gguf", "usage": {"completion_tokens": 48, "prompt_tokens": 34},
    "id": "chatcmpl-abc", "timings": TIMINGS,
}  # fmt: skip
OWN = {"content": "an answer", "stop_type": "eos", "prompt": "a prompt", "timings": TIMINGS}
SLOTS = [
    {"id": 0, "id_task": 135, "n_ctx": 65536, "is_processing": True, "prompt": "a prompt",
     "n_prompt_tokens": 34, "next_token": [{"n_decoded": 136}]},
    {"id": 1, "id_task": -1, "n_ctx": 65536, "is_processing": False},
]  # fmt: skip


def write(folder: Path, value: Any) -> Path:
    path = folder / "t.json"
    path.write_text(json.dumps(value, indent=1))
    return path


def lines(folder: Path, values: list[Any]) -> Path:
    path = folder / "t.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def planted(folder: Path, secret: str) -> Path:
    texts = dict.fromkeys(("id", "model", "content", "stop_type", "prompt", secret), secret)
    choices = [{"message": {"content": secret}, "finish_reason": secret}]
    slot = {**SLOTS[0], "prompt": secret}
    return lines(folder, [{**CHAT, **texts}, {**CHAT, "choices": choices}, {**OWN, **texts}, slot])


def many(folder: Path, num_events: int) -> Path:
    return lines(folder, [{**CHAT, "id": f"chatcmpl-{n}"} for n in range(num_events)])


SAMPLES = [
    Sample(
        "llama_cpp_chat",
        "llama_cpp",
        lambda folder: write(folder, CHAT),
        {
            ("request", "request_id", "observer", "model", "finish_reason"): [
                ("abc", "engine", "m.gguf", "length"),
            ],
            ("request", "prompt_tokens", "cached_tokens", "output_tokens"): [(34, 6, 48)],
            ("request", "stated_prefill_ns", "stated_decode_ns", "stated_tpot_ns"): [
                (3_166_067_000, 10_995_481_000, None),
            ],
        },
        {"prompt or answer": 1},
        planted,
        many,
    ),
    Sample(
        "llama_cpp_own",
        "llama_cpp",
        lambda folder: lines(folder, [OWN, {"error": 3}]),
        {
            ("request", "request_id", "prompt_tokens", "finish_reason"): [
                ("response-1", 34, "stop")
            ],
        },
        {"prompt or answer": 1, "record without timings": 1},
        planted,
    ),
    Sample(
        "llama_cpp_slots",
        "llama_cpp",
        lambda folder: write(folder, SLOTS),
        {
            ("request", "request_id", "prompt_tokens", "output_tokens"): [("task-135", 34, 136)],
        },
        {"slot without a task": 1},
        planted,
    ),
]
