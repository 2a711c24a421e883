"""Content keys of blocks, and the chains in which blocks of equal content wait to be found.

A key is (content, place): content is the caller's id of the prefix that the block completes, or the
request's own number where the content is nobody else's; place is twice the block's index, plus one where
the content is the request's own. Compared in full, so two prefixes never meet by a hash collision.
"""

from __future__ import annotations

from tokenpath.engine.vllm.layout import (
    BLOCK_SIZE,
    BUCKET_MASK,
    CHAIN_NEXT,
    CHAIN_PREV,
    CONTENT,
    GRANULE_TOKENS,
    HASH_START,
    HEAD,
    NUM_HASHES,
    PLACE,
    TAIL,
    Memory,
)


def granule_of(m: Memory, r: int, i: int) -> int:
    """Where in `hashes` the content of block `i` of a request stands; -1 if it is the request's own.

    It is the granule of the block's last token: an id stands for all tokens from the start to its end.
    """
    last = (i + 1) * m.state[BLOCK_SIZE] - 1
    granule = last // m.requests[r, GRANULE_TOKENS]
    if granule < m.requests[r, NUM_HASHES]:
        return m.requests[r, HASH_START] + granule
    return -1


def bucket_of(m: Memory, content: int, place: int) -> int:
    """Bucket of a key. Places that follow each other under one content fall into buckets side by side.

    No product leaves int64, so Python and machine code agree.
    """
    low = ((content ^ (content >> 32)) & 0x7FFFFFFF) ^ ((place & 1) * 0x2545F491)
    mixed = low * 0x9E3779B1
    mixed = ((mixed ^ (mixed >> 29)) & 0x7FFFFFFF) * 0xC2B2AE35
    return ((mixed >> 20) + (place >> 1)) & m.state[BUCKET_MASK]


def link_key(m: Memory, b: int, content: int, place: int) -> None:
    """Give a block its key; it goes behind all blocks of the same content."""
    m.blocks[b, CONTENT] = content
    m.blocks[b, PLACE] = place
    h = bucket_of(m, content, place)
    last = m.buckets[h, TAIL]
    m.blocks[b, CHAIN_PREV] = last
    m.blocks[b, CHAIN_NEXT] = 0
    if last == 0:
        m.buckets[h, HEAD] = b
    else:
        m.blocks[last, CHAIN_NEXT] = b
    m.buckets[h, TAIL] = b


def unlink_key(m: Memory, b: int) -> None:
    """Take a block's key away: its content is lost."""
    h = bucket_of(m, m.blocks[b, CONTENT], m.blocks[b, PLACE])
    before = m.blocks[b, CHAIN_PREV]
    after = m.blocks[b, CHAIN_NEXT]
    if before == 0:
        m.buckets[h, HEAD] = after
    else:
        m.blocks[before, CHAIN_NEXT] = after
    if after == 0:
        m.buckets[h, TAIL] = before
    else:
        m.blocks[after, CHAIN_PREV] = before
    m.blocks[b, PLACE] = -1


def oldest_owner(m: Memory, content: int, place: int) -> int:
    """The block that got this key first of those that still have it; 0 if there is none."""
    b = m.buckets[bucket_of(m, content, place), HEAD]
    while b != 0 and (m.blocks[b, CONTENT] != content or m.blocks[b, PLACE] != place):
        b = m.blocks[b, CHAIN_NEXT]
    return b
