"""Each rule of the scheduler, broken alone: what the replays of real runs must notice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tokenpath.engine.vllm import VllmScheduler, complete, entry, keys, pool, schedule
from tokenpath.engine.vllm import layout as at
from tokenpath.engine.vllm.layout import Memory
from tokenpath.engine.vllm.queue import append_waiting

Break = Callable[[pytest.MonkeyPatch, VllmScheduler], None]


def _set(field: int, value: int) -> Break:
    """Another setting than the run had."""

    def apply(_: pytest.MonkeyPatch, scheduler: VllmScheduler) -> None:
        scheduler._memory.state[field] = value

    return apply


def _replace(module: object, name: str, function: Callable[..., object]) -> Break:
    """Another function in one module."""
    return lambda patch, _: patch.setattr(module, name, function)


def _release_forwards(patch: pytest.MonkeyPatch, _: VllmScheduler) -> None:
    original = pool.release_blocks

    def release(m: Memory, r: int) -> None:
        row, held = m.requests[r, at.SLOT], m.requests[r, at.NUM_HELD]
        m.table[row, :held] = m.table[row, :held][::-1].copy()
        original(m, r)

    patch.setattr(schedule, "release_blocks", release)
    patch.setattr(complete, "release_blocks", release)


def _null_block_usable(_: pytest.MonkeyPatch, scheduler: VllmScheduler) -> None:
    scheduler._memory.state[at.NUM_FREE] += 1


def _no_lookup_when_resumed(m: Memory, r: int, slot: int, num_tokens: int) -> int:
    if m.requests[r, at.NUM_PREEMPTIONS] > 0:
        return 0
    return pool.find_hits(m, r, slot, num_tokens)


def _register_prompt_only(m: Memory, r: int, num_tokens: int) -> None:
    pool.register_blocks(m, r, min(num_tokens, m.requests[r, at.PROMPT_TOKENS]))


def _register_when_the_step_ends(patch: pytest.MonkeyPatch, _: VllmScheduler) -> None:
    original = entry.complete

    def complete_and_register(m: Memory, now_ns: int, which: int, count: int) -> int:
        for i in range(count):
            r = m.batches[which, i, at.REQUEST]
            upto = m.batches[which, i, at.COMPUTED_BEFORE] + m.batches[which, i, at.TOKENS]
            pool.register_blocks(m, r, min(upto, schedule.num_known_tokens(m, r)))
        return original(m, now_ns, which, count)

    patch.setattr(schedule, "register_blocks", lambda *_: None)
    patch.setattr(entry, "complete", complete_and_register)


def _unreferenced_hits_free_at_admission(patch: pytest.MonkeyPatch, _: VllmScheduler) -> None:
    """Left out of the whole-sequence check only; from both, blocks would be taken that are not there."""
    original = schedule.allocate_admitted

    def allocate(m: Memory, r: int, slot: int, num_hits: int, n: int) -> bool:
        whole = -(-schedule.num_known_tokens(m, r) // m.state[at.BLOCK_SIZE]) - num_hits
        if whole > m.state[at.NUM_FREE]:
            return False
        is_reserved = m.state[at.IS_FULL_ISL_RESERVED]
        m.state[at.IS_FULL_ISL_RESERVED] = 0
        is_admitted = original(m, r, slot, num_hits, n)
        m.state[at.IS_FULL_ISL_RESERVED] = is_reserved
        return is_admitted

    patch.setattr(schedule, "allocate_admitted", allocate)


def _finish_backwards(patch: pytest.MonkeyPatch, _: VllmScheduler) -> None:
    """Requests that end in one step give up their blocks in the opposite order."""
    ended: list[tuple[Memory, int]] = []
    original, run = complete.finish, entry.complete

    def complete_and_finish(m: Memory, now_ns: int, which: int, count: int) -> int:
        ended.clear()
        run(m, now_ns, which, count)
        for memory, r in reversed(ended):
            original(memory, r)
        complete.keep_running(m)
        return int(m.state[at.NUM_FINISHED])

    patch.setattr(complete, "finish", lambda m, r: ended.append((m, r)))
    patch.setattr(entry, "complete", complete_and_finish)


def _youngest_owner(m: Memory, content: int, place: int) -> int:
    found = 0
    b = keys.oldest_owner(m, content, place)
    while b != 0:
        found = b
        b = pool.next_owner(m, b, content, place)
    return found


def _hit_every_token(m: Memory, r: int, slot: int, num_tokens: int) -> int:
    return pool.find_hits(m, r, slot, num_tokens + 1)


def _admit_after_preemption(patch: pytest.MonkeyPatch, _: VllmScheduler) -> None:
    original = schedule.schedule_running

    def schedule_and_admit(m: Memory, which: int, threshold: int, budget: int) -> int:
        left = original(m, which, threshold, budget)
        if m.state[at.NUM_PREEMPTED] > 0:
            schedule.admit_waiting(m, which, threshold, left, 0)
        return left

    patch.setattr(schedule, "schedule_running", schedule_and_admit)


def _no_model_length(patch: pytest.MonkeyPatch, scheduler: VllmScheduler) -> None:
    state = scheduler._memory.state
    state[at.MAX_MODEL_LEN] += 1


def _placeholders_survive(patch: pytest.MonkeyPatch, _: VllmScheduler) -> None:
    original = schedule.preempt

    def preempt(m: Memory, r: int) -> None:
        original(m, r)
        m.requests[r, at.NUM_STALE] = 0

    patch.setattr(schedule, "preempt", preempt)


def _register_placeholders(patch: pytest.MonkeyPatch, _: VllmScheduler) -> None:
    patch.setattr(complete, "register_blocks", lambda *_: None)


def _reserve_prompt_only(patch: pytest.MonkeyPatch, _: VllmScheduler) -> None:
    original = schedule.allocate_admitted

    def allocate(m: Memory, r: int, slot: int, num_hits: int, n: int) -> bool:
        whole = -(-m.requests[r, at.PROMPT_TOKENS] // m.state[at.BLOCK_SIZE]) - num_hits
        reserve = schedule.num_unreferenced(m, slot, num_hits)
        if m.state[at.NUM_RUNNING] > 0:
            reserve += m.state[at.WATERMARK_BLOCKS]
        is_reserved = m.state[at.IS_FULL_ISL_RESERVED]
        if is_reserved and whole + reserve > m.state[at.NUM_FREE]:
            return False
        m.state[at.IS_FULL_ISL_RESERVED] = 0
        is_admitted = original(m, r, slot, num_hits, n)
        m.state[at.IS_FULL_ISL_RESERVED] = is_reserved
        return is_admitted

    patch.setattr(schedule, "allocate_admitted", allocate)


def _cap_without_fair_share(m: Memory) -> int:
    eligible = m.state[at.NUM_RUNNING] + m.state[at.NUM_WAITING]
    return m.state[at.LONG_PREFILL_TOKEN_THRESHOLD] if eligible > 1 else 0


def _active_as_seqs(_: pytest.MonkeyPatch, scheduler: VllmScheduler) -> None:
    state = scheduler._memory.state
    state[at.MAX_NUM_ACTIVE_SEQS] = state[at.MAX_NUM_SEQS]


def _watermark_always(patch: pytest.MonkeyPatch, _: VllmScheduler) -> None:
    original = schedule.num_unreferenced

    def with_watermark(m: Memory, slot: int, num_hits: int) -> int:
        alone = m.state[at.NUM_RUNNING] == 0
        return original(m, slot, num_hits) + (m.state[at.WATERMARK_BLOCKS] if alone else 0)

    patch.setattr(schedule, "num_unreferenced", with_watermark)


ON_RECORDED_RUNS: dict[str, tuple[str, Break]] = {
    "whole_sequence_admission": ("p40", _set(at.IS_FULL_ISL_RESERVED, 0)),
    "cached_blocks_to_the_end": ("p40", _replace(pool, "is_reused_first", lambda *_: True)),
    "empty_blocks_to_the_front": ("p40", _set(at.IS_FREE_SPLIT, 0)),
    "release_tail_first": ("p40", _release_forwards),
    "null_block": ("p40", _null_block_usable),
    "preempted_to_the_front": ("p40", _replace(schedule, "prepend_waiting", append_waiting)),
    "last_running_is_preempted": ("p40", _replace(schedule, "victim_of", lambda _: 0)),
    "resumed_looks_up_prefix": ("p40", _replace(schedule, "find_hits", _no_lookup_when_resumed)),
    "output_is_cached": ("p40", _replace(schedule, "register_blocks", _register_prompt_only)),
    "cached_when_scheduled": ("p40", _register_when_the_step_ends),
    "unreferenced_hits_are_free_blocks": ("s25", _unreferenced_hits_free_at_admission),
    "shared_prefix": ("p40", _replace(pool, "granule_of", lambda *_: -1)),
    "cut_to_the_budget": ("p40", _set(at.IS_CHUNKED_PREFILL, 0)),
}
"""By rule: the recorded run that shows it, and how it is broken."""

ON_UPSTREAM_RUNS: dict[str, Break] = {
    "hit_all_but_the_last_token": _replace(schedule, "find_hits", _hit_every_token),
    "no_admission_after_preemption": _admit_after_preemption,
    "oldest_owner": _replace(pool, "oldest_owner", _youngest_owner),
    "release_in_order_of_the_step": _finish_backwards,
    "whole_sequence_counts_output": _reserve_prompt_only,
    "watermark": _set(at.WATERMARK_BLOCKS, 0),
    "watermark_while_others_run": _watermark_always,
    "long_prefill_threshold": _set(at.LONG_PREFILL_TOKEN_THRESHOLD, 0),
    "long_prefill_alone": _set(at.IS_LONG_PREFILL_ALONE_UNCAPPED, 0),
    "long_prefill_adaptive": _replace(schedule, "prefill_cap", _cap_without_fair_share),
    "unchunked_ends_admission": _set(at.IS_UNCHUNKED_SKIPPED, 1),
    "max_num_active_seqs": _active_as_seqs,
    "max_model_len": _no_model_length,
    "priority_order": _set(at.IS_PRIORITY, 0),
    "priority_victim": _replace(schedule, "victim_of", lambda m: m.state[at.NUM_RUNNING] - 1),
    "priority_self_preemption_ends_step": _set(at.IS_SELF_PREEMPTION_PASSED, 1),
    "async_placeholders": _set(at.IS_ASYNC, 0),
    "async_last_token_guard": _set(at.IS_ASYNC_GUARDED, 0),
    "async_stale_output": _placeholders_survive,
    "async_cached_with_output": _register_placeholders,
    "caching_off": _set(at.IS_PREFIX_CACHING, 1),
}
"""By rule: how it is broken for runs of the upstream scheduler on random workloads."""
