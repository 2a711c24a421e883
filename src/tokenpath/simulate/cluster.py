"""Replicas behind a router, driven by the event loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenpath.core.errors import InputError
from tokenpath.engine.scheduler import EngineRequest
from tokenpath.simulate.loop import COMPLETE, JOIN, RELEASE, SCHEDULE, Event
from tokenpath.simulate.recorder import NO_ENDPOINT, Recorder
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


class Pool:
    """Replicas of one stage behind a router."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        stage: Stage,
        router: Router | None = None,
        *,
        first_replica: int = 0,
        first_endpoint: int = 0,
    ) -> None:
        """Replicas and schedulers count on from `first_replica` and `first_endpoint`."""
        if not replicas:
            raise InputError("a cluster without replicas", allowed="one or more")
        if all(replica.settings.ready_ns > 0 for replica in replicas):
            raise InputError("no replica is ready at the start", allowed="one with ready_ns 0")
        self.stage = stage
        self.first_replica, self.first_endpoint = first_replica, first_endpoint
        self.endpoints: list[Endpoint] = []
        """Every scheduler, by number."""
        self._replicas = list(replicas)
        self._router = router or RoundRobin()
        self._ranks: list[Rank] = []
        self._replica_of: list[int] = []
        for index, replica in enumerate(self._replicas):
            replica.first_endpoint = first_endpoint + len(self.endpoints)
            for rank in replica.ranks:
                rank.connect(stage.progress)
                number = first_endpoint + len(self.endpoints)
                is_ready = replica.settings.ready_ns == 0
                self.endpoints.append(Endpoint(number, rank.scheduler, is_ready))
                self._ranks.append(rank)
                self._replica_of.append(first_replica + index)
        self._endpoint_of = np.full(len(stage.progress.prompt_tokens), NO_ENDPOINT, np.int64)

    def start(self) -> list[Event]:
        """Replicas that join later."""
        ready = [replica.settings.ready_ns for replica in self._replicas]
        return [(at, JOIN, self.first_replica + n) for n, at in enumerate(ready) if at > 0]

    def join(self, replica: int) -> None:
        """Its schedulers take requests from now on."""
        for endpoint, owner in zip(self.endpoints, self._replica_of, strict=True):
            endpoint.is_ready |= owner == replica

    def choose(self, request: EngineRequest, session: int) -> Endpoint:
        """The router's choice, which counts as the request's place from now on."""
        ready = [endpoint for endpoint in self.endpoints if endpoint.is_ready]
        endpoint = self._router.choose(request, session, ready)
        endpoint.num_outstanding += 1
        endpoint.outstanding_tokens += request.prompt_tokens
        self._endpoint_of[request.index] = endpoint.number
        return endpoint

    def add(self, request: EngineRequest, endpoint: Endpoint, now_ns: int) -> list[Event]:
        """Queue it where it was placed; InputError, and no trace of it, when it can never run."""
        self.stage.recorder.queue(request.index, endpoint.number, now_ns, self.stage.number)
        place = endpoint.number - self.first_endpoint
        try:
            self._ranks[place].add(request)
        except InputError:
            self.stage.recorder.reject(request.index, now_ns, self.stage.number)
            self._leave(request.index)
            raise
        return self.ask(self._replica_of[place], now_ns)

    def schedule(self, replica: int, now_ns: int) -> list[Event]:
        """Decide steps while the replica takes any and has any to do."""
        asked = self._replicas[replica - self.first_replica]
        asked.is_asked = False
        events: list[Event] = []
        while asked.has_room:
            end_ns = asked.decide(now_ns, self.stage)
            if end_ns is None:
                wake_ns = asked.wake_ns(now_ns)
                return events if wake_ns is None else [*events, (wake_ns, SCHEDULE, replica)]
            events.append((end_ns, COMPLETE, replica))
        return events

    def complete(self, replica: int, now_ns: int) -> list[int]:
        """The oldest step in flight has run: requests that ended with it."""
        finished = self._replicas[replica - self.first_replica].complete(now_ns, self.stage)
        for request in finished:
            self._leave(request)
        return finished

    def ask(self, replica: int, now_ns: int) -> list[Event]:
        """Have the replica decide once all else of this moment has happened."""
        asked = self._replicas[replica - self.first_replica]
        if asked.is_asked or not asked.has_room:
            return []
        asked.is_asked = True
        return [(now_ns, SCHEDULE, replica)]

    @property
    def num_waiting(self) -> int:
        """Requests in queues."""
        return sum(endpoint.scheduler.num_waiting for endpoint in self.endpoints)

    @property
    def num_running(self) -> int:
        """Requests admitted and not ended."""
        return sum(endpoint.scheduler.num_running for endpoint in self.endpoints)

    def endpoint_of(self, request: int) -> Endpoint:
        """Where a request was placed."""
        return self.endpoints[int(self._endpoint_of[request]) - self.first_endpoint]

    def replica_of(self, endpoint: Endpoint) -> int:
        """The replica that a scheduler is of."""
        return self._replica_of[endpoint.number - self.first_endpoint]

    def _leave(self, request: int) -> None:
        endpoint = self.endpoint_of(request)
        endpoint.num_outstanding -= 1
        endpoint.outstanding_tokens -= int(self.stage.progress.prompt_tokens[request])


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
        self._requests = Requests(workload)
        self._round_trip_ns = round_trip_ns
        self._pool = Pool(replicas, Stage(0, Progress.of(workload.prompt_tokens), recorder), router)
        self.num_finished = 0
        """Requests that ended, refused ones included."""
        self.refusals: list[tuple[int, str]] = []
        """Requests that no scheduler could ever run, and why."""

    @property
    def endpoints(self) -> list[Endpoint]:
        """Every scheduler, by number."""
        return self._pool.endpoints

    @property
    def num_waiting(self) -> int:
        """Requests in queues."""
        return self._pool.num_waiting

    @property
    def num_running(self) -> int:
        """Requests admitted and not ended."""
        return self._pool.num_running

    def start(self) -> list[Event]:
        """Replicas that join later."""
        return self._pool.start()

    def join(self, replica: int, _now_ns: int) -> list[Event]:
        """Its schedulers take requests from now on."""
        self._pool.join(replica)
        return []

    def arrive(self, request: int, now_ns: int) -> list[Event]:
        """Route the request and queue it; one that can never run is refused and ends at once."""
        asked = self._requests.engine_request(request, now_ns)
        endpoint = self._pool.choose(asked, self._requests.session[request])
        try:
            return self._pool.add(asked, endpoint, now_ns)
        except InputError as error:
            self.refusals.append((request, error.what))
            return self._end([request], now_ns)

    def schedule(self, replica: int, now_ns: int) -> list[Event]:
        """Decide steps while the replica takes any and has any to do."""
        return self._pool.schedule(replica, now_ns)

    def complete(self, replica: int, now_ns: int) -> list[Event]:
        """The oldest step in flight has run; clients get the last token of requests that ended."""
        finished = self._pool.complete(replica, now_ns)
        return self._end(finished, now_ns) + self._pool.ask(replica, now_ns)

    def deliver(self, request: int, _now_ns: int) -> list[Event]:
        """Nothing is transferred between replicas that do both."""
        raise AssertionError(f"request {request} was never sent anywhere")

    def _end(self, finished: Sequence[int], now_ns: int) -> list[Event]:
        self.num_finished += len(finished)
        return [(now_ns + self._round_trip_ns, RELEASE, request) for request in finished]
