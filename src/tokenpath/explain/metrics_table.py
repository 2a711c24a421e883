"""What metric samples and load generators state, as tables beside what was measured from records."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from tokenpath.capture.capture import Capture
from tokenpath.core.histogram import quantile_bounds
from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit

MAX_SERIES = 200
"""Series that are shown; the file has them all (`tokenpath convert`)."""
_METRIC_COLUMNS = (
    TableColumn("name", "metric", Unit.TEXT),
    TableColumn("value", "value", Unit.TEXT),
    TableColumn("unit", "unit", Unit.TEXT),
    TableColumn("labels", "labels", Unit.TEXT),
    TableColumn("num_samples", "samples", Unit.COUNT, is_key_figure=False),
    TableColumn("source_name", "name in the source", Unit.TEXT, is_key_figure=False),
    TableColumn("source", "source", Unit.TEXT, is_key_figure=False),
)
_SUMMARY_COLUMNS = (
    TableColumn("name", "figure", Unit.TEXT),
    TableColumn("statistic", "statistic", Unit.TEXT),
    TableColumn("value", "value", Unit.NUMBER),
    TableColumn("unit", "unit", Unit.TEXT),
    TableColumn("source_name", "name in the source", Unit.TEXT, is_key_figure=False),
    TableColumn("labels", "labels", Unit.TEXT, is_key_figure=False),
    TableColumn("source", "source", Unit.TEXT, is_key_figure=False),
)
_SILENT_LABELS = frozenset({"model_name", "engine", "instance", "job"})
"""Labels that are equal on all series of a server, as a rule, and say nothing where they are."""


def metrics_table(capture: Capture) -> ShownTable | None:
    """The last value of every series with a canonical name; of histograms where the quantiles lie."""
    samples = capture["counter_sample"]
    canonical = [name is not None for name in samples["source_name"].to_pylist()]
    if not any(canonical):
        return None
    paths = capture["source"]["path"].to_pylist()
    series: dict[tuple[int, str], list[tuple[dict[str, str], dict[str, Any]]]] = {}
    for row in samples.filter(canonical).to_pylist():
        labels = _labels(row["labels"])
        row["le"] = labels.pop("le", None)
        series.setdefault((row["source_id"], row["name"]), []).append((labels, row))
    rows: list[Sequence[Cell]] = []
    for (source, name), members in series.items():
        for (shown, kind), found in _split(members).items():
            value = _histogram(found) if kind == "histogram" else _last(found)
            if value is None:
                continue
            unit = next((row["unit"] for row in found if row["unit"] not in (None, "1")), None)
            family = found[0]["source_name"]
            for ending in ("_bucket", "_sum", "_count"):
                family = family.removesuffix(ending)
            rows.append((name, value, unit, shown or None, len(found), family, paths[source]))
    rows.sort(key=lambda row: (str(row[0]), str(row[3])))
    note = "Of histograms the bucket in which the quantile lies; it says no more."
    return ShownTable("metrics", "Metrics", _METRIC_COLUMNS, rows[:MAX_SERIES], len(rows), note)


def _labels(text: str | None) -> dict[str, str]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return {key: str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _split(
    members: Sequence[tuple[dict[str, str], dict[str, Any]]],
) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Samples of one metric by their series: labels that say nothing are shown where series differ by them."""
    values: dict[str, set[str | None]] = {key: set() for key in _SILENT_LABELS}
    for labels, _ in members:
        for key in _SILENT_LABELS:
            values[key].add(labels.get(key))
    silent = {key for key, found in values.items() if len(found) < 2}
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for labels, row in members:
        shown = " ".join(f"{key}={value}" for key, value in labels.items() if key not in silent)
        kind = "histogram" if row["kind"] in ("bucket", "sum", "count") else "single"
        groups.setdefault((shown, kind), []).append(row)
    return groups


def _last(rows: Sequence[dict[str, Any]]) -> str | None:
    known = [row for row in rows if row["value"] is not None]
    if not known:
        return None
    return _figure(max(known, key=lambda row: row["at_ns"])["value"])


def _histogram(rows: Sequence[dict[str, Any]]) -> str | None:
    latest = max(row["at_ns"] for row in rows)
    buckets = sorted(
        (_bound(row["le"]), row["value"])
        for row in rows
        if row["kind"] == "bucket" and row["at_ns"] == latest and row["value"] is not None
    )
    # Two series of equal labels, or bounds that are no numbers: then nothing is said.
    bounds = [bound for bound, _ in buckets]
    if not buckets or len(set(bounds)) < len(bounds):
        return None
    counts = [count for _, count in buckets]
    parts = []
    for quantile in (0.5, 0.99):
        try:
            found = quantile_bounds(bounds, counts, quantile)
        except ValueError:
            return None
        if found is None:
            return "no observation"
        parts.append(f"p{round(100 * quantile)} {_figure(found.lower)}..{_figure(found.upper)}")
    return f"{', '.join(parts)} ({_figure(counts[-1])} observations)"


def _bound(text: str | None) -> float:
    """The number that a bucket's label `le` is; NaN for none."""
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


def _figure(value: float) -> str:
    is_whole = abs(value) < 1e15 and value == round(value)
    return f"{value:,.0f}" if is_whole else f"{value:.4g}"


def summary_table(capture: Capture) -> ShownTable | None:
    """The aggregate figures that load generators and reports state."""
    table = capture["summary"]
    if table.num_rows == 0:
        return None
    paths = capture["source"]["path"].to_pylist()
    rows: list[Sequence[Cell]] = [
        (
            row["name"],
            row["statistic"],
            row["value"],
            row["unit"],
            row["source_name"],
            row["labels"],
            paths[row["source_id"]],
        )
        for row in table.slice(0, MAX_SERIES).to_pylist()
    ]
    return ShownTable(
        "stated_figures", "Figures that the sources state", _SUMMARY_COLUMNS, rows, table.num_rows
    )


_QUOTED = {"latency.ttft": "time to first token", "latency.tpot": "time per output token"}


def stated_answer(capture: Capture) -> tuple[str, ...]:
    """One sentence for sources that state aggregates alone."""
    table = capture["summary"]
    columns = (table[name].to_pylist() for name in ("name", "statistic", "value", "unit"))
    rows = list(zip(capture.ids("summary", "source_id").tolist(), *columns, strict=True))
    parts = []
    for name, what in _QUOTED.items():
        quoted = next((source for source, row, *_ in rows if row == name), None)
        found: dict[str, tuple[float, str | None]] = {}
        for source, row, statistic, value, unit in rows:
            if source == quoted and row == name:
                found.setdefault(statistic, (value, unit))
        shown = [
            f"{statistic} {found[statistic][0]:.4g} {found[statistic][1] or ''}".strip()
            for statistic in ("mean", "p50", "p99")
            if statistic in found
        ]
        if shown:
            parts.append(f"{what} {', '.join(shown)}")
    if not parts:
        return ()
    sources = len({source for source, name, *_ in rows if name in _QUOTED})
    where = "the source states" if sources == 1 else f"the first of {sources} sources states"
    return (f"Aggregates alone: {where} {'; '.join(parts)}.",)
