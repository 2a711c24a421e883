"""Compiled pieces of the fast scanner: one event.

It reads what profilers write and gives up (FALLBACK) on all else, so that what it does accept is valid
JSON and means the same as in the slow scanner. It works on addresses (see `machine` and `state`).
"""

from __future__ import annotations

from tokenpath.ingest.kineto.columns import NULL, Col, Flag, Kind
from tokenpath.ingest.kineto.compiled.json import (
    ESCAPES,
    FALLBACK,
    MORE,
    skip_number,
    skip_space,
    skip_string,
    skip_value,
)
from tokenpath.ingest.kineto.compiled.machine import compiled, load8, load64, store64
from tokenpath.ingest.kineto.compiled.numbers import read_dim3, read_int, read_real, read_us
from tokenpath.ingest.kineto.compiled.texts import code_of, last_word, mix, pair_of, same_bytes
from tokenpath.ingest.kineto.state import (
    ENTRY_WORDS,
    GROW,
    KEY_ENTRY_BYTES,
    KEY_TEXT_BYTES,
    NUM_KEY_SLOTS,
    S,
    Tag,
)

# numba takes plain ints as constants, but not members of an enum.
_KEYS, _RANGE, _ENTRIES = 8 * S.KEYS, 8 * S.PROFILER_RANGE, 8 * S.ENTRIES
_ENTRY_BYTES = 8 * ENTRY_WORDS
_PLAIN, _ESCAPED, _JSON = int(Tag.PLAIN), int(Tag.ESCAPED), int(Tag.JSON)
_PHASE, _CATEGORY, _NAME, _PAIR = 8 * Col.PHASE, 8 * Col.CATEGORY, 8 * Col.NAME, 8 * Col.PAIR
_TS, _DUR, _FLAGS, _OFFSET, _ID = 8 * Col.TS, 8 * Col.DUR, 8 * Col.FLAGS, 8 * Col.OFFSET, 8 * Col.ID
_INT, _REAL, _JSON_KIND = int(Kind.INT), int(Kind.REAL), int(Kind.JSON)
_DIM3 = int(Kind.DIM3)
_SUB_NS = int(Flag.SUB_NS)
_NULL, _GROW = NULL, GROW
_ENTRY, _KEY_TEXT, _KEY_MASK = KEY_ENTRY_BYTES, KEY_TEXT_BYTES, NUM_KEY_SLOTS - 1
_MAX_ID = 32


def _word(key: str) -> int:
    """A key of up to 4 bytes with its length above them."""
    return int.from_bytes(key.encode(), "little") | len(key) << 40


_PH, _CAT, _NAM, _PID, _TID = (_word(key) for key in ("ph", "cat", "name", "pid", "tid"))
_TS_KEY, _DUR_KEY, _ARGS = (_word(key) for key in ("ts", "dur", "args"))
_ID_KEY, _ATTR = _word("id"), _word("attr")


@compiled
def read_text(state, at, limit, out):  # type: ignore[no-untyped-def]
    """A string as its code."""
    if at >= limit:
        return MORE
    if load8(at) != 34:
        return FALLBACK
    end = skip_string(at + 1, limit)
    if end < 0:
        return end
    tag = _ESCAPED if end & ESCAPES else _PLAIN
    end = end & ~ESCAPES
    code = code_of(state, at + 1, end - at - 1, tag)
    if code < 0:
        return _GROW
    store64(out, code)
    return end + 1


@compiled
def has_escapes(state, code):  # type: ignore[no-untyped-def]
    """Whether a text, given by its code, is kept with its escapes: it may equal another code's text."""
    if code < 0:
        return False
    return load64(load64(state + _ENTRIES) + _ENTRY_BYTES * code + 16) & 3 == _ESCAPED


@compiled
def read_json(state, at, limit, out):  # type: ignore[no-untyped-def]
    """A list as the code of its JSON, or a string."""
    if at < limit and load8(at) == 91:
        end = skip_value(at, limit)
        if end < 0:
            return end
        code = code_of(state, at, end - at, _JSON)
        if code < 0:
            return _GROW
        store64(out, code)
        return end
    return read_text(state, at, limit, out)


@compiled
def read_id(state, at, limit, out):  # type: ignore[no-untyped-def]
    """A process or thread id, number or string, as the code of its text."""
    if at >= limit:
        return MORE
    if load8(at) == 34:
        end = read_text(state, at, limit, out)
        return FALLBACK if end >= 0 and has_escapes(state, load64(out)) else end
    end = skip_number(at, limit)
    if end < 0:
        return end
    size = end - at
    if size > _MAX_ID or (load8(at) == 45 and load8(at + 1) == 48):
        return FALLBACK
    for place in range(at, end):
        if load8(place) == 46 or load8(place) | 32 == 101:
            return FALLBACK
    code = code_of(state, at, size, _PLAIN)
    if code < 0:
        return _GROW
    store64(out, code)
    return end


@compiled
def read_flow_id(at, limit, out):  # type: ignore[no-untyped-def]
    """The id of an arrow: an integer, bare or quoted."""
    if at < limit and load8(at) == 34:
        end = read_int(at + 1, limit, out)
        if end < 0:
            return end
        if load8(end) != 34 or load64(out) == _NULL:
            return FALLBACK
        return end + 1
    return read_int(at, limit, out)


@compiled
def find_key(keys, at, size):  # type: ignore[no-untyped-def]
    """Address of the entry of an argument that is kept, 0 for any other."""
    if size > _KEY_TEXT or size == 0:
        return 0
    word = load64(at) if size >= 8 else last_word(at, size)
    slot = mix(word ^ size) & _KEY_MASK
    while True:
        entry = keys + slot * _ENTRY
        held = load64(entry)
        if held == 0:
            return 0
        if held == size and same_bytes(at, entry + 24, size):
            return entry
        slot = (slot + 1) & _KEY_MASK


@compiled
def read_args(state, at, limit, row):  # type: ignore[no-untyped-def]
    """The arguments of an event, from behind the opening brace to behind the closing one."""
    keys = load64(state + _KEYS)
    at = skip_space(at, limit)
    if at < limit and load8(at) == 125:
        return at + 1
    while True:
        if at >= limit:
            return MORE
        if load8(at) != 34:
            return FALLBACK
        start = at + 1
        end = skip_string(start, limit)
        if end < 0 or end & ESCAPES:
            return end if end < 0 else FALLBACK
        at = skip_space(end + 1, limit)
        if at >= limit:
            return MORE
        if load8(at) != 58:
            return FALLBACK
        at = skip_space(at + 1, limit)
        entry = find_key(keys, start, end - start)
        if entry == 0:
            at = skip_value(at, limit)
        else:
            out = row + load64(entry + 8)
            kind = load64(entry + 16)
            # A second value for one column is for the slow scanner to decide.
            if load64(out) != _NULL:
                return FALLBACK
            if kind == _INT:
                at = read_int(at, limit, out)
            elif kind == _REAL:
                at = read_real(state, at, limit, out)
            elif kind == _DIM3:
                at = read_dim3(at, limit, out)
            elif kind == _JSON_KIND:
                at = read_json(state, at, limit, out)
            else:
                at = read_text(state, at, limit, out)
        if at < 0:
            return at
        at = skip_space(at, limit)
        if at >= limit:
            return MORE
        char = load8(at)
        if char == 125:
            return at + 1
        if char != 44:
            return FALLBACK
        at = skip_space(at + 1, limit)


@compiled
def read_time(at, limit, row, column):  # type: ignore[no-untyped-def]
    """`ts` or `dur` into its column; the flags gather whether digits were cut."""
    # PAIR is written last, so it can lend its place for the flag.
    scratch = row + _PAIR
    at = read_us(at, limit, row + column, scratch)
    if at >= 0:
        flags = load64(row + _FLAGS) | load64(scratch) * _SUB_NS
        store64(row + _FLAGS, flags)
    return at


@compiled
def read_event(state, at, limit, row):  # type: ignore[no-untyped-def]
    """One event from behind its opening brace into a row of NULLs; the address after it, or why not."""
    pid = tid = -1
    seen = 0
    at = skip_space(at, limit)
    while True:
        if at >= limit:
            return MORE
        if load8(at) != 34:
            return FALLBACK
        start = at + 1
        end = skip_string(start, limit)
        if end < 0 or end & ESCAPES:
            return end if end < 0 else FALLBACK
        size = end - start
        at = skip_space(end + 1, limit)
        if at >= limit:
            return MORE
        if load8(at) != 58:
            return FALLBACK
        at = skip_space(at + 1, limit)
        word = last_word(start, size) | size << 40 if size <= 4 else 0
        bit = 0
        if word == _TS_KEY:
            bit = 1
            at = read_time(at, limit, row, _TS)
        elif word == _DUR_KEY:
            bit = 2
            at = read_time(at, limit, row, _DUR)
        elif word == _NAM:
            bit = 4
            at = read_text(state, at, limit, row + _NAME)
        elif word == _PID:
            bit = 8
            at = read_id(state, at, limit, row + _PAIR)
            pid = load64(row + _PAIR)
        elif word == _TID:
            bit = 16
            at = read_id(state, at, limit, row + _PAIR)
            tid = load64(row + _PAIR)
        elif word == _CAT:
            bit = 32
            at = read_text(state, at, limit, row + _CATEGORY)
        elif word == _PH:
            bit = 64
            if at + 2 >= limit:
                return MORE
            char = load8(at + 1)
            if load8(at) != 34 or load8(at + 2) != 34 or char == 92 or char == 34 or char >= 128:
                return FALLBACK
            store64(row + _PHASE, char)
            at += 3
        elif word == _ARGS:
            bit = 128
            if at >= limit:
                return MORE
            if load8(at) != 123:
                return FALLBACK
            at = read_args(state, at + 1, limit, row)
        elif word == _ID_KEY:
            bit = 256
            at = read_flow_id(at, limit, row + _ID)
        elif word == _ATTR:
            return FALLBACK
        else:
            at = skip_value(at, limit)
        if at < 0:
            return at
        if seen & bit:
            return FALLBACK
        seen |= bit
        at = skip_space(at, limit)
        if at >= limit:
            return MORE
        char = load8(at)
        if char == 125:
            break
        if char != 44:
            return FALLBACK
        at = skip_space(at + 1, limit)
    # Events without phase, pid or tid, counters, and ranges of hardware counters are rare or odd.
    if seen & 88 != 88 or load64(row + _PHASE) == 67:
        return FALLBACK
    category = load64(row + _CATEGORY)
    if category == load64(state + _RANGE) or has_escapes(state, category):
        return FALLBACK
    # The names of other phases are compared with known ones, or with each other.
    if load64(row + _PHASE) != 88 and has_escapes(state, load64(row + _NAME)):
        return FALLBACK
    pair = pair_of(state, pid, tid)
    if pair < 0:
        return _GROW
    store64(row + _PAIR, pair)
    return at + 1
