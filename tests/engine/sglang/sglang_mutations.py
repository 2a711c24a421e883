"""Each rule of SGLang's scheduler that recorded decisions can show, broken alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tokenpath.engine.sglang import admission, cache, policy, radix, ratio, scheduler, sequence
from tokenpath.engine.sglang.admission import Verdict

Patch = pytest.MonkeyPatch
Broken = Callable[[Patch], dict[str, Any] | None]

PrefillPass = admission.PrefillPass
Cache = cache.Cache
Scheduler = scheduler.SglangScheduler


def _decode_first(patch: Patch) -> None:
    patch.setattr(Scheduler, "_prefill_waits", lambda self: bool(self.running.sequences))


def _never_full(patch: Patch) -> None:
    patch.setattr(sequence.Batch, "is_full", property(lambda _: False, lambda *_: None))


def _try_all(patch: Patch) -> None:
    add = PrefillPass.add

    def goes_on(self: Any, s: Any) -> Verdict:
        verdict = add(self, s)
        return Verdict.CONTINUE if verdict is Verdict.NO_TOKEN else verdict

    patch.setattr(PrefillPass, "add", goes_on)


def _no_eviction_for_decode(patch: Patch) -> None:
    def fits(self: Any, sequences: list[Any]) -> bool:
        return self.free_pages >= sum(s.committed % self.page_size == 0 for s in sequences)

    patch.setattr(Cache, "decode_fits", fits)


def _order_stays(patch: Patch) -> None:
    retract = Scheduler._retract

    def and_sorted(self: Any) -> None:
        before = list(self.running.sequences)
        retract(self)
        self.running.sequences.sort(key=before.index)

    patch.setattr(Scheduler, "_retract", and_sorted)


def _retracted_to_the_head(patch: Patch) -> None:
    queue = Scheduler._queue

    def first(self: Any, s: Any) -> None:
        queue(self, s)
        if s.retracted:
            self.waiting.insert(0, self.waiting.pop())

    patch.setattr(Scheduler, "_queue", first)


def _retracted_token_counts(patch: Patch) -> None:
    patch.setattr(sequence.Sequence, "retracted", property(lambda _: False, lambda *_: None))


def _whole_prompt_matches(patch: Patch) -> None:
    match = Cache.match
    patch.setattr(Cache, "match", lambda self, s, limit=None: match(self, s))


def _no_insert_at_the_end(patch: Patch) -> None:
    release = Cache.release
    patch.setattr(Cache, "release", lambda self, s, *, keep: release(self, s, keep=False))


def _exact_margin(patch: Patch) -> None:
    allocate = Cache.allocate_extend

    def exactly(self: Any, sequences: list[Any]) -> None:
        evict = self.evict_to_free
        patch.setattr(self, "evict_to_free", lambda n: evict(n - len(sequences) * self.page_size))
        if self.page_size == 1:
            patch.setattr(self, "evict_to_free", evict)
        allocate(self, sequences)
        patch.setattr(self, "evict_to_free", evict)

    patch.setattr(Cache, "allocate_extend", exactly)


def _matches_do_not_count_as_use(patch: Patch) -> None:
    match = radix.RadixTree.match

    def untouched(self: Any, keys: Any) -> Any:
        before = {node: node.last_access for node in self.nodes()}
        found = match(self, keys)
        for node, at in before.items():
            node.last_access = at
        return found

    patch.setattr(radix.RadixTree, "match", untouched)


def _most_recent_first(patch: Patch) -> None:
    evict = radix.RadixTree.evict

    def reversed_rank(self: Any, pages: int) -> int:
        rank, self._rank = self._rank, lambda node: tuple(-part for part in rank(node))
        falls, self._rank_never_falls = self._rank_never_falls, False
        freed = evict(self, pages)
        self._rank, self._rank_never_falls = rank, falls
        self._rebuild_heap()
        return freed

    patch.setattr(radix.RadixTree, "evict", reversed_rank)


def _set(owner: Any, name: str, value: Any) -> Broken:
    return lambda patch: patch.setattr(owner, name, value)


def _with(**changed: Any) -> Broken:
    return lambda _: changed


BREAK: dict[str, Broken] = {
    "prefill_first": _decode_first,
    "mixed_chunk": _with(enable_mixed_chunk=False),
    "batch_full": _never_full,
    "head_blocks": _try_all,
    "max_running": _set(Scheduler, "_allocatable", lambda *_: 1 << 30),
    "admission_estimate": _set(PrefillPass, "expected_outputs", lambda *_: 0.0),
    "new_token_ratio": _set(ratio.NewTokenRatio, "decay_step", lambda _: None),
    "chunk": _with(chunked_prefill_size=None),
    "prompt_cap": _with(max_prefill_tokens=1 << 20),
    "decode_memory": _no_eviction_for_decode,
    "retraction_order": _set(Scheduler, "_worth", lambda _, s: -s.num_outputs),
    "retraction_order_of_rest": _order_stays,
    "retraction_to_the_tail": _retracted_to_the_head,
    "retraction_ratio": _set(ratio.NewTokenRatio, "after_retraction", lambda *_: None),
    "overlap": _retracted_token_counts,
    "overlap_last_token": _set(Scheduler, "_finishing", lambda *_: frozenset()),
    "match_limit": _whole_prompt_matches,
    "insert": _no_insert_at_the_end,
    "locks": _set(Cache, "hold", lambda *_: None),
    "evict_leaves": _most_recent_first,
    "evict_page_margin": _exact_margin,
    "recency": _matches_do_not_count_as_use,
    "waiting_refresh": _with(enable_waiting_prefix_refresh=False),
    "lpm": _set(policy.QueuePolicy, "_match", lambda *_: set()),
    "in_batch_prefix": _with(in_batch_prefix_caching_check_threshold=-1),
    "dfs_weight": _set(policy, "dfs_weight_order", lambda _, queue: queue),
}

SHOWN_BY = {
    "evict_page_margin": "fcfs",
    "in_batch_prefix": "lpm",
    "lpm": "lpm",
    "overlap": "overlap",
    "overlap_last_token": "overlap",
    "waiting_refresh": "overlap",
}
"""Part of the name of the file that shows a rule soonest, where it is not the first."""
