"""Where the rows of a capture stand in a graph, and the weights that a what-if changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s
from tokenpath.replay.change import Rows
from tokenpath.replay.edges import EdgeKind
from tokenpath.replay.graph import Graph

Bools = NDArray[np.bool_]
Int32s = NDArray[np.int32]


@dataclass(frozen=True)
class Weights:
    """What `retime` is to use instead of the measured weights."""

    weight: Int64s
    """Weight of each edge."""
    delay: Int64s
    """Delay of each point."""
    is_gone: Bools
    """Which pieces of work are no longer there."""
    base: Int64s
    """Time of each point without a predecessor, 0 for all others."""


class Places:
    """Where rows of a capture stand in a graph; made once, used by every what-if."""

    def __init__(self, graph: Graph) -> None:
        """Look up all points and edges once."""
        self.graph = graph
        work, calls = graph.measured.work, graph.measured.calls
        self.work_of_row = _inverse(work.row)
        self.call_of_row = _inverse(calls.row)
        self.work_of_point = np.full(graph.num_points, -1, np.int32)
        self.work_of_point[graph.work_start] = np.arange(len(work))
        self.work_of_point[graph.work_end] = np.arange(len(work))
        self.is_start = np.zeros(graph.num_points, np.bool_)
        self.is_start[graph.work_start] = True
        self.edges = {kind: graph.edges_of(kind) for kind in EdgeKind}
        self.thread_of_point = np.full(graph.num_points, -1, np.int32)
        self.thread_of_point[graph.call_start] = calls.thread
        self.thread_of_point[graph.call_end] = calls.thread

    def work(self, rows: Rows) -> Int64s:
        """Positions in Work of rows of `kernel`."""
        return _places(self.work_of_row, rows)

    def calls(self, rows: Rows) -> Int64s:
        """Positions in Calls of rows of `api_call`; those that neither launch nor wait have none."""
        return _places(self.call_of_row, rows)


def _inverse(row: Int32s) -> Int32s:
    result = np.full(int(row.max()) + 1 if len(row) else 0, -1, np.int32)
    result[row] = np.arange(len(row))
    return result


def _places(place_of_row: Int32s, rows: Rows) -> Int64s:
    known = rows[(rows >= 0) & (rows < len(place_of_row))]
    found = place_of_row[known].astype(np.int64)
    return found[found >= 0]
