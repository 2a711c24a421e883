"""One request's whole way: when it waited and for what, each of its steps, what ran inside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.core.errors import UsageError
from tokenpath.core.report import (
    Cell,
    Funnel,
    FunnelRow,
    Report,
    ShownTable,
    TableColumn,
    Trust,
    Unit,
)
from tokenpath.core.units import INT64_MIN, format_duration
from tokenpath.explain.latency import PARTS, Latency, latencies, shares_of_steps
from tokenpath.explain.step_contents import StepContents
from tokenpath.stitch.clocks import clock_of_rows

Int64s = NDArray[np.int64]
_UNKNOWN = INT64_MIN
_KINDS = {"ttft": "time to first token", "decode": "first token to last"}
_STEP_COLUMNS = (
    TableColumn("step", "step", Unit.COUNT),
    TableColumn("start_ns", "after arrival", Unit.NS),
    TableColumn("gap_ns", "waited before", Unit.NS, is_key_figure=False),
    TableColumn("duration_ns", "step", Unit.NS),
    TableColumn("phase", "phase", Unit.TEXT, is_key_figure=False),
    TableColumn("num_tokens", "tokens", Unit.COUNT),
    TableColumn("num_computed_before", "before", Unit.COUNT, is_key_figure=False),
    TableColumn("num_emitted", "emitted", Unit.COUNT, is_key_figure=False),
    TableColumn("batch", "batch mates", Unit.TEXT),
    TableColumn("own_compute_ns", "own compute", Unit.NS, is_key_figure=False),
    TableColumn("others_prefill_ns", "others' prefill", Unit.NS, is_key_figure=False),
    TableColumn("others_decode_ns", "others' decode", Unit.NS, is_key_figure=False),
    TableColumn("busy_ns", "device busy", Unit.NS, is_key_figure=False),
    TableColumn("exposed_communication_ns", "exposed communication", Unit.NS, is_key_figure=False),
    TableColumn("num_kernels", "kernels", Unit.COUNT, is_key_figure=False),
    TableColumn("longest", "longest inside", Unit.TEXT),
    TableColumn("longest_ns", "its time", Unit.NS),
)
_MOMENT_COLUMNS = (
    TableColumn("observer", "observer", Unit.TEXT),
    TableColumn("moment", "moment", Unit.TEXT),
    TableColumn("after_ns", "after arrival", Unit.NS),
    TableColumn("at_ns", "time", Unit.COUNT, is_key_figure=False),
)
_MOMENTS = ("arrival", "queued", "scheduled", "first_token", "last_token", "finished")


def thread(capture: Capture, request_id: str) -> Report:
    """The report about one request of a linked capture. UsageError when the capture has none of that id."""
    rows = _rows_of(capture, request_id)
    found = [_only(latency, request_id) for latency in latencies(capture)]
    views = [latency for latency in found if latency is not None]
    seen = capture["request"].take(rows).to_pylist()
    clocks = clock_of_rows(capture, "request")[rows].tolist()
    arrival: dict[int, int] = {}
    for row, clock in zip(seen, clocks, strict=True):
        for moment in _MOMENTS:
            if (at := row[f"{moment}_ns"]) is not None:
                arrival[clock] = min(at, arrival.get(clock, at))
    steps = _steps(capture, request_id, arrival)
    return Report(
        verb="thread",
        headline=_headline(request_id, seen, steps),
        answer=_answer(views, steps),
        trust=Trust.GOOD,
        window=None,
        funnel=None,
        findings=(),
        dismissed=(),
        notes=(),
        request_funnels=[_funnel(latency) for latency in views],
        tables=[_moments(seen, clocks, arrival), *([] if steps is None else [steps.table])],
        facts={"request_id": request_id, "seen": seen},
    )


def request_ids(capture: Capture) -> list[str]:
    """All requests, the slowest to finish first; those of unknown length last."""
    codes, names = capture.codes("request", "request_id")
    begin = capture.int64("request", "arrival_ns", _UNKNOWN)
    end = capture.int64("request", "last_token_ns", _UNKNOWN)
    length = np.where((begin != _UNKNOWN) & (end != _UNKNOWN), end - begin, -1)
    longest = np.full(len(names), -2, np.int64)
    np.maximum.at(longest, codes, length)
    order = np.argsort(-longest, kind="stable")
    return [names[number] for number in order if longest[number] > -2]


def _rows_of(capture: Capture, request_id: str) -> list[int]:
    codes, names = capture.codes("request", "request_id")
    if request_id not in names:
        slowest = request_ids(capture)[:5]
        raise UsageError(
            f"no request {request_id!r} in the capture",
            allowed=f"one of its {len(set(names)):,} requests" if names else None,
            next_step=f"the slowest are: {', '.join(slowest)}" if slowest else "name a request log",
        )
    return np.flatnonzero(codes == names.index(request_id)).tolist()


def _only(latency: Latency, request_id: str) -> Latency | None:
    if request_id not in latency.request_id:
        return None
    at = list(latency.request_id).index(request_id)
    return Latency(
        latency.kind,
        latency.observer,
        [request_id],
        latency.total_ns[[at]],
        latency.parts_ns[[at]],
        latency.num_output_tokens[[at]],
    )


def _funnel(latency: Latency) -> Funnel:
    """The parts in the order in which the request met them."""
    rows = [FunnelRow("latency", _KINDS[latency.kind], 0, int(latency.total_ns[0]))]
    rows += [
        FunnelRow(key, key.replace("_", " "), 1, int(value), meaning)
        for (key, meaning), value in zip(PARTS, latency.parts_ns[0].tolist(), strict=True)
        if value
    ]
    return Funnel(f"{_KINDS[latency.kind]}, {latency.observer}", rows)


@dataclass(frozen=True)
class _Steps:
    """The request's steps as a table, and what stands out."""

    table: ShownTable
    num_steps: int
    num_missed: int
    """Scheduler steps between its first and last that were without it."""
    longest: str
    """The longest step in words."""
    slowest_inside: str | None
    """The kernel or operator that took longest in any of its steps, in words."""


def _steps(capture: Capture, request_id: str, arrivals: Mapping[int, int]) -> _Steps | None:
    codes, names = capture.codes("request_step", "request_id")
    if request_id not in names:
        return None
    mine = np.flatnonzero(codes == names.index(request_id))
    step = capture.ids("request_step", "step_id")
    start, end = capture.int64("step", "start_ns"), capture.int64("step", "end_ns")
    mine = mine[np.argsort(start[step[mine]], kind="stable")]
    shares = _by_step(capture["request_step"].take(mine).to_pylist())
    # Times of a clock are told after the first moment on that clock.
    arrival = arrivals.get(int(clock_of_rows(capture, "step")[step[mine[0]]]))
    origin = int(start[step[mine[0]]]) if arrival is None else arrival
    contents = StepContents(capture)
    mates = _Mates(capture, codes, names, step)
    waited = shares_of_steps(capture, request_id)
    rows: list[Sequence[Cell]] = []
    before: int | None = arrival
    longest: tuple[int, str] = (-1, "")
    slowest: tuple[int, str] | None = None
    numbers = capture["step"]["number"]
    for share in shares:
        row = share["step_id"]
        inside = contents.of(row)
        number = numbers[row].as_py()
        label = f"step {number}" if number is not None else f"row {row} of step"
        duration = int(end[row] - start[row])
        longest = max(longest, (duration, label))
        if inside is not None and inside.longest is not None:
            slowest = max(
                slowest or (-1, ""), (inside.longest_ns or 0, f"{inside.longest} in {label}")
            )
        rows.append(
            (
                number,
                int(start[row]) - origin,
                None if before is None else max(0, int(start[row]) - before),
                duration,
                share["phase"],
                share["num_tokens"],
                share["num_computed_before"],
                share["num_emitted"],
                mates.of(row, request_id),
                *waited.get(row, (None, None, None)),
                *((None,) * 5 if inside is None else inside.cells()),
            )
        )
        before = int(end[row])
    missed = _missed(capture, np.array([share["step_id"] for share in shares]))
    note = f"{missed:,} steps between its first and last were without it." if missed else None
    table = ShownTable(
        "steps_of_request", f"Steps of {request_id}", _STEP_COLUMNS, rows, len(rows), note
    )
    return _Steps(
        table,
        len(rows),
        missed,
        f"{longest[1]} with {format_duration(longest[0])}",
        None if slowest is None else f"{slowest[1]}, {format_duration(slowest[0])}",
    )


def _by_step(shares: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One share a step: several answers to one prompt may have one each."""
    found: dict[int, dict[str, Any]] = {}
    for share in shares:
        first = found.setdefault(share["step_id"], share)
        if first is not share:
            first["num_tokens"] += share["num_tokens"]
            counts = [
                one["num_emitted"] for one in (first, share) if one["num_emitted"] is not None
            ]
            first["num_emitted"] = sum(counts) if counts else None
            first["num_computed_before"] = None
    return list(found.values())


def _missed(capture: Capture, rows: Int64s) -> int:
    """Steps between the first and the last of these of their schedulers that are not among them."""
    start, source = capture.int64("step", "start_ns"), capture.ids("step", "source_id")
    engine = capture.ids("step", "engine_id")
    missed = 0
    for key in np.unique(np.stack((source[rows], engine[rows])), axis=1).T:
        mine = rows[(source[rows] == key[0]) & (engine[rows] == key[1])]
        same = (source == key[0]) & (engine == key[1])
        between = same & (start >= start[mine].min()) & (start <= start[mine].max())
        missed += int(between.sum()) - len(np.unique(mine))
    return missed


class _Mates:
    """Which requests share a step."""

    _MAX_NAMES = 3

    def __init__(
        self, capture: Capture, codes: NDArray[np.int32], names: list[str], step: NDArray[np.int32]
    ) -> None:
        self._codes, self._names = codes, names
        self._order = np.argsort(step, kind="stable")
        self._step = step[self._order]
        phases, phase_names = capture.codes("request_step", "phase")
        self._is_prefill = phases == (
            phase_names.index("prefill") if "prefill" in phase_names else NO_ID - 1
        )

    def of(self, row: int, request_id: str) -> str:
        """The others in words: how many in each phase, and the names of a few."""
        low, high = np.searchsorted(self._step, [row, row + 1])
        places = self._order[low:high]
        others = [at for at in places.tolist() if self._names[self._codes[at]] != request_id]
        if not others:
            return "alone"
        prefill = sum(bool(self._is_prefill[at]) for at in others)
        counts = [
            f"{count} {phase}"
            for count, phase in ((prefill, "prefill"), (len(others) - prefill, "decode"))
            if count
        ]
        shown = [self._names[self._codes[at]] for at in others[: self._MAX_NAMES]]
        more = ", ..." if len(others) > self._MAX_NAMES else ""
        return f"{', '.join(counts)}: {', '.join(shown)}{more}"


def _moments(
    seen: Sequence[dict[str, object]], clocks: Sequence[int], arrival: Mapping[int, int]
) -> ShownTable:
    found: set[tuple[int, int, str, str]] = set()
    for row, clock in zip(seen, clocks, strict=True):
        for moment in _MOMENTS:
            at = row[f"{moment}_ns"]
            if isinstance(at, int):
                found.add((clock, at, str(row["observer"]), moment.replace("_", " ")))
    rows = [
        (observer, moment, at - arrival[clock], at) for clock, at, observer, moment in sorted(found)
    ]
    several = "Several clocks: times of each count from its own first moment."
    note = several if len({clock for clock, *_ in found}) > 1 else None
    return ShownTable("moments", "What each observer saw", _MOMENT_COLUMNS, rows, len(rows), note)


def _headline(request_id: str, seen: Sequence[dict[str, object]], steps: _Steps | None) -> str:
    parts = [f"request {request_id}"]
    for name, what in (
        ("prompt_tokens", "prompt"),
        ("cached_tokens", "cached"),
        ("output_tokens", "output"),
    ):
        value = next((row[name] for row in seen if row[name] is not None), None)
        if value is not None:
            parts.append(f"{value:,} {what} tokens")
    if steps is not None:
        parts.append(f"{steps.num_steps:,} steps")
    return " · ".join(parts)


def _answer(views: Sequence[Latency], steps: _Steps | None) -> tuple[str, ...]:
    sentences = []
    for latency in views:
        values = latency.parts_ns[0]
        largest = int(np.argmax(values))
        name = _KINDS[latency.kind]
        sentences.append(
            f"{name[0].upper()}{name[1:]} ({latency.observer}): "
            f"{format_duration(int(latency.total_ns[0]))}, of it "
            f"{format_duration(int(values[largest]))} {PARTS[largest][0].replace('_', ' ')}."
        )
    if steps is not None:
        missed = (
            f"; {steps.num_missed:,} steps in between were without it" if steps.num_missed else ""
        )
        sentences.append(f"Its longest step was {steps.longest}{missed}.")
        if steps.slowest_inside is not None:
            sentences.append(f"Longest inside its steps: {steps.slowest_inside}.")
    if not sentences:
        sentences.append(
            "The sources state no times for this request between which it could be followed."
        )
    return tuple(sentences)
