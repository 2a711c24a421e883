"""Steps of a trace without annotations, from what repeats on the thread that drives the work.

A step does some things exactly once (it embeds, it samples, it updates the parameters), others once a
layer. Names that alternate with one another, each once between two of any other, form a cycle; the cycle
of the things that only a step does is the step, coarser than that of a layer. Within a cycle the step
begins where the thread, on the whole, pauses longest: there the engine schedules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture, build_table
from tokenpath.capture.intervals import covered, union
from tokenpath.capture.nesting import parents
from tokenpath.core.units import INT64_MAX

Int64s = NDArray[np.int64]

ONCE_A_STEP = re.compile(
    r"argmax|multinomial|sampl|topk_topp|top_k_top_p|penalt|(?<!rotary_)embedding|lm_head",
    re.IGNORECASE,
)
"""Words of operators and kernels that engines run once a step, not once a layer."""
_MIN_EVENTS = 12
_MIN_SUPPORT = 3
"""A cycle of fewer names is chance."""
_MAX_NAMES = 4000
ONE_STEP = 0.5
"""Confidence of a trace in which nothing a step does comes twice: it is one step, or none."""
_MAX_THREADS = 3
_OPENING = 6
"""So many names open a step."""
_MAX_OPENING = 400
_LONGER_PAUSE = 3
"""So many times the usual pause tells an opening from any place at which a recording may begin."""
_MIN_COVERED = 0.5
"""A cycle that lies in less of the trace than this is not its step."""


@dataclass(frozen=True)
class InferredSteps:
    """Steps of one source."""

    start: Int64s
    """Start of each, ns."""
    end: Int64s
    """End of each, ns; that of the last event in it."""
    confidence: float
    """How much of what should alternate does, 0 to 1."""


def infer_steps(capture: Capture, source: int) -> InferredSteps | None:
    """The steps of one source; None when there is too little to see a structure in."""
    best: tuple[tuple[float, int, int], _Events, _Cycle] | None = None
    lines = [line for line in _lines(capture, source) if len(line.codes) >= _MIN_EVENTS]
    for line in lines:
        cycle = _find_cycle(line.codes, line.names)
        if cycle is not None:
            # Of threads that repeat alike the one that begins first drives the others.
            rank = (-round(cycle.support / cycle.total, 1), len(cycle.anchor), int(line.start[0]))
            if best is None or rank < best[0]:
                best = rank, line, cycle
    if best is None:
        if not lines:
            return None
        line = lines[0]
        return InferredSteps(line.start[:1], np.array([int(line.end.max())]), ONE_STEP)
    _, line, cycle = best
    cuts = _cuts(line, cycle.anchor)
    first = np.concatenate(([0], cuts))
    last = np.concatenate((cuts, [len(line.codes)])) - 1
    highest = np.maximum.accumulate(line.end)
    return InferredSteps(line.start[first], highest[last], cycle.support / cycle.total)


@dataclass(frozen=True)
class _Events:
    """What one thread did, in order: outermost operators, or kernels."""

    codes: NDArray[np.int32]
    start: Int64s
    end: Int64s
    names: list[str]
    pause: Int64s
    """Time before each in which no thread of the source did anything that was recorded."""


@dataclass(frozen=True)
class _Cycle:
    """Names that alternate."""

    anchor: Int64s
    """Places of one of them."""
    support: int
    """Names that alternate with it."""
    total: int
    """Names that occur about as often."""


def _lines(capture: Capture, source: int) -> list[_Events]:
    """Outermost operators of the threads that do the most different things, else kernels."""
    mine = np.flatnonzero(capture.ids("op", "source_id") == source)
    if len(mine) < _MIN_EVENTS:
        mine = np.flatnonzero(capture.ids("kernel", "source_id") == source)
        return [_in_order(capture, "kernel", mine)] if len(mine) else []
    thread = capture.ids("op", "thread_id")[mine]
    start, end = capture.int64("op", "start_ns")[mine], capture.int64("op", "end_ns")[mine]
    outermost = parents(thread, start, end) < 0
    mine, thread = mine[outermost], thread[outermost]
    codes, _ = capture.codes("op", "name")
    pairs = np.unique(np.stack((thread, codes[mine])), axis=1)
    busiest = np.argsort(-np.bincount(pairs[0]), kind="stable")[:_MAX_THREADS]
    return [
        _in_order(capture, "op", mine[thread == one]) for one in busiest if (thread == one).any()
    ]


def _in_order(capture: Capture, table: str, rows: Int64s) -> _Events:
    codes, names = capture.codes(table, "name")
    start = capture.int64(table, "start_ns")[rows]
    order = np.argsort(start, kind="stable")
    rows, start = rows[order], start[order]
    end = capture.int64(table, "end_ns")
    same = capture.ids(table, "source_id") == capture.ids(table, "source_id")[rows[0]]
    # While this thread waits for another one to work (a backward pass), there is no pause.
    busy = union(capture.int64(table, "start_ns")[same], end[same])
    previous = np.concatenate((start[:1], start[:-1]))
    if busy.total > INT64_MAX or int(start[-1]) - int(start[0]) > INT64_MAX:
        # Stamps from one end of int64 to the other are damage: their pauses say nothing.
        return _Events(codes[rows], start, end[rows], names, np.zeros(len(start), np.int64))
    pause = start - previous - covered(previous, start, busy)
    return _Events(codes[rows], start, end[rows], names, pause)


def _find_cycle(codes: NDArray[np.int32], names: list[str]) -> _Cycle | None:
    """The coarsest cycle that most of its names keep to; None for one step."""
    places = _places(codes)
    once = [len(places[code]) for code in places if ONCE_A_STEP.search(names[code])]
    for count in sorted({len(found) for found in places.values()}):
        if count < 2:
            continue
        found = _support(places, count, len(codes))
        if found is None or found.support < _MIN_SUPPORT or found.support * 2 < found.total:
            continue
        # What only a step does was done once: these are layers of one step.
        return None if once and min(once) == 1 else found
    return None


def _places(codes: NDArray[np.int32]) -> dict[int, Int64s]:
    order = np.argsort(codes, kind="stable")
    distinct, first = np.unique(codes[order], return_index=True)
    parts = np.split(order, first[1:])
    found = dict(zip(distinct.tolist(), parts, strict=True))
    if len(found) > _MAX_NAMES:
        kept = sorted(found, key=lambda code: -len(found[code]))[:_MAX_NAMES]
        return {code: found[code] for code in kept}
    return found


def _support(places: dict[int, Int64s], count: int, num_events: int) -> _Cycle | None:
    """The best cycle of names that occur `count` times, give or take one at the edges."""
    exact = [code for code, found in places.items() if len(found) == count]
    near = [code for code, found in places.items() if abs(len(found) - count) <= 1]
    # A name that only some steps have must not speak for those that all have.
    if max(np.bincount([len(places[code]) for code in near])) > 2 * len(exact):
        return None
    best: tuple[Int64s, int] | None = None
    for code in exact[:8]:
        anchor = places[code]
        if np.ptp(anchor) < _MIN_COVERED * num_events * (count - 1) / count:
            continue
        support = sum(_alternates(anchor, places[other]) for other in near)
        if best is None or support > best[1]:
            best = anchor, support
    return None if best is None else _Cycle(best[0], best[1], len(near))


def _alternates(one: Int64s, other: Int64s) -> bool:
    """Whether no two of either follow each other without one of the other in between."""
    if abs(len(one) - len(other)) > 1:
        return False
    if one is other:
        return True
    slots = np.searchsorted(one, other)
    return bool((np.diff(slots) == 1).all())


def _cuts(line: _Events, anchor: Int64s) -> Int64s:
    """The events that begin a step, one in each cycle.

    Where the opening of the trace comes again once a cycle, after a pause, it opens each step; else the name
    does before which the thread pauses longest, on the whole; else the event after the longest pause.
    """
    pause = line.pause
    spans = list(zip((anchor[:-1] + 1).tolist(), (anchor[1:] + 1).tolist(), strict=True))
    longest = np.array([low + int(np.argmax(pause[low:high])) for low, high in spans], np.int64)
    usual = np.median(pause[anchor[0] : anchor[-1] + 1])
    opening = _openings(line, spans)
    if opening is not None:
        known = opening >= 0
        if np.median(pause[opening[known]]) > _LONGER_PAUSE * usual:
            places = _of_name(line, spans, int(np.bincount(line.codes[opening[known]]).argmax()))
            return np.where(known, opening, np.where(places >= 0, places, longest))
    best, found = _LONGER_PAUSE * float(usual), longest
    for code in np.unique(line.codes[longest]).tolist():
        places = _of_name(line, spans, code)
        once = places >= 0
        middle = float(np.median(pause[places[once]])) if once.sum() * 5 >= len(spans) * 4 else 0.0
        if middle > best:
            best, found = middle, np.where(once, places, longest)
    return found


def _of_name(line: _Events, spans: list[tuple[int, int]], code: int) -> Int64s:
    """Where a name stands in each cycle; -1 where it does not stand there exactly once."""
    found = np.full(len(spans), -1, np.int64)
    for number, (low, high) in enumerate(spans):
        at = np.flatnonzero(line.codes[low:high] == code)
        if len(at) == 1:
            found[number] = low + at[0]
    return found


def _openings(line: _Events, spans: list[tuple[int, int]]) -> Int64s | None:
    """Where the first names of the trace come again in each cycle, -1 for nowhere; None if not in most."""
    codes = line.codes
    pattern = codes[:_OPENING]
    found = np.full(len(spans), -1, np.int64)
    for number, (low, high) in enumerate(spans):
        at = np.flatnonzero(codes[low:high] == pattern[0]) + low
        fits = [
            place
            for place in at.tolist()
            if np.array_equal(codes[place : place + _OPENING], pattern[: len(codes) - place])
        ]
        if fits:
            found[number] = max(fits, key=lambda place: _common(codes, place))
    return found if (found >= 0).sum() * 5 >= len(spans) * 4 else None


def _common(codes: NDArray[np.int32], place: int) -> int:
    """How many names in a row are those that the trace opens with."""
    size = min(_MAX_OPENING, len(codes) - place)
    same = codes[place : place + size] == codes[:size]
    return size if same.all() else int(np.argmin(same))


def steps_by_structure(capture: Capture, sources: Sequence[int]) -> pa.Table:
    """The `step` table of sources without annotations; a source that shows no cycle has no rows."""
    rows: list[dict[str, object]] = []
    for source in sources:
        found = infer_steps(capture, source)
        if found is None or len(found.start) < 2:
            continue
        rows += [
            {
                "source_id": source,
                "name": f"inferred step {number}",
                "observer": "profiler",
                "start_ns": start,
                "end_ns": end,
                "linked_by": "structure",
                "confidence": found.confidence,
            }
            for number, (start, end) in enumerate(
                zip(found.start.tolist(), found.end.tolist(), strict=True)
            )
        ]
    if not rows:
        return build_table("step", {})
    return build_table("step", {name: [row[name] for row in rows] for name in rows[0]})
