"""Batches that run to the end of their longest request: static, and dynamic with a window.

What served models before iteration-level scheduling (Orca, OSDI 2022), here to show what that is worth. All
rows of a batch are padded to its longest prompt and go on until its longest output has ended. Entries of a
decision count the padding as computed, so that a step costs what it did; what a request emits is its own.
Requests are given back when their batch ends.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from tokenpath.core.errors import InputError, UsageError
from tokenpath.engine.baselines.settings import StaticSettings, WindowSettings
from tokenpath.engine.scheduler import NO_HASHES, Decision, EngineRequest, Int64s, Kind, Outcome

NOTHING = Decision(NO_HASHES, NO_HASHES, NO_HASHES, NO_HASHES, NO_HASHES, NO_HASHES)


class StaticScheduler:
    """A batch starts when the one before it has ended, in order of arrival."""

    def __init__(self, settings: StaticSettings) -> None:
        self._settings = settings
        self._waiting: deque[EngineRequest] = deque()
        self._batch: list[EngineRequest] = []
        self._request = self._outputs = NO_HASHES
        self._longest_prompt = 0
        self._num_steps = 0
        """Steps of the batch that have been scheduled."""
        self._under_way: Decision | None = None
        self.num_padding_tokens = 0
        """Tokens computed for nobody so far: before shorter prompts, and after shorter outputs."""

    def add(self, request: EngineRequest) -> None:
        """Queue a request. InputError for one that no batch can have."""
        s = self._settings
        total = request.prompt_tokens + request.output_tokens
        limit = min(s.max_seq_len, s.num_blocks * s.block_size)
        if total > limit:
            raise InputError(
                f"{request.prompt_tokens} prompt and {request.output_tokens} output tokens do not fit",
                where=f"request {request.index}",
                allowed=f"{limit} tokens (max_seq_len {s.max_seq_len}, "
                f"{s.num_blocks} blocks of {s.block_size} tokens)",
                next_step="shorten the request or raise the limit",
            )
        self._waiting.append(request)

    def schedule(self, now_ns: int) -> Decision:
        """All prompts of a batch at once, or one more token of each of its rows."""
        if self._under_way is not None:
            raise UsageError("schedule before the step before it was completed")
        if not self._batch and self._is_due(now_ns):
            self._start_batch()
        if not self._batch:
            return NOTHING
        rows = len(self._batch)
        first = self._num_steps == 0
        before = 0 if first else self._longest_prompt + self._num_steps - 1
        tokens = self._longest_prompt if first else 1
        self._under_way = Decision(
            self._request,
            np.full(rows, Kind.NEW if first else Kind.RUN, np.int64),
            np.full(rows, before, np.int64),
            np.full(rows, tokens, np.int64),
            np.zeros(rows, np.int64),
            NO_HASHES,
        )
        self._num_steps += 1
        return self._under_way

    def complete(self, decision: Decision, now_ns: int) -> Outcome:
        """A token of each row whose request has not had all; the batch ends with its longest."""
        del now_ns  # nothing here depends on the time
        if self._under_way is None or decision is not self._under_way:
            raise UsageError("complete for a step that is not under way")
        self._under_way = None
        emitted = (self._outputs >= self._num_steps).astype(np.int64)
        if self._num_steps == 1:
            prompts = sum(r.prompt_tokens for r in self._batch)
            self.num_padding_tokens += len(self._batch) * self._longest_prompt - prompts
        else:
            self.num_padding_tokens += len(self._batch) - int(emitted.sum())
        finished: Int64s = NO_HASHES
        if self._num_steps == int(self._outputs.max()):
            finished = self._request
            self._batch = []
        return Outcome(emitted, finished)

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Requests of the batch, those that only fill their row included."""
        return len(self._batch)

    @property
    def num_free_blocks(self) -> int:
        """Blocks that no row has."""
        tokens = self._settings.max_seq_len
        if self._settings.pool == "paged":
            tokens = self._longest_prompt + max(self._num_steps - 1, 0)
        held = len(self._batch) * self._settings.blocks_for(tokens)
        return self._settings.num_blocks - held

    @property
    def num_usable_blocks(self) -> int:
        """Blocks of the pool."""
        return self._settings.num_blocks

    def _is_due(self, now_ns: int) -> bool:
        """Whether a batch may start now."""
        del now_ns
        return bool(self._waiting)

    def _start_batch(self) -> None:
        """Take requests in order while all rows, padded to the longest, fit to the end."""
        s = self._settings
        prompt = output = 0
        while self._waiting and len(self._batch) < s.max_batch_size:
            head = self._waiting[0]
            longest_prompt = max(prompt, head.prompt_tokens)
            longest_output = max(output, head.output_tokens)
            row = longest_prompt + longest_output
            tokens = s.max_seq_len if s.pool == "contiguous" else row
            needed = (len(self._batch) + 1) * s.blocks_for(tokens)
            if row > s.max_seq_len or needed > s.num_blocks:
                break
            prompt, output = longest_prompt, longest_output
            self._batch.append(self._waiting.popleft())
        self._longest_prompt = prompt
        self._num_steps = 0
        self._request = np.array([r.index for r in self._batch], np.int64)
        self._outputs = np.array([r.output_tokens for r in self._batch], np.int64)


class WindowScheduler(StaticScheduler):
    """A batch starts when its first request has waited `window_ns`, or when `max_batch_size` wait."""

    def __init__(self, settings: WindowSettings) -> None:
        super().__init__(settings)
        self._window_ns = settings.window_ns

    @property
    def wake_ns(self) -> int | None:
        """When the window of the first request in the queue ends; None while a batch runs or none waits."""
        if self._batch or not self._waiting:
            return None
        return self._waiting[0].arrival_ns + self._window_ns

    def _is_due(self, now_ns: int) -> bool:
        if not self._waiting:
            return False
        is_full = len(self._waiting) >= self._settings.max_batch_size
        return is_full or now_ns >= self._waiting[0].arrival_ns + self._window_ns
