"""Which sources belong to one run of one process, so that ids may be matched across them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture


def run_of_source(capture: Capture) -> NDArray[np.int32]:
    """A run number for each row of `source`.

    Sources with the same trace id, base time and rank are parts of one split capture; every other
    source is a run of its own.
    """
    source = capture["source"]
    numbers: dict[object, int] = {}
    runs = []
    for row in range(source.num_rows):
        trace_id, base, rank = (
            source[name][row].as_py() for name in ("trace_id", "base_time_ns", "rank")
        )
        key = row if trace_id is None else (trace_id, base, rank)
        runs.append(numbers.setdefault(key, len(numbers)))
    return np.array(runs, np.int32)


def runs_of(capture: Capture, table: str) -> NDArray[np.int32]:
    """The run number of every row of a table."""
    run = run_of_source(capture)
    source_ids = capture.ids(table, "source_id")
    if len(run) == 0:
        return np.zeros(len(source_ids), np.int32)
    result: NDArray[np.int32] = run[source_ids]
    return result


def match(
    run: NDArray[np.int32],
    key: NDArray[np.int64],
    at_run: NDArray[np.int32],
    at_key: NDArray[np.int64],
    unknown: int,
) -> NDArray[np.int32]:
    """For each `at` the first row with the same run and key; -1 where there is none.

    `unknown` is the key that matches nothing.
    """
    result = np.full(len(at_key), -1, np.int32)
    if len(key) == 0 or len(at_key) == 0:
        return result
    for number in np.unique(at_run):
        whole = run[0] == number and bool((run == number).all())
        rows = np.arange(len(key)) if whole else np.flatnonzero(run == number)
        at_rows = np.flatnonzero((at_run == number) & (at_key != unknown))
        keys = key[rows]
        if len(rows) == 0 or len(at_rows) == 0:
            continue
        if (keys[1:] < keys[:-1]).any():
            order = np.argsort(keys, kind="stable")
            rows, keys = rows[order], keys[order]
        wanted = at_key[at_rows]
        position = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        result[at_rows] = np.where(keys[position] == wanted, rows[position], -1)
    return result
