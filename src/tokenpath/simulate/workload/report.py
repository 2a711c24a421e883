"""Descriptions and fits as reports: one sentence first, then the numbers it stands on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenpath.core.report import (
    Cell,
    Note,
    Report,
    Severity,
    ShownTable,
    TableColumn,
    Trust,
    Unit,
)
from tokenpath.simulate.workload.describe import Description, describe
from tokenpath.simulate.workload.model import WorkloadModel
from tokenpath.simulate.workload.rows import ReadWorkload
from tokenpath.simulate.workload.statistics import LengthFacts

_MAX_CANDIDATES = 6


def report_of_workload(read: ReadWorkload) -> Report:
    """What a workload is like."""
    found = describe(read.workload)
    lost = sum(skip.num_rows for skip in read.skips)
    notes = [_info(note) for note in read.notes]
    notes += [
        Note(
            "rows-left-out",
            Severity.WARNING,
            f"{skip.num_rows:,} rows left out: {skip.reason}"
            + (f" (first in line {skip.first_line:,})." if skip.first_line else "."),
        )
        for skip in read.skips
    ]
    return Report(
        verb="workload describe",
        headline=" · ".join([found.name, read.format, *_state(found.state)]),
        answer=(found.sentence,),
        trust=Trust.GOOD if lost <= found.num_requests else Trust.LIMITED,
        window=None,
        funnel=None,
        findings=(),
        dismissed=(),
        notes=notes,
        tables=[table for table in (_lengths(found), _arrivals(found), _reuse(found)) if table],
        state="measured" if found.state == "measured" else "synthetic",
        facts={
            "workload": found.to_json(),
            "skips": [
                {"reason": skip.reason, "num_rows": skip.num_rows, "first_line": skip.first_line}
                for skip in read.skips
            ],
        },
    )


def report_of_model(model: WorkloadModel, read: ReadWorkload | None = None) -> Report:
    """What a model is made of, and how far it is from what it was fitted to."""
    drawn = model.errors.get("drawn", {})
    kinds = {
        name: (model.errors.get(name) or {}).get("kind", "unknown")
        for name in ("arrivals", "prompt_tokens", "output_tokens")
    }
    arrivals = (
        f"a closed loop of {model.concurrency:,}" if model.concurrency else model.arrivals.label
    )
    sentence = (
        f"Requests come as {arrivals}; "
        + (f"turns of {model.sessions.turn.label}" if model.sessions else model.lengths.label)
        + "."
    )
    worst = max(
        # Of a correlation near 0 any difference is many times itself.
        (
            (abs(a - b) / abs(a), name)
            for name, (a, b) in _pairs(drawn)
            if a and "correlation" not in name
        ),
        default=(0.0, ""),
    )
    answer = [sentence]
    if worst[1]:
        answer.append(
            f"A workload drawn from it differs most in {worst[1].replace('_', ' ')}: by {worst[0]:.0%}."
        )
    notes = [_info(note) for note in model.notes]
    if read is not None:
        notes += [_info(note) for note in read.notes]
    return Report(
        verb="workload fit",
        headline=f"{model.name} · {kinds['arrivals']} arrivals · {model.num_requests:,} requests",
        answer=answer,
        trust=Trust.GOOD,
        window=None,
        funnel=None,
        findings=(),
        dismissed=(),
        notes=notes,
        tables=[_drawn(drawn), *_candidates(model)],
        facts={"model": model.to_json()},
    )


def _pairs(drawn: dict[str, dict[str, float | None]]) -> list[tuple[str, tuple[float, float]]]:
    return [
        (name, (row["measured"], row["drawn"]))
        for name, row in drawn.items()
        if row["measured"] is not None and row["drawn"] is not None
    ]


def _drawn(drawn: dict[str, dict[str, float | None]]) -> ShownTable:
    rows: list[list[Cell]] = [
        [name.replace("_", " "), measured, found, _difference(name, measured, found)]
        for name, (measured, found) in _pairs(drawn)
    ]
    return _table(
        "drawn",
        "Measured, and drawn from the model",
        [
            ("figure", "figure", Unit.TEXT),
            ("measured", "measured", Unit.NUMBER),
            ("drawn", "drawn", Unit.NUMBER),
            ("difference", "difference", Unit.TEXT),
        ],
        rows,
    )


def _difference(name: str, measured: float, found: float) -> str | None:
    if "correlation" in name:
        return f"{found - measured:+.2f}"
    return f"{found / measured - 1:+.0%}" if measured else None


def _candidates(model: WorkloadModel) -> list[ShownTable]:
    tables = []
    found = (model.errors.get("arrivals") or {}).get("candidates") or []
    if found:
        rows: list[list[Cell]] = [
            [
                entry["kind"],
                entry["num_parameters"],
                entry["log_likelihood"],
                _plus_minus(entry["behind_best"], entry["behind_error"]),
                entry["dispersion_error"],
            ]
            for entry in _shown(found, model.errors["arrivals"]["kind"])
        ]
        columns = [
            ("kind", "arrival process", Unit.TEXT),
            ("num_parameters", "numbers", Unit.COUNT),
            ("log_likelihood", "nats a gap", Unit.NUMBER),
            ("behind_best", "behind the best", Unit.TEXT),
            ("dispersion_error", "dispersion off", Unit.NUMBER),
        ]
        tables.append(
            _table("arrivals", "Arrivals, on stretches left out", columns, rows, len(found))
        )
    lengths: list[list[Cell]] = [
        [side.replace("_", " "), entry["kind"], entry["num_parameters"], f"{entry['error']:.1%}"]
        for side in ("prompt_tokens", "output_tokens")
        for entry in (model.errors.get(side) or {}).get("candidates") or []
    ]
    if lengths:
        columns = [
            ("side", "length", Unit.TEXT),
            ("kind", "law", Unit.TEXT),
            ("num_parameters", "numbers", Unit.COUNT),
            ("error", "off", Unit.TEXT),
        ]
        tables.append(_table("lengths", "Lengths, on requests left out", columns, lengths))
    return tables


def _shown(candidates: list[dict[str, Any]], chosen: str) -> list[dict[str, Any]]:
    """The best ones, and the one that was taken."""
    rest = [entry for entry in candidates[_MAX_CANDIDATES:] if entry["kind"] == chosen]
    return candidates[:_MAX_CANDIDATES] + rest


def _plus_minus(value: float | None, error: float | None) -> str | None:
    return None if value is None or error is None else f"{value:.4f} ± {error:.4f}"


def _lengths(found: Description) -> ShownTable | None:
    rows = [
        _length_row(name, facts)
        for name, facts in (("prompt", found.prompt), ("output", found.output))
        if facts is not None
    ]
    if not rows:
        return None
    columns = [("side", "tokens", Unit.TEXT)]
    columns += [("mean_tokens", "mean", Unit.COUNT)]
    columns += [
        (f"p{number}_tokens", f"p{number}", Unit.COUNT) for number in (1, 10, 25, 50, 75, 90, 99)
    ]
    columns += [("max_tokens", "max", Unit.COUNT)]
    note = (
        None
        if found.length_correlation is None
        else f"Rank correlation of prompt and output: {found.length_correlation:.2f}"
    )
    return _table("lengths", "Lengths", columns, rows, note=note)


def _length_row(name: str, facts: LengthFacts) -> list[Cell]:
    return [name, round(facts.mean_tokens), *facts.quantile_tokens, facts.max_tokens]


def _arrivals(found: Description) -> ShownTable | None:
    if found.arrivals is None or not found.arrivals.dispersions:
        return None
    rows: list[list[Cell]] = [
        [f"{entry.window_s:g} s", entry.mean_count, entry.peak_count, entry.index]
        for entry in found.arrivals.dispersions
    ]
    columns = [
        ("window", "in windows of", Unit.TEXT),
        ("mean_count", "mean", Unit.NUMBER),
        ("peak_count", "most", Unit.COUNT),
        ("index", "variance / mean", Unit.NUMBER),
    ]
    note = f"CV of the gaps: {found.arrivals.gap_cv:.2f}; Poisson arrivals have 1 in both"
    if found.arrivals.rounded_to_s is not None:
        note += f"; times are rounded to {found.arrivals.rounded_to_s:g} s"
    return _table("arrivals", "Arrivals", columns, rows, note=note)


def _reuse(found: Description) -> ShownTable | None:
    if found.reuse is None:
        return None
    rows: list[list[Cell]] = [
        [f"{entry.keep_s:g} s", entry.hit_ratio, round(entry.mean_held_tokens)]
        for entry in found.reuse.kept_for
    ]
    rows.append(["for ever", found.reuse.ideal_hit_ratio, found.reuse.unique_tokens])
    columns = [
        ("keep", "kept after last use", Unit.TEXT),
        ("hit_ratio", "of prompt tokens found", Unit.SHARE),
        ("held_tokens", "tokens held", Unit.COUNT),
    ]
    note = f"{found.reuse.share_of_requests:.1%} of requests repeat something"
    return _table("reuse", "Prefix cache, if answers took no time", columns, rows, note=note)


def _table(
    key: str,
    title: str,
    columns: Sequence[tuple[str, str, Unit]],
    rows: Sequence[Sequence[Cell]],
    num_rows_in_all: int | None = None,
    note: str | None = None,
) -> ShownTable:
    return ShownTable(
        key,
        title,
        [TableColumn(*column) for column in columns],
        rows,
        num_rows_in_all or len(rows),
        note=note,
        is_lead=True,
    )


def _info(note: str) -> Note:
    return Note("workload", Severity.INFO, note[0].upper() + note[1:] + ".")


def _state(state: str) -> list[str]:
    return [] if state == "measured" else [state.upper()]
