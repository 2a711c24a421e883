"""What `vllm bench serve` and SGLang's bench_serving share: flat results of the same ancestry."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.load_arrays import DROPPED_LISTS, LISTS, add_requests
from tokenpath.ingest.load_json import BEGIN, Members, read_text
from tokenpath.ingest.load_metrics import Figures, statistic, write_runs
from tokenpath.ingest.load_notes import note_common
from tokenpath.ingest.load_settings import keep
from tokenpath.ingest.load_tables import RequestRows
from tokenpath.ingest.reader import Options, Reader

_LATENCIES = {
    "ttft": "latency.ttft",
    "tpot": "latency.tpot",
    "itl": "latency.itl",
    "e2el": "latency.e2e",
    "e2e_latency": "latency.e2e",
    "client_queue_time": "latency.client_queue",
    "e2el_including_client_queue": "latency.e2e_with_client_queue",
}
_STATISTIC = re.compile(r"(mean|median|std|min|max|p\d+(?:\.\d+)?)_(\w+)_ms")
_SINGLE: dict[str, tuple[str, str]] = {
    "duration": ("run.duration", "total"),
    "completed": ("requests.completed", "count"),
    "failed": ("requests.failed", "count"),
    "good_completed": ("requests.good", "count"),
    "total_input_tokens": ("tokens.prompt", "total"),
    "total_input": ("tokens.prompt", "total"),
    "total_output_tokens": ("tokens.generated", "total"),
    "total_output": ("tokens.generated", "total"),
    "total_output_tokens_retokenized": ("tokens.generated_retokenised", "total"),
    "request_throughput": ("throughput.requests", "rate"),
    "request_goodput": ("throughput.goodput", "rate"),
    "request_goodput:": ("throughput.goodput", "rate"),
    "input_throughput": ("throughput.tokens_prompt", "rate"),
    "output_throughput": ("throughput.tokens_output", "rate"),
    "total_token_throughput": ("throughput.tokens_total", "rate"),
    "total_throughput": ("throughput.tokens_total", "rate"),
    "max_output_tokens_per_s": ("throughput.tokens_output", "max"),
    "max_concurrent_requests": ("requests.concurrency", "max"),
    "concurrency": ("requests.concurrency", "mean"),
    "accept_length": ("spec.accept_length", "mean"),
    "spec_decode_acceptance_length": ("spec.accept_length", "mean"),
}


@dataclass
class Run:
    """One result: a document of the file."""

    figures: Figures = field(default_factory=Figures)
    """Aggregates and settings."""
    lists: dict[str, list[Any]] = field(default_factory=dict)
    """Lists with an entry a request."""
    values: dict[str, Any] = field(default_factory=dict)
    """Plain values by key, as written."""

    @property
    def has_gaps(self) -> bool:
        """Whether the result states gaps between tokens."""
        return "itls" in self.lists or "latency.itl" in self.figures.names()


def read_file(
    reader: Reader, path: Path, options: Options, profiler: str
) -> tuple[CaptureBuilder, list[Run], RequestRows]:
    """The builder of a file with figures, settings, requests and tokens added; `finish` is the caller's."""
    builder = CaptureBuilder(reader, path, options)
    builder.origin.profiler = profiler
    builder.origin.clock = "monotonic"
    rows = RequestRows(builder)
    runs: list[Run] = []
    for where, value in Members(read_text(path, options, builder.losses), [()], builder.losses):
        if value is BEGIN:
            runs.append(Run())
        elif not where:
            builder.losses.add("value outside a result")
        else:
            _take(builder, runs[-1], where[0], value)
    for number, run in enumerate(runs):
        add_requests(rows, builder.losses, run.lists, number if len(runs) > 1 else None)
        run.lists = {name: [] for name in run.lists}
    rows.finish()
    write_runs(builder, [run.figures for run in runs])
    builder.num_events += sum(len(run.figures) for run in runs) + rows.num_requests
    builder.num_events += builder.losses.num_dropped()
    return builder, runs, rows


def _take(builder: CaptureBuilder, run: Run, key: str, value: Any) -> None:
    losses, figures = builder.losses, run.figures
    match = _STATISTIC.fullmatch(key)
    if value is None:
        return
    if key in LISTS or key == "cached_tokens":
        if isinstance(value, list):
            run.lists[key] = value
        else:
            losses.add("list that is none")
    elif key in DROPPED_LISTS and isinstance(value, list):
        is_text = key == "generated_texts"
        losses.add(DROPPED_LISTS[key], len(value), lost=not is_text, dropped=False)
    elif match is not None:
        what = statistic(match[1])
        name = _LATENCIES.get(match[2], f"{match[2]}_ms")
        per = 1000 if name in _LATENCIES.values() else 1
        if what is None or not figures.add(name, key, what, value, per=per, unit="ms"):
            losses.add("figure that is no number")
    elif key in _SINGLE:
        run.values[key] = value
        if not figures.add(_SINGLE[key][0], key, _SINGLE[key][1], value):
            losses.add("figure that is no number")
    else:
        if not isinstance(value, dict | list):
            run.values[key] = value
        keep(figures, losses, key, value)


def note_run(builder: CaptureBuilder, runs: list[Run], rows: RequestRows) -> None:
    """Say what holds for results of both tools."""
    for run in runs:
        values = run.values
        failed = fields.count(values.get("failed"))
        sent, done = fields.count(values.get("num_prompts")), fields.count(values.get("completed"))
        if failed is None and None not in (sent, done):
            failed = max(0, (sent or 0) - (done or 0))
        note_common(
            builder,
            num_failed=failed or 0,
            concurrency=values.get("max_concurrency"),
            num_requests=rows.num_requests,
            has_ids=False,
        )
