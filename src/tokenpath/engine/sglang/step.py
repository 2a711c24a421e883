"""A decided step: what it tells the driver, and what its result needs."""

from __future__ import annotations

import numpy as np

from tokenpath.engine.scheduler import NO_HASHES, Decision, Kind
from tokenpath.engine.sglang.sequence import Batch, Sequence

NOTHING = Decision(NO_HASHES, NO_HASHES, NO_HASHES, NO_HASHES, NO_HASHES, NO_HASHES)


class Step:
    """A batch as it was when it was decided."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.is_extend = batch.is_extend
        self.sequences: list[Sequence] = []
        self.emits: list[bool] = []
        """Whether the step ends with a token of it; false for a chunk that is not its last."""
        self.decoding: frozenset[Sequence] = frozenset()
        """Those that decode beside prefills."""
        self.decision = NOTHING
        self._columns: tuple[list[int], ...] = ([], [], [], [], [])

    @property
    def sequences_set(self) -> frozenset[Sequence]:
        """Its requests."""
        return frozenset(self.sequences)

    @classmethod
    def of_prefill(cls, batch: Batch) -> Step:
        """Prefills, whole or chunks."""
        step = cls(batch)
        for s in batch.sequences:
            cached = s.prefix_len if s.kind is not Kind.RUN else 0
            computed = s.prefix_len + s.external
            s.external = 0
            step._add(s, computed, s.extend_end - computed, cached)
            step.emits.append(s.extend_end >= s.fill_len)
        return step

    @classmethod
    def of_decode(cls, batch: Batch) -> Step:
        """One token each."""
        step = cls(batch)
        step._add_decodes(batch.sequences)
        return step

    def add_decodes(self, sequences: list[Sequence]) -> None:
        """Let decodes ride along with prefills."""
        self._add_decodes(sequences)
        self.decoding = frozenset(sequences)
        self.batch.sequences = self.batch.sequences + sequences

    def close(self, preempted: list[int]) -> None:
        """Write the decision."""
        request, kind, computed, tokens, cached = (np.array(c, np.int64) for c in self._columns)
        self.decision = Decision(
            request, kind, computed, tokens, cached, np.array(preempted, np.int64)
        )

    def _add(self, s: Sequence, computed: int, tokens: int, cached: int) -> None:
        self.sequences.append(s)
        row = (s.request.index, int(s.kind), computed, tokens, cached)
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        s.kind = Kind.RUN

    def _add_decodes(self, sequences: list[Sequence]) -> None:
        request, kind, computed, tokens, cached = self._columns
        many = len(sequences)
        self.sequences += sequences
        self.emits += [True] * many
        request += [s.request.index for s in sequences]
        kind += [int(Kind.RUN)] * many
        computed += [s.committed - 1 for s in sequences]
        tokens += [1] * many
        cached += [0] * many
