"""Schedulers and workloads for the tests of the event loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenpath.core.errors import InputError
from tokenpath.engine.scheduler import Decision, EngineRequest, Kind, Outcome
from tokenpath.simulate.step_model import NUM_FEATURES, StepCurve
from tokenpath.simulate.workload.workload import NO_REQUEST, Workload


class FirstCome:
    """First come, first served: whole prompts, at most `slots` requests, `blocks` of one token each."""

    def __init__(self, slots: int = 8, blocks: int = 10_000) -> None:
        self.slots, self.num_usable_blocks = slots, blocks
        self.waiting: list[EngineRequest] = []
        self.running: list[EngineRequest] = []
        self.computed: dict[int, int] = {}
        self.planned: dict[int, int] = {}
        self.emitted: dict[int, int] = {}

    def add(self, request: EngineRequest) -> None:
        if request.prompt_tokens + request.output_tokens > self.num_usable_blocks:
            raise InputError("too long", allowed=f"{self.num_usable_blocks} tokens")
        self.waiting.append(request)

    def schedule(self, now_ns: int) -> Decision:
        rows = [
            (request.index, Kind.RUN, self.computed[request.index], 1)
            for request in self.running
            if self.planned[request.index] < request.output_tokens
        ]
        while self.waiting and len(self.running) < self.slots and self._fits(self.waiting[0]):
            request = self.waiting.pop(0)
            self.running.append(request)
            self.computed[request.index] = self.planned[request.index] = 0
            self.emitted[request.index] = 0
            rows.append((request.index, Kind.NEW, 0, request.prompt_tokens))
        for index, _, _, tokens in rows:
            self.computed[index] += tokens
            self.planned[index] += 1
        columns = np.array(rows, np.int64).reshape(-1, 4).T
        none = np.empty(0, np.int64)
        return Decision(*columns, np.zeros(len(rows), np.int64), none)

    def complete(self, decision: Decision, now_ns: int) -> Outcome:
        done = []
        output = {request.index: request.output_tokens for request in self.running}
        for index in decision.request.tolist():
            self.emitted[index] += 1
            if self.emitted[index] == output[index]:
                done.append(index)
        self.running = [request for request in self.running if request.index not in done]
        return Outcome(np.ones(len(decision.request), np.int64), np.array(done, np.int64))

    def _fits(self, request: EngineRequest) -> bool:
        return self.num_free_blocks >= request.prompt_tokens + request.output_tokens

    @property
    def num_waiting(self) -> int:
        return len(self.waiting)

    @property
    def num_running(self) -> int:
        return len(self.running)

    @property
    def num_free_blocks(self) -> int:
        held = sum(request.prompt_tokens + request.output_tokens for request in self.running)
        return self.num_usable_blocks - held


def curve(
    constant_ns: float = 0.0,
    prefill_token_ns: float = 0.0,
    decode_request_ns: float = 0.0,
    *,
    overlapped: bool = False,
) -> StepCurve:
    """A step takes a constant, so much per prefill token and so much per decode request."""
    device = np.zeros(NUM_FEATURES)
    device[1], device[4] = prefill_token_ns, decode_request_ns
    return StepCurve(
        np.array([0.0, 1.0]),
        np.full(2, constant_ns),
        np.full(2, constant_ns),
        device,
        0.0,
        np.zeros(NUM_FEATURES),
        overlapped,
    )


def workload(
    arrival_ns: Sequence[int] | np.ndarray,
    prompt_tokens: Sequence[int] | np.ndarray | int = 10,
    output_tokens: Sequence[int] | np.ndarray | int = 1,
    *,
    after: Sequence[int] | None = None,
    think_ns: Sequence[int] | int = 0,
    session: Sequence[int] | None = None,
    hashes: Sequence[Sequence[int]] | None = None,
    granule: int = 1,
    concurrency: int | None = None,
) -> Workload:
    """A workload from lists; a number stands for the same value in every request."""
    size = len(arrival_ns)

    def column(values: object) -> np.ndarray:
        return np.array(np.broadcast_to(np.asarray(values, np.int64), size))

    ids = hashes or [[]] * size
    return Workload(
        "test",
        "synthetic",
        column(arrival_ns),
        column(prompt_tokens),
        column(output_tokens),
        column(0),
        column(NO_REQUEST if after is None else after),
        column(think_ns),
        np.arange(size) if session is None else column(session),
        np.cumsum([0, *map(len, ids)]),
        np.array([one for row in ids for one in row], np.int64),
        granule,
        concurrency,
    )
