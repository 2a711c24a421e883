"""The one function of the scheduler that is compiled."""

from __future__ import annotations

from tokenpath.engine.vllm.complete import complete
from tokenpath.engine.vllm.layout import Int64s, Memory
from tokenpath.engine.vllm.queue import append_waiting
from tokenpath.engine.vllm.schedule import go_on, schedule

OP_ADD, OP_SCHEDULE, OP_COMPLETE, OP_GO_ON = 0, 1, 2, 3


def run(
    op: int,
    a: int,
    b: int,
    c: int,
    state: Int64s,
    requests: Int64s,
    hashes: Int64s,
    waiting: Int64s,
    blocks: Int64s,
    scores: Int64s,
    buckets: Int64s,
    table: Int64s,
    evictable: Int64s,
    lists: Int64s,
    batches: Int64s,
) -> int:
    """Do what `op` says: a request arrives, a step is decided, in one go or two, a step has run."""
    m = Memory(
        state, requests, hashes, waiting, blocks, scores, buckets, table, evictable, lists, batches
    )
    if op == OP_ADD:
        append_waiting(m, a)
        return 0
    if op == OP_SCHEDULE:
        return schedule(m, a, b)
    if op == OP_GO_ON:
        return go_on(m, b)
    return complete(m, a, b, c)
