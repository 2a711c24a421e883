"""A GuideLLM report as a capture."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenpath.capture.capture import Capture
from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.guidellm.requests import add_request
from tokenpath.ingest.load_json import ANY, BEGIN, Members, read_text
from tokenpath.ingest.load_metrics import Figures, write_runs
from tokenpath.ingest.load_notes import (
    note_common,
    note_first_token,
    note_request_mean,
    note_warm_up,
)
from tokenpath.ingest.load_settings import keep
from tokenpath.ingest.load_tables import RequestRows
from tokenpath.ingest.reader import Options, Reader

_BENCHMARK = ("benchmarks", ANY)
_REQUESTS = (*_BENCHMARK, "requests")
_STATUSES = ("successful", "incomplete", "errored", "total")
_DESCEND = ((), ("benchmarks",), _BENCHMARK, _REQUESTS, *((*_REQUESTS, one) for one in _STATUSES))
_SETTINGS = ("args", "config", "worker", "request_loader", "extras", "metadata")
_TOTALS = dict(zip(_STATUSES, ("completed", "incomplete", "failed", "total"), strict=True))
_NAMES: dict[str, tuple[str, float]] = {
    "requests_per_second": ("throughput.requests", 1),
    "request_concurrency": ("requests.concurrency", 1),
    "request_latency": ("latency.e2e", 1),
    "request_dispatch_delay": ("latency.schedule_delay", 1),
    "request_scheduled_latency": ("latency.e2e_with_client_queue", 1),
    "request_goodput": ("throughput.goodput", 1),
    "prompt_token_count": ("size.isl", 1),
    "output_token_count": ("size.osl", 1),
    "total_token_count": ("size.total", 1),
    "time_to_first_token_ms": ("latency.ttft", 1000),
    "inter_token_latency_ms": ("latency.tpot", 1000),
    "prompt_tokens_per_second": ("throughput.tokens_prompt", 1),
    "output_tokens_per_second": ("throughput.tokens_output", 1),
    "tokens_per_second": ("throughput.tokens_total", 1),
}
_TPOT = "time_per_output_token_ms"
_CLOSED = {"synchronous": "1", "concurrent": "streams", "throughput": "max_concurrency"}
"""Strategies that send when an answer has come, and what bounds them."""


@dataclass
class _Benchmark:
    """One benchmark of a report."""

    figures: Figures = field(default_factory=Figures)
    parts: dict[str, Any] = field(default_factory=dict)

    @property
    def is_new(self) -> bool:
        """Whether it has the form that began with 0.4."""
        return "config" in self.parts or "scheduler_metrics" in self.parts

    @property
    def options(self) -> dict[str, Any]:
        """How it was run."""
        return fields.mapping(self.parts.get("config" if self.is_new else "args"))

    @property
    def model(self) -> str | None:
        """The model that was asked for."""
        worker, backend = self.parts.get("worker"), self.options.get("backend")
        named = fields.mapping(worker).get("backend_model") or fields.mapping(backend).get("model")
        return fields.text(named)


def read_report(reader: Reader, path: Path, options: Options) -> Capture:
    """The capture of a file."""
    builder = CaptureBuilder(reader, path, options)
    builder.origin.profiler = "GuideLLM"
    losses = builder.losses
    rows = RequestRows(builder)
    report = Figures()
    runs: list[_Benchmark] = []
    for where, value in Members(read_text(path, options, losses), _DESCEND, losses):
        if where == _BENCHMARK:
            if value is BEGIN:
                runs.append(_Benchmark())
            else:
                losses.add("benchmark that is none")
        elif value is BEGIN:
            continue
        elif len(where) == 5 and where[:3] == _REQUESTS and isinstance(value, dict):
            if where[3] == "total":
                losses.add("request listed twice", lost=False)
            else:
                add_request(rows, losses, value, where[3], runs[-1].model)
        elif len(where) == 3 and where[:2] == _BENCHMARK:
            runs[-1].parts[where[2]] = value
        elif len(where) == 1:
            _take_header(report, builder, where[0], value)
        elif value is not None:
            losses.add("request that is none")
    rows.finish()
    for run in runs:
        _add_figures(builder, run)
    write_runs(builder, [run.figures for run in runs])
    report.write(builder, None)
    for run in runs:
        _note(builder, run, rows)
    builder.num_events = sum(len(run.figures) for run in runs) + rows.num_requests
    builder.num_events += losses.num_dropped()
    return builder.finish()


def _take_header(report: Figures, builder: CaptureBuilder, key: str, value: Any) -> None:
    version = fields.mapping(value).get("guidellm_version")
    if key == "metadata" and version:
        builder.origin.profiler = f"GuideLLM {fields.text(version)}"
    if key in _SETTINGS:
        keep(report, builder.losses, f"report.{key}", value)
    elif value:
        builder.losses.add("part of the report that is not read")


def _add_figures(builder: CaptureBuilder, run: _Benchmark) -> None:
    losses, figures = builder.losses, run.figures
    for key, value in run.parts.items():
        if key in ("args", "config"):
            keep(figures, losses, "", value)
        elif key in _SETTINGS:
            keep(figures, losses, key, value)
        elif key == "duration":
            figures.add("run.duration", key, "total", value)
        elif key == "request_totals":
            _add_totals(figures, value)
        elif key in ("start_time", "end_time", "id_", "run_id", "type_"):
            keep(figures, losses, key, value)
    for key, value in fields.mapping(run.parts.get("metrics")).items():
        if key == "request_totals":
            _add_totals(figures, value)
        elif isinstance(value, dict) and isinstance(value.get("successful"), dict):
            _add_distribution(builder, run, key, value)
        elif value is not None:
            losses.add("metric of another shape")


def _add_totals(figures: Figures, totals: Any) -> None:
    for status, number in fields.mapping(totals).items():
        if status in _TOTALS:
            figures.add(f"requests.{_TOTALS[status]}", f"request_totals.{status}", "count", number)


def _add_distribution(builder: CaptureBuilder, run: _Benchmark, key: str, value: Any) -> None:
    if key == _TPOT:
        name, per = ("latency.e2e_per_token" if run.is_new else "latency.decode_per_token"), 1000.0
    else:
        name, per = _NAMES.get(key, (key, 1))
    unit = "ms" if key.endswith("_ms") else None
    for status in _STATUSES:
        summary = fields.mapping(value.get(status))
        if not summary or (status != "successful" and not summary.get("count")):
            continue
        labels = {} if status == "successful" else {"status": status}
        flat = {**summary, **fields.mapping(summary.get("percentiles"))}
        _, left = run.figures.add_statistics(name, key, flat, per=per, unit=unit, labels=labels)
        builder.losses.add("statistic that is not kept", left)


def _note(builder: CaptureBuilder, run: _Benchmark, rows: RequestRows) -> None:
    metrics = fields.mapping(run.parts.get("metrics"))
    totals = fields.mapping(metrics.get("request_totals") or run.parts.get("request_totals"))
    strategy = fields.mapping(run.options.get("strategy"))
    bound = _CLOSED.get(str(strategy.get("type_") or strategy.get("kind")))
    concurrency = None if bound is None else 1 if bound == "1" else strategy.get(bound)
    note_common(
        builder,
        num_failed=(fields.count(totals.get("errored")) or 0)
        + (fields.count(totals.get("incomplete")) or 0),
        concurrency=concurrency,
        num_requests=rows.num_requests,
        has_ids=True,
    )
    if "inter_token_latency_ms" in metrics:
        note_request_mean(builder, "GuideLLM", "weighted by its output tokens")
    if _TPOT in metrics and run.is_new:
        note_first_token(builder, _TPOT, "(last token - send) / output tokens")
    warm_up = fields.mapping(run.options.get("warmup"))
    old = (run.options.get("warmup_number"), run.options.get("warmup_duration"))
    if not any((*old, warm_up.get("percent"), warm_up.get("value"))):
        note_warm_up(builder, "no warm-up was left out of the run")
