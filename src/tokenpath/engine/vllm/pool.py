"""The block pool: which block is taken next, what a release leaves behind, what a prefix finds.

vLLM's order (v1/core/block_pool.py): free blocks are one queue, taken from the front. Blocks without
content go back to its front, blocks with content to its end, so content is lost least recently used first
and only when no empty block is left.
"""

from __future__ import annotations

from tokenpath.engine.vllm.eviction import (
    drop_evictable,
    is_expired,
    note_release,
    note_use,
    pop_evictable,
    push_evictable,
)
from tokenpath.engine.vllm.keys import granule_of, link_key, oldest_owner, unlink_key
from tokenpath.engine.vllm.layout import (
    BLOCK_SIZE,
    CHAIN_NEXT,
    CONTENT,
    COST,
    EVICTION,
    FREE_HEAD,
    FREE_NEXT,
    FREE_PREV,
    FREE_TAIL,
    IS_FREE_SPLIT,
    IS_PREFIX_CACHING,
    LFU,
    NUM_EVICTED,
    NUM_FREE,
    NUM_HELD,
    NUM_REGISTERED,
    PLACE,
    REF,
    SLOT,
    Memory,
)


def insert_free(m: Memory, b: int, after: int) -> None:
    """Put a block into the free queue behind `after`; 0 means at the front."""
    following = m.state[FREE_HEAD] if after == 0 else m.blocks[after, FREE_NEXT]
    m.blocks[b, FREE_PREV] = after
    m.blocks[b, FREE_NEXT] = following
    if after == 0:
        m.state[FREE_HEAD] = b
    else:
        m.blocks[after, FREE_NEXT] = b
    if following == 0:
        m.state[FREE_TAIL] = b
    else:
        m.blocks[following, FREE_PREV] = b


def remove_free(m: Memory, b: int) -> None:
    """Take a block out of the free queue, wherever it is."""
    before = m.blocks[b, FREE_PREV]
    after = m.blocks[b, FREE_NEXT]
    if before == 0:
        m.state[FREE_HEAD] = after
    else:
        m.blocks[before, FREE_NEXT] = after
    if after == 0:
        m.state[FREE_TAIL] = before
    else:
        m.blocks[after, FREE_PREV] = before


def is_scored(m: Memory) -> bool:
    """Whether free blocks with content are kept by score, not in the queue."""
    return m.state[EVICTION] == LFU or m.state[EVICTION] == COST


def take_block(m: Memory) -> int:
    """The next free block, its old content lost; the caller has seen that there is one."""
    b = m.state[FREE_HEAD]
    if b != 0:
        remove_free(m, b)
    else:
        b = pop_evictable(m)
    m.state[NUM_FREE] -= 1
    if m.blocks[b, PLACE] >= 0:
        unlink_key(m, b)
        m.state[NUM_EVICTED] += 1
    m.blocks[b, REF] = 1
    return b


def take_blocks(m: Memory, r: int, count: int) -> None:
    """Append free blocks to those that a request holds."""
    slot = m.requests[r, SLOT]
    held = m.requests[r, NUM_HELD]
    for i in range(held, held + count):
        m.table[slot, i] = take_block(m)
    m.requests[r, NUM_HELD] = held + count


def touch_hits(m: Memory, r: int, num_hits: int) -> None:
    """Hold the blocks that `find_hits` left in the request's row."""
    slot = m.requests[r, SLOT]
    for i in range(num_hits):
        b = m.table[slot, i]
        if m.blocks[b, REF] == 0:
            if is_scored(m):
                drop_evictable(m, b)
            else:
                remove_free(m, b)
            m.state[NUM_FREE] -= 1
        m.blocks[b, REF] += 1
        note_use(m, b)
    m.requests[r, NUM_HELD] = num_hits
    m.requests[r, NUM_REGISTERED] = num_hits


def release_blocks(m: Memory, r: int) -> None:
    """Give up all blocks of a request, the last one first, so that a prefix loses its tail first."""
    slot = m.requests[r, SLOT]
    held = m.requests[r, NUM_HELD]
    last_front = 0
    for i in range(held - 1, -1, -1):
        b = m.table[slot, i]
        m.blocks[b, REF] -= 1
        if m.blocks[b, REF] > 0:
            continue
        m.state[NUM_FREE] += 1
        if is_reused_first(m, b):
            insert_free(m, b, last_front)
            last_front = b
        else:
            note_release(m, b, i, held)
            if is_scored(m):
                push_evictable(m, b)
            else:
                insert_free(m, b, m.state[FREE_TAIL])
    m.requests[r, NUM_HELD] = 0
    m.requests[r, NUM_REGISTERED] = 0


def is_reused_first(m: Memory, b: int) -> bool:
    """Whether a freed block goes to the front of the queue: it has no content that could be found."""
    return m.state[IS_FREE_SPLIT] == 1 and m.blocks[b, PLACE] < 0


def register_blocks(m: Memory, r: int, num_tokens: int) -> None:
    """Make the full blocks of the first `num_tokens` tokens findable."""
    size = m.state[BLOCK_SIZE]
    registered = m.requests[r, NUM_REGISTERED]
    if m.state[IS_PREFIX_CACHING] == 0 or num_tokens < (registered + 1) * size:
        return
    slot = m.requests[r, SLOT]
    full = num_tokens // size
    for i in range(registered, full):
        at = granule_of(m, r, i)
        b = m.table[slot, i]
        if at >= 0:
            link_key(m, b, m.hashes[at], 2 * i)
        else:
            link_key(m, b, r, 2 * i + 1)
        note_use(m, b)
    m.requests[r, NUM_REGISTERED] = full


def find_hits(m: Memory, r: int, slot: int, num_tokens: int) -> int:
    """Number of leading blocks whose content is there; the blocks go to row `slot` of the table.

    At most all blocks before the last token, which has to be computed to get an output.
    """
    if m.state[IS_PREFIX_CACHING] == 0:
        return 0
    for i in range((num_tokens - 1) // m.state[BLOCK_SIZE]):
        at = granule_of(m, r, i)
        content = m.hashes[at] if at >= 0 else r
        place = 2 * i if at >= 0 else 2 * i + 1
        b = oldest_owner(m, content, place)
        while b != 0 and is_expired(m, b):
            b = next_owner(m, b, content, place)
        if b == 0:
            return i
        m.table[slot, i] = b
    return (num_tokens - 1) // m.state[BLOCK_SIZE]


def next_owner(m: Memory, b: int, content: int, place: int) -> int:
    """The next block with the same key."""
    b = m.blocks[b, CHAIN_NEXT]
    while b != 0 and (m.blocks[b, CONTENT] != content or m.blocks[b, PLACE] != place):
        b = m.blocks[b, CHAIN_NEXT]
    return b


def num_unreferenced(m: Memory, slot: int, num_hits: int) -> int:
    """Hit blocks that nobody holds: they are free blocks, and holding them takes them from the free ones."""
    count = 0
    for i in range(num_hits):
        if m.blocks[m.table[slot, i], REF] == 0:
            count += 1
    return count
