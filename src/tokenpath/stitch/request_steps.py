"""Which steps served a request, where no source says so: from its times, its tokens and the steps' counts.

A running request gives one token a step (without speculation), so its last step is as many steps behind
the one with its first token as it has further tokens: that, and how many requests each step states, tells
right from wrong. A request that was preempted in between is not placed where the counts cannot tell when.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture, build_table
from tokenpath.core.units import INT64_MIN
from tokenpath.stitch.clocks import clock_of_rows

Int64s = NDArray[np.int64]
_UNKNOWN = INT64_MIN
LINKED_BY = "times and counts"
_ROUNDS = 3
_MAX_TOKENS = 2**40
MIN_CONFIDENCE = 0.5
"""A request whose steps mostly state fewer requests than came out gets no rows."""


@dataclass(frozen=True)
class _Steps:
    """Steps of one scheduler that computed tokens, in order of time."""

    row: Int64s
    start: Int64s
    end: Int64s
    requests: Int64s
    prefill_tokens: Int64s


@dataclass(frozen=True)
class _Requests:
    """Requests of one source whose first and last token are known, in order of arrival."""

    row: Int64s
    name: NDArray[np.object_]
    arrival: Int64s
    scheduled: Int64s
    first_token: Int64s
    last_token: Int64s
    prompt: Int64s
    output: Int64s


def with_request_steps(capture: Capture) -> Capture:
    """The capture with `request_step` rows for engine requests that have none, where they can be told.

    Each carries the share of the request's steps that state at least as many requests as came out.
    """
    steps = _scheduled(capture)
    requests = None if steps is None else _unplaced(capture, int(steps.row[0]))
    if requests is None or steps is None:
        return capture
    first, last = _place(requests, steps)
    begin = _begin(requests, steps, first)
    confidence = _confidence(steps, begin, last)
    kept = (first >= 0) & (confidence >= MIN_CONFIDENCE)
    rows = _rows(requests, steps, begin, first, last, confidence, kept)
    if len(rows["request_id"]) == 0:
        return capture
    source = capture.ids("request", "source_id")
    rows["source_id"] = source[rows.pop("request")]
    added = build_table("request_step", rows)
    both = pa.concat_tables([capture["request_step"], added]).unify_dictionaries().combine_chunks()
    return capture.replace({"request_step": both})


def _unplaced(capture: Capture, step: int) -> _Requests | None:
    """Requests without rows, of engine sources whose clock is that of a row of `step`."""
    observers, names = capture.codes("request", "observer")
    if "engine" not in names:
        return None
    codes, ids = capture.codes("request", "request_id")
    placed_codes, placed_ids = capture.codes("request_step", "request_id")
    placed = {placed_ids[code] for code in np.unique(placed_codes).tolist()}
    is_free = np.array([name not in placed for name in ids] or [False])[codes]
    columns = {
        name: capture.int64("request", name, _UNKNOWN)
        for name in (
            *("arrival_ns", "queued_ns", "scheduled_ns", "first_token_ns", "last_token_ns"),
            *("finished_ns", "prompt_tokens", "output_tokens"),
        )
    }
    last = columns["last_token_ns"]
    last = np.where(last == _UNKNOWN, columns["finished_ns"], last)
    arrival = columns["queued_ns"]
    arrival = np.where(arrival == _UNKNOWN, columns["arrival_ns"], arrival)
    known = (columns["first_token_ns"] != _UNKNOWN) & (last != _UNKNOWN) & (arrival != _UNKNOWN)
    known &= (columns["output_tokens"] > 0) & (observers == names.index("engine")) & is_free
    known &= clock_of_rows(capture, "request") == clock_of_rows(capture, "step")[step]
    rows = np.flatnonzero(known)
    if len(rows) == 0:
        return None
    # Several sources may have seen one request: its first row stands for it.
    _, once = np.unique(codes[rows], return_index=True)
    rows = rows[np.sort(once)]
    rows = rows[np.argsort(arrival[rows], kind="stable")]
    return _Requests(
        rows,
        np.array(ids, object)[codes[rows]],
        arrival[rows],
        columns["scheduled_ns"][rows],
        columns["first_token_ns"][rows],
        last[rows],
        columns["prompt_tokens"][rows],
        columns["output_tokens"][rows],
    )


def _scheduled(capture: Capture) -> _Steps | None:
    codes, names = capture.codes("step", "observer")
    if "scheduler" not in names:
        return None
    counts = {
        name: capture.int64("step", name, NO_ID)
        for name in (
            *("num_prefill_requests", "num_decode_requests"),
            *("num_prefill_tokens", "num_decode_tokens"),
        )
    }
    known = np.all([values >= 0 for values in counts.values()], axis=0)
    tokens = counts["num_prefill_tokens"] + counts["num_decode_tokens"]
    rows = np.flatnonzero((codes == names.index("scheduler")) & known & (tokens > 0))
    engines = np.unique(
        np.stack([capture.ids("step", name)[rows] for name in ("source_id", "engine_id")]), axis=1
    )
    # With several schedulers nothing says which of them served a request.
    if len(rows) == 0 or engines.shape[1] > 1:
        return None
    start, end = capture.int64("step", "start_ns"), capture.int64("step", "end_ns")
    rows = rows[np.argsort(end[rows], kind="stable")]
    requests = counts["num_prefill_requests"] + counts["num_decode_requests"]
    return _Steps(rows, start[rows], end[rows], requests[rows], counts["num_prefill_tokens"][rows])


def _place(requests: _Requests, steps: _Steps) -> tuple[Int64s, Int64s]:
    """Places of the steps with the first and the last token; -1 for a request that fits nowhere.

    Records of tokens come some time after the end of their step; how long, as a rule, is learned.
    """
    delay = 0.0
    size = len(steps.row)
    first = last = np.full(len(requests.row), -1, np.int64)
    for _ in range(_ROUNDS):
        near = np.searchsorted(steps.end, requests.first_token - round(delay), "right") - 1
        choices = near[:, None] + np.arange(-2, 3)
        ends = choices + (requests.output - 1)[:, None]
        inside = (choices >= 0) & (ends < size)
        seen_first = requests.first_token[:, None] - steps.end[np.clip(choices, 0, size - 1)]
        seen_last = requests.last_token[:, None] - steps.end[np.clip(ends, 0, size - 1)]
        # A token is never seen before its step has ended.
        early = np.minimum(seen_first, 0) + np.minimum(seen_last, 0)
        cost = np.abs(seen_first - delay) + np.abs(seen_last - delay) - 10.0 * early
        cost = np.where(inside, cost, np.inf)
        best = np.argmin(cost, axis=1)
        rows = np.arange(len(best))
        fits = np.isfinite(cost[rows, best])
        first = np.where(fits, choices[rows, best], -1)
        last = np.where(fits, ends[rows, best], -1)
        if fits.any():
            delay = max(0.0, float(np.median(seen_first[rows, best][fits])))
    # Steps that lie further apart than one a token mean a preemption in between.
    expected = np.searchsorted(steps.end, requests.last_token - round(delay), "right") - 1
    strayed = (first >= 0) & (np.abs(expected - last) > np.maximum(2, (requests.output - 1) // 10))
    return np.where(strayed, -1, first), np.where(strayed, -1, last)


def _begin(requests: _Requests, steps: _Steps, first: Int64s) -> Int64s:
    """Place of the first step with each request: the one in which it was scheduled."""
    moment = np.where(requests.scheduled == _UNKNOWN, requests.arrival, requests.scheduled)
    # The scheduler's decision falls into the step that it makes.
    begun = np.searchsorted(steps.start, moment, "right") - 1
    late = steps.end[np.clip(begun, 0, len(steps.end) - 1)] <= moment
    begun = np.where(late, begun + 1, begun)
    return np.clip(begun, 0, np.maximum(first, 0))


def _confidence(steps: _Steps, begin: Int64s, last: Int64s) -> NDArray[np.float64]:
    """Share of each request's steps that do not state fewer requests than were placed in them.

    Fewer were placed than stated where a request could not be placed at all; that is no sign of error.
    """
    size = len(steps.row)
    known = last >= 0
    change = np.zeros(size + 1, np.int64)
    np.add.at(change, begin[known], 1)
    np.add.at(change, last[known] + 1, -1)
    right = np.concatenate(([0], np.cumsum(np.cumsum(change[:-1]) <= steps.requests)))
    length = np.maximum(last + 1 - begin, 1)
    share = (right[np.clip(last + 1, 0, size)] - right[begin]) / length
    return np.where(known, share, 0.0)


def _rows(
    requests: _Requests,
    steps: _Steps,
    begin: Int64s,
    first: Int64s,
    last: Int64s,
    confidence: NDArray[np.float64],
    kept: NDArray[np.bool_],
) -> dict[str, Any]:
    """Columns of `request_step`, and `request`: the row of each in `request`; request by request."""
    which = np.flatnonzero(kept)
    length = np.maximum(last[which] + 1 - begin[which], 0)
    number = np.repeat(which, length)
    offset = np.cumsum(length) - length
    place = np.arange(len(number)) - np.repeat(offset - begin[which], length)
    tokens = np.ones(len(number), np.int64)
    # Nobody computes more than that in a step; what damage made larger is none.
    left = np.clip(steps.prefill_tokens, 0, _MAX_TOKENS)
    for request, at in zip(which.tolist(), offset.tolist(), strict=True):
        low, high = int(begin[request]), min(int(first[request]), int(last[request])) + 1
        tokens[at : at + high - low] = _prefill(left, int(requests.prompt[request]), low, high)
    return {
        "request": requests.row[number],
        "request_id": requests.name[number],
        "step_id": steps.row[place].astype(np.int32),
        "phase": np.where(place <= first[number], "prefill", "decode").tolist(),
        "num_tokens": tokens,
        "num_emitted": (place >= first[number]).astype(np.int64),
        "linked_by": [LINKED_BY] * len(number),
        "confidence": confidence[number],
    }


def _prefill(left: Int64s, prompt: int, low: int, high: int) -> list[int]:
    """Tokens of one request in steps low..high-1, the last of which ends its prefill; taken from `left`.

    First come, first served: what earlier requests have left of each step's prefill.
    """
    found = []
    prompt = prompt if prompt == _UNKNOWN else min(max(prompt, 0), _MAX_TOKENS)
    for place in range(low, high):
        tokens = int(left[place]) if prompt == _UNKNOWN else min(prompt, int(left[place]))
        if place == high - 1 and prompt != _UNKNOWN:
            tokens = min(max(prompt, 1), max(int(left[place]), 1))
        prompt = prompt if prompt == _UNKNOWN else prompt - tokens
        left[place] = max(0, int(left[place]) - tokens)
        found.append(tokens)
    return found
