"""Times of requests from the spans of their stages, which hang below them at any depth."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenpath.ingest.otlp.assemble import Kept
from tokenpath.ingest.otlp.dialects import STAGES, Role

MAX_CLIMB = 16
"""Spans between a stage and its request."""
_NONE = -(2**62)


def times_of_stages(
    kept: Kept, roles: NDArray[np.int64], requests: NDArray[np.int64]
) -> dict[str, NDArray[np.int64]]:
    """By column, a time for each of the requests, -2**62 where no stage gives it.

    Of several stages of one name (chunks, resumptions) the first queueing, scheduling and begin of decode
    count, and the last end of prefill and of decode.
    """
    stages = np.flatnonzero(roles == Role.STAGE)
    if not len(stages):
        return {}
    traces, spans, parents = (
        column.to_pylist() for column in (kept.trace_id, kept.span_id, kept.parent_id)
    )
    row_of = {(traces[at], spans[at]): row for row, at in enumerate(requests.tolist())}
    parent_of = dict(zip(zip(traces, spans, strict=True), parents, strict=True))
    names = kept.name.to_pylist()
    found: dict[str, NDArray[np.int64]] = {}
    for at in stages.tolist():
        row = _request_above(traces[at], parents[at], row_of, parent_of)
        if row is None:
            continue
        begins, ends = STAGES[names[at]]
        for column, time in ((begins, kept.start_ns[at]), (ends, kept.end_ns[at])):
            if column is not None:
                values = found.setdefault(column, np.full(len(requests), _NONE))
                values[row] = _chosen(column, int(values[row]), int(time))
    prefilled = found.pop("prefilled_ns", None)
    if prefilled is not None:
        first = found.setdefault("first_token_ns", np.full(len(requests), _NONE))
        found["first_token_ns"] = np.where(first == _NONE, prefilled, first)
    return found


def _chosen(column: str, known: int, time: int) -> int:
    if known == _NONE:
        return time
    if column in ("queued_ns", "scheduled_ns", "first_token_ns"):
        return min(known, time)
    return max(known, time)


def _request_above(
    trace: str,
    parent: str | None,
    row_of: dict[tuple[str, str], int],
    parent_of: dict[tuple[str, str], str | None],
) -> int | None:
    for _ in range(MAX_CLIMB):
        if parent is None:
            return None
        row = row_of.get((trace, parent))
        if row is not None:
            return row
        parent = parent_of.get((trace, parent))
    return None
