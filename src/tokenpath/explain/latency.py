"""Where the latency of each request went, in parts that add up to it exactly.

Time to first token and the time from the first token to the last are cut at the same kinds of place:
between observers (client, engine), before the first step, inside the request's own steps, in steps of
others, and between steps. The forward pass of a step is shared among its requests by tokens: that is a
definition, not a measurement, and stands in docs/glossary.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.core.units import INT64_MIN
from tokenpath.explain.engine_steps import EngineSteps, engine_steps

Int64s = NDArray[np.int64]
_UNKNOWN = INT64_MIN

SEND, QUEUE, SCHEDULING, OWN, OTHER_PREFILL, OTHER_DECODE = range(6)
COMMUNICATION, NOT_SCHEDULED, GAPS, OUTPUT, TRANSITION, DELIVERY, UNRESOLVED = range(6, 13)
PARTS: tuple[tuple[str, str], ...] = (
    ("send", "client to engine: network, HTTP, tokenisation"),
    ("queue", "waiting in the engine's queue"),
    ("scheduling", "the scheduler deciding on the request's steps"),
    ("own_compute", "forward pass, the request's own tokens"),
    ("others_prefill", "forward pass, prefill tokens of others in the same steps"),
    ("others_decode", "forward pass, decode tokens of others in the same steps"),
    ("communication", "collectives without compute beside them, in steps that a profiler saw"),
    ("not_scheduled", "steps without the request: preempted, or no budget left"),
    ("gaps", "between steps, and between scheduler and worker"),
    ("output", "sampling and processing of outputs in the request's steps"),
    ("transition", "from the step with the first token to the request's next step"),
    ("delivery", "engine to client: detokenisation, network"),
    ("unresolved", "inside the engine, no step log to resolve it"),
)
"""Key and meaning of each part, in the order in which a request meets them."""


@dataclass(frozen=True)
class Latency:
    """One kind of latency of many requests, as one observer sees it."""

    kind: str
    """`ttft` (arrival to first token) or `decode` (first token to last)."""
    observer: str
    """`client`, `gateway` or `engine`."""
    request_id: Sequence[str]
    """Requests that have this latency."""
    total_ns: Int64s
    """The latency of each."""
    parts_ns: Int64s
    """An array (requests, PARTS) that adds up to it. `delivery` of `decode` is the difference between the
    delivery of the last token and of the first, and may be negative."""
    num_output_tokens: Int64s
    """Tokens of each; -1 for unknown."""

    def __len__(self) -> int:
        return len(self.request_id)


@dataclass(frozen=True)
class _Seen:
    """Times of requests as one observer has them, by request; _UNKNOWN for not seen."""

    arrival: Int64s
    first_token: Int64s
    last_token: Int64s


class Requests:
    """The requests of a capture: what each observer saw, and in which steps they were."""

    def __init__(self, capture: Capture) -> None:
        codes, ids = capture.codes("request", "request_id")
        self.ids = ids
        self._codes = codes
        self._capture = capture
        self.observers = self._by_observer()
        tokens = capture.int64("request", "output_tokens", NO_ID)
        self.num_output_tokens = np.full(len(ids), NO_ID, np.int64)
        np.maximum.at(self.num_output_tokens, codes, tokens)
        self.queued = self._first_of("queued_ns", "engine")
        self.scheduled = self._first_of("scheduled_ns", "engine")

    def _by_observer(self) -> dict[str, _Seen]:
        codes, names = self._capture.codes("request", "observer")
        found = {}
        for number, name in enumerate(names):
            rows = np.flatnonzero(codes == number)
            if len(rows):
                columns = ("arrival_ns", "first_token_ns", "last_token_ns")
                found[name] = _Seen(*(self._of_rows(column, rows) for column in columns))
        return found

    def _of_rows(self, column: str, rows: Int64s) -> Int64s:
        values = self._capture.int64("request", column, _UNKNOWN)[rows]
        result = np.full(len(self.ids), _UNKNOWN, np.int64)
        known = values != _UNKNOWN
        # Where several rows of an observer know a request, the first one counts.
        result[self._codes[rows[known]][::-1]] = values[known][::-1]
        return result

    def _first_of(self, column: str, observer: str) -> Int64s:
        codes, names = self._capture.codes("request", "observer")
        if observer not in names:
            return np.full(len(self.ids), _UNKNOWN, np.int64)
        return self._of_rows(column, np.flatnonzero(codes == names.index(observer)))


def latencies(capture: Capture) -> list[Latency]:
    """Time to first token and decode time, for every observer that saw both of their ends."""
    if capture.num_rows("request") == 0:
        return []
    requests = Requests(capture)
    engine = _EngineSide(capture, requests)
    found = []
    for observer, seen in sorted(requests.observers.items()):
        for kind, begin, end in (
            ("ttft", seen.arrival, seen.first_token),
            ("decode", seen.first_token, seen.last_token),
        ):
            if observer == "engine" and kind == "ttft":
                begin = np.where(requests.queued != _UNKNOWN, requests.queued, begin)
            whole = np.flatnonzero((begin != _UNKNOWN) & (end != _UNKNOWN) & (end >= begin))
            if len(whole) == 0:
                continue
            total = end[whole] - begin[whole]
            parts = engine.parts(kind, whole, begin[whole], end[whole])
            found.append(
                Latency(
                    kind,
                    observer,
                    [requests.ids[number] for number in whole],
                    total,
                    parts,
                    requests.num_output_tokens[whole],
                )
            )
    return found


class _EngineSide:
    """What the engine's records say about each request between two of its moments."""

    def __init__(self, capture: Capture, requests: Requests) -> None:
        self._requests = requests
        size = len(requests.ids)
        self.first_start = np.full(size, _UNKNOWN, np.int64)
        """Start of the first step with the request."""
        self.first_end = np.full(size, _UNKNOWN, np.int64)
        """End of the step that gave the first token."""
        self.last_end = np.full(size, _UNKNOWN, np.int64)
        """End of the step that gave the last token."""
        self._inside = {kind: np.zeros((size, len(PARTS)), np.int64) for kind in ("ttft", "decode")}
        for steps in engine_steps(capture):
            self._add(capture, steps)

    def _add(self, capture: Capture, steps: EngineSteps) -> None:
        shares = _Shares(capture, steps, self._requests.ids)
        if len(shares.request) == 0:
            return
        first, emitting, last = shares.bounds(len(self._requests.ids))
        known = np.flatnonzero(emitting >= 0)
        self.first_start[known] = steps.start[first[known]]
        self.first_end[known] = steps.end[emitting[known]]
        self.last_end[known] = steps.end[last[known]]
        self._inside["ttft"][known] = shares.parts(known, first[known], emitting[known])
        self._inside["decode"][known] = shares.parts(known, emitting[known] + 1, last[known])
        self._inside["ttft"][known, GAPS] -= steps.gap_before_ns[first[known]]
        # What lies between the first token and the next step is the way from prefill to decode.
        following = shares.following(emitting)[known]
        goes_on = following > emitting[known]
        after = emitting[known] + 1
        missed = np.where(goes_on, _between(steps.end - steps.start, after, following - 1), 0)
        gaps = np.where(goes_on, _between(steps.gap_before_ns, after, following), 0)
        decode = self._inside["decode"]
        decode[known, NOT_SCHEDULED] -= missed
        decode[known, GAPS] -= gaps
        decode[known, TRANSITION] += missed + gaps

    def parts(self, kind: str, which: Int64s, begin: Int64s, end: Int64s) -> Int64s:
        """Parts of the time between two moments of some requests, adding up to it."""
        parts = np.zeros((len(which), len(PARTS)), np.int64)
        total = end - begin
        first, done = self.first_start[which], self.first_end[which]
        last = self.last_end[which]
        resolved = done != _UNKNOWN
        parts[resolved] = self._inside[kind][which[resolved]]
        queued = self._requests.queued[which]
        if kind == "ttft":
            known = resolved & (first >= begin)
            entered = np.where(queued == _UNKNOWN, begin, np.clip(queued, begin, None))
            entered = np.minimum(entered, np.where(resolved, first, entered))
            parts[known, SEND] = (entered - begin)[known]
            parts[known, QUEUE] = (first - entered)[known]
            parts[known, DELIVERY] = (end - done)[known]
            self._coarse(parts, which, begin, end, ~known)
        else:
            known = resolved & (last >= done)
            parts[known, DELIVERY] = (total - (last - done))[known]
            parts[~known] = 0
            parts[~known, UNRESOLVED] = total[~known]
        # What rounding or a clock set back has left over is said, not spread.
        parts[:, UNRESOLVED] += total - parts.sum(axis=1)
        return parts

    def _coarse(
        self, parts: Int64s, which: Int64s, begin: Int64s, end: Int64s, mask: NDArray[np.bool_]
    ) -> None:
        """Without steps: what the engine's own times say."""
        parts[mask] = 0
        requests = self._requests
        seen = requests.observers.get("engine")
        queued, scheduled = requests.queued[which], requests.scheduled[which]
        first = np.full(len(which), _UNKNOWN) if seen is None else seen.first_token[which]
        known = mask & (queued != _UNKNOWN) & (scheduled != _UNKNOWN) & (first != _UNKNOWN)
        known &= (begin <= queued) & (queued <= scheduled) & (scheduled <= first)
        parts[known, SEND] = (queued - begin)[known]
        parts[known, QUEUE] = (scheduled - queued)[known]
        parts[known, UNRESOLVED] = (np.minimum(first, end) - scheduled)[known]
        parts[known, DELIVERY] = (end - np.minimum(first, end))[known]


class _Shares:
    """The requests' shares of the steps of one scheduler."""

    def __init__(self, capture: Capture, steps: EngineSteps, ids: Sequence[str]) -> None:
        place = np.full(capture.num_rows("step"), -1, np.int64)
        place[steps.row] = np.arange(len(steps))
        step = capture.ids("request_step", "step_id")
        codes, names = capture.codes("request_step", "request_id")
        number_of = {name: number for number, name in enumerate(ids)}
        request = np.array([number_of.get(name, -1) for name in names], np.int64)[codes]
        rows = (
            np.flatnonzero((request >= 0) & (place[step] >= 0)) if len(step) else np.zeros(0, int)
        )
        order = np.lexsort((place[step[rows]], request[rows]))
        rows = rows[order]
        self.steps = steps
        self.request, self.place = request[rows], place[step[rows]]
        self.tokens = capture.int64("request_step", "num_tokens")[rows]
        self.emitted = capture.int64("request_step", "num_emitted", 0)[rows]

    def bounds(self, size: int) -> tuple[Int64s, Int64s, Int64s]:
        """Place of the first step, of the one with the first token and of the last; -1 for none."""
        first, emitting, last = (np.full(size, -1, np.int64) for _ in range(3))
        first[self.request[::-1]] = self.place[::-1]
        gave = self.emitted > 0
        emitting[self.request[gave][::-1]] = self.place[gave][::-1]
        last[self.request[gave]] = self.place[gave]
        return first, emitting, last

    def following(self, place: Int64s) -> Int64s:
        """Place of each request's next step after a place; the place itself where there is none."""
        later = np.flatnonzero(self.place > place[self.request])
        result = place.copy()
        result[self.request[later][::-1]] = self.place[later][::-1]
        return result

    def parts(self, which: Int64s, first: Int64s, last: Int64s) -> Int64s:
        """Parts of the time from the gap before step `first` to the end of step `last`, each request's."""
        steps = self.steps
        result = np.zeros((len(which), len(PARTS)), np.int64)
        low = np.full(int(self.request.max()) + 1, len(steps), np.int64)
        high = np.full(len(low), -1, np.int64)
        number = np.full(len(low), -1, np.int64)
        low[which], high[which], number[which] = first, last, np.arange(len(which))
        mine = (self.place >= low[self.request]) & (self.place <= high[self.request])
        row, at, tokens = number[self.request[mine]], self.place[mine], self.tokens[mine]
        own, prefill, decode = self.split(at, tokens)
        for part, values in (
            (SCHEDULING, steps.schedule_ns[at]),
            (GAPS, steps.dispatch_ns[at]),
            (OUTPUT, steps.output_ns[at]),
            (COMMUNICATION, steps.communication_ns[at]),
            (OWN, own),
            (OTHER_PREFILL, prefill),
            (OTHER_DECODE, decode),
        ):
            np.add.at(result[:, part], row, values)
        length = steps.end - steps.start
        in_own = np.zeros(len(which), np.int64)
        np.add.at(in_own, row, length[at])
        some = last >= first
        result[:, NOT_SCHEDULED] += np.where(some, _between(length, first, last) - in_own, 0)
        result[:, GAPS] += np.where(some, _between(steps.gap_before_ns, first, last), 0)
        return result

    def split(self, at: Int64s, tokens: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """The forward pass by tokens: own, others' prefill, the rest; adds up to it exactly."""
        steps = self.steps
        execute = steps.execute_ns[at] - steps.communication_ns[at]
        prefill, decode = (
            np.maximum(steps.prefill_tokens[at], 0),
            np.maximum(steps.decode_tokens[at], 0),
        )
        total = np.maximum(prefill + decode, tokens)
        own = _share(execute, tokens, total)
        # A request with one token in a step with decode tokens is taken for one of them.
        is_decode = (tokens <= 1) & (decode > 0)
        others_prefill = np.where(is_decode, prefill, np.maximum(prefill - tokens, 0))
        by_prefill = np.minimum(_share(execute, others_prefill, total), execute - own)
        return own, by_prefill, execute - own - by_prefill


def _share(whole: Int64s, part: Int64s, total: Int64s) -> Int64s:
    """A part of a whole in integers, without overflow for times below a month and 2**20 tokens."""
    total = np.maximum(total, 1)
    quotient, rest = np.divmod(whole, total)
    result: Int64s = quotient * part + rest * part // total
    return result


def _between(values: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """Sum of values[first..last], each pair's."""
    sums = np.concatenate(([0], np.cumsum(values)))
    size = len(values)
    result: Int64s = sums[np.clip(last + 1, 0, size)] - sums[np.clip(first, 0, size)]
    return result


def shares_of_steps(capture: Capture, request_id: str) -> dict[int, tuple[int, int, int]]:
    """(own compute, others' prefill, others' decode) of one request in each row of `step` it was in."""
    found: dict[int, tuple[int, int, int]] = {}
    for steps in engine_steps(capture):
        shares = _Shares(capture, steps, [request_id])
        split = shares.split(shares.place, shares.tokens)
        rows = steps.row[shares.place].tolist()
        for row, own, prefill, decode in zip(rows, *(part.tolist() for part in split), strict=True):
            found[row] = own, prefill, decode
    return found
