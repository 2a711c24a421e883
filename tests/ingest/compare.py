"""Captures as plain rows, and whether two of them are the same."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tokenpath.capture.capture import Capture


def rows(capture: Capture, table: str, *columns: str) -> list[Any]:
    """The rows of a table: values if one column is named, else tuples."""
    parts = [capture[table][column].to_pylist() for column in columns]
    return parts[0] if len(columns) == 1 else list(zip(*parts, strict=True))


def reasons(capture: Capture) -> dict[str, int]:
    """Number of events by reason, over all sources."""
    counts: dict[str, int] = {}
    for reason, number in rows(capture, "skip", "reason", "num_events"):
        counts[reason] = counts.get(reason, 0) + number
    return counts


def lost(capture: Capture) -> dict[str, int]:
    """The same, only those that lost information."""
    return {
        reason: number
        for reason, is_lost, number in rows(capture, "skip", "reason", "lost", "num_events")
        if is_lost
    }


def difference(a: Capture, b: Capture) -> str | None:
    """The first table and column in which two captures differ; None when they are the same."""
    for name in sorted(set(a) | set(b)):
        if a.num_rows(name) != b.num_rows(name):
            return f"{name}: {a.num_rows(name)} and {b.num_rows(name)} rows"
        for column in a[name].schema.names:
            if not _plain(a[name][column]).equals(_plain(b[name][column])):
                return f"{name}.{column}"
    return None


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column
