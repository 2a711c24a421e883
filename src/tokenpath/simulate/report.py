"""The figures of a simulated run as tables and sentences."""

from __future__ import annotations

from collections.abc import Mapping

from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit
from tokenpath.core.units import format_duration
from tokenpath.simulate.summary import LATENCIES, STATISTICS, Summary

Intervals = Mapping[str, tuple[float, float]]
"""Lower and upper bound of a figure, by its name in `Summary.flat`."""

_NAMES = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl": "ITL",
    "e2e": "E2E",
}
_FIGURES: tuple[tuple[str, str, str], ...] = (
    ("requests_per_s", "requests", "/s"),
    ("output_tokens_per_s", "output tokens", "/s"),
    ("input_tokens_per_s", "input tokens", "/s"),
    ("goodput_per_s", "goodput", "/s"),
    ("slo_share", "requests within every limit", "%"),
    ("utilisation", "engine busy", "%"),
    ("mean_running", "requests in a step, mean", ""),
    ("max_queued", "longest queue", ""),
    ("mean_kv_share", "KV blocks in use, mean", "%"),
    ("max_kv_share", "KV blocks in use, most", "%"),
    ("cached_share", "prompt tokens from the prefix cache", "%"),
    ("num_preemptions", "preemptions", ""),
)
"""Name in `Summary.flat`, what a person reads, unit."""


def summary_tables(summary: Summary, intervals: Intervals | None = None) -> list[ShownTable]:
    """Latency and load of a run, with the interval of each figure where it is known."""
    return [_latency_table(summary, intervals or {}), _load_table(summary, intervals or {})]


def answer(summary: Summary, intervals: Intervals | None = None) -> tuple[str, ...]:
    """What a run amounts to, in one or two sentences."""
    ttft = summary.latency_ns.get("ttft")
    if ttft is None:
        return ("No request got a token.",)
    tail = f"99 % within {format_duration(ttft['p99'])}"
    bounds = (intervals or {}).get("p99_ttft_ns")
    if bounds is not None:
        tail += f" (90 % interval {format_duration(bounds[0])} to {format_duration(bounds[1])})"
    sentences = [
        f"Half of the requests get their first token within {format_duration(ttft['p50'])}, {tail}"
    ]
    tpot = summary.latency_ns.get("tpot")
    if tpot is not None:
        sentences[0] += f"; then a token comes every {format_duration(tpot['p50'])} at the median"
    sentences[0] += "."
    rate = f"{summary.requests_per_s:,.2f} requests/s, {summary.output_tokens_per_s:,.0f} output tokens/s"
    if summary.goodput_per_s is not None and summary.slo_share is not None:
        rate += (
            f"; {100 * summary.slo_share:.1f} % of the requests keep every limit "
            f"({summary.goodput_per_s:,.2f}/s)"
        )
    return (*sentences, f"{rate}.")


def _latency_table(summary: Summary, intervals: Intervals) -> ShownTable:
    columns = [TableColumn("latency", "latency", Unit.TEXT)]
    columns += [TableColumn(f"{name}_ns", name, Unit.NS) for name in STATISTICS]
    bounded = [name for name in STATISTICS if f"{name}_ttft_ns" in intervals]
    for name in bounded:
        is_key = name == "p99"
        columns.append(TableColumn(f"{name}_low_ns", f"{name} from", Unit.NS, is_key))
        columns.append(
            TableColumn(f"{name}_high_ns", "to" if is_key else f"{name} to", Unit.NS, is_key)
        )
    rows: list[list[Cell]] = []
    for latency in LATENCIES:
        values = summary.latency_ns.get(latency)
        if values is None:
            continue
        row: list[Cell] = [_NAMES[latency], *(values[name] for name in STATISTICS)]
        for name in bounded:
            row += intervals.get(f"{name}_{latency}_ns", (None, None))
        rows.append(row)
    note = "90 % prediction intervals: error of the step model on data left out, and chance of the workload."
    return ShownTable(
        "latency",
        f"latency of {summary.num_finished:,} requests",
        columns,
        rows,
        len(rows),
        note if bounded else None,
        is_lead=True,
    )


def _load_table(summary: Summary, intervals: Intervals) -> ShownTable:
    flat = summary.flat()
    columns = [
        TableColumn("figure", "load", Unit.TEXT),
        TableColumn("value", "value", Unit.TEXT),
        TableColumn("low", "from", Unit.TEXT),
        TableColumn("high", "to", Unit.TEXT),
    ]
    if not any(name in intervals for name, _, _ in _FIGURES):
        columns = columns[:2]
    rows: list[list[Cell]] = []
    for name, label, unit in _FIGURES:
        if name not in flat:
            continue
        low, high = intervals.get(name, (None, None))
        cells: list[Cell] = [label, _write(flat[name], unit), _write(low, unit), _write(high, unit)]
        rows.append(cells[: len(columns)])
    return ShownTable("load", "load", columns, rows, len(rows), is_lead=True)


def _write(value: float | None, unit: str) -> str | None:
    if value is None:
        return None
    if unit == "%":
        return f"{100 * value:.1f} %"
    if unit == "/s":
        return f"{value:,.2f} /s"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
