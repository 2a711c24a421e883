"""Which cached content is lost first, where it is not the least recently used (vLLM's only policy).

* LFU: the content used least often, by requests that computed or hit it; the least recently freed of those.
* TTL: least recently used; content that nobody held for `ttl_ns` is not found any more.
* COST: the lowest `clock + uses x cost`, where cost is the work that its next user would have again: this
  block and all after it of the request that last held it (each token: `cost_tokens` plus the tokens it
  attends to); clock is the score of the last one lost, so that old favourites age
  (GreedyDual-Size-Frequency; Cherkasova 1998, HP Labs report HPL-98-69).
"""

from __future__ import annotations

from tokenpath.engine.vllm.layout import (
    BLOCK_SIZE,
    COST,
    COST_TOKENS,
    EVICTION,
    EVICTION_CLOCK,
    HEAP_PLACE,
    LFU,
    LRU,
    NOW_NS,
    NUM_EVICTABLE,
    REF,
    RELEASED_NS,
    RELEASES,
    SCORE,
    SCORE_ORDER,
    TTL,
    TTL_NS,
    USES,
    Memory,
)


def note_use(m: Memory, b: int) -> None:
    """A request computed this content, or hit it."""
    if m.state[EVICTION] != LRU:
        m.scores[b, USES] += 1


def note_release(m: Memory, b: int, i: int, held: int) -> None:
    """Nobody holds block `b` any more, block `i` of `held` of the request that did last."""
    if m.state[EVICTION] == LRU:
        return
    m.blocks[b, RELEASED_NS] = m.state[NOW_NS]
    m.state[RELEASES] += 1
    m.scores[b, SCORE_ORDER] = m.state[RELEASES]
    if m.state[EVICTION] == LFU:
        m.scores[b, SCORE] = m.scores[b, USES]
    elif m.state[EVICTION] == COST:
        first = i * m.state[BLOCK_SIZE]
        last = held * m.state[BLOCK_SIZE]
        cost = (last - first) * m.state[COST_TOKENS] + (last * last - first * first) // 2
        m.scores[b, SCORE] = m.state[EVICTION_CLOCK] + m.scores[b, USES] * cost


def is_expired(m: Memory, b: int) -> bool:
    """Whether nobody has held this content for too long."""
    if m.state[EVICTION] != TTL or m.blocks[b, REF] > 0:
        return False
    return m.state[NOW_NS] - m.blocks[b, RELEASED_NS] >= m.state[TTL_NS]


def is_lost_before(m: Memory, a: int, b: int) -> bool:
    """Whether block `a` is lost before block `b`."""
    if m.scores[a, SCORE] != m.scores[b, SCORE]:
        return m.scores[a, SCORE] < m.scores[b, SCORE]
    return m.scores[a, SCORE_ORDER] < m.scores[b, SCORE_ORDER]


def place_evictable(m: Memory, at: int, b: int) -> None:
    """Put a block at a place of the heap."""
    m.evictable[at] = b
    m.scores[b, HEAP_PLACE] = at


def raise_evictable(m: Memory, at: int) -> None:
    """Move the block at a place of the heap towards its top, as far as it belongs."""
    b = m.evictable[at]
    while at > 0:
        parent = (at - 1) // 2
        if not is_lost_before(m, b, m.evictable[parent]):
            break
        place_evictable(m, at, m.evictable[parent])
        at = parent
    place_evictable(m, at, b)


def sink_evictable(m: Memory, at: int) -> None:
    """Move the block at a place of the heap away from its top, as far as it belongs."""
    b = m.evictable[at]
    count = m.state[NUM_EVICTABLE]
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and is_lost_before(m, m.evictable[child + 1], m.evictable[child]):
            child += 1
        if not is_lost_before(m, m.evictable[child], b):
            break
        place_evictable(m, at, m.evictable[child])
        at = child
    place_evictable(m, at, b)


def push_evictable(m: Memory, b: int) -> None:
    """A block with content became free."""
    at = m.state[NUM_EVICTABLE]
    m.state[NUM_EVICTABLE] = at + 1
    m.evictable[at] = b
    raise_evictable(m, at)


def drop_evictable(m: Memory, b: int) -> None:
    """A free block with content is held again."""
    at = m.scores[b, HEAP_PLACE]
    last = m.state[NUM_EVICTABLE] - 1
    m.state[NUM_EVICTABLE] = last
    if at == last:
        return
    moved = m.evictable[last]
    place_evictable(m, at, moved)
    raise_evictable(m, at)
    sink_evictable(m, m.scores[moved, HEAP_PLACE])


def pop_evictable(m: Memory) -> int:
    """The free block whose content is lost now."""
    b = m.evictable[0]
    drop_evictable(m, b)
    m.state[EVICTION_CLOCK] = m.scores[b, SCORE] if m.state[EVICTION] == COST else 0
    m.scores[b, USES] = 0
    return b
