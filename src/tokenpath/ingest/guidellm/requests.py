"""A request of a GuideLLM report, old form (until 0.3) and new (from 0.4)."""

from __future__ import annotations

from typing import Any

from tokenpath.core.request_ids import plain_request_id
from tokenpath.ingest import fields
from tokenpath.ingest.load_tables import RequestRows
from tokenpath.ingest.losses import Losses

_REASONS = {"errored": "error", "incomplete": "abort"}
_TEXTS = ("prompt", "output", "reasoning_output", "request_args")


def add_request(
    rows: RequestRows, losses: Losses, entry: dict[str, Any], status: str, model: str | None
) -> None:
    """Add a request that ended as `status`; its texts are counted and dropped."""
    timings = fields.mapping(fields.mapping(entry.get("info")).get("timings"))
    is_new = bool(timings)
    numbers = {
        "arrival_ns": _time(
            timings.get("request_start", timings.get("resolve_start")),
            entry.get("start_time"),
            entry.get("request_start_time"),
        ),
        "first_token_ns": _time(
            timings.get("first_token_iteration"),
            entry.get("first_token_time"),
            entry.get("first_token_iteration"),
        ),
        "last_token_ns": _time(
            timings.get("last_token_iteration"),
            entry.get("last_token_time"),
            entry.get("last_token_iteration"),
        ),
        "finished_ns": _time(
            timings.get("request_end", timings.get("resolve_end")),
            entry.get("end_time"),
            entry.get("request_end_time"),
        ),
        "prompt_tokens": _tokens(entry, "prompt_tokens", "input_metrics"),
        "cached_tokens": fields.count(
            fields.mapping(entry.get("input_metrics")).get("cached_tokens")
        ),
        "output_tokens": _tokens(entry, "output_tokens", "output_metrics"),
    }
    if numbers["first_token_ns"] is None:
        numbers["last_token_ns"] = None
    # The id that the engine answered with joins with its own records; GuideLLM's own does not.
    name = fields.text(entry.get("response_id")) or fields.text(entry.get("request_id"))
    if name is None:
        losses.add("request without an id", dropped=False)
        name = f"#{rows.num_requests}"
    losses.add(
        "prompt or generated text",
        sum(isinstance(entry.get(key), str) for key in _TEXTS),
        lost=False,
        dropped=False,
    )
    iterations = fields.count(timings.get("token_iterations")) if is_new else None
    if iterations is not None and iterations > 2:
        losses.add("time of a token between first and last", iterations - 2, dropped=False)
    rows.add(plain_request_id(name)[0], numbers, finish_reason=_REASONS.get(status), model=model)


def _time(*candidates: object) -> int | None:
    """The first that is a time: old reports write -1 where there is none."""
    for candidate in candidates:
        time = fields.nanoseconds(candidate)
        if time is not None and time > 0:
            return time
    return None


def _tokens(entry: dict[str, Any], name: str, metrics: str) -> int | None:
    stated = fields.count(entry.get(name))
    if stated is not None:
        return stated
    usage = fields.mapping(entry.get(metrics))
    total = fields.count(usage.get("total_tokens"))
    return fields.count(usage.get("text_tokens")) if total is None else total
