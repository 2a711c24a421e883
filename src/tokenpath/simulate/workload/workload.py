"""A workload: one row a request, on columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

NO_REQUEST = -1


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in the order of their index. Open loop: `arrival_ns` says when each is sent.

    A request with a predecessor is sent `think_ns` after that one has finished (the next turn of a session);
    its `arrival_ns` is the earliest moment. With `concurrency` the loop is closed: requests without a
    predecessor are sent in order, as soon as fewer than so many are in flight, never before `arrival_ns`.
    """

    name: str
    """What it is, a line for people: `poisson 4/s, 500 requests` or a file's name."""
    state: str
    """`measured` (replayed), `estimated` (fitted to something measured) or `synthetic`."""
    arrival_ns: Int64s
    """When each request is sent, from 0 on, ascending for requests without predecessor."""
    prompt_tokens: Int64s
    """Tokens of each prompt, at least 1."""
    output_tokens: Int64s
    """Tokens that each request will emit, at least 1."""
    priority: Int64s
    """Lower is served first, where the policy asks for it."""
    after: Int64s
    """Index of the request that must finish before, NO_REQUEST without one; always below the own index."""
    think_ns: Int64s
    """Time from the predecessor's end to the sending."""
    session: Int64s
    """Number of the session; every request its own where there are none. Routers may keep it on a replica."""
    hash_start: Int64s
    """[num_requests + 1]: request i has content ids `hashes[hash_start[i]:hash_start[i + 1]]`."""
    hashes: Int64s
    """Content ids by granule: equal ids mean equal tokens from the very start to the end of the granule. They
    may go on over the output where a later turn repeats it."""
    hash_granule_tokens: int
    """Tokens of one granule."""
    concurrency: int | None = None
    """Requests in flight at most; None: open loop."""
    request_ids: tuple[str, ...] | None = None
    """What a recording called them, each once, so that a run of them can be held against it; None: their numbers."""

    @property
    def num_requests(self) -> int:
        """Rows."""
        return len(self.arrival_ns)
