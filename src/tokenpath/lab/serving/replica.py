"""One engine replica: a host thread that decides and reads back, and a worker that computes."""

from __future__ import annotations

from collections import deque

import numpy as np

from tokenpath.engine.baselines.scheduler import StaticScheduler
from tokenpath.engine.baselines.settings import StaticSettings
from tokenpath.engine.scheduler import Decision, EngineRequest, Kind, Scheduler
from tokenpath.engine.vllm import VllmScheduler
from tokenpath.engine.vllm.machine_code import is_at_hand
from tokenpath.lab.serving.latency import Latency
from tokenpath.lab.serving.plan import Plan, Speculation
from tokenpath.lab.serving.records import NEVER, Run, Step


class Replica:
    """A scheduler, its pool and the time they take; the loop says what time it is."""

    def __init__(self, run: Run, index: int) -> None:
        plan = run.plan
        self._run, self.index = run, index
        self._latency = Latency(plan, index)
        self._scheduler = _scheduler(plan, run)
        self._in_flight: deque[tuple[Decision, Step]] = deque()
        self._worker_free_ns = 0
        self._depth = 2 if plan.is_async else 1
        self._prompt = run.load.prompt
        self._luck = np.random.default_rng((plan.seed, 11, index))
        self._bursts: dict[int, list[int]] = {}
        """Tokens that each further step of a request emits, with speculation."""
        self._emitted: dict[int, int] = {}
        self.is_awake = False
        """Whether a turn of the host is due."""
        self.num_loading = 0
        """Requests that wait for KV from a slower tier."""
        self.num_inside = 0
        """Requests that were routed here and have not ended."""

    def add(self, k: int, now_ns: int) -> None:
        """Queue a request."""
        load, output = self._run.load, int(self._run.load.output[k])
        spec = self._run.plan.speculation
        if spec is not None:
            self._bursts[k] = self._draw_bursts(spec, output)
            output = len(self._bursts[k])
        self._scheduler.add(
            EngineRequest(
                index=k,
                prompt_tokens=int(load.prompt[k]),
                output_tokens=output,
                arrival_ns=now_ns,
                hashes=load.hashes[k],
                hash_granule_tokens=self._run.plan.engine.block_size,
            )
        )

    def turn(self, now_ns: int) -> tuple[int, bool]:
        """The host's next piece of work: when it ends, and whether it brings outputs; (-1, False) for nothing."""
        if len(self._in_flight) < self._depth:
            done_ns = self._decide(now_ns)
            if done_ns != NEVER:
                return done_ns, False
        if self._in_flight:
            _, step = self._in_flight[0]
            host = self._run.plan.host
            step.output_ns = max(
                now_ns, step.executed_ns + self._latency.host_ns(host.hand_back_ns)
            )
            mean = host.update_ns + host.update_request_ns * len(step.request)
            step.updated_ns = step.output_ns + self._latency.host_ns(mean)
            return step.updated_ns, True
        return NEVER, False

    def read_back(self) -> tuple[Step, int]:
        """Take the outputs of the oldest step: the step, and when the host can go on."""
        decision, step = self._in_flight.popleft()
        outcome = self._scheduler.complete(decision, step.updated_ns)
        step.emitted = outcome.num_emitted.tolist()
        step.finished = outcome.finished.tolist()
        if self._run.plan.speculation is not None:
            self._speculate(step)
        return step, step.updated_ns + self._latency.host_ns(self._run.plan.host.gap_ns)

    def _decide(self, now_ns: int) -> int:
        if not self._scheduler.num_waiting + self._scheduler.num_running:
            return NEVER
        decision = self._scheduler.schedule(now_ns)
        count = len(decision.request)
        if not count:
            return NEVER
        plan, steps = self._run.plan, self._run.steps[self.index]
        scheduled_ns = now_ns + self._latency.host_ns(
            plan.host.schedule_ns + plan.host.schedule_request_ns * count
        )
        execute_ns = max(
            scheduled_ns + self._latency.host_ns(plan.host.hand_over_ns), self._worker_free_ns
        )
        step = Step(
            len(steps), now_ns, scheduled_ns, execute_ns, 0, 0, 0,
            decision.request.tolist(), decision.kind.tolist(),
            decision.num_computed_before.tolist(), decision.num_tokens.tolist(), [],
            decision.preempted.tolist(), [],
            self._scheduler.num_running, self._scheduler.num_waiting + self.num_loading,
            self._scheduler.num_free_blocks, decision.num_cached.tolist(),
        )  # fmt: skip
        step.executed_ns = execute_ns + self._work_ns(decision, step)
        self._worker_free_ns = step.executed_ns
        steps.append(step)
        self._in_flight.append((decision, step))
        return scheduled_ns

    def _work_ns(self, decision: Decision, step: Step) -> int:
        before, tokens = decision.num_computed_before, decision.num_tokens
        # A recompute after a preemption is prefill, too: it computes more than one token.
        is_decode = (tokens == 1) & (before >= self._prompt[decision.request])
        if self._run.plan.is_static:
            is_decode = decision.kind == Kind.RUN
        n, c = tokens[~is_decode], before[~is_decode]
        pairs = float((n * c + n * (n + 1) / 2).sum())
        context = int((before + tokens)[is_decode].sum())
        if self._bursts:
            context += sum(self._emitted.get(k, 0) for k in step.request)
        return self._latency.step_ns(int(n.sum()), pairs, int(is_decode.sum()), context)

    def _draw_bursts(self, spec: Speculation, output: int) -> list[int]:
        """Tokens of each step: 1 from the prompt's, then those accepted and one of the model's own."""
        bursts, left = [1], output - 1
        while left > 0:
            accepted = 0
            while accepted < spec.num_drafts and self._luck.random() < spec.acceptance:
                accepted += 1
            bursts.append(min(1 + accepted, left))
            left -= bursts[-1]
        return bursts[::-1]

    def _speculate(self, step: Step) -> None:
        """Turn steps of one token into steps of several."""
        drafts = self._run.plan.speculation.num_drafts if self._run.plan.speculation else 0
        for i, k in enumerate(step.request):
            extra = self._emitted.get(k, 0)
            is_decode = step.before[i] >= self._prompt[k]
            step.before[i] += extra if is_decode else 0
            if is_decode:
                step.tokens[i] += drafts
                self._run.drafted += drafts
            if step.emitted[i]:
                step.emitted[i] = self._bursts[k].pop()
                self._emitted[k] = extra + step.emitted[i] - 1
                self._run.accepted += step.emitted[i] - 1


def _scheduler(plan: Plan, run: Run) -> Scheduler:
    if plan.is_static:
        engine = plan.engine
        return StaticScheduler(
            StaticSettings(
                num_blocks=engine.num_blocks,
                max_seq_len=engine.max_model_len,
                block_size=engine.block_size,
                max_batch_size=engine.max_num_seqs,
                pool="paged",
            )
        )
    # The same decisions either way; machine code is only faster where it need not be compiled first.
    scheduler = VllmScheduler(plan.engine, is_compiled=True if is_at_hand() else None)
    if plan.tier is not None:
        tier_tokens = run.load.tier_tokens

        def elsewhere(k: int, cached: int, is_first: bool) -> int:
            return max(cached, int(tier_tokens[k])) if is_first else cached

        scheduler.ask(elsewhere)
    return scheduler
