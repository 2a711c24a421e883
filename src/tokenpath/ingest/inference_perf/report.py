"""A report of inference-perf as a capture: aggregates, or requests with their tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tokenpath.capture.capture import Capture
from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.load_json import ANY, BEGIN, Members, read_text
from tokenpath.ingest.load_metrics import Figures, write_runs
from tokenpath.ingest.load_notes import note_common, note_first_token, note_tokeniser
from tokenpath.ingest.load_settings import keep
from tokenpath.ingest.load_tables import RequestRows
from tokenpath.ingest.reader import Options, Reader

_LATENCIES = {
    "request_latency": "latency.e2e",
    "normalized_time_per_output_token": "latency.e2e_per_token",
    "time_per_output_token": "latency.tpot",
    "time_to_first_token": "latency.ttft",
    "inter_token_latency": "latency.itl",
}
_RATES = {
    "input_tokens_per_sec": "throughput.tokens_prompt",
    "output_tokens_per_sec": "throughput.tokens_output",
    "total_tokens_per_sec": "throughput.tokens_total",
    "requests_per_sec": "throughput.requests",
}
_SIZES = {
    "prompt_len": "size.isl",
    "prompt_tokens": "size.isl",
    "output_len": "size.osl",
    "output_tokens": "size.osl",
}
_GOODPUT = {
    "request_goodput": ("throughput.goodput", "rate"),
    "good_requests": ("requests.good", "count"),
}


def read_report(reader: Reader, path: Path, options: Options) -> Capture:
    """The capture of a file."""
    builder = CaptureBuilder(reader, path, options)
    builder.origin.profiler, builder.origin.clock = "inference-perf", "monotonic"
    losses = builder.losses
    rows, figures = RequestRows(builder), Figures()
    report: dict[str, Any] = {}
    failed = 0
    for where, value in Members(read_text(path, options, losses), [()], losses):
        if value is BEGIN or value is None:
            continue
        if where == (ANY,) and isinstance(value, dict):
            failed += _add_request(builder, rows, value)
        elif where and where != (ANY,):
            report[where[0]] = value
        else:
            losses.add("request that is none")
    rows.finish()
    _add_report(builder, figures, report)
    write_runs(builder, [figures])
    load = fields.mapping(report.get("load_summary"))
    failed = failed or fields.count(fields.mapping(report.get("failures")).get("count")) or 0
    note_common(
        builder,
        num_failed=failed,
        concurrency=load.get("concurrency"),
        num_requests=rows.num_requests,
        has_ids=False,
    )
    _note(builder, figures, report, rows)
    builder.num_events = len(figures) + rows.num_requests + losses.num_dropped()
    return builder.finish()


def _add_request(builder: CaptureBuilder, rows: RequestRows, entry: dict[str, Any]) -> bool:
    """Add a request and its tokens; whether it failed."""
    info = fields.mapping(entry.get("info"))
    asked = fields.mapping(fields.mapping(info.get("request_metrics")).get("text"))
    answered = fields.mapping(info.get("response_metrics")) or info
    usage = fields.mapping(answered.get("server_usage"))
    details = fields.mapping(usage.get("prompt_tokens_details"))
    failed = entry.get("error") is not None
    output = fields.count(usage.get("completion_tokens", answered.get("output_tokens")))
    given = answered.get("output_token_times")
    stamps = [fields.nanoseconds(one) for one in given] if isinstance(given, list) else []
    times = sorted(one for one in stamps if one is not None)
    builder.losses.add("token without a time", len(stamps) - len(times))
    name = f"#{rows.num_requests}"
    rows.add(
        name,
        {
            "arrival_ns": fields.nanoseconds(entry.get("start_time")),
            "finished_ns": fields.nanoseconds(entry.get("end_time")),
            "first_token_ns": times[0] if times else None,
            "last_token_ns": times[-1] if times else None,
            "prompt_tokens": fields.count(asked.get("input_tokens", info.get("input_tokens"))),
            "cached_tokens": fields.count(details.get("cached_tokens")),
            "output_tokens": None if failed and not output else output,
        },
        model=fields.text(info.get("lora_adapter")),
        finish_reason="error" if failed else None,
    )
    if times and len(times) == output:
        rows.add_tokens(name, np.array(times, np.int64))
    elif times:
        builder.losses.add("token time that matches no count of tokens", len(times))
    texts = sum(isinstance(entry.get(key), str) for key in ("request", "response"))
    builder.losses.add("prompt or generated text", texts, lost=False, dropped=False)
    return failed


def _add_report(builder: CaptureBuilder, figures: Figures, report: dict[str, Any]) -> None:
    figures.add(
        "run.duration",
        "benchmark_time_seconds",
        "total",
        report.pop("benchmark_time_seconds", None),
    )
    load = fields.mapping(report.get("load_summary"))
    for key, value in load.items():
        if key == "schedule_delay":
            _statistics(builder, figures, "latency.schedule_delay", key, value)
        elif key == "count":
            figures.add("requests.total", "load_summary.count", "count", value)
        else:
            keep(figures, builder.losses, f"load.{key}", value)
    for key, value in fields.mapping(report.get("successes")).items():
        _add_success(builder, figures, key, value)
    failures = fields.mapping(report.get("failures"))
    figures.add("requests.failed", "failures.count", "count", failures.get("count"))
    labels = {"status": "failed"}
    for key, value in failures.items():
        if key == "request_latency":
            _statistics(builder, figures, "latency.e2e", f"failures.{key}", value, labels)
        elif key == "by_label":
            messages = len(fields.mapping(value))
            builder.losses.add("messages of a kind of failure", messages, lost=False)
    unread = set(report) - {"load_summary", "successes", "failures"}
    builder.losses.add("part of the report that is not read", len(unread))


def _add_success(builder: CaptureBuilder, figures: Figures, key: str, value: Any) -> None:
    name = f"successes.{key}"
    if key == "count":
        figures.add("requests.completed", name, "count", value)
    elif key == "latency":
        for latency, values in fields.mapping(value).items():
            canonical = _LATENCIES.get(latency, latency)
            _statistics(builder, figures, canonical, f"{name}.{latency}", values)
    elif key == "throughput":
        for rate, number in fields.mapping(value).items():
            if not figures.add(_RATES.get(rate, rate), f"{name}.{rate}", "rate", number):
                builder.losses.add("figure that is not kept")
    elif key in _SIZES:
        values = dict(fields.mapping(value))
        tokens = "tokens.prompt" if key.startswith("prompt") else "tokens.generated"
        figures.add(tokens, f"{name}.total", "total", values.pop("total", None))
        figures.add("prefix.hit_tokens", f"{name}.cached", "total", values.pop("cached", None))
        values.pop("uncached", None)
        labels = {"counted_by": "client"} if key == "output_len" else {}
        _statistics(builder, figures, _SIZES[key], name, values, labels)
    elif key == "goodput_metrics":
        for goodput, number in fields.mapping(value).items():
            canonical, what = _GOODPUT.get(goodput, (goodput, "mean"))
            if not figures.add(canonical, f"{name}.{goodput}", what, number):
                builder.losses.add("figure that is not kept")
    elif key == "token_count_mismatches":
        figures.add(key, name, "count", value)
    else:
        _statistics(builder, figures, key, name, value)


def _statistics(
    builder: CaptureBuilder,
    figures: Figures,
    name: str,
    source: str,
    values: Any,
    labels: dict[str, str] | None = None,
) -> None:
    _, left = figures.add_statistics(name, source, values, labels=labels)
    builder.losses.add("statistic that is not kept", left)


def _note(
    builder: CaptureBuilder, figures: Figures, report: dict[str, Any], rows: RequestRows
) -> None:
    if "latency.itl" in figures.names() or rows.num_tokens:
        builder.note(
            "itl-zero-within-chunk",
            "every token of a stream chunk has the chunk's time: gaps within a chunk are 0 and count "
            "in percentiles of inter-token latency",
        )
    if "latency.e2e_per_token" in figures.names():
        note_first_token(
            builder, "normalized_time_per_output_token", "the whole request / output tokens"
        )
    successes = fields.mapping(report.get("successes"))
    mismatches = fields.count(successes.get("token_count_mismatches"))
    if mismatches:
        note_tokeniser(
            builder,
            f"{mismatches:,} requests have another number of tokens by the client's tokeniser than the "
            "server states",
        )
