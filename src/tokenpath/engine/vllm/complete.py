"""What follows a step: tokens are emitted, requests end and free their blocks (`update_from_output`)."""

from __future__ import annotations

from tokenpath.engine.vllm.layout import (
    COMPUTED_BEFORE,
    EMITTED,
    FINISHED,
    FINISHED_LIST,
    IS_ASYNC,
    MAX_MODEL_LEN,
    NOW_NS,
    NUM_COMPUTED,
    NUM_FINISHED,
    NUM_IN_FLIGHT,
    NUM_OUTPUT,
    NUM_PLACEHOLDERS,
    NUM_RUNNING,
    NUM_STALE,
    OUTPUT_TOKENS,
    REQUEST,
    RUNNING,
    RUNNING_LIST,
    STATUS,
    TOKENS,
    Memory,
)
from tokenpath.engine.vllm.pool import register_blocks, release_blocks
from tokenpath.engine.vllm.queue import find_waiting, remove_waiting
from tokenpath.engine.vllm.schedule import give_back_slot, num_known_tokens


def complete(m: Memory, now_ns: int, which: int, count: int) -> int:
    """The step of `count` requests in `batches[which]` has run; number of requests that ended."""
    m.state[NOW_NS] = now_ns
    m.state[NUM_FINISHED] = 0
    for i in range(count):
        r = m.batches[which, i, REQUEST]
        n = m.batches[which, i, TOKENS]
        m.requests[r, NUM_IN_FLIGHT] -= n
        is_stale = m.requests[r, NUM_STALE] > 0
        if is_stale:
            m.requests[r, NUM_STALE] -= n
        emits = m.requests[r, STATUS] != FINISHED and m.batches[
            which, i, COMPUTED_BEFORE
        ] + n >= num_known_tokens(m, r)
        m.batches[which, i, EMITTED] = 1 if emits else 0
        if emits:
            emit_token(m, r, is_stale)
    if m.state[NUM_FINISHED] > 0:
        keep_running(m)
    return m.state[NUM_FINISHED]


def emit_token(m: Memory, r: int, is_stale: bool) -> None:
    """One token more; the request may end with it."""
    m.requests[r, NUM_OUTPUT] += 1
    if m.state[IS_ASYNC] == 1:
        if not is_stale:
            m.requests[r, NUM_PLACEHOLDERS] -= 1
        if m.requests[r, STATUS] == RUNNING:
            register_blocks(m, r, m.requests[r, NUM_COMPUTED] - m.requests[r, NUM_PLACEHOLDERS])
    if (
        m.requests[r, NUM_OUTPUT] >= m.requests[r, OUTPUT_TOKENS]
        or num_known_tokens(m, r) >= m.state[MAX_MODEL_LEN]
    ):
        finish(m, r)


def finish(m: Memory, r: int) -> None:
    """A request ends and gives up its blocks."""
    if m.requests[r, STATUS] == RUNNING:
        release_blocks(m, r)
        give_back_slot(m, r)
    else:
        remove_waiting(m, find_waiting(m, r))
    m.requests[r, STATUS] = FINISHED
    m.lists[FINISHED_LIST, m.state[NUM_FINISHED]] = r
    m.state[NUM_FINISHED] += 1


def keep_running(m: Memory) -> None:
    """Drop ended requests from the running list, its order kept."""
    kept = 0
    for i in range(m.state[NUM_RUNNING]):
        r = m.lists[RUNNING_LIST, i]
        if m.requests[r, STATUS] == RUNNING:
            m.lists[RUNNING_LIST, kept] = r
            kept += 1
    m.state[NUM_RUNNING] = kept
