"""What requests share: content ids by granule, laid out for all requests at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenpath.core.errors import LimitExceeded, UsageError
from tokenpath.simulate.workload.workload import Int64s

GRANULE_TOKENS = 16
"""Tokens of a granule where nothing else is said: the block of vLLM, the smallest that engines commonly use."""
MAX_IDS = 250_000_000
"""Content ids of one workload; 2 GB."""


@dataclass(frozen=True, slots=True)
class Content:
    """Content ids of all requests, as `Workload` holds them."""

    hash_start: Int64s
    """[num_requests + 1]: where each request's ids begin."""
    hashes: Int64s
    """Ids by granule."""
    granule_tokens: int
    """Tokens of one granule."""


def nothing_shared(num_requests: int) -> Content:
    """No request shares anything with another."""
    return Content(np.zeros(num_requests + 1, np.int64), np.empty(0, np.int64), GRANULE_TOKENS)


def ids_of_parts(
    first_id: list[Int64s], num_granules: list[Int64s], granule_tokens: int
) -> Content:
    """Ids of requests made of parts one after another.

    `first_id[p][i]` is the id of the first granule of part p of request i, `num_granules[p][i]` how many follow
    each other from there: first id, first id + 1, ... Parts with the same first id have the same content as far
    as both go; what lies before them must be the same too. LimitExceeded above MAX_IDS ids.
    """
    if granule_tokens < 1:
        raise UsageError(f"{granule_tokens} tokens a granule", where="granule", allowed="from 1 on")
    firsts = np.stack(first_id, axis=1).ravel()
    counts = np.stack(num_granules, axis=1).ravel()
    total = int(counts.sum())
    if total > MAX_IDS:
        raise LimitExceeded(
            f"{total:,} content ids",
            where="workload",
            allowed=f"{MAX_IDS:,} ids",
            next_step=f"choose a granule above {granule_tokens} tokens, or fewer requests",
        )
    ends = np.cumsum(counts)
    # Within a part ids count up by one: subtract where the part begins, add its first id.
    hashes = np.arange(total) + np.repeat(firsts - (ends - counts), counts)
    per_request = np.stack(num_granules, axis=1).sum(axis=1)
    return Content(np.concatenate(([0], np.cumsum(per_request))), hashes, granule_tokens)


def id_ranges(num_granules: Int64s, first: int = 0) -> Int64s:
    """First ids of contents that each own so many ids, one after another from `first` on."""
    return np.asarray(first + np.cumsum(num_granules) - num_granules)
