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
from tokenpath.explain.engine_steps import EngineSteps, engine_steps
from tokenpath.explain.moments import UNKNOWN, Requests, Seen
from tokenpath.stitch.clocks import clock_of_rows

Int64s = NDArray[np.int64]
_UNKNOWN = UNKNOWN

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
    ("transition", "from the step with the first token to the next; prefill to decode instance"),
    ("delivery", "engine to client: detokenisation, network"),
    ("unresolved", "no step log resolves it, or clocks cannot be compared"),
)
"""Key and meaning of each part, in the order in which a request meets them."""
_CONFLICT = -2


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
                begin = np.where(seen.queued != _UNKNOWN, seen.queued, begin)
            whole = np.flatnonzero((begin != _UNKNOWN) & (end != _UNKNOWN) & (end >= begin))
            if len(whole) == 0:
                continue
            total = end[whole] - begin[whole]
            parts = engine.parts(kind, observer, whole, begin[whole], end[whole])
            found.append(
                Latency(
                    kind,
                    observer,
                    [requests.ids[number] for number in whole],
                    total,
                    parts,
                    requests.num_output_tokens(observer)[whole],
                )
            )
    return found


@dataclass
class _Way:
    """Each request's way through the steps of schedulers, by request."""

    clock: Int64s
    """Clock of the steps; NO_ID for a request in none, _CONFLICT for one in steps that do not follow."""
    first_start: Int64s
    """Start of its first step."""
    first_end: Int64s
    """End of the step that gave the first token; _UNKNOWN for none."""
    last_end: Int64s
    """End of the step that gave the last token; of its last step where none gave one."""
    ttft: Int64s
    """Parts from `first_start` to `first_end`."""
    decode: Int64s
    """Parts from `first_end` to `last_end`."""


class _EngineSide:
    """What the engine's records say about each request between two of its moments."""

    def __init__(self, capture: Capture, requests: Requests) -> None:
        self._requests = requests
        self._way = _no_way(len(requests.ids))
        clock = clock_of_rows(capture, "step")
        shares = _AllShares(capture, requests.ids)
        for steps in engine_steps(capture):
            self._add(_Shares(shares, steps), steps, int(clock[steps.row[0]]))

    def _add(self, shares: _Shares, steps: EngineSteps, clock: int) -> None:
        if len(shares.request) == 0:
            return
        size = len(self._requests.ids)
        first, emitting, last = shares.bounds(size)
        known = np.flatnonzero(first >= 0)
        # An instance that only computes the prompt may state no token.
        given = np.where(emitting >= 0, emitting, last)
        way = _no_way(size)
        way.clock[known] = clock
        way.first_start[known] = steps.start[first[known]]
        gave = np.flatnonzero(emitting >= 0)
        way.first_end[gave] = steps.end[emitting[gave]]
        way.last_end[known] = steps.end[last[known]]
        way.ttft[known] = shares.parts(known, first[known], given[known])
        way.decode[known] = shares.parts(known, given[known] + 1, last[known])
        way.ttft[known, GAPS] -= steps.gap_before_ns[first[known]]
        # What lies between the first token and the next step is the way from prefill to decode.
        following = shares.following(given)[known]
        goes_on = following > given[known]
        after = given[known] + 1
        missed = np.where(goes_on, _between(steps.end - steps.start, after, following - 1), 0)
        gaps = np.where(goes_on, _between(steps.gap_before_ns, after, following), 0)
        way.decode[known, NOT_SCHEDULED] -= missed
        way.decode[known, GAPS] -= gaps
        way.decode[known, TRANSITION] += missed + gaps
        _continue(self._way, way, known)

    def parts(self, kind: str, observer: str, which: Int64s, begin: Int64s, end: Int64s) -> Int64s:
        """Parts of the time between two moments of some requests, adding up to it."""
        parts = np.zeros((len(which), len(PARTS)), np.int64)
        total = end - begin
        way, seen = self._way, self._requests.observers[observer]
        first, done, last = (at[which] for at in (way.first_start, way.first_end, way.last_end))
        resolved = (way.clock[which] >= 0) & (done != _UNKNOWN)
        if kind == "ttft":
            known = resolved & (way.clock[which] == seen.clock[which]) & (first >= begin)
            # Nobody sees a token before its step has ended; if so, the clocks of two hosts differ.
            known &= (end >= done) | (observer == "engine")
            parts[known] = way.ttft[which[known]]
            queued = self._queued(which, seen)
            entered = np.where(queued == _UNKNOWN, begin, np.maximum(queued, begin))
            entered = np.where(known, np.minimum(entered, first), entered)
            parts[known, SEND] = (entered - begin)[known]
            parts[known, QUEUE] = (first - entered)[known]
            parts[known, DELIVERY] = (end - done)[known]
            self._coarse(parts, seen, which, begin, end, ~known)
        else:
            known = resolved & (last >= done)
            parts[known] = way.decode[which[known]]
            parts[known, DELIVERY] = (total - (last - done))[known]
        # What rounding or a clock set back has left over is said, not spread.
        parts[:, UNRESOLVED] += total - parts.sum(axis=1)
        return parts

    def _queued(self, which: Int64s, seen: Seen) -> Int64s:
        """When requests entered the engine's queue, where that is on the observer's clock."""
        engine = self._requests.observers.get("engine")
        if engine is None:
            return np.full(len(which), _UNKNOWN, np.int64)
        return np.where(engine.clock[which] == seen.clock[which], engine.queued[which], _UNKNOWN)

    def _coarse(
        self,
        parts: Int64s,
        seen: Seen,
        which: Int64s,
        begin: Int64s,
        end: Int64s,
        mask: NDArray[np.bool_],
    ) -> None:
        """Without steps: what the engine's own times say."""
        engine = self._requests.observers.get("engine")
        if engine is None:
            return
        queued, scheduled = self._queued(which, seen), engine.scheduled[which]
        first = engine.first_token[which]
        known = mask & (queued != _UNKNOWN) & (scheduled != _UNKNOWN) & (first != _UNKNOWN)
        known &= (begin <= queued) & (queued <= scheduled) & (scheduled <= first) & (first <= end)
        parts[known, SEND] = (queued - begin)[known]
        parts[known, QUEUE] = (scheduled - queued)[known]
        parts[known, UNRESOLVED] = (first - scheduled)[known]
        parts[known, DELIVERY] = (end - first)[known]


def _no_way(size: int) -> _Way:
    clock = np.full(size, NO_ID, np.int64)
    times = (np.full(size, _UNKNOWN, np.int64) for _ in range(3))
    parts = (np.zeros((size, len(PARTS)), np.int64) for _ in range(2))
    return _Way(clock, *times, *parts)


def _continue(way: _Way, other: _Way, which: Int64s) -> None:
    """Put requests' ways through the steps of another scheduler before or behind those known so far.

    A request may go from an instance that gives one token at most to another one. Any other that two
    schedulers had has no way that can be told.
    """
    is_new = which[way.clock[which] == NO_ID]
    for mine, theirs in zip(vars(way).values(), vars(other).values(), strict=True):
        mine[is_new] = theirs[is_new]
    both = np.setdiff1d(which, is_new, assume_unique=True)
    for early, late in ((way, other), (other, way)):
        follows = early.last_end[both] <= late.first_start[both]
        follows &= (way.clock[both] == other.clock[both]) & (late.first_end[both] != _UNKNOWN)
        single = (early.first_end == _UNKNOWN) | (early.first_end == early.last_end)
        at = both[follows & single[both]]
        both = np.setdiff1d(both, at, assume_unique=True)
        ttft = early.ttft[at] + early.decode[at] + late.ttft[at]
        ttft[:, TRANSITION] += late.first_start[at] - early.last_end[at]
        way.ttft[at], way.decode[at] = ttft, late.decode[at]
        way.first_start[at] = early.first_start[at]
        way.first_end[at], way.last_end[at] = late.first_end[at], late.last_end[at]
    way.clock[both] = _CONFLICT


class _AllShares:
    """Columns of `request_step`, read once for all schedulers."""

    def __init__(self, capture: Capture, ids: Sequence[str]) -> None:
        codes, names = capture.codes("request_step", "request_id")
        number_of = {name: number for number, name in enumerate(ids)}
        self.request = np.array([number_of.get(name, -1) for name in names], np.int64)[codes]
        self.step = capture.ids("request_step", "step_id")
        self.tokens = capture.int64("request_step", "num_tokens")
        self.emitted = capture.int64("request_step", "num_emitted", 0)
        self.num_steps = capture.num_rows("step")


class _Shares:
    """The requests' shares of the steps of one scheduler."""

    def __init__(self, shares: _AllShares, steps: EngineSteps) -> None:
        place = np.full(shares.num_steps, -1, np.int64)
        place[steps.row] = np.arange(len(steps))
        request, step = shares.request, shares.step
        rows = np.flatnonzero((request >= 0) & (place[step] >= 0)) if len(step) else step
        order = np.lexsort((place[step[rows]], request[rows]))
        rows = rows[order]
        self.steps = steps
        self.request, self.place = request[rows], place[step[rows]]
        self.tokens, self.emitted = shares.tokens[rows], shares.emitted[rows]
        self._merge_choices()

    def _merge_choices(self) -> None:
        """Several answers to one prompt have a share each of the same step, which passes once."""
        keys = np.stack((self.request, self.place))
        is_new = np.concatenate(([True], (np.diff(keys, axis=1) != 0).any(axis=0)))[: keys.shape[1]]
        if is_new.all():
            return
        first = np.flatnonzero(is_new)
        self.request, self.place = self.request[first], self.place[first]
        self.tokens = np.add.reduceat(self.tokens, first)
        self.emitted = np.add.reduceat(self.emitted, first)

    def bounds(self, size: int) -> tuple[Int64s, Int64s, Int64s]:
        """Place of the first step, of the one with the first token and of the last with one; -1 for none.

        Where no step gave a token, the last is the last of all.
        """
        first, emitting, last = (np.full(size, -1, np.int64) for _ in range(3))
        first[self.request[::-1]] = self.place[::-1]
        last[self.request] = self.place
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
    whole = _AllShares(capture, [request_id])
    for steps in engine_steps(capture):
        shares = _Shares(whole, steps)
        split = shares.split(shares.place, shares.tokens)
        rows = steps.row[shares.place].tolist()
        for row, own, prefill, decode in zip(rows, *(part.tolist() for part in split), strict=True):
            found[row] = own, prefill, decode
    return found
