"""SGLang's scheduler: prefill first, then decode; admission by estimate, retraction when it was wrong.

Read `_decide` first: one pass of SGLang's loop. Under overlap SGLang decides a step when the one before it
starts, so `schedule` hands out the decision made one step earlier and makes the next: requests that arrive
while a step runs are seen one step later, and a request that is retracted while a step of it is under way
loses that token. Neither needs anything of whoever drives it but the usual turns of `schedule` and
`complete`.
"""

from __future__ import annotations

import numpy as np

from tokenpath.core.errors import InputError, UsageError
from tokenpath.engine.scheduler import Decision, EngineRequest, Kind, KvElsewhere, Outcome
from tokenpath.engine.sglang.admission import PrefillPass, Verdict
from tokenpath.engine.sglang.cache import Cache
from tokenpath.engine.sglang.policy import QueuePolicy
from tokenpath.engine.sglang.ratio import NewTokenRatio
from tokenpath.engine.sglang.sequence import Batch, Sequence
from tokenpath.engine.sglang.settings import SglangSettings
from tokenpath.engine.sglang.step import NOTHING, Step


class SglangScheduler:
    """SGLang 0.5.23 on one device, without speculation, host cache tiers, LoRA or disaggregation."""

    def __init__(self, settings: SglangSettings) -> None:
        self._settings = settings
        self.cache = Cache(settings)
        self.policy = QueuePolicy(settings, self.cache)
        self.ratio = NewTokenRatio(settings)
        self.waiting: list[Sequence] = []
        self.running = Batch([])
        self._chunked: Sequence | None = None
        self._last: Batch | None = None
        """The batch of the last pass, if it had one."""
        self._under_way: Step | None = None
        """Handed out, result not known."""
        self._ahead: Step | None = None
        """Decided while the step under way runs."""
        self._preempted: list[int] = []
        self._aborted: list[int] = []
        self._unfinished = 0
        self._rows_held = 0
        self._decodes_to_go = 0
        self._queue_entries = 0
        self._idle_since_ns: int | None = None
        self._elsewhere: KvElsewhere | None = None

    def ask(self, elsewhere: KvElsewhere) -> None:
        """Ask of each request that is to be admitted what KV it has elsewhere."""
        self._elsewhere = elsewhere

    def add(self, request: EngineRequest) -> None:
        """Queue a request. InputError if SGLang would not let it emit `output_tokens`."""
        limit = self._output_limit(request.prompt_tokens)
        if request.output_tokens > limit:
            raise InputError(
                f"{request.prompt_tokens} prompt and {request.output_tokens} output tokens do not fit",
                where=f"request {request.index}",
                allowed=f"{max(limit, 0)} output tokens with this prompt (context_length "
                f"{self._settings.context_length}, max_total_tokens {self._settings.max_total_tokens})",
                next_step="shorten the request, or raise context_length or max_total_tokens",
            )
        if self._idle_since_ns is not None and request.arrival_ns > self._idle_since_ns:
            self.ratio.reset()
        self._idle_since_ns = None
        asked = max(request.output_tokens, min(self._settings.max_new_tokens or 0, limit))
        self._unfinished += 1
        self._queue(Sequence(request, asked, self.cache.tree.root))

    def _output_limit(self, prompt_tokens: int) -> int:
        s = self._settings
        capacity = self.cache.num_pages * s.page_size
        by_length = min(s.context_length, capacity) - prompt_tokens - 2
        paged = -(-prompt_tokens // s.page_size) * s.page_size
        # Trap: with fixed lengths and no tree SGLang admits only what leaves two tokens, but lets a request
        # ask for all but one; such a request would block the queue for ever.
        reserve = 2 if s.ignore_eos and s.disable_radix_cache else 1
        return min(by_length, capacity - paged - s.page_size - reserve)

    def schedule(self, now_ns: int) -> Decision:
        """The next step. With overlap it was decided when the one before it started."""
        if self._under_way is not None:
            raise UsageError("schedule before the step before it was completed")
        step, self._ahead = self._ahead, None
        # SGLang goes round without a batch: until decodes that do not come have been waited for, and once
        # more, as the first round may free what the next one takes.
        for _ in range(self._decodes_to_go + 2):
            step = step if step is not None else self._decide()
        if step is None:
            if self._unfinished == 0:
                self.ratio.reset()
                self._idle_since_ns = now_ns
            return NOTHING
        self._under_way = step
        if not self._settings.disable_overlap_schedule:
            self._ahead = self._decide()
        return step.decision

    def complete(self, decision: Decision, now_ns: int) -> Outcome:
        """Emit tokens, end requests, keep their prefixes in the tree."""
        step = self._under_way
        if step is None or step.decision is not decision:
            raise UsageError("complete for a step that is not under way")
        self._under_way = None
        emitted = np.zeros(len(step.sequences), np.int64)
        finished, self._aborted = self._aborted, []
        for i, sequence in enumerate(step.sequences):
            if sequence.finished or sequence.retracted or not step.emits[i]:
                continue
            sequence.num_outputs += 1
            emitted[i] = 1
            if sequence.num_outputs >= sequence.request.output_tokens:
                sequence.finished = True
                sequence.fill_len = sequence.num_tokens
                self._release(sequence, keep=True)
                self._unfinished -= 1
                finished.append(sequence.request.index)
            elif step.is_extend and sequence not in step.decoding:
                self._checkpoint(sequence)
        if self._unfinished == 0:
            self._idle_since_ns = now_ns
        return Outcome(emitted, np.array(finished, np.int64))

    @property
    def num_waiting(self) -> int:
        """Requests in the queue, retracted ones included."""
        return len(self.waiting)

    @property
    def num_running(self) -> int:
        """Requests admitted and not ended, as far as decided (with overlap: one step ahead)."""
        return self._unfinished - len(self.waiting)

    @property
    def num_free_blocks(self) -> int:
        """Pages that are free or would be after evicting all that no request holds."""
        return self.cache.free_pages + self.cache.tree.evictable_pages

    @property
    def num_usable_blocks(self) -> int:
        """Pages of the pool."""
        return self.cache.num_pages

    def _decide(self) -> Step | None:
        """One pass: end the bookkeeping of the last batch, then prefill if possible, else decode."""
        exclude: set[Sequence] = set()
        if self._chunked is not None:
            exclude.add(self._chunked)
            if self._chunked.extend_end > self._chunked.prefix_len:
                self._checkpoint(self._chunked)
        last = self._last
        if last is not None and last.is_extend:
            if last.chunked is not None:
                exclude.add(last.chunked)
            if last.keep(frozenset(exclude)):
                self.running.is_full = False
            if last.sequences and last is not self.running:
                if self.running.sequences:
                    self.running.sequences = self.running.sequences + last.sequences
                else:
                    self.running = last
        if self.running.keep():
            self.running.is_full = False
        step = None if self._prefill_waits() else self._prefill()
        if step is None:
            step = self._decode()
        self._last = step.batch if step is not None else None
        if step is not None and step.is_extend and self._settings.prefill_decode_interval:
            self._decodes_to_go = self._settings.prefill_decode_interval
        return step

    def _prefill_waits(self) -> bool:
        if self._decodes_to_go == 0:
            return False
        if len(self.running.sequences) < self._settings.prefill_decode_interval_min_bs:
            self._decodes_to_go = 0
            return False
        self._decodes_to_go -= 1
        return True

    def _prefill(self) -> Step | None:
        """A batch of prefills, with decodes beside them if mixed; None if none can start."""
        settings, running = self._settings, self.running
        preempts = settings.enable_priority_scheduling and not settings.disable_priority_preemption
        if preempts or not running.sequences:
            running.is_full = False
        if (running.is_full or not self.waiting) and self._chunked is None:
            return None
        if self._allocatable(0) <= 0 and self._chunked is None and not preempts:
            running.is_full = True
            return None
        self.policy.sort(self.waiting)
        mixed = settings.enable_mixed_chunk and settings.chunked_prefill_size is not None
        room = PrefillPass(
            settings,
            self.cache,
            running,
            self.ratio.current,
            len(running.sequences) if mixed else 0,
        )
        rows_of_admitted = 0
        if self._chunked is not None:
            self._chunked.fill_len = self._chunked.num_tokens
            if room.add_chunked(self._chunked):
                self._chunked = None
            rows_of_admitted = len(room.admitted)
        back_to_queue: list[Sequence] = []
        for sequence in self.waiting:
            if room.verdict() is Verdict.OTHER:
                break
            if len(room.admitted) >= self._allocatable(rows_of_admitted):
                running.is_full = True
            if running.is_full and not (
                preempts and self._preempt_for(sequence, room, back_to_queue)
            ):
                break
            sequence.fill_len = sequence.num_tokens
            self.cache.match(sequence, sequence.num_tokens - 1)
            if self._elsewhere is not None:
                sequence.external = self._loads(sequence, self._elsewhere)
            sequence.protected = sequence.prefix_len
            verdict = room.add(sequence)
            if verdict is not Verdict.CONTINUE:
                if verdict is Verdict.NO_TOKEN:
                    running.is_full = bool(room.admitted or running.sequences)
                break
        if room.admitted:
            admitted = frozenset(room.admitted)
            self.waiting = [s for s in self.waiting if s not in admitted]
        for sequence in back_to_queue:
            self._queue(sequence)
        if not room.admitted:
            return None
        if room.new_chunked is not None:
            self._chunked = room.new_chunked
        return self._prefill_step(room.admitted, mixed)

    def _loads(self, sequence: Sequence, elsewhere: KvElsewhere) -> int:
        is_first = sequence.kind is Kind.NEW
        until = elsewhere(sequence.request.index, sequence.prefix_len, is_first)
        return max(0, min(until, sequence.num_tokens - 1) - sequence.prefix_len)

    def _prefill_step(self, admitted: list[Sequence], mixed: bool) -> Step:
        self.cache.allocate_extend(admitted)
        for sequence in admitted:
            if not sequence.holds_row:
                sequence.holds_row = True
                self._rows_held += 1
            sequence.retracted = False
        batch = Batch(admitted, is_extend=True)
        batch.chunked = self._chunked
        step = Step.of_prefill(batch)
        if mixed and self.running.sequences:
            if self.running.keep(self._finishing(self.running)):
                self.running.is_full = False
            decoding = self.running.sequences
            if decoding and self.cache.decode_fits(decoding):
                self.cache.allocate_decode(decoding)
                for sequence in decoding:
                    sequence.fill_len = sequence.num_tokens
                    sequence.extend_end = sequence.committed
                step.add_decodes(decoding)
                was_full = self.running.is_full
                self.running = Batch([])
                self.running.is_full = was_full
        step.close(self._take_preempted())
        return step

    def _decode(self) -> Step | None:
        """One token for each running request; None if there is none, or if they wait for memory."""
        running = self.running
        if not running.sequences:
            return None
        before = len(running.sequences)
        finishing = self._finishing(running)
        running.keep(finishing)
        if not running.sequences:
            running.is_full = False
            return None
        if self.cache.decode_fits(running.sequences):
            self.ratio.decay_step()
        elif finishing:
            running.is_full = False  # their pages come back with the result under way
            return None
        else:
            self._retract()
        if len(running.sequences) < before:
            running.is_full = False
        if not running.sequences:
            return None
        self.cache.allocate_decode(running.sequences)
        running.is_extend = False
        step = Step.of_decode(running)
        step.close(self._take_preempted())
        return step

    def _finishing(self, batch: Batch) -> frozenset[Sequence]:
        """Those whose last token comes with the step under way (overlap only)."""
        if self._under_way is None:
            return frozenset()
        queued = self._under_way.sequences_set
        return frozenset(s for s in batch.sequences if s in queued and s.finishes_next())

    def _retract(self) -> None:
        """Send requests back to the queue until the rest can decode: the one that loses least first."""
        running = self.running
        kept = sorted(running.sequences, key=self._worth, reverse=True)
        retracted: list[Sequence] = []
        while len(kept) > 1 and (not retracted or not self.cache.decode_fits(kept)):
            victim = kept.pop()
            self._give_up(victim, len(kept))
            retracted.append(victim)
        if len(kept) == 1 and not self.cache.decode_fits(kept):
            last = kept.pop()
            self._give_up(last, 0)
            last.finished = True
            self._unfinished -= 1
            self._aborted.append(last.request.index)
        running.sequences = kept
        self.ratio.after_retraction(kept)
        for victim in retracted:
            self._preempted.append(victim.request.index)
            self._queue(victim)

    def _worth(self, sequence: Sequence) -> tuple[int, int, int]:
        """Rank of a running request when memory is short; the lowest is retracted first."""
        by_priority = self._settings.retraction_policy == "priority"
        first = -self.policy.priority(sequence) if by_priority else 0
        return (first, sequence.num_outputs, -sequence.request.prompt_tokens)

    def _preempt_for(
        self, sequence: Sequence, room: PrefillPass, back_to_queue: list[Sequence]
    ) -> bool:
        """Take running requests of worse priority out if that makes room for this one; whether it did."""
        rank = self.policy.priority
        victims: list[Sequence] = []
        new_tokens = sequence.fill_len - sequence.prefix_len
        clip = self._settings.clip_max_new_tokens_estimation
        missing = new_tokens + min(sequence.max_new_tokens, clip) - room.rem_total_tokens
        candidates = [s for s in self.running.sequences if not s.finished]
        for other in sorted(candidates, key=lambda s: (-rank(s), -s.queued_as)):
            difference = rank(other) - rank(sequence)
            if difference <= self._settings.priority_scheduling_preemption_threshold:
                break
            victims.append(other)
            missing -= room.expected_outputs(other)
            if missing <= 0:
                break
        if not victims or missing > 0:
            return False
        kept = [s for s in self.running.sequences if s not in victims]
        left = len(self.running.sequences)
        for victim in [s for s in self.running.sequences if s in victims]:
            room.total_offset -= room.expected_outputs(victim)
            left -= 1
            self._give_up(victim, left)
        self.running.sequences = kept
        back_to_queue.extend(victims)
        self._preempted.extend(s.request.index for s in victims)
        return True

    def _give_up(self, sequence: Sequence, num_left: int) -> None:
        """Free a running request's pages, keep nothing of it, and make room for those who stay."""
        self._release(sequence, keep=False)
        self.cache.evict_to_free(num_left * self._settings.retract_decode_steps)
        sequence.reset_for_retract()

    def _release(self, sequence: Sequence, *, keep: bool) -> None:
        self.cache.release(sequence, keep=keep)
        sequence.holds_row = False
        self._rows_held -= 1

    def _checkpoint(self, sequence: Sequence) -> None:
        """Share what a prefill has computed so far."""
        self.cache.checkpoint(sequence, min(sequence.extend_end, sequence.fill_len))
        sequence.prefix_len = sequence.extend_end

    def _queue(self, sequence: Sequence) -> None:
        sequence.queued_as = self._queue_entries
        self._queue_entries += 1
        self.waiting.append(sequence)

    def _allocatable(self, rows_of_admitted: int) -> int:
        """Requests that one more prefill batch may have."""
        limit = self._settings.max_running_requests
        return min(limit - len(self.running.sequences), limit - self._rows_held + rows_of_admitted)

    def _take_preempted(self) -> list[int]:
        preempted, self._preempted = self._preempted, []
        return preempted
