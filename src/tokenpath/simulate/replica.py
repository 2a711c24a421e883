"""One engine instance: its schedulers, the latency of its steps, and the steps it has in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.errors import InputError
from tokenpath.engine.scheduler import (
    AskingScheduler,
    Decision,
    EngineRequest,
    Kind,
    Outcome,
    Scheduler,
)
from tokenpath.simulate.recorder import Recorder, StepPart, StepTimes
from tokenpath.simulate.speculation import SpeculationSettings, Speculator
from tokenpath.simulate.step_cost import Curve, noise_place, noisy_ns, step_latency_ns
from tokenpath.simulate.step_model import StepCurve
from tokenpath.simulate.tiers import TierSettings, TierStore

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

_RUN = int(Kind.RUN)


@dataclass(frozen=True)
class ReplicaSettings:
    """How an instance works through its steps."""

    steps_in_flight: int = 1
    """Steps that may be decided and not have run: 1, 2 with asynchronous (overlapped) scheduling, at least
    the number of stages under pipeline parallelism."""
    num_stages: int = 1
    """Pipeline stages; each takes an equal part of a step's latency, and works on one step at a time."""
    ready_ns: int = 0
    """From when on it takes requests."""

    def __post_init__(self) -> None:
        for name, least in (("steps_in_flight", 1), ("num_stages", 1), ("ready_ns", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}", allowed=f"{least} or more")


@dataclass
class Progress:
    """How far each request of the workload is, on one stage."""

    prompt_tokens: Int64s
    """Of the workload."""
    num_emitted: Int64s
    """Tokens emitted so far, in the scheduler's count."""
    prefill_until: Int64s
    """A share that begins below is prefill: the prompt, or what a preemption took."""
    loaded_until: Int64s | None = None
    """Tokens up to here are not computed: their KV comes from elsewhere. None: of no request."""

    @classmethod
    def of(cls, prompt_tokens: Int64s) -> Progress:
        """Nothing has been computed."""
        return cls(prompt_tokens, np.zeros(len(prompt_tokens), np.int64), prompt_tokens.copy())

    def load(self, request: int, until: int) -> None:
        """Tokens up to `until` will come from elsewhere."""
        if self.loaded_until is None:
            self.loaded_until = np.zeros(len(self.prompt_tokens), np.int64)
        self.loaded_until[request] = until

    def preempt(self, requests: Int64s) -> None:
        """All KV of these requests is lost; all tokens but the last are to be computed again as prefill."""
        again = np.maximum(self.num_emitted[requests] - 1, 0)
        self.prefill_until[requests] = self.prompt_tokens[requests] + again
        if self.loaded_until is not None:
            self.loaded_until[requests] = 0


@dataclass(frozen=True)
class Stage:
    """What replicas of one stage share: colocated ones, or prefill or decode instances."""

    number: int
    """0, or 1 for decode instances."""
    progress: Progress
    """Of each request of the workload."""
    recorder: Recorder
    """Where steps go."""
    emits: bool = True
    """Whether its tokens go to anybody; False for prefill whose token is computed again."""


def step_features(before: Int64s, tokens: Int64s, is_prefill: Bools) -> list[int]:
    """`FEATURES` of a step from its shares: tokens computed before, tokens computed, phase.

    A share without tokens counts nowhere.
    """
    prefill, decode = is_prefill & (tokens > 0), ~is_prefill & (tokens > 0)
    c, n = before[prefill], tokens[prefill]
    return [
        len(n),
        int(n.sum()),
        int(c.sum()),
        int((n * c + n * (n + 1) // 2).sum()),
        int(decode.sum()),
        int(tokens[decode].sum()),
        int((before[decode] + tokens[decode]).sum()),
    ]


@runtime_checkable
class TimedScheduler(Protocol):
    """A scheduler that lets time pass on purpose (a batch every so many ms)."""

    @property
    def wake_ns(self) -> int | None:
        """When to ask it again although nothing has happened; None: no need."""


class Rank:
    """A scheduler and the numbers of its requests, which it counts itself: 0, 1, ... in order of arrival."""

    def __init__(
        self, scheduler: Scheduler, tiers: TierStore | None, speculation: Speculator | None
    ) -> None:
        self.scheduler = scheduler
        self.num_preempted = 0
        """Preemptions since the last step."""
        self.num_decided = 0
        """Steps decided so far."""
        self._tiers, self._speculation = tiers, speculation
        self._requests = np.empty(16, np.int64)
        self._num_requests = 0
        self._content: dict[int, EngineRequest] = {}
        self._is_asked = False

    def connect(self, progress: Progress) -> None:
        """Let the scheduler know of KV that comes from elsewhere, if any does and it can be told."""
        if self._tiers is None and progress.loaded_until is None:
            return
        if isinstance(self.scheduler, AskingScheduler):
            self._is_asked = True
            self.scheduler.ask(
                lambda number, cached, is_first: self._has_kv(number, cached, is_first, progress)
            )

    def _has_kv(self, number: int, cached: int, is_first: bool, progress: Progress) -> int:
        request = int(self._requests[number])
        if progress.loaded_until is not None and is_first:
            cached = max(cached, int(progress.loaded_until[request]))
        if self._tiers is not None:
            asked = self._content[request]
            ids, granule = asked.hashes.tolist(), asked.hash_granule_tokens
            cached = max(cached, self._tiers.find(ids, granule, cached, asked.prompt_tokens - 1))
        return cached

    def add(self, request: EngineRequest) -> None:
        """Queue a request of the workload; InputError for one that can never run."""
        number, asked = self._num_requests, request
        if self._speculation is not None:
            rounds, padding = self._speculation.plan(request.index, request.output_tokens)
            prompt = request.prompt_tokens + padding
            asked = replace(request, prompt_tokens=prompt, output_tokens=rounds)
        self.scheduler.add(replace(asked, index=number))
        if number == len(self._requests):
            self._requests = np.concatenate((self._requests, np.empty_like(self._requests)))
        self._requests[number] = request.index
        self._num_requests += 1
        if self._tiers is not None:
            self._content[request.index] = request

    def requests(self, numbers: Int64s) -> Int64s:
        """Requests of the workload by the scheduler's numbers."""
        return self._requests[numbers]

    def load(self, decision: Decision, progress: Progress, now_ns: int) -> int:
        """Load what the tiers have for the requests admitted by a decision; when all of it is there."""
        ready_ns = now_ns
        if self._tiers is None:
            return ready_ns
        for entry in np.flatnonzero(decision.kind != _RUN).tolist():
            request = int(self._requests[decision.request[entry]])
            asked, cached = self._content[request], int(decision.num_cached[entry])
            ids, granule = asked.hashes.tolist(), asked.hash_granule_tokens
            if self._is_asked:
                # It knew when it decided, and what it counts as computed is there.
                until = int(decision.num_computed_before[entry])
            else:
                until = self._tiers.find(ids, granule, cached, asked.prompt_tokens - 1)
            if until > cached:
                if not self._is_asked:
                    progress.load(request, until)
                ready_ns = max(ready_ns, self._tiers.load(ids, granule, cached, until, now_ns))
        return ready_ns

    def emit(
        self, part: StepPart, outcome: Outcome, progress: Progress, is_heard: bool
    ) -> tuple[Int64s, Int64s]:
        """A step has run: tokens out by entry, and the requests of the workload that ended."""
        rounds = outcome.num_emitted
        emitted = rounds if is_heard else np.zeros_like(rounds)
        if self._speculation is not None:
            emitted = rounds.copy()
            for entry in np.flatnonzero(rounds).tolist():
                request = int(part.request[entry])
                done = int(progress.num_emitted[request])
                reached = self._speculation.emitted(request, done + int(rounds[entry]))
                emitted[entry] = reached - self._speculation.emitted(request, done)
        if is_heard:
            progress.num_emitted[part.request] += rounds
        finished = self._requests[outcome.finished]
        self._keep(part, rounds, finished)
        return emitted, finished

    def _keep(self, part: StepPart, rounds: Int64s, finished: Int64s) -> None:
        """Content of prompts that are done, and of answers that are, goes to the tiers."""
        if self._tiers is not None:
            for request in part.request[part.is_prefill & (rounds > 0)].tolist():
                asked = self._content[request]
                ids, granule = asked.hashes.tolist(), asked.hash_granule_tokens
                self._tiers.store(ids, granule, asked.prompt_tokens)
        for request in finished.tolist():
            if self._tiers is not None:
                asked = self._content.pop(request)
                ids, granule = asked.hashes.tolist(), asked.hash_granule_tokens
                # The last token out has no KV.
                self._tiers.store(ids, granule, asked.prompt_tokens + asked.output_tokens - 1)
            if self._speculation is not None:
                self._speculation.forget(request)


class Replica:
    """One engine instance.

    With several schedulers they step together (data-parallel attention): a step lasts as long as its
    longest part, and a scheduler without work waits for the others.
    """

    def __init__(
        self,
        schedulers: Sequence[Scheduler],
        curve: StepCurve,
        settings: ReplicaSettings | None = None,
        *,
        tiers: TierSettings | None = None,
        speculation: SpeculationSettings | None = None,
    ) -> None:
        """`curve` gives the latency of one pass through all stages."""
        if not schedulers:
            raise InputError("a replica without a scheduler", allowed="one or more")
        self.tiers = None if tiers is None else TierStore(tiers)
        """KV below the GPU, shared by its schedulers; None: there is none."""
        self._speculation = None if speculation is None else Speculator(speculation)
        self.ranks = tuple(Rank(one, self.tiers, self._speculation) for one in schedulers)
        self.settings = settings or ReplicaSettings()
        self.first_endpoint = 0
        """Number of its first scheduler among all of the cluster, which sets it."""
        self._curve = Curve.of(curve)
        self._noise: list[list[float]] = [[], []] if curve.noise is None else curve.noise.tolist()
        self._in_flight: deque[tuple[StepTimes, list[StepPart]]] = deque()
        self._stage_free_ns = [0] * self.settings.num_stages
        self.is_asked = False
        """Whether it will be asked to decide at this moment anyway."""

    @property
    def has_room(self) -> bool:
        """Whether another step may be decided."""
        return len(self._in_flight) < self.settings.steps_in_flight

    def wake_ns(self, now_ns: int) -> int | None:
        """When to ask it again though nothing happens, if one of its schedulers says so."""
        schedulers = [rank.scheduler for rank in self.ranks]
        times = [one.wake_ns for one in schedulers if isinstance(one, TimedScheduler)]
        return min((at for at in times if at is not None and at > now_ns), default=None)

    def decide(self, now_ns: int, stage: Stage) -> int | None:
        """Decide one step; when it will have run, None when there is nothing to do."""
        parts: list[StepPart] = []
        latency_ns = 0
        for number, rank in enumerate(self.ranks):
            decision = _decision(rank, now_ns, stage)
            if decision is None:
                continue
            loaded_ns = rank.load(decision, stage.progress, now_ns)
            endpoint = self.first_endpoint + number
            part = _part(endpoint, rank, decision, stage.progress, self._speculation)
            latency_ns = max(latency_ns, self._latency_ns(part, rank, loaded_ns - now_ns))
            parts.append(part)
        if not parts:
            return None
        start_ns, end_ns = self._run(now_ns, latency_ns)
        self._in_flight.append((StepTimes(now_ns, start_ns, end_ns), parts))
        return end_ns

    def complete(self, now_ns: int, stage: Stage) -> list[int]:
        """The oldest step in flight has run: the requests that ended with it, in order."""
        times, parts = self._in_flight.popleft()
        ended: list[int] = []
        for part in parts:
            rank = self.ranks[part.endpoint - self.first_endpoint]
            outcome = rank.scheduler.complete(part.decision, now_ns)
            emitted, finished = rank.emit(part, outcome, stage.progress, stage.emits)
            stage.recorder.step(part, times, emitted, finished, stage.number)
            ended += finished.tolist()
        return ended

    def _latency_ns(self, part: StepPart, rank: Rank, load_ns: int) -> int:
        latency_ns = step_latency_ns(*self._curve, part.features)
        factors = self._noise[part.features[0] > 0]
        if factors:
            place = noise_place(part.endpoint, rank.num_decided, len(factors))
            latency_ns = noisy_ns(latency_ns, factors[place])
        rank.num_decided += 1
        if self._speculation is not None:
            latency_ns += self._speculation.settings.extra_ns(part.features[4])
        if self.tiers is None:
            return latency_ns
        if self.tiers.settings.is_layerwise:
            return max(latency_ns, load_ns)
        return latency_ns + load_ns

    def _run(self, now_ns: int, latency_ns: int) -> tuple[int, int]:
        """Start and end of a step decided now: each stage takes it when it is rid of the one before."""
        num_stages = len(self._stage_free_ns)
        share, rest = divmod(latency_ns, num_stages)
        start_ns = at = max(now_ns, self._stage_free_ns[0])
        for stage in range(num_stages):
            # No stage takes no time: then ends of steps would no longer tell their order.
            length = max(1, share + (stage < rest))
            at = max(at, self._stage_free_ns[stage]) + length
            self._stage_free_ns[stage] = at
        return start_ns, at


def _decision(rank: Rank, now_ns: int, stage: Stage) -> Decision | None:
    """The scheduler's next decision with work in it; None where it has none."""
    while True:
        decision = rank.scheduler.schedule(now_ns)
        if len(decision.preempted):
            preempted = rank.requests(decision.preempted)
            rank.num_preempted += len(preempted)
            stage.recorder.preempt(preempted, stage.number)
            stage.progress.preempt(preempted)
        if len(decision.request):
            return decision
        # A decision that only took blocks away may let the next one admit somebody.
        if not len(decision.preempted):
            return None


def _part(
    endpoint: int,
    rank: Rank,
    decision: Decision,
    progress: Progress,
    speculation: Speculator | None,
) -> StepPart:
    request, scheduler = rank.requests(decision.request), rank.scheduler
    before, tokens = decision.num_computed_before, decision.num_tokens
    if progress.loaded_until is not None:
        skipped = np.clip(progress.loaded_until[request] - before, 0, tokens)
        before, tokens = before + skipped, tokens - skipped
    prompts = progress.prompt_tokens[request]
    if speculation is not None:
        before, tokens = speculation.without_padding(request, prompts, before, tokens)
    is_prefill = before < progress.prefill_until[request]
    if speculation is not None:
        before, tokens = speculation.translate(request, prompts, before, tokens, is_prefill)
    num_preempted, rank.num_preempted = rank.num_preempted, 0
    return StepPart(
        endpoint,
        decision,
        request,
        before,
        tokens,
        is_prefill,
        step_features(before, tokens, is_prefill),
        scheduler.num_running,
        scheduler.num_waiting,
        num_preempted,
        scheduler.num_usable_blocks - scheduler.num_free_blocks,
    )
