"""Compiled pieces of the fast scanner: codes for texts, numbers for pairs.

Open addressing; a hash chooses the slot, the bytes decide. Results are codes, or GROW when a table is
too full, after which the caller makes room and the event is read again.
"""

from __future__ import annotations

from tokenpath.ingest.kineto.machine import (
    load8,
    load32,
    load64,
    shift_right,
    store8,
    store32,
    store64,
)
from tokenpath.ingest.kineto.scan_json import GROW, compiled
from tokenpath.ingest.kineto.state import S

_SLOTS, _SLOT_MASK, _HASHES, _STARTS = int(S.SLOTS), int(S.SLOT_MASK), int(S.HASHES), int(S.STARTS)
_TAGS, _ARENA, _NUM_TEXTS = int(S.TAGS), int(S.ARENA), int(S.NUM_TEXTS)
_MAX_TEXTS, _MAX_ARENA, _SEED = int(S.MAX_TEXTS), int(S.MAX_ARENA), int(S.SEED)
_PAIR_SLOTS, _PAIR_MASK, _PAIRS = int(S.PAIR_SLOTS), int(S.PAIR_MASK), int(S.PAIRS)
_NUM_PAIRS, _MAX_PAIRS = int(S.NUM_PAIRS), int(S.MAX_PAIRS)

# Odd constants with well mixed bits: the multipliers of splitmix64 (Steele, Lea, Flood 2014), signed.
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64


@compiled
def last_word(at, size):  # type: ignore[no-untyped-def]
    """The last `size` (below 8) bytes as a word. Seven bytes behind them are read, too."""
    return load64(at) & ((1 << (8 * size)) - 1)


@compiled
def mix(value):  # type: ignore[no-untyped-def]
    """Spread the bits of a word."""
    value = (value ^ shift_right(value, 30)) * _MIX_1
    value = (value ^ shift_right(value, 27)) * _MIX_2
    return value ^ shift_right(value, 31)


@compiled
def hash_bytes(at, size, seed):  # type: ignore[no-untyped-def]
    """64 bits of hash; the seed differs from run to run, so that no file can aim at collisions."""
    value = seed ^ size
    end = at + size
    while at + 8 <= end:
        value = (value ^ load64(at)) * _MIX_1
        value ^= shift_right(value, 29)
        at += 8
    if at < end:
        value = (value ^ last_word(at, end - at)) * _MIX_1
    return mix(value)


@compiled
def same_bytes(a, b, size):  # type: ignore[no-untyped-def]
    """Whether two runs of bytes are equal."""
    end = a + size
    while a + 8 <= end:
        if load64(a) != load64(b):
            return False
        a += 8
        b += 8
    return a >= end or last_word(a, end - a) == last_word(b, end - a)


@compiled
def code_of(state, at, size, tag):  # type: ignore[no-untyped-def]
    """The code of a text given as bytes and tag; a new one for a new text."""
    value = hash_bytes(at, size, load64(state + 8 * _SEED) + tag)
    slots, mask = load64(state + 8 * _SLOTS), load64(state + 8 * _SLOT_MASK)
    hashes, starts = load64(state + 8 * _HASHES), load64(state + 8 * _STARTS)
    arena = load64(state + 8 * _ARENA)
    slot = value & mask
    while True:
        code = load32(slots + 4 * slot) - 1
        if code < 0:
            break
        if load64(hashes + 8 * code) == value:
            start = load64(starts + 8 * code)
            same_size = load64(starts + 8 * code + 8) - start == size
            same_tag = load8(load64(state + 8 * _TAGS) + code) == tag
            if same_size and same_tag and same_bytes(arena + start, at, size):
                return code
        slot = (slot + 1) & mask
    code = load64(state + 8 * _NUM_TEXTS)
    start = load64(starts + 8 * code)
    if code >= load64(state + 8 * _MAX_TEXTS) or start + size > load64(state + 8 * _MAX_ARENA):
        return GROW
    for i in range(size):
        store8(arena + start + i, load8(at + i))
    store64(hashes + 8 * code, value)
    store64(starts + 8 * code + 8, start + size)
    store8(load64(state + 8 * _TAGS) + code, tag)
    store32(slots + 4 * slot, code + 1)
    store64(state + 8 * _NUM_TEXTS, code + 1)
    return code


@compiled
def pair_of(state, pid, tid):  # type: ignore[no-untyped-def]
    """The number of a pair of text codes; a new one for a new pair."""
    key = pid << 32 | tid
    slots, mask = load64(state + 8 * _PAIR_SLOTS), load64(state + 8 * _PAIR_MASK)
    pairs = load64(state + 8 * _PAIRS)
    slot = mix(key) & mask
    while True:
        number = load32(slots + 4 * slot) - 1
        if number < 0:
            break
        if load64(pairs + 8 * number) == key:
            return number
        slot = (slot + 1) & mask
    number = load64(state + 8 * _NUM_PAIRS)
    if number >= load64(state + 8 * _MAX_PAIRS):
        return GROW
    store64(pairs + 8 * number, key)
    store32(slots + 4 * slot, number + 1)
    store64(state + 8 * _NUM_PAIRS, number + 1)
    return number


@compiled
def fill_slots(slots, mask, hashes, num_entries):  # type: ignore[no-untyped-def]
    """Enter codes 0 .. num_entries - 1 into an empty table by their hashes (a larger table, rehashed)."""
    for code in range(num_entries):
        slot = load64(hashes + 8 * code) & mask
        while load32(slots + 4 * slot) != 0:
            slot = (slot + 1) & mask
        store32(slots + 4 * slot, code + 1)


@compiled
def fill_pair_slots(slots, mask, pairs, num_pairs):  # type: ignore[no-untyped-def]
    """The same for pairs."""
    for number in range(num_pairs):
        slot = mix(load64(pairs + 8 * number)) & mask
        while load32(slots + 4 * slot) != 0:
            slot = (slot + 1) & mask
        store32(slots + 4 * slot, number + 1)
