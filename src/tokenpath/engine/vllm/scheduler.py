"""vLLM's V1 scheduler as a `Scheduler`: the tables of `layout.py`, driven by Python or by machine code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tokenpath.core.errors import InputError
from tokenpath.engine.config import EngineConfig
from tokenpath.engine.scheduler import Decision, EngineRequest, Int64s, KvElsewhere, Outcome
from tokenpath.engine.vllm import entry
from tokenpath.engine.vllm import layout as at
from tokenpath.engine.vllm.tables import grown, memory_for

_SCHEDULED, _COMPLETED = 0, 1
"""Which of the two batches a call uses: steps may overlap, so `complete` brings its own back."""

LOAD_FROM_ENTRIES = 20_000
"""Fewer scheduled requests, summed over steps, take less time in Python than machine code takes to load."""
COMPILE_FROM_ENTRIES = 200_000
"""Likewise, where it has to be compiled first."""


class VllmScheduler:
    """vLLM's V1 scheduler with its block pool; see `engine.scheduler.Scheduler`."""

    def __init__(self, config: EngineConfig, *, is_compiled: bool | None = None) -> None:
        """`is_compiled`: whether machine code runs or Python, the same functions; None: when it pays."""
        self.config = config
        self._memory = memory_for(config)
        self._num_hashes = 0
        self._is_compiled = bool(is_compiled)
        self._is_open = is_compiled is None
        self._num_entries = 0
        self._run = self._bound()
        self._elsewhere: KvElsewhere | None = None
        self._rows: dict[int, int] = {}
        self._index = np.empty(0, np.int64)

    def _bound(self) -> Callable[..., int]:
        if self._is_compiled:
            from tokenpath.engine.vllm.machine_code import load_entry

            return load_entry().bind(*self._memory)
        memory = self._memory
        return lambda op, a, b, c: entry.run(op, a, b, c, *memory)

    def add(self, request: EngineRequest) -> None:
        """Queue a request. InputError for one that can never run, or whose index was given before."""
        check_request(request, self.config)
        state = self._memory.state
        r = int(state[at.NUM_REQUESTS])
        if self._rows.setdefault(request.index, r) != r:
            raise InputError(
                f"request {request.index} comes a second time",
                where="scheduler",
                allowed="every index once",
                next_step="number the requests",
            )
        self._make_room(r + 1, self._num_hashes + len(request.hashes))
        memory = self._memory
        self._index[r] = request.index
        row = memory.requests[r]
        row[:] = 0
        row[at.PROMPT_TOKENS] = request.prompt_tokens
        row[at.OUTPUT_TOKENS] = request.output_tokens
        row[at.PRIORITY] = request.priority
        row[at.ARRIVAL_NS] = request.arrival_ns
        row[at.SLOT] = -1
        row[at.EXTERNAL] = at.NOT_ASKED
        row[at.HASH_START] = self._num_hashes
        row[at.NUM_HASHES] = len(request.hashes)
        row[at.GRANULE_TOKENS] = request.hash_granule_tokens
        end = self._num_hashes + len(request.hashes)
        memory.hashes[self._num_hashes : end] = request.hashes
        self._num_hashes = end
        state[at.NUM_REQUESTS] = r + 1
        self._run(entry.OP_ADD, r, 0, 0)

    def _make_room(self, num_requests: int, num_hashes: int) -> None:
        memory = self._memory
        if num_requests > len(self._index):
            self._index = np.resize(self._index, max(2 * num_requests, 64))
        if num_requests > len(memory.requests) or num_hashes > len(memory.hashes):
            self._memory = memory._replace(
                requests=grown(memory.requests, num_requests),
                waiting=grown(memory.waiting, num_requests),
                hashes=grown(memory.hashes, num_hashes),
            )
            self._run = self._bound()

    def ask(self, elsewhere: KvElsewhere) -> None:
        """Ask of each request that is to be admitted what KV it has elsewhere (vLLM's KV connector)."""
        self._elsewhere = elsewhere
        self._memory.state[at.IS_ASKING] = 1

    def schedule(self, now_ns: int) -> Decision:
        """Decide the next step. A decision without entries means that nothing can run now."""
        count = self._run(entry.OP_SCHEDULE, now_ns, _SCHEDULED, 0)
        while count < 0:
            self._answer(-1 - count)
            count = self._run(entry.OP_GO_ON, now_ns, _SCHEDULED, 0)
        if self._is_open:
            self._reconsider(count)
        memory = self._memory
        batch = memory.batches[_SCHEDULED, :count].T.copy()
        num_preempted = int(memory.state[at.NUM_PREEMPTED])
        return Decision(
            request=self._index[batch[at.REQUEST]],
            kind=batch[at.KIND],
            num_computed_before=batch[at.COMPUTED_BEFORE],
            num_tokens=batch[at.TOKENS],
            num_cached=batch[at.CACHED],
            preempted=self._index[memory.lists[at.PREEMPTED_LIST, :num_preempted]],
        )

    def _answer(self, r: int) -> None:
        row, cached = self._memory.requests[r], int(self._memory.state[at.ASKED_CACHED])
        if self._elsewhere is not None:
            is_first = row[at.NUM_PREEMPTIONS] == 0
            cached = self._elsewhere(int(self._index[r]), cached, bool(is_first))
        row[at.EXTERNAL] = cached

    def _reconsider(self, count: int) -> None:
        """Go on in machine code, the same tables in hand, once there is enough to do."""
        before = self._num_entries
        self._num_entries += count
        if before < LOAD_FROM_ENTRIES <= self._num_entries:
            from tokenpath.engine.vllm.machine_code import is_at_hand

            self._is_compiled = is_at_hand()
        if self._num_entries >= COMPILE_FROM_ENTRIES:
            self._is_compiled = True
        if self._is_compiled:
            self._is_open = False
            self._run = self._bound()

    def complete(self, decision: Decision, now_ns: int) -> Outcome:
        """The step of `decision` has run: emit tokens, end requests, free their blocks.

        Steps complete in the order in which they were decided.
        """
        count = len(decision.request)
        memory = self._memory
        batch = memory.batches[_COMPLETED, :count]
        batch[:, at.REQUEST] = [self._rows[index] for index in decision.request.tolist()]
        batch[:, at.COMPUTED_BEFORE] = decision.num_computed_before
        batch[:, at.TOKENS] = decision.num_tokens
        num_finished = self._run(entry.OP_COMPLETE, now_ns, _COMPLETED, count)
        return Outcome(
            num_emitted=batch[:, at.EMITTED].copy(),
            finished=self._index[memory.lists[at.FINISHED_LIST, :num_finished]],
        )

    @property
    def num_waiting(self) -> int:
        """Requests in the queue, preempted ones included."""
        return int(self._memory.state[at.NUM_WAITING])

    @property
    def num_running(self) -> int:
        """Requests admitted and not ended."""
        return int(self._memory.state[at.NUM_RUNNING])

    @property
    def num_free_blocks(self) -> int:
        """Blocks that a request could take now, those with cached content included."""
        return int(self._memory.state[at.NUM_FREE])

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that exist for requests."""
        return self.config.num_usable_blocks

    @property
    def num_evicted_blocks(self) -> int:
        """Blocks that lost findable content so far, because they were taken for other content."""
        return int(self._memory.state[at.NUM_EVICTED])

    def held_blocks(self, index: int) -> Int64s:
        """Ids of the blocks that a request holds, in order."""
        row = self._memory.requests[self._rows[index]]
        return self._memory.table[row[at.SLOT], : row[at.NUM_HELD]].copy()


def check_request(request: EngineRequest, config: EngineConfig) -> None:
    """InputError for a request that could never run."""
    longest = config.max_model_len - 1
    if request.prompt_tokens < 1 or request.output_tokens < 1:
        raise InputError(
            f"request {request.index} has {request.prompt_tokens} prompt and {request.output_tokens} "
            "output tokens",
            where="scheduler",
            allowed="at least one of each",
            next_step="drop the request",
        )
    if request.prompt_tokens > longest:
        raise InputError(
            f"request {request.index} has a prompt of {request.prompt_tokens} tokens",
            where="scheduler",
            allowed=f"at most {longest}, one less than max_model_len",
            next_step=f"set max_model_len={request.prompt_tokens + 1}, or shorten the prompt",
        )
    whole = min(request.prompt_tokens + request.output_tokens, config.max_model_len) - 1
    needed = -(-whole // config.block_size)
    if needed > config.num_usable_blocks:
        raise InputError(
            f"request {request.index} needs {needed} blocks of {config.block_size} tokens",
            where="scheduler",
            allowed=f"at most {config.num_usable_blocks}, all that the pool has",
            next_step=f"set num_blocks={needed + 1}, or shorten the request",
        )
