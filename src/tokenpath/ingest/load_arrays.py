"""Requests and tokens from the parallel lists of `vllm bench serve` and SGLang's bench_serving.

A request failed where its output length is 0: both tools write 0 there, and a time to first token of 0.
The clock is the client's `time.perf_counter()` in seconds, a double: its origin is unknown.
"""

from __future__ import annotations

from typing import Any

from tokenpath.ingest import fields
from tokenpath.ingest.load_tables import RequestRows
from tokenpath.ingest.load_times import token_times
from tokenpath.ingest.losses import Losses

LISTS = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "latencies", "errors")
"""Lists with an entry a request."""
DROPPED_LISTS = {
    "generated_texts": "generated text",
    "queue_times": "client-side queue time of a request",
    "cached_tokens_details": "cached tokens by tier",
}
"""Lists that no table holds: what an entry is called among the losses."""


def add_requests(
    rows: RequestRows, losses: Losses, lists: dict[str, list[Any]], run: int | None
) -> None:
    """A request for each entry, under its position as id: `#7`, in the third run of a file `#2.7`."""
    num_requests = max(
        (len(lists[name]) for name in ("input_lens", "output_lens", "ttfts") if name in lists),
        default=0,
    )
    for number in range(num_requests):
        name = f"#{number}" if run is None else f"#{run}.{number}"
        _add_request(
            rows, losses, {key: _at(values, number) for key, values in lists.items()}, name
        )


def _add_request(rows: RequestRows, losses: Losses, entry: dict[str, Any], request_id: str) -> None:
    output = fields.count(entry.get("output_lens"))
    failed = output == 0 or bool(entry.get("errors"))
    numbers: dict[str, int | None] = {
        "prompt_tokens": fields.count(entry.get("input_lens")),
        "cached_tokens": fields.count(entry.get("cached_tokens")),
        "output_tokens": None if failed else output,
    }
    start = fields.nanoseconds(entry.get("start_times")) or None
    ttft = None if failed else (fields.duration_ns(entry.get("ttfts")) or None)
    e2e = fields.duration_ns(entry.get("latencies")) or None
    gaps = entry.get("itls") if isinstance(entry.get("itls"), list) else []
    times = None if ttft is None else token_times((start or 0) + ttft, gaps or [])
    if gaps and times is None and not failed:
        losses.add("gaps that are no times", len(gaps))
    if start is None:
        numbers["stated_ttft_ns"], numbers["stated_e2e_ns"] = ttft, e2e
        if times is not None:
            numbers["stated_decode_ns"] = int(times[-1] - times[0])
            losses.add("token without a start of its request", len(times))
    else:
        numbers["arrival_ns"] = start
        numbers["finished_ns"] = None if e2e is None else start + e2e
        if times is not None:
            numbers["first_token_ns"], numbers["last_token_ns"] = int(times[0]), int(times[-1])
            if len(times) == output:
                rows.add_tokens(request_id, times)
            else:
                losses.add("stream chunk that is no single token", len(times))
    rows.add(request_id, numbers, finish_reason="error" if failed else None)


def _at(values: list[Any], number: int) -> Any:
    return values[number] if number < len(values) else None
