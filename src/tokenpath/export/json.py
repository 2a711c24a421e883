"""The report for programs: the same content in the same order, exact integers, no NaN.

docs/report-json.md describes every field; `report.schema.json` beside this file declares them.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tokenpath import __version__
from tokenpath.core.finding import Evidence, Finding
from tokenpath.core.report import (
    REPORT_SCHEMA_VERSION,
    Funnel,
    FunnelRow,
    Note,
    Report,
    ShownTable,
    Timeline,
    Window,
)
from tokenpath.export.tone import parent_indices

LINE_CHARS = 100
"""A value that fits into this many characters is written on one line."""


def render(report: Report) -> str:
    """The report as JSON text in ASCII, ending in a line feed; equal reports give equal bytes.

    Not finite numbers become null. Raises TypeError for a fact or detail that has no JSON form, and
    ValueError when two tables, or two columns of a table, have the same key.
    """
    return write(document(report)) + "\n"


def document(report: Report) -> dict[str, Any]:
    """What `render` writes, as plain Python values."""
    return {
        "schema_version": REPORT_SCHEMA_VERSION,
        "tokenpath_version": __version__,
        "verb": report.verb,
        "headline": report.headline,
        "answer": list(report.answer),
        "trust": str(report.trust),
        "window": None if report.window is None else _window(report.window),
        "funnel": None if report.funnel is None else funnel_tree(report.funnel),
        "findings": [_finding(finding) for finding in report.findings],
        "dismissed": list(report.dismissed),
        "notes": [_note(note) for note in report.notes],
        "device_funnels": [funnel_tree(funnel) for funnel in report.device_funnels],
        "step_funnels": [funnel_tree(funnel) for funnel in report.step_funnels],
        "request_funnels": [funnel_tree(funnel) for funnel in report.request_funnels],
        "tables": _unique("table", ((table.key, _table(table)) for table in report.tables)),
        "timeline": None if report.timeline is None else _timeline(report.timeline),
        "state": report.state,
        "facts": plain(report.facts, "facts"),
    }


def _window(window: Window) -> dict[str, Any]:
    return {
        "start_ns": int(window.start_ns),
        "end_ns": int(window.end_ns),
        "duration_ns": int(window.end_ns - window.start_ns),
        "name": window.name,
        "reason": window.reason,
    }


def funnel_tree(funnel: Funnel) -> dict[str, Any]:
    """The funnel with the rows of depth d+1 inside the row of depth d that they are part of."""
    nodes = [_node(row, funnel.wall_ns) for row in funnel.rows]
    roots: list[dict[str, Any]] = []
    for node, parent in zip(nodes, parent_indices(row.depth for row in funnel.rows), strict=True):
        (roots if parent is None else nodes[parent]["parts"]).append(node)
    for node in nodes:
        lengths = [part["duration_ns"] for part in node["parts"] if part["is_part"]]
        node["residual_ns"] = node["duration_ns"] - sum(lengths) if lengths else None
    if len(roots) != 1:
        raise ValueError(f"funnel {funnel.title!r} has {len(roots)} rows of lowest depth, not one")
    return {
        "title": funnel.title,
        "wall_ns": int(funnel.wall_ns),
        "is_closed": not any(node["residual_ns"] for node in nodes),
        "root": roots[0],
    }


def _node(row: FunnelRow, wall_ns: int) -> dict[str, Any]:
    return {
        "key": row.key,
        "label": row.label,
        "duration_ns": int(row.duration_ns),
        "share": row.duration_ns / wall_ns if wall_ns else None,
        "note": row.note,
        "is_part": row.is_part,
        "residual_ns": None,
        "parts": [],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    interval = finding.gain_interval_ns
    return {
        "code": finding.code,
        "sentence": finding.sentence,
        "kind": str(finding.kind),
        "value": plain(finding.value, "value"),
        "unit": finding.unit,
        "duration_ns": plain(finding.duration_ns, "duration_ns"),
        "share": plain(finding.share, "share"),
        "gain_ns": plain(finding.gain_ns, "gain_ns"),
        "gain_interval_ns": None if interval is None else [int(bound) for bound in interval],
        "gain_method": finding.gain_method,
        "status": str(finding.status),
        "scope": finding.scope,
        "place": dict(finding.place),
        "part_of_ns": {code: int(value) for code, value in finding.part_of_ns.items()},
        "confidence": plain(finding.confidence, "confidence"),
        "effort": finding.effort,
        "evidence": [_evidence(evidence) for evidence in finding.evidence],
        "falsifier": finding.falsifier,
        "fix": finding.fix,
        "details": plain(finding.details, f"details of {finding.code}"),
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {
        "table": evidence.table,
        "rows": [int(row) for row in evidence.rows],
        "num_rows": int(evidence.num_rows),
        "query": evidence.query,
    }


def _note(note: Note) -> dict[str, Any]:
    return {
        "code": note.code,
        "severity": str(note.severity),
        "sentence": note.sentence,
        "details": plain(note.details, f"details of {note.code}"),
    }


def _table(table: ShownTable) -> dict[str, Any]:
    keys = [column.key for column in table.columns]
    _unique(f"column of {table.key}", ((key, None) for key in keys))
    return {
        "title": table.title,
        "columns": [
            {
                "key": column.key,
                "label": column.label,
                "unit": str(column.unit),
                "is_key_figure": column.is_key_figure,
            }
            for column in table.columns
        ],
        "rows": [
            {key: plain(cell, key) for key, cell in zip(keys, row, strict=True)}
            for row in table.rows
        ],
        "num_rows_in_all": int(table.num_rows_in_all),
        "note": table.note,
    }


def _timeline(timeline: Timeline) -> dict[str, Any]:
    return {
        "start_ns": int(timeline.start_ns),
        "end_ns": int(timeline.end_ns),
        "window_start_ns": int(timeline.window_start_ns),
        "window_end_ns": int(timeline.window_end_ns),
        "lanes": [
            {
                "label": lane.label,
                "categories": [
                    {"name": name, "busy_ns": [int(length) for length in row]}
                    for name, row in zip(lane.categories, lane.busy_ns, strict=True)
                ],
            }
            for lane in timeline.lanes
        ],
    }


def _unique(what: str, pairs: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"two times {what} {key!r}: keys of a report are unique")
        result[key] = value
    return result


def plain(value: object, where: str) -> Any:
    """The value in JSON types only: NumPy scalars and arrays unpacked, not finite numbers null.

    TypeError, naming `where`, for anything else.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
        items = value if isinstance(value, Sequence) else sorted(value)
        return [plain(item, f"{where}[{index}]") for index, item in enumerate(items)]
    raise TypeError(f"{where} is {type(value).__name__}, which has no JSON form")


def write(value: Any, indent: str = "") -> str:
    """JSON text of plain values: short values on one line, lists of scalars too, the rest indented."""
    if not isinstance(value, dict | list) or not value:
        return _compact(value)
    items = value.values() if isinstance(value, dict) else value
    is_flat = not any(isinstance(item, dict | list) and item for item in items)
    if is_flat:
        text = _compact(value)
        if isinstance(value, list) or len(indent) + len(text) <= LINE_CHARS:
            return text
    deeper = indent + " "
    if isinstance(value, dict):
        lines = [f"{_compact(key)}: {write(item, deeper)}" for key, item in value.items()]
        opening, closing = "{", "}"
    else:
        lines = [write(item, deeper) for item in value]
        opening, closing = "[", "]"
    body = f",\n{deeper}".join(lines)
    return f"{opening}\n{deeper}{body}\n{indent}{closing}"


def _compact(value: Any) -> str:
    # ASCII: no bidirectional override or C1 control reaches a terminal, no lone surrogate an encoder.
    return json.dumps(value, ensure_ascii=True, allow_nan=False)
