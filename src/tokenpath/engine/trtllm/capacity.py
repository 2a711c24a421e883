"""First half of a decision: whose blocks fit, and who has to be paused."""

from __future__ import annotations

from tokenpath.engine.trtllm.blocks import BlockKey, BlockManager
from tokenpath.engine.trtllm.sequence import Sequence, State
from tokenpath.engine.trtllm.settings import TrtllmSettings


class CapacityScheduler:
    """Chooses among the active requests, in their order."""

    def __init__(self, settings: TrtllmSettings, blocks: BlockManager) -> None:
        self._settings = settings
        self._blocks = blocks

    def schedule(self, active: list[Sequence]) -> tuple[list[Sequence], list[Sequence]]:
        """Requests that fit, and requests to pause (`max_utilization` only)."""
        if self._settings.capacity_scheduler_policy == "max_utilization":
            return self._max_utilization(active)
        return self._no_evict(active), []

    def _no_evict(self, active: list[Sequence]) -> list[Sequence]:
        """Those that can run to their end without anybody being paused; generating ones first.

        `static_batch` starts nobody before all of a batch have left the generation phase.
        """
        limit = self._settings.max_batch_size
        static = self._settings.capacity_scheduler_policy == "static_batch"
        fitting: list[Sequence] = []
        pending: list[Sequence] = []
        available = self._blocks.num_free
        for sequence in active:
            if len(fitting) >= limit:
                break
            if sequence.is_generating:
                fitting.append(sequence)
                available -= sequence.most_blocks - len(sequence.blocks)
            else:
                pending.append(sequence)
        if static and fitting:
            return fitting
        wait = _Waiting(self._settings, self._blocks, [] if static else active)
        for sequence in pending:
            held, skipped = wait.look(sequence)
            if skipped and not static:
                continue
            if len(fitting) >= limit:
                break
            # What it will take until its end, without what it shares.
            needed = sequence.most_blocks - len(sequence.blocks) - held
            if needed > available:
                break
            fitting.append(sequence)
            available -= needed
        return fitting

    def _max_utilization(self, active: list[Sequence]) -> tuple[list[Sequence], list[Sequence]]:
        """As many as fit for the next step; where one does not, the last started one is paused."""
        fitting: list[Sequence] = []
        paused: list[Sequence] = []
        refs: dict[int, int] = {}  # of blocks that a pause would give back
        free = self._blocks.num_free
        scheduled_blocks = 0
        wait = _Waiting(self._settings, self._blocks, active)
        at, end = 0, len(active)
        while at < end:
            sequence = active[at]
            held, skipped = 0, False
            if sequence.state is State.CONTEXT:
                held, skipped = wait.look(sequence)
            if skipped:
                at += 1
                continue
            needed = scheduled_blocks + self._blocks_next_step(sequence, held)
            if len(fitting) < self._settings.max_batch_size and needed <= free:
                scheduled_blocks = needed
                fitting.append(sequence)
                at += 1
                continue
            last = next((i for i in range(end - 1, at - 1, -1) if active[i].is_started), None)
            if last is None:
                break
            for block in active[last].blocks:
                refs[block.number] = refs.get(block.number, block.refs) - 1
                free += refs[block.number] == 0
            paused.append(active[last])
            end = last
        return fitting, paused

    def _blocks_next_step(self, sequence: Sequence, held: int) -> int:
        blocks = self._blocks
        if sequence.state is State.CONTEXT:
            return 0 if sequence.blocks else blocks.blocks_for(sequence.prompt_len) - held
        steps = 2 if self._settings.two_step_lookahead else 1
        left = sequence.request.prompt_tokens + sequence.asked - sequence.kv_tokens
        return blocks.blocks_for(sequence.kv_tokens + min(steps, left)) - len(sequence.blocks)


class _Waiting:
    """Who had better wait, as an earlier request is about to compute the block that it lacks first."""

    def __init__(
        self, settings: TrtllmSettings, blocks: BlockManager, active: list[Sequence]
    ) -> None:
        self._reuse = settings.enable_block_reuse
        self._aware = settings.enable_prefix_aware_scheduling
        self._blocks = blocks
        self._coming: set[BlockKey] = set()
        """First missing blocks of the prefills under way or scheduled."""
        if self._reuse and self._aware:
            for sequence in active:
                if not sequence.is_generating and not sequence.is_first_chunk:
                    self._expect(blocks.cached(sequence)[2])

    def look(self, sequence: Sequence) -> tuple[int, bool]:
        """Cached blocks that others hold, and whether to wait. Notes the cached tokens for the budget."""
        if not sequence.is_first_chunk:
            return 0, False
        sequence.estimated_reusable = 0
        if not (self._reuse and self._aware):
            return 0, False
        found, held, missing = self._blocks.cached(sequence)
        if missing is not None and missing in self._coming:
            return held, True
        self._expect(missing)
        sequence.estimated_reusable = found * self._blocks.size
        return held, False

    def _expect(self, missing: BlockKey | None) -> None:
        if missing is not None:
            self._coming.add(missing)
