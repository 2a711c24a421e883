"""Compiled pieces of the fast scanner: codes for texts, numbers for pairs.

Open addressing; a hash chooses the slot, the bytes decide. Results are codes, or GROW when a table is
too full, after which the caller makes room and the event is read again.
"""

from __future__ import annotations

# mypy: ignore-errors
# numba finds the types; all of them are int64.
from tokenpath.ingest.kineto.compiled.machine import (
    compiled,
    load8,
    load32,
    load64,
    shift_right,
    store8,
    store32,
    store64,
)
from tokenpath.ingest.kineto.state import ENTRY_WORDS, GROW, S

_SLOTS, _SLOT_MASK, _ENTRIES, _ARENA = (
    8 * field for field in (S.SLOTS, S.SLOT_MASK, S.ENTRIES, S.ARENA)
)
_NUM_TEXTS, _MAX_TEXTS, _ARENA_USED, _MAX_ARENA, _SEED = (
    8 * field for field in (S.NUM_TEXTS, S.MAX_TEXTS, S.ARENA_USED, S.MAX_ARENA, S.SEED)
)
_PAIR_SLOTS, _PAIR_MASK, _PAIRS, _NUM_PAIRS, _MAX_PAIRS = (
    8 * field for field in (S.PAIR_SLOTS, S.PAIR_MASK, S.PAIRS, S.NUM_PAIRS, S.MAX_PAIRS)
)
_NEEDED, _ADOPT_END = 8 * S.NEEDED, 8 * S.ADOPT_END
_ENTRY_BYTES, _GROW = 8 * ENTRY_WORDS, GROW

# Odd constants with well mixed bits: the multipliers of splitmix64 (Steele, Lea, Flood 2014), signed.
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64


@compiled
def last_word(at, size):
    """The last `size` (below 8) bytes as a word. Seven bytes behind them are read, too."""
    return load64(at) & ((1 << (8 * size)) - 1)


@compiled
def mix(value):
    """Spread the bits of a word."""
    value = (value ^ shift_right(value, 30)) * _MIX_1
    value = (value ^ shift_right(value, 27)) * _MIX_2
    return value ^ shift_right(value, 31)


@compiled
def hash_bytes(at, size, seed):
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
def same_bytes(a, b, size):
    """Whether two runs of bytes are equal."""
    end = a + size
    while a + 8 <= end:
        if load64(a) != load64(b):
            return False
        a += 8
        b += 8
    return a >= end or last_word(a, end - a) == last_word(b, end - a)


@compiled
def code_of(state, at, size, tag):
    """The code of a text given as bytes and tag; a new one for a new text."""
    value = hash_bytes(at, size, load64(state + _SEED) + tag)
    slots, mask = load64(state + _SLOTS), load64(state + _SLOT_MASK)
    entries, arena = load64(state + _ENTRIES), load64(state + _ARENA)
    slot = value & mask
    while True:
        code = load32(slots + 4 * slot) - 1
        if code < 0:
            break
        entry = entries + _ENTRY_BYTES * code
        if (
            load64(entry) == value
            and load64(entry + 16) == size << 2 | tag
            and same_bytes(arena + load64(entry + 8), at, size)
        ):
            return code
        slot = (slot + 1) & mask
    code, start = load64(state + _NUM_TEXTS), load64(state + _ARENA_USED)
    if code >= load64(state + _MAX_TEXTS) or start + size > load64(state + _MAX_ARENA):
        store64(state + _NEEDED, size)
        return _GROW
    for i in range(size):
        store8(arena + start + i, load8(at + i))
    entry = entries + _ENTRY_BYTES * code
    store64(entry, value)
    store64(entry + 8, start)
    store64(entry + 16, size << 2 | tag)
    store32(slots + 4 * slot, code + 1)
    store64(state + _NUM_TEXTS, code + 1)
    store64(state + _ARENA_USED, start + size)
    return code


@compiled
def pair_of(state, pid, tid):
    """The number of a pair of text codes; a new one for a new pair."""
    key = pid << 32 | tid
    slots, mask = load64(state + _PAIR_SLOTS), load64(state + _PAIR_MASK)
    pairs = load64(state + _PAIRS)
    slot = mix(key) & mask
    while True:
        number = load32(slots + 4 * slot) - 1
        if number < 0:
            break
        if load64(pairs + 8 * number) == key:
            return number
        slot = (slot + 1) & mask
    number = load64(state + _NUM_PAIRS)
    if number >= load64(state + _MAX_PAIRS):
        return _GROW
    store64(pairs + 8 * number, key)
    store32(slots + 4 * slot, number + 1)
    store64(state + _NUM_PAIRS, number + 1)
    return number


@compiled
def adopt_texts(state, other, codes, first):
    """Give the texts of another state, up to ADOPT_END, codes in this one; how far that went."""
    entries, arena = load64(other + _ENTRIES), load64(other + _ARENA)
    end = load64(state + _ADOPT_END)
    for number in range(first, end):
        entry = entries + _ENTRY_BYTES * number
        size = load64(entry + 16)
        code = code_of(state, arena + load64(entry + 8), size >> 2, size & 3)
        if code < 0:
            return number
        store32(codes + 4 * number, code)
    return end


@compiled
def fill_slots(state, num_texts):
    """Enter the texts into an empty, larger table."""
    slots, mask = load64(state + _SLOTS), load64(state + _SLOT_MASK)
    entries = load64(state + _ENTRIES)
    for code in range(num_texts):
        slot = load64(entries + _ENTRY_BYTES * code) & mask
        while load32(slots + 4 * slot) != 0:
            slot = (slot + 1) & mask
        store32(slots + 4 * slot, code + 1)
    return 0


@compiled
def fill_pair_slots(state, num_pairs):
    """The same for pairs."""
    slots, mask = load64(state + _PAIR_SLOTS), load64(state + _PAIR_MASK)
    pairs = load64(state + _PAIRS)
    for number in range(num_pairs):
        slot = mix(load64(pairs + 8 * number)) & mask
        while load32(slots + 4 * slot) != 0:
            slot = (slot + 1) & mask
        store32(slots + 4 * slot, number + 1)
    return 0
