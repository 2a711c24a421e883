"""Aggregates of AIPerf and genai-perf, from their JSON and their CSV form."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.load_json import BEGIN, Members, read_text
from tokenpath.ingest.load_metrics import METRICS, Figures, statistic, write_runs
from tokenpath.ingest.load_notes import note_chunks, note_common, note_request_mean
from tokenpath.ingest.load_settings import keep
from tokenpath.ingest.reader import Options

_NAMES = {
    "request_throughput": "throughput.requests",
    "request_latency": "latency.e2e",
    "request_count": "requests.completed",
    "error_request_count": "requests.failed",
    "good_request_count": "requests.good",
    "time_to_first_token": "latency.ttft",
    "time_to_second_token": "latency.second_token",
    "inter_token_latency": "latency.tpot",
    "inter_chunk_latency": "latency.itl",
    "output_token_throughput": "throughput.tokens_output",
    "output_token_throughput_per_user": "throughput.tokens_output_per_request",
    "input_token_throughput": "throughput.tokens_prompt",
    "total_token_throughput": "throughput.tokens_total",
    "output_sequence_length": "size.osl",
    "input_sequence_length": "size.isl",
    "total_isl": "tokens.prompt",
    "total_osl": "tokens.generated",
    "goodput": "throughput.goodput",
    "request_goodput": "throughput.goodput",
    "benchmark_duration": "run.duration",
}
_PER_SECOND = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0, "sec": 1.0, "seconds": 1.0}
_SETTINGS = (
    *("schema_version", "aiperf_version", "benchmark_id", "input_config", "run_info"),
    *("was_cancelled", "is_complete", "incomplete_reason", "start_time", "end_time"),
)


def read_summary(builder: CaptureBuilder, path: Path, options: Options) -> None:
    """Add every metric of a JSON summary."""
    figures = Figures()
    config: object = None
    for where, value in Members(read_text(path, options, builder.losses), [()], builder.losses):
        if value is BEGIN or value is None:
            continue
        if where and isinstance(value, dict) and isinstance(value.get("unit"), str):
            _add(builder, figures, where[0], value["unit"], value)
        elif where and where[0] in _SETTINGS:
            config = value if where[0] == "input_config" else config
            keep(figures, builder.losses, where[0].removeprefix("input_config"), value)
        else:
            builder.losses.add("part of the summary that is not read")
    version = figures.settings.get("aiperf_version")
    if version is not None:
        builder.origin.profiler = f"AIPerf {fields.text(version)}"
    _finish(builder, figures, _concurrency(config, 0))


def read_csv(builder: CaptureBuilder, path: Path, options: Options) -> None:
    """Add every metric of a CSV summary; its values are rounded to two decimals by the writer."""
    figures = Figures()
    header: list[str] = []
    text = read_text(path, options, builder.losses)
    for row in _rows(builder, text):
        if row[0] == "Metric":
            header = row
        elif not header or len(row) > len(header):
            builder.losses.add("row of another table")
        else:
            heading, _, unit = row[0].removesuffix(")").partition(" (")
            values: dict[str, object] = {}
            for key, cell in zip(header[1:], row[1:], strict=False):
                number = values["avg" if key == "Value" else key] = _number(cell)
                builder.losses.add("figure that is no number", bool(cell) and number is None)
            name = re.sub(r"\W+", "_", heading.lower()).strip("_")
            _add(builder, figures, name, unit.lower(), values)
    _finish(builder, figures, None)


def _rows(builder: CaptureBuilder, text: str) -> list[list[str]]:
    try:
        rows = [row for row in csv.reader(text.replace("\0", "").splitlines()) if any(row)]
    except csv.Error as error:
        builder.losses.add("damaged table", what=str(error), offset=0)
        return []
    return rows


def _number(cell: str) -> float | None:
    try:
        return float(cell.replace(",", ""))
    except ValueError:
        return None


def _add(
    builder: CaptureBuilder, figures: Figures, key: str, unit: str, values: Mapping[str, Any]
) -> None:
    name, per = _NAMES.get(key, key), 1.0
    if name in METRICS and METRICS[name][0] == "s":
        if unit in _PER_SECOND:
            per = _PER_SECOND[unit]
        else:
            name = key
    numbers = {what: one for what, one in values.items() if what != "unit" and one is not None}
    is_single = set(numbers) <= {"avg"}
    for what, value in numbers.items():
        plain = _single(name) if is_single else statistic(what)
        if plain is None or not figures.add(name, key, plain, value, per=per, unit=unit or None):
            builder.losses.add("statistic that is not kept")


def _single(name: str) -> str:
    """The statistic of a metric with one value."""
    kinds = {"throughput": "rate", "requests": "count", "tokens": "total", "run": "total"}
    return kinds.get(name.partition(".")[0], "mean")


def _concurrency(config: object, depth: int) -> object:
    """The bound on requests under way, wherever the configuration of this version keeps it."""
    if depth > 6 or not isinstance(config, dict):
        return None
    for key, value in config.items():
        if key == "concurrency" and isinstance(value, int | str) and value:
            return value
        found = _concurrency(value, depth + 1)
        if found is not None:
            return found
    return None


def _finish(builder: CaptureBuilder, figures: Figures, concurrency: object) -> None:
    failed = figures.value("requests.failed", "count")
    write_runs(builder, [figures])
    note_common(
        builder,
        num_failed=int(failed or 0),
        concurrency=concurrency,
        num_requests=0,
        has_ids=False,
    )
    if "latency.tpot" in figures.names():
        note_request_mean(builder, "AIPerf", "(latency - TTFT) / (output tokens - 1)")
    if "latency.itl" in figures.names():
        note_chunks(builder, "AIPerf (inter_chunk_latency)")
