"""Compiled pieces of the JSON scanner: lines, objects, strings and numbers.

Each function returns the address after what it read, or a negative number: not what it knows.
"""

from __future__ import annotations

# mypy: ignore-errors
# numba finds the types; all of them are int64.
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tokenpath.ingest.kineto.compiled.json import ESCAPES, skip_digits, skip_space, skip_string
from tokenpath.ingest.kineto.compiled.machine import compiled, load8, lowest_bit, store64
from tokenpath.ingest.otlp.batch import NO_TIME
from tokenpath.ingest.otlp.compiled.sink import DECLINED
from tokenpath.ingest.otlp.state import S

_KEY, _KEY_SIZE = 8 * S.KEY, 8 * S.KEY_SIZE
_NO_TIME = NO_TIME
ENDED = 1 << 61
"""Added to the address that `next_value` returns when the object or list has ended."""
_MAX_TIME_DIGITS = 19
_NUM_AT_ONCE = 16


@intrinsic
def mask_control(_typing, _address):
    """Sixteen bytes at an address to a bit each: whether it is a control character."""

    def codegen(_context, builder, _signature, args):
        vector = ir.VectorType(ir.IntType(8), _NUM_AT_ONCE)
        data = builder.load(builder.inttoptr(args[0], vector.as_pointer()), align=1)
        below = builder.icmp_unsigned("<", data, ir.Constant(vector, [32] * _NUM_AT_ONCE))
        return builder.zext(builder.bitcast(below, ir.IntType(16)), ir.IntType(64))

    return types.int64(types.int64), codegen


@compiled
def line_end(at, stop):
    """Where the line ends. DECLINED for control characters, which no string may hold."""
    while at < stop:
        bits = mask_control(at)
        if bits == 0:
            at += 16
            continue
        at += lowest_bit(bits)
        if at >= stop:
            return stop
        char = load8(at)
        if char == 10:
            return at
        if char != 13 or (at + 1 < stop and load8(at + 1) != 10):
            return DECLINED
        at += 1
    return stop


@compiled
def plain_string(at, limit):
    """From a string's opening quote to its closing one; no escapes, or negative."""
    if at >= limit or load8(at) != 34:
        return DECLINED
    end = skip_string(at + 1, limit)
    return DECLINED if end < 0 or end & ESCAPES else end


@compiled
def next_value(state, at, limit, is_first):
    """From behind `{` or a value to the next value, whose key is noted; ENDED is added at `}`."""
    at = skip_space(at, limit)
    if at >= limit:
        return DECLINED
    if load8(at) == 125:
        return (at + 1) | ENDED
    if not is_first:
        if load8(at) != 44:
            return DECLINED
        at = skip_space(at + 1, limit)
    end = plain_string(at, limit)
    if end < 0:
        return DECLINED
    store64(state + _KEY, at + 1)
    store64(state + _KEY_SIZE, end - at - 1)
    at = skip_space(end + 1, limit)
    if at >= limit or load8(at) != 58:
        return DECLINED
    at = skip_space(at + 1, limit)
    return DECLINED if at >= limit else at


@compiled
def next_item(at, limit, is_first):
    """From behind `[` or an item to the next item; ENDED is added at `]`."""
    at = skip_space(at, limit)
    if at >= limit:
        return DECLINED
    if load8(at) == 93:
        return (at + 1) | ENDED
    if not is_first:
        if load8(at) != 44:
            return DECLINED
        at = skip_space(at + 1, limit)
    return DECLINED if at >= limit or load8(at) == 93 else at


@compiled
def open_bracket(at, limit, char):
    """Behind `{` or `[`."""
    return at + 1 if at < limit and load8(at) == char else DECLINED


@compiled
def is_other_spelling(at, size):
    """Whether a key may be a known one in the spelling of protobuf, which has `_`."""
    end = at + size
    while at < end and load8(at) != 95:
        at += 1
    return at < end


@compiled
def read_time(at, limit, out):
    """Nanoseconds, bare or quoted; what is no time of int64 is NO_TIME."""
    quoted = load8(at) == 34
    first = at + 1 if quoted else at
    end = skip_digits(first, limit)
    size = end - first
    if end >= limit or size == 0 or size > _MAX_TIME_DIGITS:
        return DECLINED
    if quoted:
        if load8(end) != 34:
            return DECLINED
    elif size > 1 and load8(first) == 48:
        return DECLINED
    value = 0
    for place in range(first, end):
        value = value * 10 + (load8(place) - 48)
    # Nineteen digits are below 2**64, so too large a value turns negative.
    store64(out, value if value > 0 else _NO_TIME)
    return end + 1 if quoted else end
