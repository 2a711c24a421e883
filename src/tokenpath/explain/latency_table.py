"""Latency of many requests: percentiles, what it is made of, and what the slow ones have more of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit
from tokenpath.core.units import INT64_MIN, format_ms
from tokenpath.explain.latency import PARTS, Latency

Int64s = NDArray[np.int64]

SLOW_SHARE = 0.1
"""The slow ones are the slowest tenth."""
MIN_REQUESTS = 20
"""With fewer, a tenth is too few to say anything about."""
_KIND = {"ttft": "Time to first token", "decode": "First token to last"}
_COLUMNS = (
    TableColumn("part", "part", Unit.TEXT),
    TableColumn("mean_ns", "mean", Unit.NS),
    TableColumn("share", "share", Unit.SHARE),
    TableColumn("p50_ns", "p50", Unit.NS),
    TableColumn("p90_ns", "p90", Unit.NS, is_key_figure=False),
    TableColumn("p99_ns", "p99", Unit.NS),
    TableColumn("slow_minus_rest_ns", "slow - rest", Unit.NS),
    TableColumn("effect", "effect", Unit.NUMBER),
    TableColumn("meaning", "what it is", Unit.TEXT, is_key_figure=False),
)


def percentile(values: Int64s, percent: float) -> int:
    """The smallest value that at least so many per cent of the values do not exceed (nearest rank)."""
    rank = max(1, int(np.ceil(len(values) * percent / 100)))
    return int(np.partition(values, rank - 1)[rank - 1])


def cliffs_delta(one: Int64s, other: Int64s) -> float:
    """P(a of `one` > a of `other`) - P(a < b), from -1 to 1 (N. Cliff, Dominance statistics, 1993)."""
    if len(one) == 0 or len(other) == 0:
        return 0.0
    known = np.sort(other)
    below = np.searchsorted(known, one, "left").sum()
    above = (len(known) - np.searchsorted(known, one, "right")).sum()
    return float(below - above) / (len(one) * len(other))


@dataclass(frozen=True)
class PartFigures:
    """One part of a latency over all requests."""

    key: str
    """Key of `latency.PARTS`."""
    mean_ns: float
    """Mean over all requests; the parts' means add up to the mean latency."""
    share: float
    """Of the mean latency."""
    slow_minus_rest_ns: float | None
    """Mean of the slowest tenth minus mean of the others; None with too few requests."""
    effect: float | None
    """Cliff's delta of the same two groups."""


def part_figures(latency: Latency) -> list[PartFigures]:
    """The parts that any request has, in the order in which requests meet them."""
    slow = _slow(latency.total_ns)
    mean_total = float(latency.total_ns.mean()) if len(latency) else 0.0
    found = []
    for number, (key, _) in enumerate(PARTS):
        values = latency.parts_ns[:, number]
        if not values.any():
            continue
        more = effect = None
        if slow is not None:
            more = float(values[slow].mean() - values[~slow].mean())
            effect = cliffs_delta(values[slow], values[~slow])
        mean = float(values.mean())
        found.append(PartFigures(key, mean, mean / mean_total if mean_total else 0.0, more, effect))
    return found


def _slow(total_ns: Int64s) -> NDArray[np.bool_] | None:
    if len(total_ns) < MIN_REQUESTS:
        return None
    slow = np.zeros(len(total_ns), bool)
    slow[np.argsort(total_ns, kind="stable")[-int(len(total_ns) * SLOW_SHARE) :]] = True
    return slow


def latency_table(latency: Latency) -> ShownTable:
    """One kind of latency as one observer sees it, cut into parts; the largest first."""
    meaning = dict(PARTS)
    number = {key: at for at, (key, _) in enumerate(PARTS)}
    rows: list[Sequence[Cell]] = []
    for part in sorted(part_figures(latency), key=lambda part: -part.mean_ns):
        values = latency.parts_ns[:, number[part.key]]
        rows.append(
            (
                part.key.replace("_", " "),
                round(part.mean_ns),
                part.share,
                *(percentile(values, percent) for percent in (50, 90, 99)),
                None if part.slow_minus_rest_ns is None else round(part.slow_minus_rest_ns),
                None if part.effect is None else round(part.effect, 2),
                meaning[part.key],
            )
        )
    return ShownTable(
        f"latency_{latency.observer}_{latency.kind}",
        f"{_KIND[latency.kind]}, {latency.observer}",
        _COLUMNS,
        rows,
        len(rows),
        _remark(latency),
    )


def _percentiles(latency: Latency) -> str:
    figures = (
        f"p{percent} {format_ms(percentile(latency.total_ns, percent))}" for percent in (50, 90, 99)
    )
    return ", ".join(figures) + " ms"


def _remark(latency: Latency) -> str:
    parts = [f"{len(latency):,} requests: {_percentiles(latency)}."]
    parts.append("Parts add up to each request's latency; percentiles of parts do not add up.")
    if len(latency) >= MIN_REQUESTS:
        parts.append(
            "Slow: the slowest tenth; effect: Cliff's delta, 1 when every slow one has more of it."
        )
    if latency.kind == "decode" and (tpot := tpot_ns(latency)) is not None and len(tpot):
        shown = (f"p{percent} {format_ms(percentile(tpot, percent))}" for percent in (50, 90, 99))
        parts.append(f"Per output token after the first: {', '.join(shown)} ms.")
    return " ".join(parts)


def tpot_ns(latency: Latency) -> Int64s | None:
    """(last - first token) / (output tokens - 1) of requests with several tokens, rounded down."""
    if latency.kind != "decode":
        return None
    several = latency.num_output_tokens > 1
    result: Int64s = latency.total_ns[several] // (latency.num_output_tokens[several] - 1)
    return result


_STATED_COLUMNS = (
    TableColumn("figure", "figure", Unit.TEXT),
    TableColumn("observer", "observer", Unit.TEXT),
    TableColumn("num_requests", "requests", Unit.COUNT),
    TableColumn("p50_ns", "p50", Unit.NS),
    TableColumn("p90_ns", "p90", Unit.NS),
    TableColumn("p99_ns", "p99", Unit.NS),
)
_STATED = (
    ("stated_ttft_ns", "time to first token"),
    ("stated_queue_ns", "queue"),
    ("stated_prefill_ns", "prefill"),
    ("stated_decode_ns", "decode"),
    ("stated_tpot_ns", "time per output token"),
    ("stated_e2e_ns", "end to end"),
)


def stated_table(capture: Capture) -> ShownTable | None:
    """Durations that the sources state for their requests, by observer; None when they state none."""
    observers, names = capture.codes("request", "observer")
    rows: list[Sequence[Cell]] = []
    for column, label in _STATED:
        values = capture.int64("request", column, INT64_MIN)
        for code in np.unique(observers[values != INT64_MIN]).tolist():
            mine = values[(values != INT64_MIN) & (observers == code)]
            shown = (percentile(mine, percent) for percent in (50, 90, 99))
            rows.append((label, names[code], len(mine), *shown))
    if not rows:
        return None
    note = "As the sources state them: what each counts differs, see the notes."
    return ShownTable(
        "stated_latencies",
        "Durations that the sources state",
        _STATED_COLUMNS,
        rows,
        len(rows),
        note,
    )
