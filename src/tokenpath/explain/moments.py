"""The moments of each request as each observer saw them, never put together from two clocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.core.units import INT64_MAX, INT64_MIN
from tokenpath.stitch.clocks import clock_of_rows

Int64s = NDArray[np.int64]
UNKNOWN = INT64_MIN
_COLUMNS = (
    "arrival_ns",
    "queued_ns",
    "scheduled_ns",
    "first_token_ns",
    "last_token_ns",
    "finished_ns",
)


@dataclass(frozen=True)
class Seen:
    """Times of requests as one observer has them, by request; UNKNOWN for not seen."""

    clock: Int64s
    """Which clock they are of, see `stitch.clocks.clock_of_rows`; NO_ID for a request not seen."""
    arrival: Int64s
    queued: Int64s
    scheduled: Int64s
    first_token: Int64s
    """Of several answers to one prompt the first; of prefill and decode instances that of the latter."""
    last_token: Int64s
    """Of several answers the last."""
    num_output_tokens: Int64s
    """Of several answers the longest; NO_ID for unknown."""


class Requests:
    """The requests of a capture, by observer."""

    def __init__(self, capture: Capture) -> None:
        self._codes, self.ids = capture.codes("request", "request_id")
        self._clock = clock_of_rows(capture, "request")
        self._source = capture.ids("request", "source_id").astype(np.int64)
        self._values = {name: capture.int64("request", name, UNKNOWN) for name in _COLUMNS}
        self._tokens = capture.int64("request", "output_tokens", NO_ID)
        codes, names = capture.codes("request", "observer")
        self.observers: dict[str, Seen] = {}
        for number, name in enumerate(names):
            rows = np.flatnonzero(codes == number)
            if len(rows):
                self.observers[name] = self._seen(rows, name)
        self._most_tokens = self._extreme(np.arange(len(codes)), self._tokens, NO_ID, np.maximum)

    def num_output_tokens(self, observer: str) -> Int64s:
        """Tokens as that observer counts them, else as another one does; NO_ID for unknown."""
        own = self.observers[observer].num_output_tokens
        result: Int64s = np.where(own == NO_ID, self._most_tokens, own)
        return result

    def _seen(self, rows: Int64s, observer: str) -> Seen:
        rows, clock = self._on_one_clock(rows)
        is_prefill = self._is_prefill_instance(rows) & (observer == "engine")
        giving = self._of_one_source(rows[~is_prefill])
        early = np.concatenate((giving, rows[is_prefill]))
        moments = {}
        for name in ("arrival_ns", "queued_ns", "scheduled_ns"):
            own = self._extreme(early, self._values[name], UNKNOWN, np.minimum)
            if observer == "engine":
                # Logs and spans of one engine each know some of its moments.
                others = self._extreme(rows, self._values[name], UNKNOWN, np.minimum)
                own = np.where(own == UNKNOWN, others, own)
            moments[name] = own
        return Seen(
            clock,
            moments["arrival_ns"],
            moments["queued_ns"],
            moments["scheduled_ns"],
            self._extreme(giving, self._values["first_token_ns"], UNKNOWN, np.minimum),
            self._extreme(giving, self._last_token(observer), UNKNOWN, np.maximum),
            self._extreme(giving, self._tokens, NO_ID, np.maximum),
        )

    def _last_token(self, observer: str) -> Int64s:
        """Last tokens; of who waits outside for a stream, its end: a span says no more of it."""
        last = self._values["last_token_ns"]
        if observer == "engine":
            return last
        is_streamed = (last == UNKNOWN) & (self._values["first_token_ns"] != UNKNOWN)
        return np.where(is_streamed, self._values["finished_ns"], last)

    def _of_one_source(self, rows: Int64s) -> Int64s:
        """The rows of each request of its first source that knows of a token, else of its first one."""
        if len(rows) == 0:
            return rows
        codes, source = self._codes[rows], self._source[rows]
        size = int(source.max()) + 1
        rank = source + np.where(self._values["first_token_ns"][rows] == UNKNOWN, size, 0)
        chosen = np.full(len(self.ids), 2 * size, np.int64)
        np.minimum.at(chosen, codes, rank)
        result: Int64s = rows[source == (chosen % size)[codes]]
        return result

    def _on_one_clock(self, rows: Int64s) -> tuple[Int64s, Int64s]:
        """The rows of each request on one of its clocks, and which; one that knows of a token before others."""
        codes, clock = self._codes[rows], self._clock[rows]
        size = int(clock.max()) + 1
        rank = clock + np.where(self._values["first_token_ns"][rows] == UNKNOWN, size, 0)
        chosen = np.full(len(self.ids), 2 * size, np.int64)
        np.minimum.at(chosen, codes, rank)
        of_request = np.where(chosen < 2 * size, chosen % size, NO_ID)
        return rows[clock == of_request[codes]], of_request

    def _is_prefill_instance(self, rows: Int64s) -> NDArray[np.bool_]:
        """Which rows gave one token before another engine was handed the request."""
        codes = self._codes[rows]
        first, begin = self._values["first_token_ns"][rows], self._values["queued_ns"][rows]
        begin = np.where(begin == UNKNOWN, self._values["arrival_ns"][rows], begin)
        latest = np.full(len(self.ids), UNKNOWN, np.int64)
        np.maximum.at(latest, codes, np.where(first == UNKNOWN, UNKNOWN, begin))
        last, tokens = self._values["last_token_ns"][rows], self._tokens[rows]
        is_one = np.where(tokens == NO_ID, (last == UNKNOWN) | (last == first), tokens <= 1)
        result: NDArray[np.bool_] = is_one & (first != UNKNOWN) & (first <= latest[codes])
        return result

    def _extreme(self, rows: Int64s, values: Int64s, unknown: int, which: np.ufunc) -> Int64s:
        """By request the least or greatest known value of some rows."""
        known = rows[values[rows] != unknown]
        end = INT64_MAX if which is np.minimum else INT64_MIN
        result = np.full(len(self.ids), end, np.int64)
        which.at(result, self._codes[known], values[known])
        is_known = np.zeros(len(self.ids), bool)
        is_known[self._codes[known]] = True
        return np.where(is_known, result, unknown)
