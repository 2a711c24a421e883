"""What a capture says about requests: the answer, a funnel that closes, tables, findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tokenpath.capture.capture import NO_ID, Capture, nullable
from tokenpath.core.finding import Finding, Status, rank, settle
from tokenpath.core.report import Funnel, FunnelRow, Note, Severity, ShownTable
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.latency import PARTS, Latency, latencies
from tokenpath.explain.latency_table import (
    latency_table,
    part_figures,
    percentile,
    stated_table,
    tpot_ns,
)
from tokenpath.explain.serving_findings import outermost, serving_findings

_ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "llama_cpp": "llama.cpp"}
_KINDS = {"ttft": "time to first token", "decode": "first token to last"}


@dataclass(frozen=True)
class Serving:
    """The serving side of a report."""

    headline: str
    """What was looked at."""
    answer: tuple[str, ...]
    """One to three sentences."""
    funnels: Sequence[Funnel]
    """Latencies of all requests summed, each in parts that add up to it; the user's view first."""
    tables: Sequence[ShownTable]
    """One an observer and kind of latency."""
    findings: Sequence[Finding]
    """Ranked."""


def serving(capture: Capture, status: Status, extra: Sequence[Finding] = ()) -> Serving | None:
    """None when the capture holds neither requests nor scheduler steps.

    `extra` are findings about requests that analyses beside this one made.
    """
    found = latencies(capture)
    num_steps = _num_scheduled(capture)
    if not found and not num_steps and not capture.num_rows("request"):
        return None
    views = [
        outermost([latency for latency in found if latency.kind == kind])
        for kind in ("ttft", "decode")
        if any(latency.kind == kind for latency in found)
    ]
    others = [latency for latency in found if latency not in views]
    stated = stated_table(capture)
    tables = [latency_table(latency) for latency in (*views, *others)]
    return Serving(
        _headline(capture, num_steps),
        _answer(views) or (_unmeasured(capture, stated),),
        [_funnel(latency) for latency in views],
        tables if stated is None else [*tables, stated],
        rank(
            settle(
                [
                    *serving_findings(
                        found, status, has_steps=capture.num_rows("request_step") > 0
                    ),
                    *extra,
                ]
            )
        ),
    )


def profiled_steps_only(capture: Capture) -> Capture:
    """The capture without the steps of a scheduler's log: kernels belong to those that a profiler saw."""
    codes, names = capture.codes("step", "observer")
    is_logged = np.isin(
        codes, [names.index(name) for name in ("scheduler", "log") if name in names]
    )
    if not is_logged.any():
        return capture
    number = np.where(is_logged, NO_ID, np.cumsum(~is_logged) - 1).astype(np.int32)
    tables = {"step": capture["step"].filter(pa.array(~is_logged)).combine_chunks()}
    for name, column in (("step", "scheduler_step_id"), ("kernel", "step_id")):
        table = tables.get(name, capture[name])
        ids = table[column].fill_null(NO_ID).to_numpy()
        at = table.schema.get_field_index(column)
        values = nullable(np.where(ids >= 0, number[ids], NO_ID).astype(np.int32), NO_ID)
        tables[name] = table.set_column(at, table.schema.field(at), values)
    return capture.replace(tables)


def source_notes(capture: Capture) -> list[Note]:
    """What the sources' numbers need to be read with, as notes; each code once."""
    rows = capture["source_note"].to_pylist()
    times = Counter(row["code"] for row in rows)
    first = {row["code"]: row for row in reversed(rows)}
    return [
        Note(row["code"], Severity.INFO, row["sentence"], {"num_sources": times[row["code"]]})
        for row in sorted(first.values(), key=rows.index)
    ]


def join_notes(capture: Capture) -> list[Note]:
    """How the links between requests, steps and kernels were found, where no source states them."""
    notes = []
    how, texts = capture.codes("request_step", "linked_by")
    inferred = np.flatnonzero(how != NO_ID)
    if len(inferred):
        sure = capture.float64("request_step", "confidence")[inferred]
        by = " and ".join(sorted({texts[code] for code in np.unique(how[inferred])}))
        notes.append(
            Note(
                "request-steps-inferred",
                Severity.INFO,
                f"{len(inferred):,} of {len(how):,} shares of requests in steps are inferred from {by}; "
                f"confidence {sure.mean():.2f} on the whole, {sure.min():.2f} at least",
                {"num_inferred": len(inferred), "num_shares": len(how)},
            )
        )
    observers, seen_by = capture.codes("step", "observer")
    labels, names = capture.codes("step", "name")
    by_structure = np.isin(observers, [at for at, name in enumerate(seen_by) if name == "profiler"])
    by_structure &= np.isin(
        labels, [at for at, name in enumerate(names) if name.startswith("inferred step")]
    )
    if num := int(by_structure.sum()):
        notes.append(
            Note(
                "steps-inferred",
                Severity.INFO,
                f"{num:,} steps of traces without annotations are inferred from what repeats",
                {"num_steps": num},
            )
        )
    return notes


def _num_scheduled(capture: Capture) -> int:
    codes, names = capture.codes("step", "observer")
    return int(np.isin(codes, [at for at, name in enumerate(names) if name == "scheduler"]).sum())


def _headline(capture: Capture, num_steps: int) -> str:
    codes, names = capture.codes("step", "engine")
    engines = Counter(names[code] for code in codes if code >= 0 and names[code] in _ENGINES)
    parts = [_ENGINES[engines.most_common(1)[0][0]] if engines else "serving"]
    ids, _ = capture.codes("request", "request_id")
    if len(ids):
        count = len(np.unique(ids[ids != NO_ID]))
        parts.append(f"{count:,} request{'s' if count != 1 else ''}")
    if num_steps:
        parts.append(f"{num_steps:,} steps")
    return " · ".join(parts)


def _answer(views: Sequence[Latency]) -> tuple[str, ...]:
    sentences = []
    for latency in views:
        figures = sorted(part_figures(latency), key=lambda part: -part.mean_ns)
        total = latency.total_ns
        name = _KINDS[latency.kind]
        largest = figures[0].key.replace("_", " ") if figures else "nothing"
        share = format_percent(round(figures[0].share * 1000), 1000) if figures else "0 %"
        first = (
            f"{name[0].upper()}{name[1:]} ({latency.observer}): p50 "
            f"{format_duration(percentile(total, 50))}, p99 {format_duration(percentile(total, 99))}; "
            f"{share} of it is {largest}"
        )
        several = tpot_ns(latency)
        if several is not None and len(several):
            first += f"; {format_duration(percentile(several, 50))} per output token at p50"
        more = [part for part in figures if part.slow_minus_rest_ns and part.slow_minus_rest_ns > 0]
        if more:
            worst = max(more, key=lambda part: part.slow_minus_rest_ns or 0)
            first += (
                f"; the slowest tenth has {format_duration(round(worst.slow_minus_rest_ns or 0))} more "
                f"of {worst.key.replace('_', ' ')} (effect {worst.effect:.2f})"
            )
        sentences.append(first + ".")
    return tuple(sentences)


def _unmeasured(capture: Capture, stated: ShownTable | None) -> str:
    if stated is not None:
        figures = [
            f"{row[0]} ({row[1]}) {format_duration(row[3])}"
            for row in stated.rows
            if isinstance(row[3], int)
        ]
        return f"The sources state durations, but no times: at p50 {', '.join(figures)}."
    if capture.num_rows("request"):
        return "The requests carry no times between which a latency could be measured."
    return (
        "Steps of a scheduler, but no requests: latency cannot be told; name a request log as well."
    )


def _funnel(latency: Latency) -> Funnel:
    total = int(latency.total_ns.sum())
    mean = format_duration(total // len(latency))
    title = f"{_KINDS[latency.kind]}, {latency.observer}, {len(latency):,} requests summed"
    rows = [FunnelRow("latency", _KINDS[latency.kind], 0, total, f"mean {mean}")]
    sums = latency.parts_ns.sum(axis=0).tolist()
    for (key, _), value in sorted(zip(PARTS, sums, strict=True), key=lambda row: -row[1]):
        if value:
            note = f"{format_duration(int(value) // len(latency))} a request" if value > 0 else None
            rows.append(FunnelRow(key, key.replace("_", " "), 1, int(value), note))
    return Funnel(title, rows)
