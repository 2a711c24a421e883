"""A result file of LLMPerf as a capture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tokenpath.capture.capture import Capture
from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.load_json import ANY, BEGIN, Members, read_text
from tokenpath.ingest.load_metrics import Figures, statistic, write_runs
from tokenpath.ingest.load_notes import (
    note_closed_loop,
    note_common,
    note_first_token,
    note_tokeniser,
    note_warm_up,
)
from tokenpath.ingest.load_settings import keep
from tokenpath.ingest.load_tables import RequestRows
from tokenpath.ingest.reader import Options, Reader

_NAMES = {
    "inter_token_latency_s": "latency.e2e_per_token",
    "ttft_s": "latency.ttft",
    "end_to_end_latency_s": "latency.e2e",
    "request_output_throughput_token_per_s": "throughput.tokens_output_per_request",
    "number_input_tokens": "size.isl",
    "number_output_tokens": "size.osl",
}
_SINGLE: dict[str, tuple[str, str, float]] = {
    "num_requests_started": ("requests.total", "count", 1),
    "num_completed_requests": ("requests.completed", "count", 1),
    "number_errors": ("requests.failed", "count", 1),
    "error_rate": ("requests.error_ratio", "mean", 1),
    "mean_output_throughput_token_per_s": ("throughput.tokens_output", "rate", 1),
    "num_completed_requests_per_min": ("throughput.requests", "rate", 60),
}
_STATISTIC = re.compile(rf"({'|'.join(_NAMES)})_(?:quantiles_)?(p\d+|mean|min|max|stddev)")


def read_results(reader: Reader, path: Path, options: Options) -> Capture:
    """The capture of a file."""
    builder = CaptureBuilder(reader, path, options)
    builder.origin.profiler, builder.origin.clock = "LLMPerf", "monotonic"
    losses = builder.losses
    rows, figures = RequestRows(builder), Figures()
    failed = 0
    for where, value in Members(read_text(path, options, losses), [()], losses):
        if value is BEGIN or value is None:
            continue
        if where == (ANY,) and isinstance(value, dict):
            failed += _add_request(builder, rows, value)
        elif where and where != (ANY,):
            _add_figure(builder, figures, where[0], value)
        else:
            # A slip of LLMPerf's adds the names of a late request's metrics in place of the request.
            losses.add("response that is none")
    rows.finish()
    concurrency = figures.settings.get("num_concurrent_requests")
    stated = figures.value("requests.failed", "count")
    write_runs(builder, [figures])
    note_common(
        builder,
        num_failed=failed or int(stated or 0),
        concurrency=concurrency,
        num_requests=rows.num_requests,
        has_ids=False,
    )
    if concurrency is None:
        note_closed_loop(builder, "a fixed number of")
    note_first_token(builder, "inter_token_latency_s", "the whole request / stream chunks")
    note_tokeniser(builder, "LLMPerf counts with one Llama tokeniser, whatever the model")
    note_warm_up(builder, "LLMPerf sends no warm-up")
    builder.num_events = len(figures) + rows.num_requests + losses.num_dropped()
    return builder.finish()


def _add_request(builder: CaptureBuilder, rows: RequestRows, entry: dict[str, Any]) -> bool:
    """Add a request; whether it failed. LLMPerf writes lengths of 0 for one that did."""
    failed = entry.get("error_code") is not None
    output = fields.count(entry.get("number_output_tokens"))
    rows.add(
        f"#{rows.num_requests}",
        {
            "prompt_tokens": fields.count(entry.get("number_input_tokens")),
            "output_tokens": None if failed else output,
            "stated_ttft_ns": fields.duration_ns(entry.get("ttft_s")) or None,
            "stated_e2e_ns": fields.duration_ns(entry.get("end_to_end_latency_s")) or None,
        },
        finish_reason="error" if failed else None,
    )
    if entry.get("error_msg"):
        builder.losses.add("message of a failure", lost=False, dropped=False)
    return failed


def _add_figure(builder: CaptureBuilder, figures: Figures, key: str, value: Any) -> None:
    name = key.removeprefix("results_")
    if name == key:
        keep(figures, builder.losses, key, value)
        return
    match = _STATISTIC.fullmatch(name)
    if match is not None:
        what = statistic(match[2]) or match[2]
        added = figures.add(_NAMES[match[1]], key, what, value)
    elif name in _SINGLE:
        canonical, what, per = _SINGLE[name]
        added = figures.add(canonical, key, what, value, per=per)
    else:
        added = False
    if not added:
        builder.losses.add("figure that is not kept")
