"""A workload through vLLM replicas by the compiled loop: what `simulate.loop` gives, to the bit, and fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from tokenpath.core.errors import InputError
from tokenpath.engine.config import EngineConfig
from tokenpath.engine.scheduler import EngineRequest, Scheduler
from tokenpath.engine.vllm import layout as engine
from tokenpath.engine.vllm.layout import Int64s
from tokenpath.engine.vllm.scheduler import check_request
from tokenpath.simulate.cluster import Requests
from tokenpath.simulate.compiled import entry
from tokenpath.simulate.compiled import layout as at
from tokenpath.simulate.compiled.build import sim_for
from tokenpath.simulate.loop import Watch
from tokenpath.simulate.recorder import (
    RequestRows,
    RunRows,
    ShareRows,
    ShareSink,
    StepRows,
    step_spool,
)
from tokenpath.simulate.replica import ReplicaSettings
from tokenpath.simulate.router import Endpoint, LeastLoad, RoundRobin, Router
from tokenpath.simulate.step_model import StepCurve
from tokenpath.simulate.token_gaps import TokenGaps
from tokenpath.simulate.workload.workload import Workload

COMPILE_FROM_ENTRIES = 200_000
"""Fewer tokens take less time in Python (some 0.1 ms each) than compiling takes (about 20 s, once a machine)."""


@dataclass(frozen=True)
class SchedulerView:
    """What others may see of a replica's scheduler: its counts."""

    state: Int64s
    """Its state, as it changes."""

    @property
    def num_waiting(self) -> int:
        """Requests in the queue, preempted ones included."""
        return int(self.state[engine.NUM_WAITING])

    @property
    def num_running(self) -> int:
        """Requests admitted and not ended."""
        return int(self.state[engine.NUM_RUNNING])

    @property
    def num_free_blocks(self) -> int:
        """Blocks that a request could take now."""
        return int(self.state[engine.NUM_FREE])

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that exist for requests."""
        return int(self.state[engine.NUM_BLOCKS]) - 1


class CompiledRun:
    """One run; `run` brings it to its end, `rows` says what happened."""

    def __init__(
        self,
        workload: Workload,
        config: EngineConfig,
        curve: StepCurve,
        settings: Sequence[ReplicaSettings],
        router: Router | None = None,
        *,
        round_trip_ns: int = 0,
        look_every: int = 0,
        keeps_shares: bool = False,
        sink: ShareSink | None = None,
        is_compiled: bool | None = None,
        num_runs: int = 1,
    ) -> None:
        """Replicas of one kind: `settings` of each may differ in `ready_ns` only.

        `look_every`: requests sent between two looks of a watch; 0: none. `is_compiled`: whether machine code runs
        or Python, the same functions; None: machine code, unless it would have to be compiled for little work:
        that of `num_runs` runs like this one.
        """
        if all(replica.ready_ns > 0 for replica in settings):
            raise InputError("no replica is ready at the start", allowed="one with ready_ns 0")
        self._requests = Requests(workload)
        self._router = router or RoundRobin()
        refused = _refused(workload, config)
        self._refusal_texts = {
            r: _why(self._requests.engine_request(r, 0), config) for r in refused
        }
        is_refused = np.zeros(workload.num_requests, np.int64)
        is_refused[refused] = 1
        # Gaps are counted on the way: that is ten times as fast as handing out shares for it.
        self._gaps = sink if isinstance(sink, TokenGaps) and sink.is_last else None
        if self._gaps is not None:
            keeps_shares, sink = False, None
        self._sim = sim_for(
            workload,
            config,
            curve,
            settings,
            refused=is_refused,
            router=_route_code(self._router),
            round_trip_ns=round_trip_ns,
            look_every=look_every,
            keeps_shares=keeps_shares,
            counts_gaps=self._gaps is not None,
        )
        self._keeps_shares, self._sink = keeps_shares, sink
        self._steps = step_spool()
        self._shares: list[ShareRows] = []
        # Routers do not look inside a scheduler, so its counts are enough.
        views = [cast("Scheduler", SchedulerView(state)) for state in self._sim.state]
        self.endpoints = [Endpoint(k, view) for k, view in enumerate(views)]
        """Every scheduler; only its counts can be asked for."""
        self._is_compiled = (
            self._is_worth_it(workload, num_runs) if is_compiled is None else is_compiled
        )
        self._advance = self._bound()

    def _is_worth_it(self, workload: Workload, num_runs: int) -> bool:
        if is_much_work(workload, num_runs):
            return True
        from tokenpath.simulate.compiled.machine_code import is_at_hand

        return is_at_hand(self._sim)

    def _bound(self) -> Callable[..., int]:
        sim = self._sim
        if self._is_compiled:
            from tokenpath.simulate.compiled.machine_code import load_advance

            return load_advance(sim).bind(*sim)
        return lambda op, chosen: entry.advance(op, chosen, *sim)

    @property
    def num_sent(self) -> int:
        """Requests sent so far."""
        return int(self._sim.run[at.RUN_SENT])

    @property
    def num_finished(self) -> int:
        """Requests that ended, refused ones included."""
        return int(self._sim.run[at.RUN_FINISHED])

    @property
    def num_waiting(self) -> int:
        """Requests in queues."""
        return sum(endpoint.scheduler.num_waiting for endpoint in self.endpoints)

    @property
    def num_running(self) -> int:
        """Requests admitted and not ended."""
        return sum(endpoint.scheduler.num_running for endpoint in self.endpoints)

    @property
    def refusals(self) -> list[tuple[int, str]]:
        """Requests that were sent and can never run, in the order of their refusal, and why."""
        rows = self._sim.rows
        sent = np.flatnonzero(rows[:, at.ROW_IS_REJECTED] == 1)
        order = sent[np.lexsort((sent, rows[sent, at.ROW_QUEUED]))]
        return [(request, self._refusal_texts[request]) for request in order.tolist()]

    def run(self, watch: Watch | None = None) -> int:
        """Run until nothing is left to happen, or `watch` stops it; the time of the last event, ns."""
        run = self._sim.run
        op = chosen = 0
        while True:
            status = self._advance(op, chosen)
            op = 0
            if status == at.DONE:
                break
            if status == at.ROUTE:
                op, chosen = at.ROUTE, self._route()
            elif status == at.LOOK:
                request, now_ns = int(run[at.RUN_ASKED_REQUEST]), int(run[at.RUN_NOW])
                if watch is not None and watch.must_stop(request, now_ns):
                    break
            else:
                self._take()
        self._take()
        if self._gaps is not None:
            self._gaps.add(self._sim.gap_bins[1], int(run[at.RUN_GAP_SUM]))
        return int(run[at.RUN_NOW])

    def _route(self) -> int:
        sim = self._sim
        index, now_ns = int(sim.run[at.RUN_ASKED_REQUEST]), int(sim.run[at.RUN_NOW])
        for endpoint, row in zip(self.endpoints, sim.replicas.tolist(), strict=True):
            endpoint.is_ready = row[at.REPLICA_IS_READY] == 1
            endpoint.num_outstanding = row[at.REPLICA_OUTSTANDING]
            endpoint.outstanding_tokens = row[at.REPLICA_OUTSTANDING_TOKENS]
        request = self._requests.engine_request(index, now_ns)
        ready = [endpoint for endpoint in self.endpoints if endpoint.is_ready]
        return self._router.choose(request, self._requests.session[index], ready).number

    def _take(self) -> None:
        """Empty the buffers."""
        sim = self._sim
        num_steps, num_shares = int(sim.run[at.RUN_STEPS]), int(sim.run[at.RUN_SHARES])
        first = int(sim.run[at.RUN_STEP_BASE])
        if self._keeps_shares and num_shares:
            shares = _share_rows(sim.shares[:num_shares])
            if self._sink is None:
                self._shares.append(shares)
            else:
                self._sink.write(shares, sim.steps[shares.step - first, at.STEP_END])
        self._steps.append(list(sim.steps[:num_steps].T))
        sim.run[at.RUN_STEP_BASE] = first + num_steps
        sim.run[at.RUN_STEPS] = sim.run[at.RUN_SHARES] = 0

    def rows(self) -> RunRows:
        """What happened."""
        is_kept = self._keeps_shares and self._sink is None
        return RunRows(
            requests=(self._request_rows(),),
            steps=StepRows.of(self._steps),
            shares=ShareRows.join(self._shares) if is_kept else None,
        )

    def _request_rows(self) -> RequestRows:
        rows, requests = self._sim.rows, self._sim.requests

        def column(table: Int64s, place: int) -> Int64s:
            return np.ascontiguousarray(table[:, place])

        return RequestRows(
            endpoint=column(rows, at.ROW_ENDPOINT),
            queued_ns=column(rows, at.ROW_QUEUED),
            scheduled_ns=column(rows, at.ROW_SCHEDULED),
            first_token_ns=column(rows, at.ROW_FIRST),
            last_token_ns=column(rows, at.ROW_LAST),
            finished_ns=column(rows, at.ROW_FINISHED),
            cached_tokens=column(rows, at.ROW_CACHED),
            output_tokens=column(requests, engine.NUM_OUTPUT),
            num_preemptions=column(requests, engine.NUM_PREEMPTIONS),
            is_rejected=rows[:, at.ROW_IS_REJECTED] == 1,
        )


def _share_rows(shares: Int64s) -> ShareRows:
    def column(place: int) -> Int64s:
        return shares[:, place].copy()

    return ShareRows(
        step=column(at.SHARE_STEP),
        request=column(at.SHARE_REQUEST),
        is_prefill=shares[:, at.SHARE_IS_PREFILL] == 1,
        num_tokens=column(at.SHARE_TOKENS),
        num_computed_before=column(at.SHARE_COMPUTED),
        num_emitted=column(at.SHARE_EMITTED),
        is_resumed=shares[:, at.SHARE_IS_RESUMED] == 1,
    )


def is_much_work(workload: Workload, num_runs: int = 1) -> bool:
    """Whether runs of a workload take longer in Python than compiling does."""
    return num_runs * (int(workload.output_tokens.sum()) + workload.num_requests) >= (
        COMPILE_FROM_ENTRIES
    )


def _route_code(router: Router) -> int:
    # Exactly these: a subclass may choose otherwise.
    if type(router) is RoundRobin:
        return at.ROUTE_ROUND_ROBIN
    return at.ROUTE_LEAST_LOAD if type(router) is LeastLoad else at.ROUTE_OUTSIDE


def _refused(workload: Workload, config: EngineConfig) -> list[int]:
    """Requests that can never run; `check_request` says of each why."""
    prompt, output = workload.prompt_tokens, workload.output_tokens
    whole = np.minimum(prompt + output, config.max_model_len) - 1
    is_refused = (prompt < 1) | (output < 1) | (prompt > config.max_model_len - 1)
    is_refused |= -(-whole // config.block_size) > config.num_usable_blocks
    found: list[int] = np.flatnonzero(is_refused).tolist()
    return found


def _why(request: EngineRequest, config: EngineConfig) -> str:
    try:
        check_request(request, config)
    except InputError as error:
        return error.what
    raise AssertionError(f"request {request.index} can run after all")
