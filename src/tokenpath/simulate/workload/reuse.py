"""What requests of a workload share, whatever the engine: the hit rate of an infinite cache, and of one that forgets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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


def matches(workload: Workload) -> Matches:
    """Leading granules of each prompt that requests of lower index had. Order of index is order of time."""
    count = workload.num_requests
    counts = np.diff(workload.hash_start)
    owner = np.repeat(np.arange(count), counts)
    place = np.arange(len(workload.hashes)) - np.repeat(workload.hash_start[:-1], counts)
    previous = _previous_use(workload.hashes, owner)
    granules_of_prompt = -(-workload.prompt_tokens // workload.hash_granule_tokens)
    is_missing = (previous < 0) | (place >= granules_of_prompt[owner])
    # The run of known granules ends at the first missing one: a hole ends it for every engine.
    granules = np.minimum(counts, granules_of_prompt)
    misses = np.flatnonzero(is_missing)
    np.minimum.at(granules, owner[misses], place[misses])
    parent = np.full(count, -1, np.int64)
    some = np.flatnonzero(granules)
    parent[some] = previous[workload.hash_start[some] + granules[some] - 1]
    tokens = np.minimum(granules * workload.hash_granule_tokens, workload.prompt_tokens)
    return Matches(granules, tokens, parent)


def reuse_facts(workload: Workload) -> ReuseFacts | None:
    """What the workload shares; None where it has no content ids."""
    if not len(workload.hashes):
        return None
    ordered = in_order_of_time(workload)
    found = matches(ordered)
    prompt = int(ordered.prompt_tokens.sum())
    hit = found.granules > 0
    whole = int((ordered.prompt_tokens + ordered.output_tokens).sum())
    return ReuseFacts(
        ideal_hit_ratio=float(found.tokens.sum()) / prompt,
        share_of_requests=float(hit.mean()),
        mean_match_tokens=float(found.tokens[hit].mean()) if hit.any() else 0.0,
        unique_tokens=whole - int(found.tokens.sum()),
        kept_for=_kept_for(ordered, found, prompt),
    )


def in_order_of_time(workload: Workload) -> Workload:
    """Requests in the order of `arrival_ns`; sessions laid out one after another are interleaved."""
    if (np.diff(workload.arrival_ns) >= 0).all():
        return workload
    return select(workload, np.argsort(workload.arrival_ns, kind="stable"))


def _previous_use(ids: Int64s, owner: Int64s) -> Int64s:
    """The request that had each id before; -1 for the first."""
    order = np.argsort(ids, kind="stable")
    sorted_ids = ids[order]
    previous = np.full(len(ids), -1, np.int64)
    again = np.flatnonzero(sorted_ids[1:] == sorted_ids[:-1]) + 1
    previous[order[again]] = owner[order[again - 1]]
    return previous


def _kept_for(workload: Workload, found: Matches, prompt: int) -> tuple[KeptFor, ...]:
    """Denning's working set: a granule is there while its last use is at most so long ago."""
    counts = np.diff(workload.hash_start)
    owner = np.repeat(np.arange(workload.num_requests), counts)
    place = np.arange(len(workload.hashes)) - np.repeat(workload.hash_start[:-1], counts)
    at = workload.arrival_ns[owner] / NS_PER_S
    span = float(at.max() - at.min())
    if span <= 0:
        return ()
    previous = _previous_use(workload.hashes, owner)
    age = np.where(previous >= 0, at - workload.arrival_ns[previous] / NS_PER_S, np.inf)
    # Time to the next use, or to the end: how long a granule is held for nothing.
    order = np.lexsort((owner, workload.hashes))
    is_last = np.append(workload.hashes[order][1:] != workload.hashes[order][:-1], True)
    until = np.empty(len(order))
    until[order] = np.where(is_last, at.max(), np.append(at[order][1:], 0.0)) - at[order]
    rows = []
    for keep_s in KEEP_TIMES_S:
        if keep_s > span:
            break
        granules = found.granules.copy()
        gone = np.flatnonzero((age > keep_s) & (place < granules[owner]))
        np.minimum.at(granules, owner[gone], place[gone])
        tokens = np.minimum(granules * workload.hash_granule_tokens, workload.prompt_tokens)
        held = float(np.minimum(until, keep_s).sum()) / span * workload.hash_granule_tokens
        rows.append(KeptFor(keep_s, float(tokens.sum()) / prompt, held))
    return tuple(rows)
