"""Second half of a decision: whose tokens fit into the step, and how much of which prompt."""

from __future__ import annotations

from tokenpath.core.errors import InputError
from tokenpath.engine.trtllm.sequence import Sequence, State
from tokenpath.engine.trtllm.settings import TrtllmSettings


def model_tokens(chunk: int, reusable: int, remaining: int) -> int:
    """Tokens that the model computes for a part of a prompt of which `reusable` tokens are cached.

    Cached tokens move the part to the right and do not shorten it, unless it reaches the end.
    """
    if reusable <= 0 or reusable + chunk < remaining:
        return chunk
    return max(0, remaining - reusable)


class MicroBatchScheduler:
    """Fills the step with the requests that the capacity scheduler let through, in their order."""

    def __init__(self, settings: TrtllmSettings) -> None:
        self._settings = settings
        self._limit = settings.max_num_tokens

    def schedule(self, fitting: list[Sequence]) -> tuple[list[Sequence], list[Sequence]]:
        """Requests that compute their prompt (`Sequence.chunk` says how much), and generating ones."""
        contexts: list[Sequence] = []
        to_chunk: list[Sequence] = []
        generating: list[Sequence] = []
        num_tokens = wanted = 0
        all_fit = True
        for sequence in fitting:
            if sequence.state >= State.TO_COMPLETE:
                continue
            if sequence.state is State.GENERATION:
                if num_tokens + 1 > self._limit:
                    break
                generating.append(sequence)
                num_tokens += 1
            else:
                sequence.chunk = sequence.remaining
                tokens = model_tokens(sequence.chunk, _reusable(sequence), sequence.remaining)
                if not self._settings.enable_chunked_context:
                    tokens = max(1, tokens)
                    if tokens > self._limit:
                        raise InputError(
                            f"a prompt of {tokens} tokens does not fit into a step",
                            where=f"request {sequence.request.index}",
                            allowed=f"at most max_num_tokens ({self._limit}) without chunked context",
                            next_step="raise max_num_tokens or set enable_chunked_context",
                        )
                    if num_tokens + tokens > self._limit:
                        break
                    contexts.append(sequence)
                    num_tokens += tokens
                else:
                    all_fit = all_fit and tokens <= self._limit
                    to_chunk.append(sequence)
                    wanted += min(tokens, self._limit)
            if len(contexts) + len(to_chunk) + len(generating) >= self._settings.max_batch_size:
                break
        all_fit = all_fit and wanted <= self._limit - num_tokens
        if not all_fit:
            self._cut(to_chunk, self._limit - num_tokens)
        contexts += [sequence for sequence in to_chunk if sequence.chunk > 0]
        # Those whose prompt ends with this step come last.
        contexts.sort(key=lambda s: s.chunk == s.remaining)
        return contexts, generating

    def _cut(self, sequences: list[Sequence], capacity: int) -> None:
        for sequence in sequences:
            sequence.chunk = 0
        if self._settings.context_chunking_policy == "equal_progress":
            self._cut_equally(sequences, capacity)
        else:
            self._cut_in_order(sequences, capacity)

    def _cut_in_order(self, sequences: list[Sequence], capacity: int) -> None:
        """Each takes all it can, in whole units unless it reaches its end."""
        unit = self._settings.chunk_unit
        for sequence in sequences:
            remaining = sequence.remaining
            reusable = min(_reusable(sequence), remaining)
            chunk = remaining
            if capacity < model_tokens(remaining, reusable, remaining):
                chunk = capacity
            if model_tokens(chunk, reusable, remaining) > self._limit:
                chunk = min(self._limit, remaining)
            if chunk < remaining:
                chunk = chunk // unit * unit
            sequence.chunk = chunk
            capacity -= model_tokens(chunk, reusable, remaining)

    def _cut_equally(self, sequences: list[Sequence], capacity: int) -> None:
        """One unit each, round after round, until the step is full."""
        unit = self._settings.chunk_unit
        used, moved = 0, True
        while used < capacity and moved:
            moved = False
            for sequence in sequences:
                remaining = sequence.remaining
                reusable = min(_reusable(sequence), remaining)
                before = sequence.chunk
                after = min(before + unit, remaining)
                more = model_tokens(after, reusable, remaining)
                more -= model_tokens(before, reusable, remaining)
                if used + more > capacity or after > self._limit:
                    continue
                sequence.chunk = after
                used += more
                moved = moved or after > before


def _reusable(sequence: Sequence) -> int:
    return sequence.estimated_reusable if sequence.is_first_chunk else 0
