"""Which replica a request goes to.

A router knows what a proxy in front of engines knows: what it sent where, what has ended, and the contents
of the prompts. Equal choices fall to the lowest number.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tokenpath.core.errors import UsageError
from tokenpath.engine.scheduler import EngineRequest, Scheduler

_MASK = (1 << 64) - 1
ROUTERS = ("round-robin", "least-load", "prefix-affine", "kv-aware")
"""Names that `make_router` knows."""


@dataclass(slots=True)
class Endpoint:
    """A scheduler that requests can be sent to, as a router sees it."""

    number: int
    """Its number in the cluster."""
    scheduler: Scheduler
    """The scheduler itself; the routers here do not look inside."""
    is_ready: bool = True
    """Whether it takes requests."""
    num_outstanding: int = 0
    """Requests sent to it and not ended."""
    outstanding_tokens: int = 0
    """Prompt tokens of those."""


class Router(Protocol):
    """Chooses a scheduler for each request. Decides on what it is given and on its own past choices only."""

    def choose(
        self, request: EngineRequest, session: int, endpoints: Sequence[Endpoint], /
    ) -> Endpoint:
        """One of `endpoints`, which are ready, in order of their numbers, and at least one."""


class RoundRobin:
    """One after the other."""

    def __init__(self) -> None:
        self._num_chosen = 0

    def choose(
        self, _request: EngineRequest, _session: int, endpoints: Sequence[Endpoint]
    ) -> Endpoint:
        """The next one in turn."""
        chosen = endpoints[self._num_chosen % len(endpoints)]
        self._num_chosen += 1
        return chosen


class LeastLoad:
    """Fewest requests that have not ended."""

    def choose(
        self, _request: EngineRequest, _session: int, endpoints: Sequence[Endpoint]
    ) -> Endpoint:
        """The one with the fewest."""
        return min(endpoints, key=_load)


class PrefixAffine:
    """Prompts that begin alike go to the same replica, unless that has too much to do.

    Rendezvous hashing of the id of the first granules (Thaler, Ravishankar 1998) with a bound on the load:
    at most `max_imbalance` times the mean (Mirrokni et al., Consistent Hashing with Bounded Loads, 2016).
    A prompt without ids goes where the load is least.
    """

    def __init__(self, prefix_tokens: int = 1024, max_imbalance: float = 1.25) -> None:
        if prefix_tokens < 1:
            raise UsageError(f"prefix_tokens is {prefix_tokens}", allowed="1 or more")
        if max_imbalance < 1:
            raise UsageError(f"max_imbalance is {max_imbalance}", allowed="1 or more")
        self._prefix_tokens, self._max_imbalance = prefix_tokens, max_imbalance

    def choose(
        self, request: EngineRequest, _session: int, endpoints: Sequence[Endpoint]
    ) -> Endpoint:
        """The first by rank for this prefix whose load is within the bound."""
        if len(request.hashes) == 0:
            return min(endpoints, key=_load)
        granule = min(
            len(request.hashes), max(1, self._prefix_tokens // request.hash_granule_tokens)
        )
        prefix = int(request.hashes[granule - 1])
        total = sum(endpoint.num_outstanding for endpoint in endpoints) + 1
        bound = math.ceil(self._max_imbalance * total / len(endpoints))
        ranked = sorted(endpoints, key=lambda one: (-_mixed(prefix, one.number), one.number))
        # The least loaded is always within the bound, which is at least the mean rounded up.
        return next(one for one in ranked if one.num_outstanding < bound)


class KvAware:
    """Where the prompt needs the least work, counting what has to be computed and what is queued already.

    Cost = `overlap_weight` x prompt tokens that no block there holds + prompt tokens outstanding there: the
    form of the cost function of the KV router of NVIDIA Dynamo, in tokens. What a replica holds is not asked
    but remembered: the last `capacity_tokens` of prompts sent there (None: all of them).
    """

    def __init__(self, overlap_weight: float = 1.0, capacity_tokens: int | None = None) -> None:
        if overlap_weight < 0:
            raise UsageError(f"overlap_weight is {overlap_weight}", allowed="0 or more")
        self._weight, self._capacity = overlap_weight, capacity_tokens
        self._held: dict[int, OrderedDict[int, None]] = {}

    def choose(
        self, request: EngineRequest, _session: int, endpoints: Sequence[Endpoint]
    ) -> Endpoint:
        """The cheapest, which is remembered to hold the prompt from now on."""
        ids = request.hashes.tolist()
        granule, prompt = request.hash_granule_tokens, request.prompt_tokens

        def cost(endpoint: Endpoint) -> tuple[float, int, int]:
            found = min(prompt, self._overlap(endpoint.number, ids) * granule)
            todo = self._weight * (prompt - found) + endpoint.outstanding_tokens
            return todo, endpoint.num_outstanding, endpoint.number

        chosen = min(endpoints, key=cost)
        self._remember(chosen.number, ids, granule)
        return chosen

    def _overlap(self, number: int, ids: Sequence[int]) -> int:
        held = self._held.setdefault(number, OrderedDict())
        for count, one in enumerate(ids):
            if one not in held:
                return count
        return len(ids)

    def _remember(self, number: int, ids: Sequence[int], granule: int) -> None:
        held = self._held.setdefault(number, OrderedDict())
        # From the end on: what a prompt begins with is needed by most others, and is forgotten last.
        for one in reversed(ids):
            held[one] = None
            held.move_to_end(one)
        while self._capacity is not None and len(held) * granule > self._capacity:
            held.popitem(last=False)


class Sticky:
    """A session stays where its first request went; that one is placed by another router."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._place: dict[int, int] = {}

    def choose(
        self, request: EngineRequest, session: int, endpoints: Sequence[Endpoint]
    ) -> Endpoint:
        """Where the session is, or a new place for it."""
        place = self._place.get(session)
        for endpoint in endpoints:
            if endpoint.number == place:
                return endpoint
        chosen = self._router.choose(request, session, endpoints)
        self._place[session] = chosen.number
        return chosen


@dataclass(frozen=True)
class RouterSettings:
    """How requests are spread over replicas."""

    policy: str = "round-robin"
    """One of ROUTERS."""
    keeps_sessions: bool = False
    """Whether all requests of a session go to one replica."""
    prefix_tokens: int = 1024
    """`prefix-affine`: how much of the beginning of a prompt counts."""
    max_imbalance: float = 1.25
    """`prefix-affine`: most requests of a replica, over the mean."""
    overlap_weight: float = 1.0
    """`kv-aware`: weight of tokens to compute against tokens outstanding."""
    capacity_tokens: int | None = None
    """`kv-aware`: tokens that a replica is thought to hold; None: without bound."""


def make_router(settings: RouterSettings) -> Router:
    """A new router; UsageError for a policy that is not known."""
    router: Router
    if settings.policy == "round-robin":
        router = RoundRobin()
    elif settings.policy == "least-load":
        router = LeastLoad()
    elif settings.policy == "prefix-affine":
        router = PrefixAffine(settings.prefix_tokens, settings.max_imbalance)
    elif settings.policy == "kv-aware":
        router = KvAware(settings.overlap_weight, settings.capacity_tokens)
    else:
        raise UsageError(f"router policy {settings.policy!r}", allowed=", ".join(ROUTERS))
    return Sticky(router) if settings.keeps_sessions else router


def _load(endpoint: Endpoint) -> tuple[int, int]:
    return endpoint.num_outstanding, endpoint.number


def _mixed(prefix: int, number: int) -> int:
    """A number from both that shows nothing of either (the finaliser of SplitMix64, Steele et al. 2014)."""
    z = (prefix + (number + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
    return z ^ (z >> 31)
