"""The block pool under every policy, held against a slow one; and what each policy is for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.vllm.slow_pool import BLOCK, SlowPool
from tokenpath.engine.config import EVICTIONS, EngineConfig
from tokenpath.engine.scheduler import EngineRequest
from tokenpath.engine.vllm import VllmScheduler
from tokenpath.engine.vllm import layout as at
from tokenpath.engine.vllm.pool import (
    find_hits,
    num_unreferenced,
    register_blocks,
    release_blocks,
    take_blocks,
    touch_hits,
)

NUM_BLOCKS = 13
TTL_NS = 5


def config_of(policy: str, num_blocks: int = NUM_BLOCKS) -> EngineConfig:
    return EngineConfig(
        num_blocks=num_blocks,
        block_size=BLOCK,
        max_num_seqs=64,
        max_num_batched_tokens=4096,
        max_model_len=4096,
        eviction=policy,
        eviction_ttl_ns=TTL_NS if policy == "ttl" else None,
        eviction_cost_tokens=7,
    )


class FastPool:
    """The scheduler's pool, driven block by block."""

    def __init__(self, policy: str) -> None:
        self.scheduler = VllmScheduler(config_of(policy), is_compiled=False)
        self.num_slots = 0

    def acquire(self, prompt: int, chain: int, registered: int) -> list[int] | None:
        index = int(self.scheduler._memory.state[at.NUM_REQUESTS])
        hashes = np.arange(registered) + 1000 * chain
        self.scheduler.add(
            EngineRequest(index, prompt, 1, hashes=hashes, hash_granule_tokens=BLOCK)
        )
        m = self.scheduler._memory
        slot = self.num_slots
        hits = min(find_hits(m, index, slot, prompt), registered)
        count = -(-prompt // BLOCK)
        if count - hits + num_unreferenced(m, slot, hits) > m.state[at.NUM_FREE]:
            return None
        m.requests[index, at.SLOT] = slot
        self.num_slots += 1
        touch_hits(m, index, hits)
        take_blocks(m, index, count - hits)
        register_blocks(m, index, registered * BLOCK)
        return self.scheduler.held_blocks(index).tolist()


OPERATION = st.tuples(
    st.integers(0, 3),  # 0, 1: acquire; 2: release one; 3: time passes
    st.integers(0, 2),  # chain
    st.integers(1, 5),  # blocks with content
    st.integers(0, 2),  # blocks without
)


@pytest.mark.parametrize("policy", EVICTIONS)
@settings(max_examples=60)
@given(operations=st.lists(OPERATION, min_size=1, max_size=50))
def test_the_pool_gives_the_blocks_that_a_slow_one_gives(policy, operations):
    fast = FastPool(policy)
    slow = SlowPool(NUM_BLOCKS, policy, TTL_NS, 7)
    held: list[tuple[int, list[int]]] = []
    for number, (what, chain, registered, more) in enumerate(operations):
        m = fast.scheduler._memory
        if what <= 1:
            prompt = (registered + more) * BLOCK + 1
            keys = [(chain, i) for i in range(registered)]
            blocks = slow.acquire(keys, registered + more + 1)
            assert fast.acquire(prompt, chain, registered) == blocks, number
            if blocks is not None:
                held.append((int(fast.scheduler._memory.state[at.NUM_REQUESTS]) - 1, blocks))
        elif what == 2 and held:
            index, blocks = held.pop(chain % len(held))
            release_blocks(m, index)
            slow.release(blocks)
        elif what == 3:
            slow.now_ns += registered
            m.state[at.NOW_NS] = slow.now_ns
        assert fast.scheduler.num_free_blocks == slow.num_free()


def hits_of(policy: str, order: list[tuple[int, int, int]]) -> list[int]:
    """Cached tokens of requests (content, blocks, time) that run one after another."""
    scheduler = VllmScheduler(config_of(policy), is_compiled=False)
    cached = []
    for index, (content, blocks, now_ns) in enumerate(order):
        hashes = np.arange(blocks) + 1000 * content
        scheduler.add(
            EngineRequest(index, blocks * BLOCK + 1, 1, hashes=hashes, hash_granule_tokens=BLOCK)
        )
        decision = scheduler.schedule(now_ns)
        scheduler.complete(decision, now_ns)
        cached.append(int(decision.num_cached.sum()))
    return cached


def test_lru_loses_what_was_used_longest_ago():
    # 12 blocks, each request needs one more than its content; the third takes four of the first, its
    # tail before its head.
    assert hits_of("lru", [(1, 5, 0), (2, 5, 0), (3, 5, 0), (2, 5, 0), (1, 5, 0)])[3:] == [20, 4]


def test_lfu_keeps_what_was_used_often():
    often = [(1, 4, 0)] * 3
    rest = [(2, 6, 0), (3, 6, 0), (4, 6, 0), (1, 4, 0)]
    assert hits_of("lfu", often + rest)[-1] == 16
    assert hits_of("lru", often + rest)[-1] == 0


def test_ttl_forgets_what_nobody_held_for_too_long():
    assert hits_of("ttl", [(1, 4, 0), (1, 4, 4), (1, 4, 9)]) == [0, 16, 0]


def test_cost_keeps_long_prefixes_before_short_ones():
    order = [(1, 8, 0), (2, 3, 0), (3, 3, 0), (4, 3, 0), (1, 8, 0)]
    assert hits_of("cost", order)[-1] > hits_of("lru", order)[-1]
