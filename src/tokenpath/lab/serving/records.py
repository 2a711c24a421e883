"""What happened in a run, as it happened; writers choose what an observer saw of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenpath.engine.scheduler import Int64s
from tokenpath.lab.serving.load import Load
from tokenpath.lab.serving.plan import Plan

NEVER = -1
"""Stands in time columns for what did not happen; it never leaves the lab."""


@dataclass
class Step:
    """One step of one replica."""

    number: int
    """Its number on the replica."""
    start_ns: int
    """The scheduler began."""
    scheduled_ns: int
    """It had decided."""
    execute_ns: int
    """The worker began."""
    executed_ns: int
    """The worker had ended."""
    output_ns: int
    """The scheduler took the outputs."""
    updated_ns: int
    """It had processed them."""
    request: list[int]
    """Request of each share."""
    kind: list[int]
    """`engine.scheduler.Kind` of each share."""
    before: list[int]
    """Tokens computed before."""
    tokens: list[int]
    """Tokens scheduled."""
    emitted: list[int]
    """Tokens emitted."""
    preempted: list[int]
    """Requests that lost their blocks."""
    finished: list[int]
    """Requests that ended."""
    num_running: int
    """After the decision."""
    num_waiting: int
    """After the decision, those that wait for their KV included."""
    num_free_blocks: int
    """After the decision."""
    cached: list[int] = field(default_factory=list)
    """Tokens found in the prefix cache, a share each."""


@dataclass
class Run:
    """Everything of a run; arrays have one entry a request."""

    plan: Plan
    """What was run."""
    load: Load
    """What was sent."""
    replica: Int64s
    """Which replica served it."""
    sent_ns: Int64s
    """The client's own start time."""
    arrived_ns: Int64s
    """The server had it."""
    added_ns: Int64s
    """The engine's scheduler had it."""
    loading_ns: Int64s
    """Time it waited for its KV from a slower tier."""
    scheduled_ns: Int64s
    """First scheduled."""
    first_ns: Int64s
    """The engine had its first token."""
    last_ns: Int64s
    """The engine had its last token."""
    answered_ns: Int64s
    """The server had sent the end of the answer."""
    first_sent_ns: Int64s
    """The server had sent the first token."""
    ended_ns: Int64s
    """The client had the end of the answer."""
    cached: Int64s
    """Tokens found in the prefix cache at the first admission."""
    num_preemptions: Int64s
    """How often it lost its blocks."""
    tokens_ns: list[list[int]]
    """Client time of each token."""
    steps: list[list[Step]]
    """Steps of each replica."""
    drafted: int = 0
    """Draft tokens verified."""
    accepted: int = 0
    """Of them accepted."""

    @property
    def latency_ns(self) -> Int64s:
        """Time from send to end at the client, of requests that were answered; `NEVER` for others."""
        return np.where(self.ended_ns == NEVER, NEVER, self.ended_ns - self.sent_ns)

    def measured(self) -> NDArray[np.bool_]:
        """Requests that count: of the measured run, and answered."""
        is_run = np.arange(len(self.sent_ns)) >= self.load.num_warm_up
        answered: NDArray[np.bool_] = is_run & (self.ended_ns != NEVER)
        return answered


def empty_run(plan: Plan, load: Load) -> Run:
    """A run before anything happened."""
    n = len(load.prompt)

    def never() -> Int64s:
        return np.full(n, NEVER, np.int64)

    zero = np.zeros(n, np.int64)
    return Run(
        plan, load, zero.copy(), never(), never(), never(), zero.copy(), never(), never(), never(),
        never(), never(), never(), zero.copy(), zero.copy(),
        [[] for _ in range(n)], [[] for _ in range(plan.num_replicas)],
    )  # fmt: skip
