"""What requests of a workload share, whatever the engine: the hit rate of an infinite cache, and of one that forgets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.simulate.workload.arrivals import NS_PER_S
from tokenpath.simulate.workload.transform import select
from tokenpath.simulate.workload.workload import Int64s, Workload

KEEP_TIMES_S = (1.0, 10.0, 60.0, 600.0, 3600.0)


@dataclass(frozen=True, slots=True)
class Matches:
    """How much of each prompt some request before had; one entry a request."""

    granules: Int64s
    """Leading granules of the prompt that occurred before."""
    tokens: Int64s
    """The same in tokens, at most those of the prompt."""
    parent: Int64s
    """The last request before that has the last of them; -1 where nothing matches."""


@dataclass(frozen=True, slots=True)
class KeptFor:
    """A cache that keeps each granule for a while after its last use."""

    keep_s: float
    """How long."""
    hit_ratio: float
    """Share of all prompt tokens that it has, 0 to 1."""
    mean_held_tokens: float
    """Tokens that it holds on average over the span of the workload: its working set."""


@dataclass(frozen=True, slots=True)
class ReuseFacts:
    """Sharing between requests, if answers took no time."""

    ideal_hit_ratio: float
    """Share of prompt tokens that some request before had: what an infinite cache would save."""
    share_of_requests: float
    """Share of requests of which some leading granules occurred before."""
    mean_match_tokens: float
    """Tokens found, over the requests that find any."""
    unique_tokens: int
    """Tokens of different content: what an infinite cache holds in the end."""
    kept_for: tuple[KeptFor, ...]
    """Hit rate and size by how long content is kept; empty where all requests come at once."""


@dataclass(frozen=True, slots=True)
class _Uses:
    """Every granule of every request; arrays have one entry each, in the order of `Workload.hashes`."""

    owner: Int64s
    """Its request."""
    place: Int64s
    """Its number in the request."""
    by_id: Int64s
    """Order by id, and by request within an id."""
    is_again: NDArray[np.bool_]
    """In that order: whether the use before is of the same id."""
    previous: Int64s
    """The request that had it before; -1 for the first."""

    @classmethod
    def of(cls, workload: Workload) -> _Uses:
        """The uses of a workload in order of time."""
        counts = np.diff(workload.hash_start)
        owner = np.repeat(np.arange(workload.num_requests), counts)
        place = np.arange(len(workload.hashes)) - np.repeat(workload.hash_start[:-1], counts)
        # Requests ascend in the table, so a stable sort by id keeps them in order.
        by_id = np.argsort(workload.hashes, kind="stable")
        ids = workload.hashes[by_id]
        is_again = np.zeros(len(ids), bool)
        np.equal(ids[1:], ids[:-1], out=is_again[1:])
        again = np.flatnonzero(is_again)
        previous = np.full(len(ids), -1, np.int64)
        previous[by_id[again]] = owner[by_id[again - 1]]
        return cls(owner, place, by_id, is_again, previous)


def matches(workload: Workload) -> Matches:
    """Leading granules of each prompt that requests of lower index had. Order of index is order of time."""
    return _matches(workload, _Uses.of(workload))


def _matches(workload: Workload, uses: _Uses) -> Matches:
    granules_of_prompt = -(-workload.prompt_tokens // workload.hash_granule_tokens)
    # The run of known granules ends at the first missing one: a hole ends it for every engine.
    granules = np.minimum(np.diff(workload.hash_start), granules_of_prompt)
    _cut_at(granules, uses, np.flatnonzero(uses.previous < 0))
    parent = np.full(workload.num_requests, -1, np.int64)
    some = np.flatnonzero(granules)
    parent[some] = uses.previous[workload.hash_start[some] + granules[some] - 1]
    tokens = np.minimum(granules * workload.hash_granule_tokens, workload.prompt_tokens)
    return Matches(granules, tokens, parent)


def _cut_at(granules: Int64s, uses: _Uses, missing: Int64s) -> None:
    """Shorten each request's run to before its first missing granule; `missing` ascends."""
    owner = uses.owner[missing]
    is_first = np.ones(len(owner), bool)
    np.not_equal(owner[1:], owner[:-1], out=is_first[1:])
    at = missing[is_first]
    granules[uses.owner[at]] = np.minimum(granules[uses.owner[at]], uses.place[at])


def reuse_facts(workload: Workload) -> ReuseFacts | None:
    """What the workload shares; None where it has no content ids."""
    if not len(workload.hashes):
        return None
    ordered = in_order_of_time(workload)
    uses = _Uses.of(ordered)
    found = _matches(ordered, uses)
    prompt = int(ordered.prompt_tokens.sum())
    hit = found.granules > 0
    whole = int((ordered.prompt_tokens + ordered.output_tokens).sum())
    return ReuseFacts(
        ideal_hit_ratio=float(found.tokens.sum()) / prompt,
        share_of_requests=float(hit.mean()),
        mean_match_tokens=float(found.tokens[hit].mean()) if hit.any() else 0.0,
        unique_tokens=whole - int(found.tokens.sum()),
        kept_for=_kept_for(ordered, uses, found, prompt),
    )


def in_order_of_time(workload: Workload) -> Workload:
    """Requests in the order of `arrival_ns`; sessions laid out one after another are interleaved."""
    if (np.diff(workload.arrival_ns) >= 0).all():
        return workload
    return select(workload, np.argsort(workload.arrival_ns, kind="stable"))


def _kept_for(workload: Workload, uses: _Uses, found: Matches, prompt: int) -> tuple[KeptFor, ...]:
    """Denning's working set: a granule is there while its last use is at most so long ago."""
    at = workload.arrival_ns[uses.owner] / NS_PER_S
    last = float(at.max())
    span = last - float(at.min())
    if span <= 0:
        return ()
    age = np.where(uses.previous >= 0, at - workload.arrival_ns[uses.previous] / NS_PER_S, np.inf)
    # Time to the next use, or to the end: how long a granule is held for nothing.
    ordered = at[uses.by_id]
    until = (
        np.where(np.append(~uses.is_again[1:], True), last, np.append(ordered[1:], 0.0)) - ordered
    )
    rows = []
    for keep_s in KEEP_TIMES_S:
        if keep_s > span:
            break
        granules = found.granules.copy()
        _cut_at(granules, uses, np.flatnonzero(age > keep_s))
        tokens = np.minimum(granules * workload.hash_granule_tokens, workload.prompt_tokens)
        held = float(np.minimum(until, keep_s).sum()) / span * workload.hash_granule_tokens
        rows.append(KeptFor(keep_s, float(tokens.sum()) / prompt, held))
    return tuple(rows)
