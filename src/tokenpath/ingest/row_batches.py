"""Rows of several tables gathered and handed to a builder in batches, so that no file is held as objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tokenpath.ingest.builder import CaptureBuilder

_BATCH = 2048


class RowBatches:
    """Rows on their way to a builder. Row numbers count what was given, not what was handed on."""

    def __init__(self, builder: CaptureBuilder) -> None:
        self._builder = builder
        self._rows: dict[str, list[Mapping[str, Any]]] = {}

    def add(self, table: str, row: Mapping[str, Any]) -> None:
        """One row; a missing column is NULL."""
        rows = self._rows.setdefault(table, [])
        rows.append(row)
        if len(rows) >= _BATCH:
            self._flush(table)

    def sample(
        self,
        at_ns: int,
        name: str,
        value: float | None,
        unit: str | None,
        *,
        source_name: str | None = None,
        kind: str | None = "gauge",
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """One row of `counter_sample`; none where there is no value."""
        if value is None:
            return
        text = json.dumps(dict(sorted(labels.items()))) if labels else None
        row = {"at_ns": at_ns, "name": name, "source_name": source_name, "kind": kind}
        self.add("counter_sample", {**row, "labels": text, "value": float(value), "unit": unit})

    def finish(self) -> None:
        """Hand on what is left."""
        for table in list(self._rows):
            self._flush(table)

    def _flush(self, table: str) -> None:
        rows = self._rows.pop(table, [])
        if rows:
            self._builder.add_rows(table, rows)
