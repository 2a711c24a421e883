"""Compiled pieces of the fast scanner: values that become codes.

Each returns the address after the value, MORE, FALLBACK or GROW; the code is stored at `out`.
"""

from __future__ import annotations

# mypy: ignore-errors
# numba finds the types; all of them are int64.
from tokenpath.ingest.kineto.columns import NULL
from tokenpath.ingest.kineto.compiled.json import (
    ESCAPES,
    FALLBACK,
    MORE,
    skip_number,
    skip_string,
    skip_value,
)
from tokenpath.ingest.kineto.compiled.machine import compiled, load8, load64, store8, store64
from tokenpath.ingest.kineto.compiled.numbers import read_int
from tokenpath.ingest.kineto.compiled.texts import code_of, same_bytes
from tokenpath.ingest.kineto.state import ENTRY_WORDS, GROW, STEP_VALUE_BYTES, S, Step, Tag

_PLAIN, _ESCAPED, _JSON = int(Tag.PLAIN), int(Tag.ESCAPED), int(Tag.JSON)
_NULL, _GROW = NULL, GROW
_MAX_ID = 32
_ENTRIES, _ENTRY_BYTES = 8 * S.ENTRIES, 8 * ENTRY_WORDS
_VALUE_SIZE, _CODE, _VALUE = int(Step.VALUE_SIZE), int(Step.CODE), int(Step.VALUE)
_MAX_VALUE = STEP_VALUE_BYTES


@compiled
def read_text(state, at, limit, out):
    """A string."""
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
def has_escapes(state, code):
    """Whether a text, given by its code, is kept with its escapes: it may equal another code's text."""
    if code < 0:
        return False
    return load64(load64(state + _ENTRIES) + _ENTRY_BYTES * code + 16) & 3 == _ESCAPED


@compiled
def read_json(state, at, limit, out):
    """A list, by its JSON, or a string."""
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
def read_id(state, at, limit, out):
    """A category, process or thread id: a string without escapes, or an integer by its digits."""
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
def read_repeated(state, at, limit, out, step):
    """The same, when it is likely to be what the step read last: one comparison then."""
    size = load8(step + _VALUE_SIZE)
    # The byte behind the value is compared, too: 12 is not 123.
    if size > 0 and at + size <= limit and same_bytes(at, step + _VALUE, size):
        store64(out, load64(step + _CODE))
        return at + size - 1
    end = read_id(state, at, limit, out)
    if end < 0:
        return end
    size = end - at + 1
    if size <= _MAX_VALUE and end < limit:
        for i in range(size):
            store8(step + _VALUE + i, load8(at + i))
        store64(step + _CODE, load64(out))
        store8(step + _VALUE_SIZE, size)
    return end


@compiled
def read_flow_id(at, limit, out):
    """The id of an arrow: an integer, bare or quoted."""
    if at < limit and load8(at) == 34:
        end = read_int(at + 1, limit, out)
        if end < 0:
            return end
        if load8(end) != 34 or load64(out) == _NULL:
            return FALLBACK
        return end + 1
    return read_int(at, limit, out)
