"""The event loop: take the next event, set the clock, handle it, push what follows from it.

Everything that happens is an event `(at_ns, kind, index)`, and events are taken in that order. So at equal
times steps complete first, then tokens reach clients, then requests arrive, and engines decide last, on all
that is known at that moment; within a kind the lower index comes first (replica for COMPLETE, JOIN and
SCHEDULE, request for the others). Nothing else decides an order: the same input gives the same run.

The loop is pure and knows neither chance nor the host's clock; times are whole nanoseconds.
"""

from __future__ import annotations

import heapq
from typing import Protocol

Event = tuple[int, int, int]
"""Time in ns, kind, index of what it happens to."""

COMPLETE, DELIVER, JOIN, RELEASE, ARRIVE, SCHEDULE = range(6)
"""A step of a replica has run; KV of a request has reached its decode replica; a replica is ready; the
client of a request has its last token; a request reaches the router; a replica decides its next step."""


class Clients(Protocol):
    """Who sends requests."""

    def start(self) -> list[Event]:
        """The first arrivals."""

    def send(self, request: int, now_ns: int, /) -> tuple[bool, list[Event]]:
        """Whether the request is sent now, and the arrivals that are known from then on."""

    def release(self, request: int, now_ns: int, /) -> list[Event]:
        """The client has the last token: arrivals that waited for it."""


class Cluster(Protocol):
    """Who serves them."""

    def start(self) -> list[Event]:
        """Replicas that join later."""

    def arrive(self, request: int, now_ns: int, /) -> list[Event]:
        """Route a request and queue it."""

    def schedule(self, replica: int, now_ns: int, /) -> list[Event]:
        """Decide steps while the replica takes any."""

    def complete(self, replica: int, now_ns: int, /) -> list[Event]:
        """The oldest step in flight has run."""

    def deliver(self, request: int, now_ns: int, /) -> list[Event]:
        """Its KV has been transferred."""

    def join(self, replica: int, now_ns: int, /) -> list[Event]:
        """The replica takes requests from now on."""


class Watch(Protocol):
    """Who may stop a run."""

    def must_stop(self, request: int, now_ns: int, /) -> bool:
        """Asked after the arrival of each request."""


def run_events(clients: Clients, cluster: Cluster, watch: Watch | None = None) -> int:
    """Run until nothing is left to happen, or `watch` stops it; the time of the last event, ns."""
    events = [*cluster.start(), *clients.start()]
    heapq.heapify(events)
    now_ns = 0
    while events:
        now_ns, kind, index = heapq.heappop(events)
        if kind == COMPLETE:
            new = cluster.complete(index, now_ns)
        elif kind == DELIVER:
            new = cluster.deliver(index, now_ns)
        elif kind == JOIN:
            new = cluster.join(index, now_ns)
        elif kind == RELEASE:
            new = clients.release(index, now_ns)
        elif kind == ARRIVE:
            is_sent, new = clients.send(index, now_ns)
            if is_sent:
                new += cluster.arrive(index, now_ns)
                if watch is not None and watch.must_stop(index, now_ns):
                    break
        else:
            new = cluster.schedule(index, now_ns)
        for event in new:
            heapq.heappush(events, event)
    return now_ns
