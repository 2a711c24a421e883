"""What the page shows: worded, scaled, cut to size and harmless, ready for `report.js` to lay out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenpath.core.finding import Finding
from tokenpath.core.report import (
    Cell,
    Funnel,
    FunnelRow,
    Note,
    Report,
    ShownTable,
    TableColumn,
    Timeline,
    TimelineLane,
    Unit,
)
from tokenpath.core.units import format_duration
from tokenpath.export import wording
from tokenpath.export.escape import visible
from tokenpath.export.json import plain, write
from tokenpath.export.numbers import duration_scale, scale_of
from tokenpath.export.tone import Tone, parent_indices, tone_of, tones

_TONED_COLUMNS = frozenset({"family", "category"})
"""Columns whose texts name what a device does, shown with the colour of it."""
_PER_MILLE = 1000
_SEGMENTS = (Tone.BUSY, Tone.COMMUNICATION, Tone.MEMCPY, Tone.UNKNOWN, Tone.IDLE)


@dataclass(frozen=True)
class Limits:
    """How much of a report goes into a page."""

    rows: int = 500
    """Of a table."""
    findings: int = 100
    notes: int = 100
    steps: int = 300
    """Funnels of steps."""
    devices: int = 64
    """Funnels of devices."""
    lanes: int = 32
    """Of the timeline."""
    bins: int = 400
    """Of a lane."""
    chars: int = 600
    """Of a text."""
    facts: int = 20_000
    """Characters of the facts."""


def page_data(report: Report, limits: Limits) -> dict[str, Any]:
    """Everything on the page, in the order of the page; texts visible and cut."""
    data = {
        "verb": report.verb,
        "headline": report.headline,
        "state": wording.state_sentence(report),
        "state_word": report.state,
        "trust": wording.trust_sentence(report),
        "trust_word": str(report.trust),
        "answer": list(report.answer[: limits.findings]),
        "window": None if report.window is None else wording.window_text(report.window),
        "spent": None if report.funnel is None else _overview([report.funnel], 1, with_rows=False),
        "funnel": None if report.funnel is None else _funnel(report.funnel),
        "withheld": wording.withheld_reason(report) if report.funnel is None else "",
        "devices": _overview(report.device_funnels, limits.devices, with_rows=True),
        "requests": _overview(report.request_funnels, limits.devices, with_rows=True),
        "findings": [_finding(f, report) for f in report.findings[: limits.findings]],
        "findings_left_out": max(0, len(report.findings) - limits.findings),
        "dismissed": list(report.dismissed[: limits.notes]),
        "dismissed_left_out": max(0, len(report.dismissed) - limits.notes),
        "notes": [_note(note) for note in report.notes[: limits.notes]],
        "notes_left_out": max(0, len(report.notes) - limits.notes),
        "steps": _overview(report.step_funnels, limits.steps, with_rows=False),
        "tables": [_table(table, limits.rows) for table in report.tables],
        "timeline": None if report.timeline is None else _timeline(report.timeline, limits),
    }
    shown: dict[str, Any] = _visible(data, limits.chars)
    facts = write(plain(report.facts, "facts")) if report.facts else ""
    shown["facts"] = "\n".join(visible(line) for line in facts[: limits.facts].split("\n"))
    shown["facts_left_out"] = max(0, len(facts) - limits.facts)
    return shown


def _visible(value: Any, chars: int) -> Any:
    if isinstance(value, str):
        return visible(value, chars)
    if isinstance(value, dict):
        return {key: _visible(item, chars) for key, item in value.items()}
    if isinstance(value, list):
        return [_visible(item, chars) for item in value]
    return value


def _funnel(funnel: Funnel) -> dict[str, Any]:
    """The rows, each bar beginning where the parts before it end: what adds up is seen to add up."""
    wall_ns = funnel.wall_ns
    scale = duration_scale(wall_ns)
    parents = parent_indices(row.depth for row in funnel.rows)
    next_ns: list[int] = []
    rows = []
    for row, parent, tone in zip(funnel.rows, parents, tones(funnel.rows), strict=True):
        start_ns = 0 if parent is None else next_ns[parent]
        next_ns.append(start_ns)
        if parent is not None and row.is_part:
            next_ns[parent] += row.duration_ns
        rows.append(
            {
                "label": row.label,
                "depth": row.depth,
                "number": scale.write(row.duration_ns),
                "percent": wording.percent(row.duration_ns, wall_ns),
                "left": _share(start_ns, wall_ns),
                "width": _share(row.duration_ns, wall_ns),
                "tone": str(tone),
                "note": row.note if row.is_part else _beside(row),
                "is_part": row.is_part,
            }
        )
    return {"title": funnel.title, "unit": scale.unit, "rows": rows}


def _beside(row: FunnelRow) -> str:
    return f"{row.note}, {wording.NOT_IN_SUM}" if row.note else wording.NOT_IN_SUM


def _share(part: int, whole: int) -> float:
    return round(min(max(part / whole, 0.0), 1.0), 5) if whole > 0 else 0.0


def _overview(funnels: Sequence[Funnel], most: int, with_rows: bool) -> dict[str, Any] | None:
    """A line a funnel: the wall and one bar of what it went into."""
    if not funnels:
        return None
    scale = duration_scale(max(funnel.wall_ns for funnel in funnels))
    lines = []
    for funnel in funnels[:most]:
        spent = _spent(funnel)
        lines.append(
            {
                "title": funnel.title,
                "wall": f"{scale.write(funnel.wall_ns)} {scale.unit}",
                "segments": [
                    [str(tone), _share(spent[tone], funnel.wall_ns),
                     f"{wording.percent(spent[tone], funnel.wall_ns)} %"]
                    for tone in _SEGMENTS if spent[tone] > 0
                ],
                "funnel": _funnel(funnel) if with_rows else None,
            }
        )  # fmt: skip
    return {"lines": lines, "left_out": max(0, len(funnels) - most)}


def _spent(funnel: Funnel) -> Counter[Tone]:
    """The wall by tone: each row that has no parts counts for its own."""
    parents = parent_indices(row.depth for row in funnel.rows)
    with_parts = {p for p, row in zip(parents, funnel.rows, strict=True) if row.is_part}
    spent: Counter[Tone] = Counter()
    for index, (row, tone) in enumerate(zip(funnel.rows, tones(funnel.rows), strict=True)):
        if index not in with_parts and row.is_part:
            spent[Tone.BUSY if tone is Tone.WALL else tone] += row.duration_ns
    return spent


def _finding(finding: Finding, report: Report) -> dict[str, Any]:
    wall_ns = report.funnel.wall_ns if report.funnel is not None else 0
    interval = finding.gain_interval_ns
    return {
        "code": finding.code,
        "kind": str(finding.kind),
        "sentence": finding.sentence,
        "gain": wording.gain(finding),
        "explained": wording.explained(finding),
        "gain_share": _share(finding.gain_ns or 0, wall_ns),
        "explained_share": _share(finding.duration_ns or 0, wall_ns),
        "interval": None if interval is None else [_share(bound, wall_ns) for bound in interval],
        "support": [list(pair) for pair in wording.support(finding)],
        "queries": [evidence.query for evidence in finding.evidence if evidence.query],
        "details": _details(finding.details),
    }


def _note(note: Note) -> dict[str, Any]:
    return {
        "severity": str(note.severity),
        "label": wording.note_label(note),
        "code": note.code,
        "sentence": note.sentence,
        "details": _details(note.details),
    }


def _details(details: Any) -> list[list[str]]:
    shown = plain(details, "details")
    return [
        [key, value if isinstance(value, str) else write(value)] for key, value in shown.items()
    ]


def _table(table: ShownTable, most: int) -> dict[str, Any]:
    rows = [list(row) for row in table.rows[:most]]
    return {
        "key": table.key,
        "title": table.title,
        "columns": [_column(c, [row[i] for row in rows]) for i, c in enumerate(table.columns)],
        "rows": [[_cell(cell) for cell in row] for row in rows],
        "num_rows_in_all": max(int(table.num_rows_in_all), len(table.rows)),
        "note": table.note,
        "is_lead": table.is_lead,
    }


def _column(column: TableColumn, cells: Sequence[Cell]) -> dict[str, Any]:
    scale = scale_of(column.unit, cells)
    is_toned = column.key in _TONED_COLUMNS
    return {
        "key": column.key,
        "label": column.label,
        "unit": scale.unit,
        "divisor": scale.divisor,
        "decimals": scale.decimals,
        "is_text": column.unit is Unit.TEXT,
        "is_share": column.unit is Unit.SHARE,
        "is_key_figure": column.is_key_figure,
        "tones": [str(tone_of(c)) if isinstance(c, str) else None for c in cells]
        if is_toned
        else None,
    }


def _cell(cell: Cell) -> Any:
    value = plain(cell, "cell")
    # Seven digits: more than the page shows, and half the bytes of a float in full.
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _timeline(timeline: Timeline, limits: Limits) -> dict[str, Any]:
    span_ns = timeline.end_ns - timeline.start_ns
    scale = duration_scale(span_ns)
    return {
        "length": span_ns / scale.divisor,
        "unit": scale.unit,
        "window": [
            _share(timeline.window_start_ns - timeline.start_ns, span_ns),
            _share(timeline.window_end_ns - timeline.start_ns, span_ns),
        ],
        "lanes": [_lane(lane, span_ns, limits.bins) for lane in timeline.lanes[: limits.lanes]],
        "left_out": max(0, len(timeline.lanes) - limits.lanes),
        "bin": format_duration(span_ns / max(1, _num_bins(timeline, limits.bins))),
    }


def _num_bins(timeline: Timeline, most: int) -> int:
    counts = [len(row) for lane in timeline.lanes for row in lane.busy_ns]
    return min(max(counts, default=1), most)


def _lane(lane: TimelineLane, span_ns: int, most: int) -> dict[str, Any]:
    return {
        "label": lane.label,
        "categories": [
            {"name": name, "tone": str(tone_of(name)), "bins": _bins(row, span_ns, most)}
            for name, row in zip(lane.categories, lane.busy_ns, strict=True)
        ],
    }


def _bins(busy_ns: Sequence[int], span_ns: int, most: int) -> list[int]:
    """Per mille of each bin; a lane of more bins is cut anew into `most` equal ones."""
    num_bins = len(busy_ns)
    if num_bins == 0 or span_ns <= 0:
        return []
    until = np.concatenate(([0], np.cumsum(np.asarray(busy_ns, np.float64))))
    edges = np.linspace(0, num_bins, min(num_bins, most) + 1)
    filled = np.diff(np.interp(edges, np.arange(num_bins + 1), until))
    shares = np.clip(filled / (span_ns / (len(edges) - 1)), 0, 1)
    result: list[int] = np.rint(_PER_MILLE * shares).astype(int).tolist()
    return result
