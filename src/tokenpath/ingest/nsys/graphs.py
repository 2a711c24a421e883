"""Nodes of CUDA graphs become rows of `graph_node`, with the operator that made each at capture time.

CUDA_GRAPH_NODE_EVENTS holds when each node was made; a node of an instantiated graph names the node it
was cloned from (`originalGraphNodeId`), and the first of those lies inside the operator that was captured.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import Int64s
from tokenpath.capture.nesting import innermost, parents
from tokenpath.core.units import INT64_MIN
from tokenpath.ingest.nsys.places import process_key
from tokenpath.ingest.nsys.state import State

NODES = "CUDA_GRAPH_NODE_EVENTS"

_MAX_CLONES = 16
"""A graph is cloned once or twice; a longer chain is no chain."""


def read_graph_nodes(state: State) -> None:
    """The nodes of all graphs whose kernels were recorded one by one."""
    columns = state.read(NODES, ["start", "globalTid", "graphNodeId", "originalGraphNodeId"])
    state.num_unplaced += columns.num_rows
    state.builder.losses.add(
        "making of a graph node, joined to its kernels", columns.num_rows, lost=False
    )
    so_far = state.builder.so_far()
    if columns.num_rows == 0 or so_far.num_rows("kernel") == 0:
        return
    source, graph, node = _replayed(so_far)
    if len(node) == 0:
        return
    key = process_key(columns.integer("globalTid"))
    made = {
        (int(owner), int(number)): row
        for row, (owner, number) in reversed(
            list(enumerate(zip(key.tolist(), columns.integer("graphNodeId").tolist(), strict=True)))
        )
    }
    original = columns.integer("originalGraphNodeId").tolist()
    process = np.array(state.processes.keys, np.int64)
    rows = np.array(
        [
            _first(made, original, (int(process[owner]), number))
            for owner, number in zip(source.tolist(), node.tolist(), strict=True)
        ],
        np.int64,
    )
    names = _names_at(state, so_far, columns.integer("globalTid"), columns.integer("start"), rows)
    state.builder.add(
        "graph_node",
        {
            "source_id": source.astype(np.int32),
            "graph_id": pa.array(graph, mask=graph == INT64_MIN),
            "node": node,
            "op_name": names,
        },
    )


def _replayed(capture: Capture) -> tuple[Int64s, Int64s, Int64s]:
    """(source, graph, node) of all nodes that ran."""
    node = capture.int64("kernel", "graph_node_id", INT64_MIN)
    rows = np.flatnonzero(node != INT64_MIN)
    place = np.stack(
        [
            capture.ids("kernel", "source_id")[rows].astype(np.int64),
            capture.int64("kernel", "graph_id", INT64_MIN)[rows],
            node[rows],
        ],
        axis=1,
    )
    distinct = np.unique(place, axis=0) if len(place) else place
    return distinct[:, 0], distinct[:, 1], distinct[:, 2]


def _first(made: dict[tuple[int, int], int], original: list[int], node: tuple[int, int]) -> int:
    """Row in which the node was made that this one was cloned from in the end; -1 for an unknown one."""
    row = made.get(node, -1)
    for _ in range(_MAX_CLONES):
        if row < 0 or original[row] in (INT64_MIN, 0, node[1]):
            return row
        node = (node[0], original[row])
        row = made.get(node, -1)
    return -1


def _names_at(
    state: State, capture: Capture, serial: Int64s, start: Int64s, rows: Int64s
) -> list[str | None]:
    """The innermost operator, else range, around the making of each node on its thread."""
    names: list[str | None] = [None] * len(rows)
    known = np.flatnonzero(rows >= 0)
    if len(known) == 0:
        return names
    row_of = {number: row for row, number in enumerate(state.threads.serials)}
    thread = np.array([row_of.get(number, -1) for number in serial[rows[known]].tolist()], np.int32)
    at = start[rows[known]] + state.offset_ns
    for table in ("range", "op"):
        if capture.num_rows(table) == 0:
            continue
        group = capture.ids(table, "thread_id")
        begin, end = capture.int64(table, "start_ns"), capture.int64(table, "end_ns")
        found = innermost(group, begin, end, parents(group, begin, end), thread, at, at)
        texts = capture[table]["name"]
        for position, row in zip(known.tolist(), found.tolist(), strict=True):
            if row >= 0:
                names[position] = texts[row].as_py()
    return names
