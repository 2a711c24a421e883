"""Compiled pieces of the fast scanner: numbers.

Each returns the address after the value, MORE, FALLBACK or GROW; what it read is stored at `out`.
"""

from __future__ import annotations

# mypy: ignore-errors
# numba finds the types; all of them are int64.
import numba
from numba import types

from tokenpath.ingest.kineto.columns import NULL
from tokenpath.ingest.kineto.compiled.json import (
    FALLBACK,
    MORE,
    skip_digits,
    skip_number,
    skip_space,
    skip_word,
)
from tokenpath.ingest.kineto.compiled.machine import compiled, load8, load64, store64
from tokenpath.ingest.kineto.compiled.texts import code_of
from tokenpath.ingest.kineto.state import LONG_REAL

_LONG_REAL = LONG_REAL
_NULL = NULL
_MAX_DIGITS = 18
"""Fewer digits than 2**63 has."""
_MAX_WHOLE_DIGITS = 16
_MAX_WHOLE_US = (2**63 - 1) // 1000 - 1
"""So many whole microseconds and any fraction fit int64 nanoseconds."""
_MAX_EXACT_DIGITS = 15
"""Integers of so many digits are exact in float64, and so is the quotient's rounding
(W. D. Clinger, How to Read Floating Point Numbers Accurately, PLDI 1990, the short way)."""
_MAX_POWER = 22
"""10**22 is the largest power of ten that float64 holds exactly."""


@compiled
def digits_value(at, end):
    """The integer that a run of digits writes."""
    value = 0
    while at < end:
        value = value * 10 + (load8(at) - 48)
        at += 1
    return value


@compiled
def read_int(at, limit, out):
    """An integer of up to 18 digits, or null."""
    if at >= limit:
        return MORE
    if load8(at) == 110:
        store64(out, _NULL)
        return skip_word(at, limit)
    negative = load8(at) == 45
    first = at + 1 if negative else at
    end = skip_digits(first, limit)
    if end >= limit:
        return MORE
    size = end - first
    if size == 0 or size > _MAX_DIGITS or (size > 1 and load8(first) == 48):
        return FALLBACK
    after = load8(end)
    if after == 46 or after | 32 == 101:
        return FALLBACK
    value = digits_value(first, end)
    store64(out, -value if negative else value)
    return end


@compiled
def read_us(at, limit, out, out_flag):
    """Microseconds, bare or quoted, as nanoseconds rounded down; 1 at `out_flag` if digits were cut."""
    if at >= limit:
        return MORE
    quoted = load8(at) == 34
    if quoted:
        at += 1
        if at >= limit:
            return MORE
    negative = load8(at) == 45
    first = at + 1 if negative else at
    end = skip_digits(first, limit)
    if end >= limit:
        return MORE
    size = end - first
    if size == 0 or size > _MAX_WHOLE_DIGITS or (size > 1 and load8(first) == 48):
        return FALLBACK
    value = digits_value(first, end)
    if value > _MAX_WHOLE_US:
        return FALLBACK
    value *= 1000
    cut = 0
    if load8(end) == 46:
        first = end + 1
        end = skip_digits(first, limit)
        if end >= limit:
            return MORE
        if end == first:
            return FALLBACK
        scale = 100
        for place in range(first, min(end, first + 3)):
            value += (load8(place) - 48) * scale
            scale //= 10
        for place in range(first + 3, end):
            if load8(place) != 48:
                cut = 1
        if end - first > 300:
            return FALLBACK
    if load8(end) | 32 == 101 or (negative and cut == 1):
        return FALLBACK
    if quoted:
        if load8(end) != 34:
            return FALLBACK
        end += 1
    store64(out, -value if negative else value)
    store64(out_flag, cut)
    return end


@numba.extending.intrinsic
def bits_of(_typing, _value):
    """The bit pattern of a float64."""

    def codegen(_context, builder, _signature, args):
        from llvmlite import ir

        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@compiled
def read_real(state, at, limit, out):
    """A number as the bits of its float64; one of many digits as LONG_REAL with its text's code."""
    if at >= limit:
        return MORE
    if load8(at) == 110:
        store64(out, _NULL)
        return skip_word(at, limit)
    end = skip_number(at, limit)
    if end < 0:
        return end
    negative = load8(at) == 45
    first = at + 1 if negative else at
    whole_end = skip_digits(first, end)
    mantissa = digits_value(first, min(whole_end, first + _MAX_EXACT_DIGITS + 1))
    num_digits = whole_end - first
    power = 1.0
    at_end = whole_end
    if whole_end < end and load8(whole_end) == 46:
        at_end = skip_digits(whole_end + 1, end)
        num_digits += at_end - whole_end - 1
        if num_digits <= _MAX_EXACT_DIGITS:
            for place in range(whole_end + 1, at_end):
                mantissa = mantissa * 10 + (load8(place) - 48)
                power *= 10.0
    if at_end != end or num_digits > _MAX_EXACT_DIGITS:
        code = code_of(state, at, end - at, 0)
        if code < 0:
            return code
        store64(out, _LONG_REAL | code)
        return end
    if negative and mantissa == 0:
        return FALLBACK
    value = float(mantissa) / power
    store64(out, bits_of(-value if negative else value))
    return end


@compiled
def read_dim3(at, limit, out):
    """A list of three int32."""
    if at >= limit:
        return MORE
    if load8(at) != 91:
        return FALLBACK
    at += 1
    for axis in range(3):
        at = skip_space(at, limit)
        at = read_int(at, limit, out + 8 * axis)
        if at < 0:
            return at
        size = load64(out + 8 * axis)
        if size < -(2**31) or size >= 2**31:
            return FALLBACK
        at = skip_space(at, limit)
        if at >= limit:
            return MORE
        if load8(at) != (44 if axis < 2 else 93):
            return FALLBACK
        at += 1
    return at
