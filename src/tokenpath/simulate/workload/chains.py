"""Shared prefixes that grow like measured ones: each request repeats the first granules of an earlier one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenpath.capture.compiled import compiled
from tokenpath.core.errors import LimitExceeded, UsageError
from tokenpath.simulate.workload.chance import Purpose, stream
from tokenpath.simulate.workload.content import MAX_IDS, Content
from tokenpath.simulate.workload.length_fit import MAX_RECORDS
from tokenpath.simulate.workload.lengths import Pairs
from tokenpath.simulate.workload.reuse import in_order_of_time, matches
from tokenpath.simulate.workload.workload import Int64s, Workload

NEAR = 256
"""Requests to each side of the one that a lag points at among which the one to repeat is looked for."""
ALIKE = 8
"""The first is taken whose granules differ from those wanted by at most its own over this."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """What requests repeat, as measured: rows that are drawn with replacement, lengths and sharing together."""

    granule_tokens: int
    """Tokens of a granule."""
    prompt_tokens: tuple[int, ...]
    """Tokens of the prompt."""
    output_tokens: tuple[int, ...]
    """Tokens of the output."""
    match_granules: tuple[int, ...]
    """Leading granules that an earlier request had."""
    parent_granules: tuple[int, ...]
    """Granules of the prompt of the last request that had them; 0 without."""
    lag: tuple[int, ...]
    """How many requests ago it came; 0 without."""

    def __post_init__(self) -> None:
        sizes = {len(column) for column in self.columns()}
        if sizes == {0} or len(sizes) != 1 or self.granule_tokens < 1:
            raise UsageError(
                "columns of different length", where="reuse", allowed="one row at least"
            )
        if min(min(column) for column in self.columns()) < 0 or min(*self.prompt_tokens, 1) < 1:
            raise UsageError("a value is below 0", where="reuse", allowed="tokens from 1 on")

    def columns(self) -> tuple[tuple[int, ...], ...]:
        """The columns in their order."""
        return (
            self.prompt_tokens,
            self.output_tokens,
            self.match_granules,
            self.parent_granules,
            self.lag,
        )

    @property
    def label(self) -> str:
        """The law in a few words."""
        return f"resampled from {len(self.lag):,} requests with what they repeat"

    def draw(self, seed: int, count: int) -> Pairs:
        """Lengths alone."""
        row = self._rows(seed, count)
        return Pairs(np.asarray(self.prompt_tokens)[row], np.asarray(self.output_tokens)[row])

    def draw_content(self, seed: int, count: int) -> Content:
        """Content of the requests whose lengths `draw` gives for the same seed."""
        row = self._rows(seed, count)
        prompt = np.asarray(self.prompt_tokens, np.int64)[row]
        return grow(
            -(-prompt // self.granule_tokens),
            np.asarray(self.match_granules, np.int64)[row],
            np.asarray(self.parent_granules, np.int64)[row],
            np.asarray(self.lag, np.int64)[row],
            self.granule_tokens,
        )

    def _rows(self, seed: int, count: int) -> Int64s:
        return stream(seed, Purpose.REUSE).integers(0, len(self.lag), count)


def fit_reuse(workload: Workload) -> Reuse | None:
    """Rows of a workload with content ids; None where it has none."""
    if not len(workload.hashes):
        return None
    ordered = in_order_of_time(workload)
    found = matches(ordered)
    count = ordered.num_requests
    granules = -(-ordered.prompt_tokens // ordered.hash_granule_tokens)
    has_parent = found.parent >= 0
    parent = np.maximum(found.parent, 0)
    rows = np.arange(count)
    if count > MAX_RECORDS:
        rows = np.sort(stream(0, Purpose.REUSE).choice(count, MAX_RECORDS, replace=False))
    columns = (
        ordered.prompt_tokens,
        ordered.output_tokens,
        found.granules,
        np.where(has_parent, granules[parent], 0),
        np.where(has_parent, np.arange(count) - parent, 0),
    )
    return Reuse(ordered.hash_granule_tokens, *(tuple(column[rows].tolist()) for column in columns))


def grow(
    granules: Int64s, match: Int64s, parent_granules: Int64s, lag: Int64s, granule_tokens: int
) -> Content:
    """Content in which request i repeats the first `match[i]` granules of one about `lag[i]` requests before.

    It repeats the request nearest to that place that has enough granules; where none has, the one with most
    so far, as far as it goes. Where a request repeats all of another one, it goes on from there, which happens
    once, and the other one should have about `parent_granules[i]`. All other granules are new.
    """
    total = int(granules.sum())
    if total > MAX_IDS:
        raise LimitExceeded(
            f"{total:,} content ids", where="workload", allowed=f"{MAX_IDS:,} ids",
            next_step="ask for fewer requests",
        )  # fmt: skip
    start = np.concatenate((np.zeros(1, np.int64), np.cumsum(granules)))
    hashes = np.empty(total, np.int64)
    _grow(len(granules) * ALIKE + total)(
        start,
        np.minimum(match, granules),
        parent_granules.copy(),
        lag.copy(),
        np.zeros(len(granules), np.int64),
        hashes,
    )
    return Content(start, hashes, granule_tokens)


@compiled
def _grow(
    start: Int64s,
    match: Int64s,
    parent_granules: Int64s,
    lag: Int64s,
    continued: Int64s,
    hashes: Int64s,
) -> int:
    next_id = 0
    longest = 0
    for index in range(len(match)):
        begin = start[index]
        size = start[index + 1] - begin
        wanted = match[index]
        copied = 0
        if wanted > 0 and index > 0:
            aim = max(index - max(lag[index], 1), 0)
            # All of it or all but its last granule: a conversation goes on, and each goes on from its end.
            goes_on = wanted + 1 >= parent_granules[index]
            found = -1
            closest = 0
            for step in range(2 * NEAR):
                # aim, aim + 1, aim - 1, aim + 2, ...
                other = aim + (step + 1) // 2 if step % 2 else aim - step // 2
                if other < 0 or other >= index:
                    continue
                held = start[other + 1] - start[other]
                if held < wanted or (goes_on and continued[other] == 1):
                    continue
                distance = abs(held - parent_granules[index]) if goes_on else 0
                if found < 0 or distance < closest:
                    found = other
                    closest = distance
                if closest * ALIKE <= held:
                    break
            if found < 0:
                found = longest
            if goes_on:
                continued[found] = 1
            copied = min(wanted, start[found + 1] - start[found])
            source = start[found]
            for place in range(copied):
                hashes[begin + place] = hashes[source + place]
        for place in range(copied, size):
            hashes[begin + place] = next_id
            next_id += 1
        if size > start[longest + 1] - start[longest]:
            longest = index
    return next_id
