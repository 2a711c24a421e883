"""Replicas behind a router, driven by the event loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenpath.core.errors import InputError
from tokenpath.engine.scheduler import EngineRequest
from tokenpath.simulate.loop import COMPLETE, JOIN, RELEASE, SCHEDULE, Event
from tokenpath.simulate.recorder import Recorder
from tokenpath.simulate.replica import Progress, Rank, Replica, Stage
from tokenpath.simulate.router import Endpoint, RoundRobin, Router
from tokenpath.simulate.workload.workload import Workload


class Requests:
    """The requests of a workload as schedulers are given them."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._prompt, self._output = (
            workload.prompt_tokens.tolist(),
            workload.output_tokens.tolist(),
        )
        self._priority = workload.priority.tolist()
        self._start = workload.hash_start.tolist()
        self.session = workload.session.tolist()
        """Session of each request."""

    def engine_request(self, index: int, now_ns: int) -> EngineRequest:
        """The request as it arrives now."""
        hashes = self._workload.hashes[self._start[index] : self._start[index + 1]]
        return EngineRequest(
            index,
            self._prompt[index],
            self._output[index],
            now_ns,
            self._priority[index],
            hashes,
            self._workload.hash_granule_tokens,
        )


class Colocated:
    """Replicas that each do prefill and decode."""

    def __init__(
        self,
        workload: Workload,
        replicas: Sequence[Replica],
        recorder: Recorder,
        router: Router | None = None,
        *,
        round_trip_ns: int = 0,
    ) -> None:
        """`round_trip_ns` is the way from engine to client and back, which closed loops and turns wait for."""
        if not replicas:
            raise InputError("a cluster without replicas", allowed="one or more")
        if all(replica.settings.ready_ns > 0 for replica in replicas):
            raise InputError(
                "no replica is ready at the start", allowed="ready_ns 0 for one or more"
            )
        self._requests = Requests(workload)
        self._replicas = list(replicas)
        self._router = router or RoundRobin()
        self._round_trip_ns = round_trip_ns
        self._stage = Stage(0, Progress.of(workload.prompt_tokens), recorder)
        self.endpoints: list[Endpoint] = []
        """Every scheduler, by number."""
        self._ranks: list[Rank] = []
        self._replica_of: list[int] = []
        self._endpoint_of = np.full(workload.num_requests, -1, np.int64)
        for index, replica in enumerate(self._replicas):
            replica.first_endpoint = len(self.endpoints)
            for rank in replica.ranks:
                is_ready = replica.settings.ready_ns == 0
                self.endpoints.append(Endpoint(len(self.endpoints), rank.scheduler, is_ready))
                self._ranks.append(rank)
                self._replica_of.append(index)
        self.num_finished = 0
        """Requests that ended, refused ones included."""
        self.refusals: list[tuple[int, str]] = []
        """Requests that no scheduler could ever run, and why."""

    def start(self) -> list[Event]:
        """Replicas that join later."""
        ready = [replica.settings.ready_ns for replica in self._replicas]
        return [(at, JOIN, index) for index, at in enumerate(ready) if at > 0]

    def join(self, replica: int, _now_ns: int) -> list[Event]:
        """Its schedulers take requests from now on."""
        for endpoint in self.endpoints:
            if self._replica_of[endpoint.number] == replica:
                endpoint.is_ready = True
        return []

    def arrive(self, request: int, now_ns: int) -> list[Event]:
        """Route the request and queue it; one that can never run is refused and ends at once."""
        asked = self._requests.engine_request(request, now_ns)
        ready = [endpoint for endpoint in self.endpoints if endpoint.is_ready]
        endpoint = self._router.choose(asked, self._requests.session[request], ready)
        self._stage.recorder.queue(request, endpoint.number, now_ns)
        try:
            self._ranks[endpoint.number].add(asked)
        except InputError as error:
            self.refusals.append((request, error.what))
            self._stage.recorder.reject(request, now_ns)
            self.num_finished += 1
            return [(now_ns + self._round_trip_ns, RELEASE, request)]
        endpoint.num_outstanding += 1
        endpoint.outstanding_tokens += asked.prompt_tokens
        self._endpoint_of[request] = endpoint.number
        return self._ask(self._replica_of[endpoint.number], now_ns)

    def schedule(self, replica: int, now_ns: int) -> list[Event]:
        """Decide steps while the replica takes any and has any to do."""
        asked = self._replicas[replica]
        asked.is_asked = False
        events: list[Event] = []
        while asked.has_room:
            end_ns = asked.decide(now_ns, self._stage)
            if end_ns is None:
                break
            events.append((end_ns, COMPLETE, replica))
        return events

    def complete(self, replica: int, now_ns: int) -> list[Event]:
        """The oldest step in flight has run; requests that ended are told to their clients."""
        finished = self._replicas[replica].complete(now_ns, self._stage)
        for request in finished:
            endpoint = self.endpoints[self._endpoint_of[request]]
            endpoint.num_outstanding -= 1
            endpoint.outstanding_tokens -= int(self._stage.progress.prompt_tokens[request])
        self.num_finished += len(finished)
        events = [(now_ns + self._round_trip_ns, RELEASE, request) for request in finished]
        return events + self._ask(replica, now_ns)

    def deliver(self, request: int, _now_ns: int) -> list[Event]:
        """Nothing is transferred between replicas that do both."""
        raise AssertionError(f"request {request} was never sent anywhere")

    def _ask(self, replica: int, now_ns: int) -> list[Event]:
        """Have the replica decide once all else of this moment has happened."""
        asked = self._replicas[replica]
        if asked.is_asked or not asked.has_room:
            return []
        asked.is_asked = True
        return [(now_ns, SCHEDULE, replica)]
