"""Nodes of a graph to rows of `trace_node` and `collective`, whatever file they come from."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tokenpath.ingest import arrow
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.growing import NULL, GrowingRows, Words, nullable, whole
from tokenpath.ingest.losses import Losses

KINDS = ("process", "thread", "op", "kernel", "memory", "communication", "other")
MAX_NAME = 4096
"""Longer names are cut."""
MAX_SHAPES = 2**16
"""Longer texts of shapes or types are left out (and counted)."""


@dataclass
class Node:
    """One node; what a file does not say is None (or NULL of `growing` for integers)."""

    node: int
    """Id within the file."""
    name: str
    """As written."""
    kind: str
    """One of KINDS."""
    parent: int = NULL
    """Enclosing node."""
    control: list[int] | None = None
    """Nodes it waits for."""
    data: list[int] | None = None
    """Nodes whose output it takes."""
    at_ns: int = NULL
    """Start."""
    duration_ns: int = NULL
    """Duration."""
    shapes: str | None = None
    """Shapes of its inputs, JSON text."""
    dtypes: str | None = None
    """Types of its inputs, JSON text."""
    collective: str | None = None
    """Plain name of the collective."""
    payload_bytes: int = NULL
    """Bytes communicated."""
    external_id: int = NULL
    """Joins it to a profile."""


class Nodes:
    """Rows in the making, held as machine words and distinct texts."""

    def __init__(self, losses: Losses) -> None:
        self.num_seen = 0
        """Nodes seen, malformed ones included."""
        self.losses = losses
        """Where malformed ones are counted."""
        self._rows = GrowingRows(
            *("node", "name", "kind", "parent", "at_ns", "duration_ns", "shapes", "dtypes"),
            *("collective", "payload_bytes", "external_id"),
        )
        self._words = Words()
        self._control, self._data = _Lists(), _Lists()
        self._collectives: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, node: Node) -> None:
        """Add a row."""
        self._rows.append(
            node.node,
            self._words.code(node.name[:MAX_NAME]),
            KINDS.index(node.kind),
            node.parent,
            node.at_ns,
            node.duration_ns,
            self._code(node.shapes),
            self._code(node.dtypes),
            self._code(node.collective),
            node.payload_bytes,
            node.external_id,
        )
        self._control.add(node.control)
        self._data.add(node.data)

    def add_collective(self, row: dict[str, Any]) -> None:
        """Add a row of `collective`."""
        self._collectives.append(row)

    def build(self, builder: CaptureBuilder) -> None:
        """Give all rows to the builder."""
        builder.num_events += self.num_seen
        if not len(self):
            return
        columns = self._rows.columns()
        kinds = arrow.texts(columns["kind"].astype(np.int32), list(KINDS))
        builder.add(
            "trace_node",
            {
                "node": columns["node"],
                "name": self._words.column(columns["name"]),
                "kind": kinds,
                "parent_node": nullable(columns["parent"]),
                "control_predecessors": self._control.column(),
                "data_predecessors": self._data.column(),
                "at_ns": nullable(columns["at_ns"]),
                "duration_ns": nullable(columns["duration_ns"]),
                "input_shapes": self._words.column(columns["shapes"]),
                "input_dtypes": self._words.column(columns["dtypes"]),
                "collective": self._words.column(columns["collective"]),
                "payload_bytes": nullable(columns["payload_bytes"]),
                "external_id": nullable(columns["external_id"]),
            },
        )
        builder.add_rows("collective", self._collectives)

    def _code(self, text: str | None) -> int:
        return -1 if text is None else self._words.code(text)


class _Lists:
    """A column of lists of int64."""

    def __init__(self) -> None:
        self._values = array("q")
        self._ends = array("q", [0])
        self._is_null = array("b")

    def add(self, values: Iterable[int] | None) -> None:
        self._is_null.append(values is None)
        self._values.extend(values or ())
        self._ends.append(len(self._values))

    def column(self) -> pa.Array:
        ends = np.frombuffer(self._ends, np.int64)
        # A NULL as an offset makes its row NULL.
        is_null = np.append(np.frombuffer(self._is_null, np.int8) != 0, False)
        offsets = pa.array(ends.astype(np.int32), pa.int32(), mask=is_null)
        values = pa.array(np.frombuffer(self._values, np.int64))
        return pa.ListArray.from_arrays(offsets, values)


def id_list(value: object, losses: Losses) -> list[int] | None:
    """Ids of nodes; those that are no int64 are counted and left out. None for what is no list."""
    if not isinstance(value, list):
        return None
    ids = [whole(item) for item in value]
    known = [item for item in ids if item != NULL]
    losses.add("dependency on no node", len(ids) - len(known), dropped=False)
    return known


def json_text(value: object, losses: Losses) -> str | None:
    """A list as compact JSON text; None for an empty one, one too long, or no list."""
    if not isinstance(value, list) or not value:
        return None
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    except RecursionError:
        text = None
    if text is None or len(text) > MAX_SHAPES:
        losses.add("shapes too long", dropped=False)
        return None
    return text
