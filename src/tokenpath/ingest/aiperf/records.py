"""AIPerf's record of each request: one JSON object a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenpath.core.request_ids import plain_request_id
from tokenpath.core.units import NS_PER_MS, NS_PER_S, NS_PER_US
from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.json_lines import records
from tokenpath.ingest.load_notes import note_chunks, note_common, note_request_mean, note_warm_up
from tokenpath.ingest.load_tables import RequestRows
from tokenpath.ingest.load_times import token_times
from tokenpath.ingest.reader import Options

UNIT_NS = {"ns": 1, "us": NS_PER_US, "ms": NS_PER_MS, "s": NS_PER_S, "sec": NS_PER_S}
"""Nanoseconds in the units of time that AIPerf writes."""

_CACHED = "usage_prompt_cache_read_tokens"


def read_records(builder: CaptureBuilder, path: Path, options: Options) -> None:
    """Add a request for each record, and its tokens where every chunk is one."""
    builder.origin.profiler = "AIPerf"
    rows = RequestRows(builder)
    seen = {"warmup": 0, "failed": 0, "chunks": 0, "means": 0, "without id": 0}
    for offset, record in records(path, options, builder):
        metadata = fields.mapping(record.get("metadata"))
        if fields.nanoseconds(metadata.get("request_start_ns"), 1) is None:
            builder.losses.add("record without a start", offset=offset)
            continue
        _add(builder, rows, record, metadata, seen)
    rows.finish()
    note_common(
        builder,
        num_failed=seen["failed"],
        concurrency=None,
        num_requests=rows.num_requests,
        has_ids=not seen["without id"],
    )
    if seen["warmup"]:
        note_warm_up(builder, f"{seen['warmup']:,} requests of the warm-up phase are among these")
    if seen["chunks"]:
        note_chunks(builder, "AIPerf (inter_chunk_latency)")
    if seen["means"]:
        note_request_mean(builder, "AIPerf", "(latency - TTFT) / (output tokens - 1)")


def _add(
    builder: CaptureBuilder,
    rows: RequestRows,
    record: dict[str, Any],
    metadata: dict[str, Any],
    seen: dict[str, int],
) -> None:
    metrics = fields.mapping(record.get("metrics"))
    start = fields.nanoseconds(metadata.get("request_start_ns"), 1)
    ttft, latency = _time(metrics, "time_to_first_token"), _time(metrics, "request_latency")
    mean = _time(metrics, "inter_token_latency")
    failed, cancelled = bool(record.get("error")), metadata.get("was_cancelled") is True
    numbers = {
        "arrival_ns": start,
        "first_token_ns": _after(start, ttft),
        "last_token_ns": None if ttft is None else _after(start, latency),
        "finished_ns": fields.nanoseconds(metadata.get("request_end_ns"), 1),
        "prompt_tokens": _count(metrics, "input_sequence_length"),
        "cached_tokens": _count(metrics, _CACHED),
        "output_tokens": _count(metrics, "output_sequence_length"),
        "stated_tpot_ns": mean,
    }
    given = fields.text(metadata.get("x_request_id"))
    name = plain_request_id(given)[0] if given else f"#{rows.num_requests}"
    gaps = fields.mapping(metrics.get("inter_chunk_latency"))
    if isinstance(gaps.get("value"), list) and numbers["first_token_ns"] is not None:
        seen["chunks"] += 1
        _add_tokens(builder, rows, name, numbers, gaps)
    for text in ("payload", "responses"):
        if text in record:
            builder.losses.add("prompt or generated text", lost=text == "responses", dropped=False)
    seen["failed"] += failed or cancelled
    seen["warmup"] += metadata.get("benchmark_phase") == "warmup"
    seen["means"] += mean is not None
    seen["without id"] += given is None
    reason = "abort" if cancelled else "error" if failed else None
    rows.add(name, numbers, finish_reason=reason)


def _add_tokens(
    builder: CaptureBuilder,
    rows: RequestRows,
    name: str,
    numbers: dict[str, int | None],
    gaps: dict[str, Any],
) -> None:
    """Add the tokens of a request if it has as many chunks as tokens."""
    values, unit = gaps["value"], UNIT_NS.get(str(gaps.get("unit")))
    real = [fields.real(value) for value in values]
    times = None
    if unit is not None and None not in real:
        seconds = [value * unit / NS_PER_S for value in real if value is not None]
        times = token_times(numbers["first_token_ns"] or 0, seconds)
    if times is None:
        builder.losses.add("gaps that are no times", len(values))
    elif len(times) != numbers["output_tokens"]:
        builder.losses.add("stream chunk that is no single token", len(times))
    else:
        rows.add_tokens(name, times)


def _time(metrics: dict[str, Any], name: str) -> int | None:
    metric = fields.mapping(metrics.get(name))
    unit = UNIT_NS.get(str(metric.get("unit")))
    return None if unit is None else fields.duration_ns(metric.get("value"), unit)


def _count(metrics: dict[str, Any], name: str) -> int | None:
    return fields.count(fields.mapping(metrics.get(name)).get("value"))


def _after(start: int | None, length: int | None) -> int | None:
    return None if start is None or length is None else start + length
