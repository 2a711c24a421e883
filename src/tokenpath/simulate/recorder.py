"""What happened in a run, as columns: every event loop, plain or compiled, fills the same ones.

`recorder_tables` turns them into the tables of a capture.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.units import INT64_MIN
from tokenpath.engine.scheduler import Decision, Kind
from tokenpath.simulate.spool import MEMORY_ROWS, Spool
from tokenpath.simulate.step_model import NUM_FEATURES

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

NOT_SEEN = INT64_MIN
"""A time that has not come, in columns of times."""
NO_ENDPOINT = -1
"""A request that was not routed, or is of no replica of that stage."""

BATCH_ROWS = 2**18
"""Shares handed to a sink at once, at least."""
_NEW, _RESUMED = int(Kind.NEW), int(Kind.RESUMED)
DETAILS = ("request", "step", "token")
"""`request`: tables request, step, counter_sample; `step`: request_step too; `token`: token too."""

_UNSEEN = (
    "queued_ns",
    "scheduled_ns",
    "first_token_ns",
    "last_token_ns",
    "finished_ns",
    "cached_tokens",
)
_STEP_COLUMNS = (
    "endpoint",
    "decided_ns",
    "start_ns",
    "end_ns",
    "num_running",
    "num_queued",
    "num_preempted",
    "kv_used_blocks",
)


@dataclass(frozen=True)
class StepRows:
    """Steps in the order of their ends, at equal times by replica and rank."""

    endpoint: Int64s
    """Scheduler that decided it."""
    decided_ns: Int64s
    """When the scheduler decided it."""
    start_ns: Int64s
    """When it began to run; later than `decided_ns` where steps are decided ahead."""
    end_ns: Int64s
    """When it had run and its tokens were out."""
    features: Int64s
    """[num_steps, NUM_FEATURES], what its latency depended on."""
    num_running: Int64s
    """After the decision."""
    num_queued: Int64s
    """After the decision."""
    num_preempted: Int64s
    """By the decision."""
    kv_used_blocks: Int64s
    """After the decision."""

    def __len__(self) -> int:
        return len(self.end_ns)

    @classmethod
    def of(cls, spool: Spool) -> StepRows:
        """What was kept in `step_spool`."""
        columns = spool.finish()
        plain = dict(zip(_STEP_COLUMNS, columns, strict=False))
        features = columns[len(_STEP_COLUMNS) :]
        # Columns of one file lie one after the other: as one array they need no copy.
        return cls(features=_side_by_side(features), **plain)


def step_spool() -> Spool:
    """Room for the columns of StepRows: those of one value a step, then the features."""
    return Spool([np.int64] * (len(_STEP_COLUMNS) + NUM_FEATURES))


@dataclass(frozen=True)
class RequestRows:
    """One row a request of the workload, as engines of one stage saw it; NOT_SEEN for what they did not."""

    endpoint: Int64s
    """Scheduler that it was routed to; NO_ENDPOINT for none."""
    queued_ns: Int64s
    """When it reached the scheduler."""
    scheduled_ns: Int64s
    """Decision of its first step."""
    first_token_ns: Int64s
    last_token_ns: Int64s
    finished_ns: Int64s
    cached_tokens: Int64s
    """Prompt tokens found in the prefix cache by its first admission; NOT_SEEN before that."""
    output_tokens: Int64s
    """Tokens emitted."""
    num_preemptions: Int64s
    """Times preempted."""
    is_rejected: Bools
    """It could never have run: the engine refused it."""

    @classmethod
    def empty(cls, num_requests: int) -> RequestRows:
        """Nothing has happened yet."""
        unseen = {name: np.full(num_requests, NOT_SEEN) for name in _UNSEEN}
        return cls(
            endpoint=np.full(num_requests, NO_ENDPOINT, np.int64),
            output_tokens=np.zeros(num_requests, np.int64),
            num_preemptions=np.zeros(num_requests, np.int64),
            is_rejected=np.zeros(num_requests, np.bool_),
            **unseen,
        )


@dataclass(frozen=True)
class ShareRows:
    """Requests' shares of steps, in the order of the steps."""

    step: Int64s
    """Row of StepRows."""
    request: Int64s
    is_prefill: Bools
    num_tokens: Int64s
    """Tokens computed."""
    num_computed_before: Int64s
    """Tokens that had KV before."""
    num_emitted: Int64s
    is_resumed: Bools
    """First share after a preemption."""

    def __len__(self) -> int:
        return len(self.step)

    @classmethod
    def join(cls, parts: list[ShareRows]) -> ShareRows:
        """Several batches as one."""
        if not parts:
            parts = [_no_shares()]
        columns = zip(*(tuple(vars(part).values()) for part in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns))


class ShareSink(Protocol):
    """Takes shares in batches, so that a long run keeps none of them in memory."""

    def write(self, shares: ShareRows, end_ns: Int64s) -> None:
        """Shares of steps that have run; `end_ns` is the end of each share's step."""


@dataclass(frozen=True)
class UserTokens:
    """What left for clients, by request, where that is not what one engine emitted."""

    first_token_ns: Int64s
    """When the first token left; NOT_SEEN for none."""
    output_tokens: Int64s
    """Tokens in all."""


@dataclass(frozen=True)
class RunRows:
    """A whole run."""

    requests: tuple[RequestRows, ...]
    """By stage: one, or prefill and decode instances."""
    steps: StepRows
    shares: ShareRows | None
    """None: not recorded, or given to a sink."""
    users: UserTokens | None = None
    """None: what engines emitted went to clients as it was."""


@dataclass(frozen=True, slots=True)
class StepPart:
    """What one scheduler has in a step."""

    endpoint: int
    """Number of the scheduler in the cluster."""
    decision: Decision
    """What it decided, in its own numbers of requests."""
    request: Int64s
    """Request of the workload, by entry of the decision."""
    num_computed_before: Int64s
    """As in the decision, but what was loaded from elsewhere counts as computed before."""
    num_tokens: Int64s
    """Likewise: what is really computed."""
    is_prefill: Bools
    """By entry of the decision."""
    features: list[int]
    """`FEATURES` of the part."""
    num_running: int
    """After the decision."""
    num_queued: int
    """After the decision."""
    num_preempted: int
    """By the decision, and by those without work before it."""
    kv_used_blocks: int
    """After the decision."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """When a step was decided, began and ended."""

    decided_ns: int
    start_ns: int
    end_ns: int


@dataclass
class Recorder:
    """Collects a run; `finish` gives its columns."""

    num_requests: int
    """Requests of the workload."""
    num_stages: int = 1
    """2 for separate prefill and decode instances."""
    keeps_shares: bool = True
    """Whether shares of requests in steps are recorded."""
    sink: ShareSink | None = None
    """Where shares go instead of memory."""
    requests: list[RequestRows] = field(init=False)
    """By stage."""

    def __post_init__(self) -> None:
        self.requests = [RequestRows.empty(self.num_requests) for _ in range(self.num_stages)]
        self._spool = step_spool()
        self._steps = {name: array("q") for name in (*_STEP_COLUMNS, "features")}
        self._shares: list[ShareRows] = []
        self._num_shares = 0

    def queue(self, request: int, endpoint: int, now_ns: int, stage: int = 0) -> None:
        """A request has reached a scheduler."""
        rows = self.requests[stage]
        rows.endpoint[request] = endpoint
        rows.queued_ns[request] = now_ns

    def reject(self, request: int, now_ns: int, stage: int = 0) -> None:
        """A scheduler has refused it for good."""
        self.requests[stage].is_rejected[request] = True
        self.requests[stage].finished_ns[request] = now_ns

    def preempt(self, requests: Int64s, stage: int = 0) -> None:
        """A decision took the blocks of these requests, each named once."""
        self.requests[stage].num_preemptions[requests] += 1

    def step(
        self,
        part: StepPart,
        times: StepTimes,
        num_emitted: Int64s,
        finished: Int64s,
        stage: int = 0,
    ) -> None:
        """A step has run: what one scheduler had in it, tokens emitted by entry, requests that ended."""
        rows, decision = self.requests[stage], part.decision
        is_new = decision.kind == _NEW
        admitted = part.request[is_new]
        rows.scheduled_ns[admitted] = times.decided_ns
        rows.cached_tokens[admitted] = decision.num_cached[is_new]
        gives = num_emitted > 0
        giving = part.request[gives]
        rows.output_tokens[giving] += num_emitted[gives]
        rows.last_token_ns[giving] = times.end_ns
        rows.first_token_ns[giving[rows.first_token_ns[giving] == NOT_SEEN]] = times.end_ns
        rows.finished_ns[finished] = times.end_ns
        if self.keeps_shares:
            self._add_shares(part, num_emitted)
        values = (
            part.endpoint,
            times.decided_ns,
            times.start_ns,
            times.end_ns,
            part.num_running,
            part.num_queued,
            part.num_preempted,
            part.kv_used_blocks,
        )
        for name, value in zip(_STEP_COLUMNS, values, strict=True):
            self._steps[name].append(value)
        self._steps["features"].extend(part.features)
        if self.sink is not None and self._num_shares >= BATCH_ROWS:
            self._flush(self.sink)
        if len(self._steps["end_ns"]) >= MEMORY_ROWS:
            self._spill()

    def finish(self) -> RunRows:
        """All columns; what is left for the sink goes there."""
        self._spill()
        shares = None
        if self.sink is None and self.keeps_shares:
            shares = ShareRows.join(self._shares)
        return RunRows(tuple(self.requests), StepRows.of(self._spool), shares)

    def _spill(self) -> None:
        """Steps so far go where memory does not grow with them, shares of theirs to the sink before."""
        if self.sink is not None:
            self._flush(self.sink)
        columns = [np.array(self._steps[name], np.int64) for name in _STEP_COLUMNS]
        features = np.array(self._steps["features"], np.int64).reshape(-1, NUM_FEATURES)
        self._spool.append([*columns, *features.T])
        for kept in self._steps.values():
            del kept[:]

    def _add_shares(self, part: StepPart, num_emitted: Int64s) -> None:
        size = len(part.request)
        self._shares.append(
            ShareRows(
                np.full(size, len(self._spool) + len(self._steps["end_ns"])),
                part.request,
                part.is_prefill,
                part.num_tokens,
                part.num_computed_before,
                num_emitted,
                part.decision.kind == _RESUMED,
            )
        )
        self._num_shares += size

    def _flush(self, sink: ShareSink) -> None:
        shares = ShareRows.join(self._shares)
        if len(shares):
            end_ns = np.array(self._steps["end_ns"], np.int64)
            sink.write(shares, end_ns[shares.step - len(self._spool)])
        self._shares, self._num_shares = [], 0


def _side_by_side(columns: list[Int64s]) -> Int64s:
    """[rows, columns] without a copy where the columns lie in one piece of memory, each after the last."""
    size, first = len(columns[0]), columns[0]
    begin = first.ctypes.data
    if all(one.ctypes.data == begin + i * 8 * size for i, one in enumerate(columns)) and size:
        return np.lib.stride_tricks.as_strided(first, (size, len(columns)), (8, 8 * size))
    return np.stack(columns, axis=1)


def _no_shares() -> ShareRows:
    none, no = np.empty(0, np.int64), np.empty(0, np.bool_)
    return ShareRows(none, none, no, none, none, none, no)
