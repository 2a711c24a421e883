"""Files of metrics to captures: `counter_sample` rows under canonical names, settings, notes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.capture.combine import combine
from tokenpath.core.errors import DamagedInput, LimitExceeded
from tokenpath.core.redact import Redactor
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.json_lines import MAX_DOCUMENT_BYTES
from tokenpath.ingest.metrics import api_json, exposition
from tokenpath.ingest.metrics.labels import as_json, cleaned
from tokenpath.ingest.metrics.mapping import Metric, mapping
from tokenpath.ingest.metrics.notes import (
    add_cache_config_note,
    add_mapped_notes,
    add_rank_note,
    add_resolution_note,
    bound_of,
)
from tokenpath.ingest.metrics.samples import NO_TIME, Samples, Series
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Options, Reader, options_by_file

MAX_SETTINGS = 500
"""Labels of info metrics that are kept as settings."""

_UNITS = {"seconds": "s", "bytes": "byte", "ratio": "ratio", "tokens": "token", "joules": "J"}
"""Units that OpenMetrics declares, as ours."""


@dataclass(frozen=True)
class _File:
    path: Path
    builder: CaptureBuilder
    samples: Samples
    metrics: list[Metric | None]
    """Of each series, what it is."""


def read_files(reader: Reader, paths: Sequence[Path], options: Options) -> Capture:
    """Each file its own source of one capture, in the order given."""
    options = replace(options, redactor=options.masks())
    files = [
        _read(reader, path, own)
        for path, own in zip(paths, options_by_file(paths, options), strict=True)
    ]
    order = _order(files)
    unmeasured = _never_counted(files)
    redactor = options.masks()
    return combine(
        [
            _finish(file, redactor, number, unmeasured, len(files))
            for file, number in zip(files, order, strict=True)
        ]
    )


def _read(reader: Reader, path: Path, options: Options) -> _File:
    builder = CaptureBuilder(reader, path, options)
    text = _text(path, builder, options)
    samples = None
    # A line of the text format may begin with a brace, too: a name in quotes.
    if re.match(r'\s*\{\s*"(?:status|data|resultType|result)"', text):
        samples = api_json.parse(text, builder.losses)
    if samples is None:
        samples = exposition.parse(text, builder.losses)
    num_dropped = builder.losses.num_dropped()
    builder.num_events = len(samples.values) + num_dropped
    if not samples.values and num_dropped:
        raise DamagedInput(
            "no sample can be read",
            where=str(path),
            allowed="Prometheus text, OpenMetrics, or JSON of Prometheus' query API",
            next_step="save the answer of /metrics or /api/v1/query_range again",
        )
    known = mapping()
    metrics = [known.find(series.family, series.labels) for series in samples.series]
    samples.series = [_undeclared_kind(*pair) for pair in zip(samples.series, metrics, strict=True)]
    metrics = [
        metric or known.find(_stem(series), series.labels)
        for metric, series in zip(metrics, samples.series, strict=True)
    ]
    return _File(path, builder, samples, metrics)


def _text(path: Path, builder: CaptureBuilder, options: Options) -> str:
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    held, size = [], 0
    for chunk in unpacked.chunks:
        size += len(chunk)
        if size > MAX_DOCUMENT_BYTES:
            raise LimitExceeded(
                f"metrics of more than {MAX_DOCUMENT_BYTES} bytes",
                where=str(path),
                allowed=f"{MAX_DOCUMENT_BYTES} bytes a file",
                next_step="query fewer series or a shorter range, into several files",
            )
        held.append(chunk.tobytes())
    for problem in unpacked.problems:
        builder.losses.add("no end of the file", what=problem, offset=0, dropped=False)
    unpacked.report_done()
    return b"".join(held).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")


def _stem(series: Series) -> str:
    """The family of a sample whose type nothing declares, if its ending is one of a histogram's."""
    for suffix in ("_sum", "_count"):
        if series.kind is None and series.name.endswith(suffix):
            return series.name.removesuffix(suffix)
    return series.family


def _undeclared_kind(series: Series, metric: Metric | None) -> Series:
    """The kind by the mapping where the file declares none, and where the mapping knows better."""
    known = mapping()
    if metric is None and series.kind is None:
        stem = _stem(series)
        found = known.find(stem, series.labels)
        if stem != series.family and found is not None and found.kind in ("histogram", "summary"):
            kind = "sum" if series.name.endswith("_sum") else "count"
            return replace(series, family=stem, kind=kind)
        return series
    if metric is None or metric.kind in ("histogram", "summary"):
        return series
    if series.name.endswith("_created") and not metric.name.endswith("_created"):
        return series
    return replace(series, kind=metric.kind)


def _order(files: Sequence[_File]) -> list[int]:
    """The number of each file in time, told by counters, which only rise while a process lives."""
    keys = []
    for file in files:
        start, total = 0.0, 0.0
        series = file.samples.series
        for at, value in zip(file.samples.series_of, file.samples.values, strict=True):
            if series[at].name == "process_start_time_seconds":
                start = value
            elif series[at].kind in ("counter", "count") and math.isfinite(value):
                total += value
        keys.append((start if math.isfinite(start) else 0.0, total))
    rank = sorted(range(len(files)), key=lambda number: (keys[number], number))
    return [rank.index(number) for number in range(len(files))]


def _never_counted(files: Sequence[_File]) -> set[str]:
    """Estimates that are zero in every sample: not measured, unless the engine was told to."""
    seen: dict[str, bool] = {}
    for file in files:
        for at, value in zip(file.samples.series_of, file.samples.values, strict=True):
            metric = file.metrics[at]
            is_counter = file.samples.series[at].kind == "counter"
            if metric is not None and is_counter and "estimated-work" in metric.notes:
                seen[metric.name] = seen.get(metric.name, True) and value == 0
    return {name for name, is_zero in seen.items() if is_zero}


def _finish(
    file: _File, redactor: Redactor, number: int, unmeasured: set[str], num_files: int
) -> Capture:
    builder, samples = file.builder, file.samples
    if samples.values:
        series_of = np.array(samples.series_of, np.int64)
        values = np.array(samples.values, np.float64)
        at_ns = _times(builder, np.array(samples.at_ns, np.int64), number, num_files)
        rows = [
            _row(series, metric, samples.units.get(series.family), redactor)
            for series, metric in zip(samples.series, file.metrics, strict=True)
        ]
        scales = np.array([row.scale for row in rows])[series_of]
        values = values * scales
        absent = np.isnan(values)
        never = np.array([_is_estimate_of(m, unmeasured) for m in file.metrics], bool)[series_of]
        counters = np.array([series.kind == "counter" for series in samples.series])[series_of]
        never &= counters
        if never.any():
            names = sorted({m.name for m in file.metrics if m and m.name in unmeasured})
            builder.note(
                "estimated-not-measured",
                f"{', '.join(names)} never left 0: the engine was not told to count them "
                "(vLLM: --enable-mfu-metrics); they are unknown here, not zero.",
            )
        builder.add(
            "counter_sample",
            {
                "at_ns": at_ns,
                **{
                    name: _column([getattr(row, name) for row in rows], series_of)
                    for name in ("name", "source_name", "kind", "labels", "unit")
                },
                "value": pa.array(values, mask=absent | never),
            },
        )
    _settings(builder, file, redactor)
    _notes(builder, file, unmeasured)
    return builder.finish()


@dataclass(frozen=True)
class _Row:
    """What all samples of a series have in common."""

    name: str
    source_name: str | None
    kind: str | None
    labels: str | None
    unit: str | None
    scale: float


def _row(series: Series, metric: Metric | None, declared: str | None, redactor: Redactor) -> _Row:
    labels = cleaned(series.labels, redactor)
    # The time at which a series began is no value of the metric.
    if metric is None or (series.kind == "gauge" and series.name.endswith("_created")):
        is_time = series.name.endswith("_created")
        unit = "s" if is_time else _UNITS.get(declared or "", declared)
        return _Row(series.name, None, series.kind, as_json(labels), unit, 1.0)
    is_counted = series.kind in ("bucket", "count")
    if series.kind == "bucket" and metric.scale != 1:
        bound = bound_of(series, metric.scale)
        if bound is not None:
            labels["le"] = "+Inf" if math.isinf(bound) else repr(float(f"{bound:.15g}"))
    return _Row(
        metric.canonical,
        series.name,
        series.kind,
        as_json(labels),
        "1" if is_counted else metric.unit,
        1.0 if is_counted else metric.scale,
    )


def _column(values: Sequence[str | None], series_of: NDArray[np.int64]) -> pa.Array:
    encoded = pa.array(values, pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        encoded.indices.take(pa.array(series_of)), encoded.dictionary
    )


def _times(
    builder: CaptureBuilder, at_ns: NDArray[np.int64], number: int, num_files: int
) -> NDArray[np.int64]:
    """Times of the samples; without any, the number of the file in the order of its counters."""
    known = at_ns != NO_TIME
    if known.any():
        builder.losses.add("sample without timestamp", int((~known).sum()), dropped=False)
        return np.where(known, at_ns, at_ns[known].max())
    builder.origin.clock = "monotonic"
    builder.note(
        "no-sample-time",
        "The file does not say when it was taken: at_ns is its number among the "
        f"{num_files} files read together, in the order of their counters, and no time.",
    )
    return np.full(len(at_ns), number, np.int64)


def _is_estimate_of(metric: Metric | None, unmeasured: set[str]) -> bool:
    return metric is not None and metric.name in unmeasured


def _settings(builder: CaptureBuilder, file: _File, redactor: Redactor) -> None:
    """Labels of info metrics are the engine's configuration."""
    num = 0
    for series, metric in zip(file.samples.series, file.metrics, strict=True):
        if metric is None or metric.kind != "info" or metric.canonical == "lora":
            continue
        for key, value in cleaned(series.labels, redactor).items():
            if num < MAX_SETTINGS:
                builder.setting(f"{metric.name}.{key}", value)
                num += 1


def _notes(builder: CaptureBuilder, file: _File, unmeasured: set[str]) -> None:
    found = {metric.name: metric for metric in file.metrics if metric is not None}
    measured = [metric for metric in found.values() if metric.name not in unmeasured]
    add_mapped_notes(builder, measured)
    pairs = zip(file.samples.series, file.metrics, strict=True)
    add_rank_note(builder, [(series, metric) for series, metric in pairs if metric is not None])
    add_cache_config_note(builder, (series.family for series in file.samples.series))
    scales = [(metric, 1.0 if metric is None else metric.scale) for metric in file.metrics]
    add_resolution_note(builder, file.samples, scales)
