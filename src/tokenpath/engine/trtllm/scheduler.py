"""TensorRT-LLM's scheduler: blocks first, then tokens, then the blocks are taken.

Read `_decide` first. Under overlap TensorRT-LLM decides a step when the one before it starts, so `schedule`
hands out the decision made one step earlier and makes the next; see SGLang's scheduler for what that means
to whoever drives it (the same).
"""

from __future__ import annotations

from collections import deque

import numpy as np

from tokenpath.core.errors import InputError, UsageError
from tokenpath.engine.scheduler import (
    NO_HASHES,
    Decision,
    EngineRequest,
    Kind,
    KvElsewhere,
    Outcome,
)
from tokenpath.engine.trtllm.blocks import BlockManager
from tokenpath.engine.trtllm.capacity import CapacityScheduler
from tokenpath.engine.trtllm.microbatch import MicroBatchScheduler
from tokenpath.engine.trtllm.sequence import Sequence, State
from tokenpath.engine.trtllm.settings import TrtllmSettings

NOTHING = Decision(NO_HASHES, NO_HASHES, NO_HASHES, NO_HASHES, NO_HASHES, NO_HASHES)


class _Step:
    """A decided step, with what its result needs."""

    def __init__(self) -> None:
        self.sequences: list[Sequence] = []
        self.pauses: list[int] = []
        """Times that each had been paused when the step was decided."""
        self.emits: list[bool] = []
        self.is_prompt: list[bool] = []
        self._columns: tuple[list[int], ...] = ([], [], [], [], [])
        self.decision = NOTHING

    def add_prompt(self, s: Sequence, computed: int, tokens: int, cached: int) -> None:
        """A prompt, or a part of it."""
        self.sequences.append(s)
        self.pauses.append(s.pauses)
        self.emits.append(computed + tokens >= s.prompt_len)
        self.is_prompt.append(True)
        row = (s.request.index, int(s.kind), computed, tokens, cached)
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        s.kind = Kind.RUN

    def add_decodes(self, sequences: list[Sequence]) -> None:
        """One token each, whose place they have already."""
        request, kind, computed, tokens, cached = self._columns
        many = len(sequences)
        self.sequences += sequences
        self.pauses += [s.pauses for s in sequences]
        self.emits += [True] * many
        self.is_prompt += [False] * many
        request += [s.request.index for s in sequences]
        kind += [int(Kind.RUN)] * many
        computed += [s.kv_tokens - 1 for s in sequences]
        tokens += [1] * many
        cached += [0] * many

    def close(self, preempted: list[int]) -> None:
        """Write the decision."""
        request, kind, computed, tokens, cached = (np.array(c, np.int64) for c in self._columns)
        self.decision = Decision(
            request, kind, computed, tokens, cached, np.array(preempted, np.int64)
        )


class TrtllmScheduler:
    """TensorRT-LLM 1.3 on one device, without speculation, beams, LoRA, host blocks or disaggregation."""

    def __init__(self, settings: TrtllmSettings) -> None:
        self._settings = settings
        self.blocks = BlockManager(settings)
        self._capacity = CapacityScheduler(settings, self.blocks)
        self._micro_batch = MicroBatchScheduler(settings)
        self._queue: deque[Sequence] = deque()
        self.active: list[Sequence] = []
        """Taken out of the queue and not ended; at most `max_batch_size`."""
        self._under_way: _Step | None = None
        self._ahead: _Step | None = None
        self._preempted: list[int] = []
        self._elsewhere: KvElsewhere | None = None

    def ask(self, elsewhere: KvElsewhere) -> None:
        """Ask of each request that is to be admitted what KV it has elsewhere."""
        self._elsewhere = elsewhere

    def add(self, request: EngineRequest) -> None:
        """Queue a request. InputError for one that could never run."""
        s = self._settings
        total = request.prompt_tokens + request.output_tokens
        limit = min(s.max_seq_len, s.num_blocks * s.tokens_per_block)
        if total > limit:
            self._refuse(
                request,
                f"{limit} tokens, the lesser of max_seq_len ({s.max_seq_len}) and "
                f"{s.num_blocks} blocks of {s.tokens_per_block} tokens",
            )
        pausing = s.capacity_scheduler_policy == "max_utilization"
        longest = total - 1 if pausing else request.prompt_tokens
        if not s.enable_chunked_context and longest > s.max_num_tokens:
            self._refuse(
                request,
                f"a prompt{' with its outputs' if pausing else ''} of max_num_tokens "
                f"({s.max_num_tokens}) without chunked context",
            )
        most = limit - request.prompt_tokens
        asked = max(request.output_tokens, min(s.max_new_tokens or 0, most))
        most_blocks = self.blocks.blocks_for(request.prompt_tokens + asked)
        self._queue.append(Sequence(request, asked, most_blocks))

    def _refuse(self, request: EngineRequest, allowed: str) -> None:
        raise InputError(
            f"{request.prompt_tokens} prompt and {request.output_tokens} output tokens do not fit",
            where=f"request {request.index}",
            allowed=allowed,
            next_step="shorten the request or raise the limit",
        )

    def schedule(self, now_ns: int) -> Decision:
        """The next step. With overlap it was decided when the one before it started."""
        del now_ns  # nothing here depends on the time
        if self._under_way is not None:
            raise UsageError("schedule before the step before it was completed")
        step, self._ahead = self._ahead, None
        pauses = -1
        while step is None and len(self._preempted) > pauses:
            pauses = len(
                self._preempted
            )  # a round that only paused requests makes room for the next
            step = self._decide()
        if step is None:
            return NOTHING
        self._under_way = step
        if not self._settings.disable_overlap_scheduler:
            self._ahead = self._decide()
        return step.decision

    def complete(self, decision: Decision, now_ns: int) -> Outcome:
        """Emit tokens, end requests, keep their blocks findable."""
        del now_ns
        step = self._under_way
        if step is None or step.decision is not decision:
            raise UsageError("complete for a step that is not under way")
        self._under_way = None
        emitted = np.zeros(len(step.sequences), np.int64)
        finished: list[int] = []
        for i, sequence in enumerate(step.sequences):
            lost = sequence.pauses != step.pauses[i] or sequence.state is State.COMPLETE
            if lost or not step.emits[i]:
                continue
            sequence.num_outputs += 1
            emitted[i] = 1
            if step.is_prompt[i]:
                self.blocks.store_context(sequence)
            if sequence.num_outputs >= sequence.request.output_tokens:
                self.blocks.remove_sequence(sequence)
                sequence.state = State.COMPLETE
                finished.append(sequence.request.index)
        if finished:
            self.active = [s for s in self.active if s.state is not State.COMPLETE]
        return Outcome(emitted, np.array(finished, np.int64))

    @property
    def num_waiting(self) -> int:
        """Requests without blocks: queued, chosen but not started, or paused."""
        return len(self._queue) + sum(1 for s in self.active if not s.blocks)

    @property
    def num_running(self) -> int:
        """Requests with blocks, as far as decided (with overlap: one step ahead)."""
        return sum(1 for s in self.active if s.blocks)

    @property
    def num_free_blocks(self) -> int:
        """Blocks that no request holds."""
        return self.blocks.num_free

    @property
    def num_usable_blocks(self) -> int:
        """Blocks of the pool."""
        return self._settings.num_blocks

    def _decide(self) -> _Step | None:
        while self._queue and len(self.active) < self._settings.max_batch_size:
            self.active.append(self._queue.popleft())
        fitting, paused = self._capacity.schedule(self.active)
        if self._elsewhere is not None:
            _note_loads(fitting, self._elsewhere)
        contexts, generating = self._micro_batch.schedule(fitting)
        for sequence in paused:
            self.blocks.remove_sequence(sequence)
            sequence.pause()
            self._preempted.append(sequence.request.index)
        step = _Step()
        reserved = sum(1 for s in generating if s.kv_tokens % self._settings.tokens_per_block == 0)
        for sequence in contexts:
            if not sequence.is_first_chunk or self._fits_now(sequence, reserved):
                self._run_context(sequence, step)
        for sequence in generating:
            self.blocks.add_token(sequence)
        step.add_decodes(generating)
        for sequence in generating:
            self._after_token(sequence)
        if not step.sequences:
            return None
        step.close(self._preempted)
        self._preempted = []
        return step

    def _fits_now(self, sequence: Sequence, reserved: int) -> bool:
        """Whether the blocks of a prompt are there, after `reserved` for the generating ones.

        They are not where a request that was paused held what this one was to share, or where taking a
        block made the tree forget a held one below it. TensorRT-LLM throws then; here the request waits.
        """
        held = self.blocks.cached(sequence)[1] if self._settings.enable_block_reuse else 0
        needed = self.blocks.blocks_for(sequence.prompt_len) - held
        return needed <= self.blocks.num_free - reserved

    def _run_context(self, sequence: Sequence, step: _Step) -> None:
        cached = 0
        if sequence.is_first_chunk:
            cached = self.blocks.add_sequence(sequence)
            done, sequence.external = max(cached, sequence.external), 0
            sequence.position = done
            end = done + sequence.chunk
            if done and end < sequence.prompt_len:
                # The part moves behind what is cached, and still ends with a block.
                size = self._settings.tokens_per_block
                sequence.chunk = end // size * size - done
        sequence.chunk = min(sequence.chunk, sequence.remaining)
        step.add_prompt(sequence, sequence.position, sequence.chunk, cached)
        sequence.position += sequence.chunk
        if sequence.remaining == 0:
            sequence.state = State.GENERATION
            self._after_token(sequence)

    def _after_token(self, sequence: Sequence) -> None:
        """With overlap, a request whose token under way is its last is not scheduled again."""
        under_way = sequence.kv_tokens + 1 - sequence.request.prompt_tokens
        if not self._settings.disable_overlap_scheduler and under_way >= sequence.asked:
            sequence.state = State.TO_COMPLETE


def _note_loads(fitting: list[Sequence], elsewhere: KvElsewhere) -> None:
    """What of prompts that are to start has KV elsewhere: as good as cached for the budget of tokens."""
    for sequence in fitting:
        if sequence.is_first_chunk:
            cached, is_first = sequence.estimated_reusable, sequence.kind is Kind.NEW
            until = elsewhere(sequence.request.index, cached, is_first)
            sequence.external = min(until, sequence.prompt_len - 1)
            sequence.estimated_reusable = max(cached, sequence.external)
