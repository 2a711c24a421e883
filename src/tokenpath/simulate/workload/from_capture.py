"""The workload of a recorded run: what its requests asked for, when, and what they shared."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import InputError
from tokenpath.simulate.workload.chains import grow
from tokenpath.simulate.workload.content import GRANULE_TOKENS
from tokenpath.simulate.workload.generate import of_columns
from tokenpath.simulate.workload.lengths import MAX_TOKENS, Pairs
from tokenpath.simulate.workload.rows import MAX_TIME_NS, ReadWorkload, Skip
from tokenpath.simulate.workload.workload import Int64s

OBSERVERS = ("client", "gateway", "engine")
"""Whose arrivals are taken, the first that saw any: what was sent is the load, queues in front included."""
FULL_SHARE = 0.9
"""A loop is closed if so much of the time as many requests are under way as ever are."""
PER_SLOT = 3
"""Requests for each of those under way below which nothing is said of a closed loop."""
UNKNOWN = -1
_SETTINGS = ("max_concurrency", "concurrency", "load.concurrency", "load.max_concurrency")


@dataclass
class _Requests:
    """One row a request, from all observers."""

    arrival_ns: Int64s
    finished_ns: Int64s
    prompt_tokens: Int64s
    output_tokens: Int64s
    cached_tokens: Int64s
    skips: dict[str, int] = field(default_factory=dict)


def workload_from_capture(
    capture: Capture, *, closed_loop: bool | None = None, granule_tokens: int = GRANULE_TOKENS
) -> ReadWorkload:
    """The requests of a capture, sent as recorded.

    Arrivals are those of the client where it was recorded, else of a gateway, else of the engine; lengths of
    whoever states them. Cached tokens say how much a request shared, not with whom: it repeats an earlier one
    that is long enough. Requests keep their ids. `closed_loop` None: a closed loop is kept as one where the source states its
    concurrency or where the recording shows it; True or False force it. InputError without any request whose
    lengths and arrival are known.
    """
    found = _requests(capture)
    usable = (
        (found.arrival_ns != UNKNOWN) & (found.prompt_tokens >= 1) & (found.output_tokens >= 1)
        & (found.prompt_tokens <= MAX_TOKENS) & (found.output_tokens <= MAX_TOKENS)
    )  # fmt: skip
    skips = _reasons(found, usable)
    if not usable.any():
        raise InputError(
            "no request with arrival, prompt and output tokens in the capture",
            where="table request",
            allowed="results of a load generator with a row a request, or a step log with requests",
            next_step="record per-request detail (vllm bench serve --save-detailed, AIPerf records)",
        )
    kept = np.flatnonzero(usable)
    kept = kept[np.argsort(found.arrival_ns[kept], kind="stable")]
    arrival = found.arrival_ns[kept]
    notes: list[str] = []
    concurrency = None
    if closed_loop is not False:
        concurrency = _concurrency(capture, arrival, found.finished_ns[kept], notes)
        if closed_loop and concurrency is None:
            concurrency = max(_under_way(arrival, found.finished_ns[kept]).max(initial=1), 1)
            notes.append(
                f"taken as a closed loop of {concurrency}, the most requests under way at once"
            )
    content = None
    cached = np.maximum(found.cached_tokens[kept], 0)
    if cached.any():
        granules = -(-found.prompt_tokens[kept] // granule_tokens)
        match = cached // granule_tokens
        content = grow(granules, match, granules + MAX_TOKENS, np.ones_like(match), granule_tokens)
        notes.append(
            "cached tokens are known, not whose: each request repeats the last one long enough"
        )
    elif not (found.cached_tokens[kept] >= 0).any():
        notes.append("nothing is known of shared content: no cached tokens in the capture")
    pairs = Pairs(found.prompt_tokens[kept], found.output_tokens[kept])
    sources = capture["source"].column("path").to_pylist()
    name = str(sources[0]) if len(sources) == 1 else f"{len(sources)} files"
    workload = of_columns(name, "measured", arrival - arrival[0], pairs, content)
    names = capture.codes("request", "request_id")[1]
    workload = dataclasses.replace(workload, request_ids=tuple(names[code] for code in kept))
    if concurrency is not None:
        # Its arrivals are when places became free: in a closed loop they follow from the engine.
        workload = dataclasses.replace(
            workload, concurrency=int(concurrency), arrival_ns=np.zeros_like(arrival)
        )
    return ReadWorkload(workload, "capture", skips, tuple(notes))


def _requests(capture: Capture) -> _Requests:
    """The rows of all observers by request id; the first observer that knows a value states it."""
    table = capture["request"]
    codes, names = capture.codes("request", "request_id")
    observers, observer_names = capture.codes("request", "observer")
    choice = capture.int64("request", "choice", null=0)
    first_choice = choice <= 0
    rank = np.array(
        [OBSERVERS.index(name) if name in OBSERVERS else len(OBSERVERS) for name in observer_names]
        or [0]
    )
    order = np.argsort(rank[observers], kind="stable") if table.num_rows else np.empty(0, np.int64)
    order = order[first_choice[order]]
    columns: dict[str, Int64s] = {}
    wanted = ("prompt_tokens", "output_tokens", "cached_tokens")
    for name in wanted:
        values = capture.int64("request", name, null=np.iinfo(np.int64).min)
        column = np.full(len(names), UNKNOWN, np.int64)
        known = order[values[order] != np.iinfo(np.int64).min]
        # Written from the last observer to the first, so that the first one's value stays.
        column[codes[known][::-1]] = values[known][::-1]
        columns[name] = column
    arrival, finished = _of_one_observer(
        capture, codes, observers, observer_names, first_choice, len(names)
    )
    found = _Requests(
        arrival,
        finished,
        columns["prompt_tokens"],
        columns["output_tokens"],
        columns["cached_tokens"],
    )
    if not first_choice.all():
        found.skips["another answer to the same prompt"] = int((~first_choice).sum())
    return found


def _of_one_observer(
    capture: Capture,
    codes: NDArray[np.int32],
    observers: NDArray[np.int32],
    observer_names: list[str],
    usable: NDArray[np.bool_],
    num_requests: int,
) -> tuple[Int64s, Int64s]:
    """Arrivals and ends as one observer saw them: those of two are not on one clock, or not at one place."""
    null = np.iinfo(np.int64).min
    seen = {
        name: capture.int64("request", name, null=null)
        for name in ("arrival_ns", "queued_ns", "finished_ns", "last_token_ns")
    }
    begin = np.where(seen["arrival_ns"] != null, seen["arrival_ns"], seen["queued_ns"])
    end = np.where(seen["finished_ns"] != null, seen["finished_ns"], seen["last_token_ns"])
    arrival, finished = np.full((2, num_requests), UNKNOWN, np.int64)
    for name in (*OBSERVERS, *sorted(set(observer_names) - set(OBSERVERS))):
        if name not in observer_names:
            continue
        own = (observers == observer_names.index(name)) & usable
        rows = np.flatnonzero(own & (begin != null) & (np.abs(begin) <= MAX_TIME_NS))
        if len(rows):
            arrival[codes[rows][::-1]] = begin[rows][::-1]
            ended = rows[end[rows] != null]
            finished[codes[ended][::-1]] = end[ended][::-1]
            break
    return arrival, finished


def _reasons(found: _Requests, usable: NDArray[np.bool_]) -> tuple[Skip, ...]:
    counts = dict(found.skips)
    left = ~usable
    for reason, is_so in (
        ("arrival not seen", found.arrival_ns == UNKNOWN),
        ("prompt length unknown", found.prompt_tokens < 1),
        ("no token emitted, or output length unknown", found.output_tokens < 1),
        (f"length above {MAX_TOKENS:,} tokens", left),
    ):
        rows = left & is_so
        if rows.any():
            counts[reason] = int(rows.sum())
        left &= ~is_so
    return tuple(Skip(reason, count, 0) for reason, count in counts.items())


def _under_way(arrival: Int64s, finished: Int64s) -> Int64s:
    """Requests under way right after each arrival, itself included; those that never ended count for ever."""
    ends = np.sort(np.where(finished == UNKNOWN, np.iinfo(np.int64).max, finished))
    return np.asarray(np.arange(1, len(arrival) + 1) - np.searchsorted(ends, arrival, side="right"))


def _concurrency(
    capture: Capture, arrival: Int64s, finished: Int64s, notes: list[str]
) -> int | None:
    settings = {row["name"]: row["value"] for row in capture["setting"].to_pylist()}
    for name in _SETTINGS:
        text = str(settings.get(name) or "")
        if text.isdecimal() and 0 < int(text) <= MAX_TOKENS:
            under_way = _under_way(arrival, finished)
            if under_way.max(initial=0) >= int(text):
                notes.append(f"a closed loop of {text}, as the source states ({name})")
                return int(text)
            # The bound was never reached: the rate decided, and the loop was open.
            return None
    under_way = _under_way(arrival, finished)
    most = int(under_way.max(initial=0))
    after_ramp = np.flatnonzero(under_way == most)
    if len(arrival) < PER_SLOT * most or not len(after_ramp) or (finished == UNKNOWN).any():
        return None
    later = under_way[after_ramp[0] :]
    if most > 1 and len(later) >= PER_SLOT * most - most and (later >= most).mean() >= FULL_SHARE:
        notes.append(f"looks like a closed loop: {most} requests under way at nearly every sending")
        return most
    return None
