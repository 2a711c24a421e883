"""Which replica a request goes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tokenpath.engine.scheduler import EngineRequest, Scheduler


@dataclass(slots=True)
class Endpoint:
    """A scheduler that requests can be sent to, as a router sees it."""

    number: int
    """Its number in the cluster."""
    scheduler: Scheduler
    """What reports the queue, the running requests and the free blocks."""
    is_ready: bool = True
    """Whether it takes requests."""
    num_outstanding: int = 0
    """Requests sent to it and not ended."""


class Router(Protocol):
    """Chooses a scheduler for each request. Decides on what it is given and on its own past choices only."""

    def choose(
        self, request: EngineRequest, session: int, endpoints: Sequence[Endpoint]
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
