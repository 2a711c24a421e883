"""The event loop: one heap, one clock, and queues that remember until when they are busy."""

from __future__ import annotations

import heapq
from enum import IntEnum

import numpy as np

from tokenpath.engine.scheduler import Kind
from tokenpath.lab.serving.load import draw_load
from tokenpath.lab.serving.plan import Plan
from tokenpath.lab.serving.records import NEVER, Run, Step, empty_run
from tokenpath.lab.serving.replica import Replica


class Event(IntEnum):
    """What happens; of events at one time the smaller comes first."""

    DELIVER = 0
    """The client gets tokens of a step."""
    OUTPUT = 1
    """A replica has processed the outputs of a step."""
    ADD = 2
    """A request reaches its replica's queue."""
    LOADED = 3
    """Its KV has come from the slower tier."""
    ARRIVE = 4
    """A request reaches the API server."""
    SEND = 5
    """A request is due at the client."""
    TURN = 6
    """A replica's host goes on."""


def simulate(plan: Plan) -> Run:
    """Run a plan to its end."""
    return _World(plan).run_all()


class _World:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._load = draw_load(plan)
        self._run = empty_run(plan, self._load)
        self._replicas = [Replica(self._run, index) for index in range(plan.num_replicas)]
        self._heap: list[tuple[int, int, int, int]] = []
        self._count = 0
        self._batches: dict[int, list[tuple[int, int, bool]]] = {}
        self._client_free = self._tokeniser_free = self._detokeniser_free = self._link_free = 0
        self._router = np.random.default_rng((plan.seed, 12))
        self._next: dict[int, int] = {
            int(a): k for k, a in enumerate(self._load.after.tolist()) if a >= 0
        }
        self._emitted = np.zeros(len(self._load.prompt), np.int64)

    def run_all(self) -> Run:
        for k, after in enumerate(self._load.after.tolist()):
            if after < 0:
                self._push(int(self._load.due_ns[k]), Event.SEND, k)
        do = {
            Event.DELIVER: self._deliver, Event.OUTPUT: self._output, Event.ADD: self._add,
            Event.LOADED: self._loaded, Event.ARRIVE: self._arrive, Event.SEND: self._send,
            Event.TURN: self._turn,
        }  # fmt: skip
        while self._heap:
            now_ns, event, _, what = heapq.heappop(self._heap)
            do[Event(event)](now_ns, what)
        return self._run

    def _push(self, at_ns: int, event: Event, what: int) -> None:
        self._count += 1
        heapq.heappush(self._heap, (at_ns, int(event), self._count, what))

    def _send(self, now_ns: int, k: int) -> None:
        """The client is one thread: it sends when it has nothing before."""
        start_ns = max(now_ns, self._client_free)
        self._client_free = start_ns + int(self._plan.client.send_ns)
        self._run.sent_ns[k] = start_ns
        if self._load.is_failed[k]:
            return
        self._push(self._client_free + int(self._plan.front.network_ns), Event.ARRIVE, k)

    def _arrive(self, now_ns: int, k: int) -> None:
        front = self._plan.front
        self._run.arrived_ns[k] = now_ns
        cost = front.tokenise_ns + front.tokenise_token_ns * int(self._load.prompt[k])
        self._tokeniser_free = max(now_ns, self._tokeniser_free) + int(cost)
        self._push(self._tokeniser_free, Event.ADD, k)

    def _add(self, now_ns: int, k: int) -> None:
        replica = self._replicas[self._route()]
        replica.num_inside += 1
        self._run.replica[k] = replica.index
        self._run.added_ns[k] = now_ns
        tier, tokens = self._plan.tier, int(self._load.tier_tokens[k])
        if tier is None or not tokens:
            replica.add(k, now_ns)
            self._wake(replica, now_ns)
            return
        size_ns = tokens * tier.bytes_per_token / tier.bytes_per_s * 1e9
        self._link_free = max(now_ns, self._link_free) + int(size_ns)
        replica.num_loading += 1
        self._push(self._link_free + int(tier.latency_ns), Event.LOADED, k)

    def _loaded(self, now_ns: int, k: int) -> None:
        replica = self._replicas[self._run.replica[k]]
        replica.num_loading -= 1
        self._run.loading_ns[k] = now_ns - self._run.added_ns[k]
        replica.add(k, now_ns)
        self._wake(replica, now_ns)

    def _route(self) -> int:
        plan = self._plan
        if plan.num_replicas == 1:
            return 0
        chance = self._router.random()
        if plan.busiest_share is None:
            inside = [(replica.num_inside, replica.index) for replica in self._replicas]
            return min(inside)[1]
        if chance < plan.busiest_share:
            return plan.busiest
        others = [r.index for r in self._replicas if r.index != plan.busiest]
        share = (chance - plan.busiest_share) / max(1 - plan.busiest_share, 1e-9)
        return others[min(int(share * len(others)), len(others) - 1)]

    def _wake(self, replica: Replica, now_ns: int) -> None:
        if not replica.is_awake:
            replica.is_awake = True
            self._push(now_ns, Event.TURN, replica.index)

    def _turn(self, now_ns: int, index: int) -> None:
        replica = self._replicas[index]
        at_ns, has_output = replica.turn(now_ns)
        if at_ns == NEVER:
            replica.is_awake = False
        else:
            self._push(at_ns, Event.OUTPUT if has_output else Event.TURN, index)

    def _output(self, now_ns: int, index: int) -> None:
        replica = self._replicas[index]
        step, free_ns = replica.read_back()
        self._note(step)
        replica.num_inside -= len(step.finished)
        self._push(free_ns, Event.TURN, index)
        ended = set(step.finished)
        pieces: list[tuple[int, int, bool]] = []
        token_ns = self._plan.front.detokenise_token_ns
        at_ns = max(now_ns, self._detokeniser_free)
        for k, emitted in zip(step.request, step.emitted, strict=True):
            ends = k in ended
            for number in range(emitted):
                at_ns += int(token_ns)
                pieces.append((at_ns, k, ends and number == emitted - 1))
            if ends and not emitted:
                pieces.append((at_ns, k, True))
        self._detokeniser_free = at_ns
        if pieces:
            self._batches[self._count] = pieces
            self._push(at_ns + int(self._plan.front.network_ns), Event.DELIVER, self._count)

    def _note(self, step: Step) -> None:
        run = self._run
        for i, k in enumerate(step.request):
            if step.kind[i] != Kind.RUN and run.scheduled_ns[k] == NEVER:
                run.scheduled_ns[k] = step.start_ns
                run.cached[k] = step.cached[i]
            if step.emitted[i]:
                if run.first_ns[k] == NEVER:
                    run.first_ns[k] = step.updated_ns
                run.last_ns[k] = step.updated_ns
        for k in step.preempted:
            run.num_preemptions[k] += 1

    def _deliver(self, now_ns: int, number: int) -> None:
        """Tokens come in order; the client takes them one by one."""
        run, network_ns = self._run, int(self._plan.front.network_ns)
        token_ns = int(self._plan.client.token_ns)
        free_ns = self._client_free
        for at_ns, k, is_last in self._batches.pop(number):
            if len(run.tokens_ns[k]) == self._load.output[k]:
                free_ns = max(free_ns, at_ns + network_ns)
            else:
                free_ns = max(free_ns, at_ns + network_ns) + token_ns
                run.tokens_ns[k].append(free_ns)
            if run.first_sent_ns[k] == NEVER:
                run.first_sent_ns[k] = at_ns
            if is_last:
                run.answered_ns[k] = at_ns
                run.ended_ns[k] = free_ns
                follower = self._next.get(k)
                if follower is not None:
                    due_ns = free_ns + int(self._load.due_ns[follower])
                    self._push(max(now_ns, due_ns), Event.SEND, follower)
        self._client_free = free_ns
