"""Who sends the requests of a workload: open loop, closed loop, sessions.

All times are those at the router. A client is `round_trip_ns` away from it: it sends what waits for a
token that much after the engine has emitted that token.
"""

from __future__ import annotations

import itertools

from tokenpath.core.errors import InputError
from tokenpath.simulate.loop import ARRIVE, Event
from tokenpath.simulate.workload.workload import NO_REQUEST, Workload


class WorkloadClients:
    """Sends each request of a workload once.

    Open loop: at `arrival_ns`. A request with a predecessor: `think_ns` after the client has the
    predecessor's last token. Closed loop: the others in order, while fewer than `concurrency` are in
    flight; those with a predecessor never wait for that, but count.
    """

    def __init__(self, workload: Workload) -> None:
        after = workload.after.tolist()
        self._arrival = workload.arrival_ns.tolist()
        self._think = workload.think_ns.tolist()
        self._limit = workload.concurrency
        self._roots = [index for index, other in enumerate(after) if other == NO_REQUEST]
        sent = [self._arrival[index] for index in self._roots]
        for at, (one, other) in enumerate(itertools.pairwise(sent)):
            if other < one:
                raise InputError(
                    f"request {self._roots[at + 1]} is sent before request {self._roots[at]}",
                    where="workload, column arrival_ns",
                    allowed="ascending times, of requests without a predecessor",
                )
        self._next_turns: dict[int, list[int]] = {}
        for index, other in enumerate(after):
            if other == NO_REQUEST:
                continue
            if not 0 <= other < index:
                raise InputError(
                    f"request {index} waits for request {other}",
                    where="workload, column after",
                    allowed="an index below its own, or -1",
                )
            self._next_turns.setdefault(other, []).append(index)
        self._num_roots_sent = 0
        self._is_held = False
        self.num_in_flight = 0
        """Requests whose client has not got the last token."""
        self.num_sent = 0
        """Requests sent so far."""

    def start(self) -> list[Event]:
        """The first request; each brings the next one with it."""
        return self._next_root(0)

    def send(self, request: int, now_ns: int) -> tuple[bool, list[Event]]:
        """Send the request, unless a closed loop holds it back."""
        is_root = self._num_roots_sent < len(self._roots) and (
            self._roots[self._num_roots_sent] == request
        )
        if is_root and self._limit is not None and self.num_in_flight >= self._limit:
            self._is_held = True
            return False, []
        self.num_in_flight += 1
        self.num_sent += 1
        if not is_root:
            return True, []
        self._num_roots_sent += 1
        return True, self._next_root(now_ns)

    def release(self, request: int, now_ns: int) -> list[Event]:
        """The next turns of its session, and the request that the closed loop held back."""
        self.num_in_flight -= 1
        events = [
            (max(now_ns + self._think[turn], self._arrival[turn]), ARRIVE, turn)
            for turn in self._next_turns.get(request, ())
        ]
        if self._is_held:
            self._is_held = False
            events += self._next_root(now_ns)
        return events

    def _next_root(self, now_ns: int) -> list[Event]:
        if self._num_roots_sent == len(self._roots):
            return []
        request = self._roots[self._num_roots_sent]
        return [(max(now_ns, self._arrival[request]), ARRIVE, request)]
