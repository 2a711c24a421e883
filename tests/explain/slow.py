"""The slow and obvious version of what `explain` measures, from the rows of a capture one by one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tokenpath.capture.capture import Capture

Span = tuple[int, int]


def union(spans: Iterable[Span]) -> list[Span]:
    """Disjoint spans that cover the same nanoseconds."""
    merged: list[Span] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def length(spans: Iterable[Span]) -> int:
    """Nanoseconds in at least one of the spans."""
    return sum(end - start for start, end in union(spans))


def cut(spans: Iterable[Span], low: int, high: int) -> list[Span]:
    """The spans within `low` .. `high`."""
    return [(max(start, low), min(end, high)) for start, end in spans]


def minus(spans: Iterable[Span], other: Iterable[Span]) -> int:
    """Nanoseconds in `spans` and not in `other`."""
    spans, other = list(spans), list(other)
    return length([*spans, *other]) - length(other)


@dataclass(frozen=True)
class Work:
    """One row of `kernel`."""

    name: str
    kind: str
    stream: int
    start: int
    end: int
    launch: int | None
    """Start of the launching call."""

    @property
    def span(self) -> Span:
        """Start and end."""
        return self.start, self.end


def works(capture: Capture) -> dict[int, list[Work]]:
    """The work of each row of `device`."""
    calls = capture["api_call"]["start_ns"].to_pylist()
    found: dict[int, list[Work]] = defaultdict(list)
    for row in capture["kernel"].to_pylist():
        call = row["api_call_id"]
        found[row["device_id"]].append(
            Work(
                row["name"],
                row["kind"],
                row["stream_id"],
                row["start_ns"],
                row["end_ns"],
                None if call is None else calls[call],
            )
        )
    return dict(found)


@dataclass(frozen=True)
class Numbers:
    """The numbers of one device in one window; names as in the facts of a report."""

    span_ns: int
    busy_ns: int
    compute_ns: int
    memset_ns: int
    communication_ns: int
    exposed_communication_ns: int
    memcpy_ns: int
    exposed_memcpy_ns: int


def numbers(rows: Sequence[Work], low: int, high: int) -> Numbers:
    """Counted from the definitions of the glossary."""

    def of(*kinds: str) -> list[Span]:
        return cut([row.span for row in rows if row.kind in kinds], low, high)

    return Numbers(
        span_ns=high - low,
        busy_ns=length(of("compute", "memset", "communication", "memcpy")),
        compute_ns=length(of("compute")),
        memset_ns=minus(of("memset"), of("compute")),
        communication_ns=length(of("communication")),
        exposed_communication_ns=minus(of("communication"), of("compute", "memset")),
        memcpy_ns=length(of("memcpy")),
        exposed_memcpy_ns=minus(of("memcpy"), of("compute", "memset", "communication")),
    )


def whole(rows: Sequence[Work]) -> Span:
    """First start to last end."""
    return min(row.start for row in rows), max(row.end for row in rows)


def percentile(values: Iterable[int], percent: int) -> int:
    """Nearest rank: the smallest value that at least so many per cent do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(percent * len(ordered) / 100), 1) - 1]


def queue_depth(row: Work, rows: Iterable[Work]) -> int:
    """Earlier launches of the device that had not started when this one was launched."""
    assert row.launch is not None
    return sum(
        other.launch is not None and other.launch < row.launch < other.start for other in rows
    )


def self_times(capture: Capture) -> dict[str, list[int]]:
    """Self time of operators and API calls by name, where they nest properly."""
    rows: list[dict[str, Any]] = []
    for layer, table in enumerate(("op", "api_call")):
        rows += [row | {"layer": layer} for row in capture[table].to_pylist()]
    found: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        inside = [
            (other["start_ns"], other["end_ns"])
            for other in rows
            if other is not row
            and other["thread_id"] == row["thread_id"]
            and row["start_ns"] <= other["start_ns"]
            and other["end_ns"] <= row["end_ns"]
            # Of two equal ones the call is inside the operator.
            and (other["start_ns"], -other["end_ns"], other["layer"])
            > (row["start_ns"], -row["end_ns"], row["layer"])
        ]
        found[row["name"]].append(row["end_ns"] - row["start_ns"] - length(inside))
    return dict(found)
