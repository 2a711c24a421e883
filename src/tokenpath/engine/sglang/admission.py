"""One prefill pass: who of the queue fits into the next prefill batch, and how much of whom."""

from __future__ import annotations

from enum import Enum, auto

from tokenpath.engine.sglang.cache import Cache, pages_of
from tokenpath.engine.sglang.sequence import Batch, Sequence
from tokenpath.engine.sglang.settings import SglangSettings

RESERVED_TOKENS_AT_EACH_END = 1
"""SGLang's IGNORE_EOS_RESERVE_TOKENS."""


class Verdict(Enum):
    """Whether the pass goes on after a request."""

    CONTINUE = auto()
    NO_TOKEN = auto()
    """The pool has no room for more."""
    OTHER = auto()
    """A budget of this batch is spent."""


class PrefillPass:
    """Budgets of one prefill batch, all in tokens, and what has been admitted so far."""

    def __init__(
        self, settings: SglangSettings, cache: Cache, running: Batch, ratio: float, num_mixed: int
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._running = running
        self._ratio = 1.0 if settings.ignore_eos else ratio
        self._size = settings.page_size
        self.rem_input_tokens = settings.max_prefill_tokens - num_mixed
        chunk = settings.chunked_prefill_size
        self.rem_chunk_tokens = None if chunk is None else chunk - num_mixed
        self.current_offset = num_mixed
        """What the admitted take from the pool now."""
        self.total_offset: float = num_mixed
        """That, and what the running and the admitted are expected to take later."""
        expected = 0.0
        for sequence in running.sequences:
            expected += self.expected_outputs(sequence)
        self.total_offset += expected
        self.admitted: list[Sequence] = []
        self.new_chunked: Sequence | None = None
        self._ends: list[tuple[float, int]] | None = None

    def expected_outputs(self, sequence: Sequence) -> float:
        """Tokens that a running request is expected to emit still."""
        left = sequence.max_new_tokens - sequence.num_outputs
        return min(left, self._settings.clip_max_new_tokens_estimation) * self._ratio

    @property
    def rem_total_tokens(self) -> float:
        """Room for good."""
        return self._cache.available_and_evictable_tokens - self.total_offset

    @property
    def rem_current_tokens(self) -> int:
        """Room right now."""
        return self._cache.available_and_evictable_tokens - self.current_offset

    def verdict(self) -> Verdict:
        """Whether anything at all could be added."""
        if self.rem_total_tokens <= 0 or self.rem_current_tokens <= 0:
            return Verdict.NO_TOKEN
        if self.rem_input_tokens <= 0:
            return Verdict.OTHER
        if self.rem_chunk_tokens is not None and self.rem_chunk_tokens <= 0:
            return Verdict.OTHER
        return Verdict.CONTINUE

    def add_chunked(self, sequence: Sequence) -> bool:
        """Go on with the prefill under way; whether it ends. It moves on even without room, to give some one day.

        It waits only where as many decodes ride along as the batch has tokens; SGLang has no rule for that.
        """
        limit = self.rem_chunk_tokens or 0
        if limit <= 0:
            return False
        room = min(limit, int(self.rem_total_tokens))
        if room <= 0:
            room = limit
        left = sequence.fill_len - sequence.prefix_len
        ends = left <= room
        sequence.extend_end = sequence.prefix_len + min(left, room)
        self._admit(sequence, self._clipped(sequence.max_new_tokens) if ends else 0)
        return ends

    def add(self, sequence: Sequence) -> Verdict:
        """Try a request of the queue, whose prefix has just been matched."""
        limit = self._settings.prefill_max_requests
        if limit is not None and len(self.admitted) >= limit:
            return Verdict.OTHER
        if self._settings.ignore_eos and self._cache.disabled:
            return self._add_fixed_length(sequence)
        size = self._size
        extend = sequence.fill_len - sequence.prefix_len
        max_new = self._clipped(max(sequence.max_new_tokens - sequence.num_outputs, 0))
        # Its own prefix is not room that it could take.
        self._cache.tree.lock(sequence.last_node)
        fits = extend + max_new + size < self.rem_total_tokens
        self._cache.tree.unlock(sequence.last_node)
        if not fits:
            return Verdict.NO_TOKEN
        # What is loaded needs pages and no computing (SGLang's host_hit_length).
        paged = pages_of(extend - sequence.external, size) * size
        if self.rem_chunk_tokens is None:
            # The first request of a batch may exceed the cap.
            if self.admitted and paged >= self.rem_input_tokens:
                return Verdict.OTHER
        elif paged > self.rem_chunk_tokens:
            loaded_to = sequence.prefix_len + sequence.external
            end = loaded_to + self.rem_chunk_tokens // size * size
            chunk = end // size * size - sequence.prefix_len
            if chunk <= sequence.external:
                return Verdict.OTHER
            sequence.extend_end = sequence.prefix_len + chunk
            self._cache.hold(sequence)
            self.new_chunked = sequence
            self._admit(sequence, 0)
            return self.verdict()
        sequence.extend_end = sequence.fill_len
        self._cache.hold(sequence)
        self._admit(sequence, self._clipped(sequence.max_new_tokens))
        return self.verdict()

    def _clipped(self, tokens: int) -> int:
        return min(tokens, self._settings.clip_max_new_tokens_estimation)

    def _admit(self, sequence: Sequence, max_new: int) -> None:
        self.admitted.append(sequence)
        taken = sequence.extend_end - sequence.prefix_len
        paged = pages_of(taken - sequence.external, self._size) * self._size
        # A page for the last, partly filled one.
        now = pages_of(taken, self._size) * self._size + self._size
        self.total_offset += now + max_new
        self.current_offset += now
        self.rem_input_tokens -= paged
        if self.rem_chunk_tokens is not None:
            self.rem_chunk_tokens -= paged

    def _add_fixed_length(self, sequence: Sequence) -> Verdict:
        """Lengths are certain and nothing is shared: play the ends through, one after the other."""
        extend = sequence.fill_len - sequence.prefix_len
        paged = pages_of(extend, self._size) * self._size + self._size
        if paged > min(self.rem_current_tokens, self.rem_total_tokens):
            return Verdict.NO_TOKEN
        if self._ends is None:
            everyone = [sequence, *self._running.sequences, *self.admitted]
            self._ends = sorted(
                (end for s in everyone if (end := _end_of(s)) is not None), key=lambda end: end[0]
            )
        else:
            _insert(self._ends, _end_of(sequence))
        room = self.rem_current_tokens - paged
        freed = 0
        for i, (left, occupied) in enumerate(self._ends):
            still = len(self._ends) - i
            if room + freed - left * still <= RESERVED_TOKENS_AT_EACH_END * still:
                return Verdict.NO_TOKEN
            freed += occupied
        if self.rem_chunk_tokens is None or extend - sequence.external <= self.rem_chunk_tokens:
            sequence.extend_end = sequence.fill_len
            self._admit(sequence, self._clipped(sequence.max_new_tokens))
        elif self.rem_chunk_tokens <= 0:
            return Verdict.OTHER
        else:
            loaded_to = sequence.prefix_len + sequence.external
            sequence.extend_end = loaded_to + self.rem_chunk_tokens
            self.new_chunked = sequence
            self._admit(sequence, 0)
        return self.verdict()


def _end_of(sequence: Sequence) -> tuple[float, int] | None:
    """Tokens until it ends, and those that it gives back then; None if it is past its end."""
    left = sequence.max_new_tokens * 1.0 - sequence.num_outputs
    return (left, sequence.num_tokens) if left > 0 else None


def _insert(ends: list[tuple[float, int]], end: tuple[float, int] | None) -> None:
    """Before the first that ends no earlier; before the last one if there is none (as SGLang does)."""
    if end is None:
        return
    last = max(len(ends) - 1, 0)
    ends.insert(next((i for i, other in enumerate(ends) if end[0] <= other[0]), last), end)
