"""Captures of an invented engine whose step costs are known."""

from __future__ import annotations

import numpy as np

from tokenpath.capture.capture import Capture, build_table
from tokenpath.simulate.step_model import NUM_FEATURES, StepCurve

TRUE = StepCurve(
    knots=np.array([1.0, 2.0]),
    mixed_ns=np.array([6e6, 6e6]),
    decode_ns=np.array([5e6, 5e6]),
    device_coefficients=np.array([0.0, 2e4, 0.0, 3.0, 1e5, 0.0, 20.0]),
    host_ns=0.0,
    host_coefficients=np.zeros(NUM_FEATURES),
    is_overlapped=False,
)
"""5 ms a step, 1 ms more with prefill, 20 us a prompt token, 3 ns a pair, 0.1 ms a decode, 20 ns a KV token."""


def features(random: np.random.Generator, num_steps: int, max_prompt: int = 900) -> np.ndarray:
    """Steps of up to 12 decodes, a quarter of them with a prefill of its own or two."""
    prefills = random.choice([0, 0, 0, 1, 1, 2], num_steps)
    tokens = np.where(prefills > 0, random.integers(8, max_prompt, num_steps), 0)
    before = np.where(prefills > 0, random.integers(0, 500, num_steps), 0)
    share = np.maximum(prefills, 1)
    pairs = tokens / share * (before + (tokens + share) / 2)
    decodes = random.integers(1, 13, num_steps)
    context = decodes * random.integers(50, 800, num_steps)
    return np.stack((prefills, tokens, before, pairs, decodes, decodes, context), axis=1).astype(
        np.float64
    )


def capture(
    table: np.ndarray,
    cost_ns: np.ndarray,
    *,
    gap_ns: int = 100_000,
    pause_every: int | None = None,
    unknown: tuple[str, ...] = (),
    observer: str = "scheduler",
    requests: bool = False,
) -> Capture:
    """Steps one after the other; `cost_ns` includes the gap before each. A pause of 1 s every so many."""
    cost = cost_ns.round().astype(np.int64)
    pauses = np.zeros(len(cost), np.int64)
    if pause_every:
        pauses[pause_every::pause_every] = 1_000_000_000
    end = 10**18 + np.cumsum(cost + pauses)
    start = end - cost + gap_ns
    names = (
        *("num_prefill_requests", "num_prefill_tokens", "sum_prefill_kv_tokens"),
        *("", "num_decode_requests", "num_decode_tokens", "sum_decode_kv_tokens"),
    )
    columns: dict[str, object] = {
        name: [None] * len(cost) if name in unknown else table[:, place].astype(np.int64)
        for place, name in enumerate(names)
        if name
    }
    step = build_table(
        "step",
        {
            "source_id": np.zeros(len(cost), np.int32),
            "name": ["step"] * len(cost),
            "observer": [observer] * len(cost),
            "start_ns": start,
            "end_ns": end,
            **columns,
        },
    )
    tables = {"step": step, "source": source()}
    if requests:
        tables["request"] = clients(start, end)
    return Capture(tables)


def source(name: str = "run.steps.jsonl.gz"):
    """One file."""
    return build_table(
        "source",
        {
            "path": [name],
            "format": ["vllm_steps"],
            "reader_version": np.ones(1, np.int32),
            "sha256": ["ab" * 32],
            "num_bytes": np.array([100]),
            "clock_offset_ns": np.array([0]),
            "clock": ["epoch"],
            "state": ["measured"],
            "num_events": np.array([1]),
            "num_skipped": np.array([0]),
        },
    )


def clients(start: np.ndarray, end: np.ndarray):
    """A request a step as client and engine saw it: 2 ms to the queue, 4 ms back."""
    columns = {"observer": [], "request_id": [], "arrival_ns": [], "queued_ns": []}
    columns |= {"first_token_ns": [], "last_token_ns": []}
    for number, (begin, stop) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        for observer, sent, queued, token in (
            ("client", begin - 2_000_000, None, stop + 4_000_000),
            ("engine", begin, begin, stop),
        ):
            columns["observer"].append(observer)
            columns["request_id"].append(f"r{number}")
            columns["arrival_ns"].append(sent)
            columns["queued_ns"].append(queued)
            columns["first_token_ns"].append(token)
            columns["last_token_ns"].append(token)
    size = len(columns["observer"])
    return build_table("request", {"source_id": np.zeros(size, np.int32), **columns})
