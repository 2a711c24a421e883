"""Compiled pieces of both scanners: where what was read goes.

Functions return a number from 0 on, or why not: DECLINED or FULL.
"""

from __future__ import annotations

# mypy: ignore-errors
# numba finds the types; all of them are int64.
from tokenpath.ingest.kineto.compiled.machine import (
    compiled,
    load8,
    load32,
    load64,
    store8,
    store32,
    store64,
)
from tokenpath.ingest.kineto.compiled.texts import hash_bytes, same_bytes
from tokenpath.ingest.otlp.batch import NO_TIME
from tokenpath.ingest.otlp.state import ENTRY_WORDS, ID_BYTES, NO_CODE, NUM_COLUMNS, C, S, Status

DECLINED, FULL = int(Status.DECLINED), int(Status.FULL)
_BASE, _SEED, _SLOTS, _SLOT_MASK = 8 * S.BASE, 8 * S.SEED, 8 * S.SLOTS, 8 * S.SLOT_MASK
_ENTRIES, _NUM_TEXTS, _MAX_TEXTS = 8 * S.ENTRIES, 8 * S.NUM_TEXTS, 8 * S.MAX_TEXTS
_SPANS, _NUM_SPANS, _MAX_SPANS = 8 * S.SPANS, 8 * S.NUM_SPANS, 8 * S.MAX_SPANS
_ATTRIBUTES, _NUM_ATTRIBUTES = 8 * S.ATTRIBUTES, 8 * S.NUM_ATTRIBUTES
_MAX_ATTRIBUTES = 8 * S.MAX_ATTRIBUTES
_REALS, _NUM_REALS, _MAX_REALS = 8 * S.REALS, 8 * S.NUM_REALS, 8 * S.MAX_REALS
_SCOPES, _NUM_SCOPES, _MAX_SCOPES = 8 * S.SCOPES, 8 * S.NUM_SCOPES, 8 * S.MAX_SCOPES
_OUT, _OUT_ENDS = 8 * S.OUT, 8 * S.OUT_ENDS
_NAME, _KIND, _STATUS, _SCOPE = 8 * C.NAME, 8 * C.KIND, 8 * C.STATUS, 8 * C.SCOPE
_START, _END, _ATTRIBUTES_END = 8 * C.START, 8 * C.END, 8 * C.ATTRIBUTES_END
_TRACE_END, _SPAN_END, _PARENT_END = 8 * C.TRACE_END, 8 * C.SPAN_END, 8 * C.PARENT_END
_ENTRY_BYTES, _ROW_BYTES, _ID_BYTES = 8 * ENTRY_WORDS, 8 * NUM_COLUMNS, ID_BYTES
_NO_CODE, _NO_TIME = NO_CODE, NO_TIME


@compiled
def code_of(state, at, size, tag, value):
    """The code of a text given as bytes and tag; a new one for a new text."""
    hashed = hash_bytes(at, size, load64(state + _SEED) + tag)
    slots, mask = load64(state + _SLOTS), load64(state + _SLOT_MASK)
    entries, base = load64(state + _ENTRIES), load64(state + _BASE)
    slot = hashed & mask
    while True:
        code = load32(slots + 4 * slot) - 1
        if code < 0:
            break
        entry = entries + _ENTRY_BYTES * code
        if (
            load64(entry) == hashed
            and load64(entry + 16) == size << 3 | tag
            and same_bytes(base + load64(entry + 8), at, size)
        ):
            return code
        slot = (slot + 1) & mask
    code = load64(state + _NUM_TEXTS)
    if code >= load64(state + _MAX_TEXTS):
        return FULL
    entry = entries + _ENTRY_BYTES * code
    store64(entry, hashed)
    store64(entry + 8, at - base)
    store64(entry + 16, size << 3 | tag)
    store64(entry + 24, value)
    store32(slots + 4 * slot, code + 1)
    store64(state + _NUM_TEXTS, code + 1)
    return code


@compiled
def id_begin(state, row, ends):
    """Where the id of a row begins among the ids."""
    return 0 if row == load64(state + _SPANS) else load64(row - _ROW_BYTES + ends)


@compiled
def start_span(state):
    """The address of a new row with nothing in it."""
    row_number = load64(state + _NUM_SPANS)
    if row_number >= load64(state + _MAX_SPANS):
        return FULL
    row = load64(state + _SPANS) + _ROW_BYTES * row_number
    for ends in (_TRACE_END, _SPAN_END, _PARENT_END):
        store64(row + ends, id_begin(state, row, ends))
    store64(row + _NAME, _NO_CODE)
    store64(row + _KIND, _NO_CODE)
    store64(row + _STATUS, _NO_CODE)
    store64(row + _SCOPE, load64(state + _NUM_SCOPES))
    store64(row + _START, _NO_TIME)
    store64(row + _END, _NO_TIME)
    return row


@compiled
def end_span(state, row):
    """The row is complete."""
    store64(row + _ATTRIBUTES_END, load64(state + _NUM_ATTRIBUTES))
    store64(state + _NUM_SPANS, load64(state + _NUM_SPANS) + 1)
    return 0


@compiled
def put_id(state, row, ends, ids, at, size):
    """Copy an id as it is; `ends` is its column, `ids` the word that says where such ids lie."""
    if size > _ID_BYTES:
        return DECLINED
    begin = id_begin(state, row, ends)
    out = load64(state + ids) + begin
    for i in range(0, size, 8):
        store64(out + i, load64(at + i))
    store64(row + ends, begin + size)
    return 0


@compiled
def put_hexadecimal(state, row, ends, ids, at, size):
    """The same for bytes, as hexadecimal digits."""
    if size > _ID_BYTES // 2:
        return DECLINED
    begin = id_begin(state, row, ends)
    out = load64(state + ids) + begin
    for i in range(size):
        byte = load8(at + i)
        high, low = byte >> 4, byte & 15
        store8(out + 2 * i, high + (48 if high < 10 else 87))
        store8(out + 2 * i + 1, low + (48 if low < 10 else 87))
    store64(row + ends, begin + 2 * size)
    return 0


@compiled
def add_attribute(state, key, value):
    """One more attribute of the row at hand, by the codes of key and value."""
    number = load64(state + _NUM_ATTRIBUTES)
    if number >= load64(state + _MAX_ATTRIBUTES):
        return FULL
    out = load64(state + _ATTRIBUTES) + 8 * number
    store32(out, key)
    store32(out + 4, value)
    store64(state + _NUM_ATTRIBUTES, number + 1)
    return 0


@compiled
def add_real(state, first, second):
    """A double that is likely to be the only one of its value; what stands for its code, plus 2**40."""
    number = load64(state + _NUM_REALS)
    if number >= load64(state + _MAX_REALS):
        return FULL
    out = load64(state + _REALS) + 16 * number
    store64(out, first)
    store64(out + 8, second)
    store64(state + _NUM_REALS, number + 1)
    return (1 << 40) - 2 - number


@compiled
def end_scope(state, scope, resource):
    """The spans since the last scope are of this one."""
    number = load64(state + _NUM_SCOPES)
    if number >= load64(state + _MAX_SCOPES):
        return FULL
    out = load64(state + _SCOPES) + 16 * number
    store64(out, scope)
    store64(out + 8, resource)
    store64(state + _NUM_SCOPES, number + 1)
    return 0


@compiled
def gather(state, places, num_places):
    """Copy texts one behind the other; up to seven bytes behind the last one are written, too."""
    base, out, ends = load64(state + _BASE), load64(state + _OUT), load64(state + _OUT_ENDS)
    done = 0
    for number in range(num_places):
        place = places + 16 * number
        at, size = base + load64(place), load64(place + 8)
        for i in range(0, size, 8):
            store64(out + done + i, load64(at + i))
        done += size
        store32(ends + 4 * number, done)
    return done
