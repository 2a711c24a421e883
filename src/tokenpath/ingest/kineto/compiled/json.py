"""Compiled pieces of the fast scanner: skipping JSON.

Each function takes the address to start at and the limit (the first address that may not be read as
text), and returns the address after what it skipped, MORE when the bytes end first, or FALLBACK when
they are not what it knows. What is skipped is checked as strictly as the standard decoder would.
"""

from __future__ import annotations

# mypy: ignore-errors
# numba finds the types; all of them are int64.
from tokenpath.ingest.kineto.compiled.machine import (
    compiled,
    load8,
    load32,
    lowest_bit,
    mask_not_space,
    mask_string_end,
    shift_right,
)

MORE, FALLBACK = -1, -2
MAX_INNER_DEPTH = 60
"""Below MAX_DEPTH of the slow scanner by more than what encloses a skipped value."""
MAX_NUMBER = 400
"""Longer numbers are left to the slow scanner."""

ESCAPES = 1 << 62
"""Added to the address that skip_string returns when the string has escapes."""


@compiled
def skip_space(at, limit):
    """Address of the next byte that is no JSON white space; the limit at most."""
    while at < limit:
        if load8(at) > 32:
            return at
        bits = mask_not_space(at)
        if bits != 0:
            return min(at + lowest_bit(bits), limit)
        at += 16
    return limit


@compiled
def skip_string(at, limit):
    """From behind the opening quote to the closing one; ESCAPES is added if there are escapes."""
    escaped = 0
    while at < limit:
        bits = mask_string_end(at)
        if bits == 0:
            at += 16
            continue
        at += lowest_bit(bits)
        if at >= limit:
            return MORE
        if load8(at) == 34:
            return at | escaped
        escaped = ESCAPES
        at += 1
        if at + 5 >= limit:
            return MORE
        char = load8(at)
        if char == 117:  # u
            for digit in range(1, 5):
                byte = load8(at + digit) | 32
                if not ((48 <= byte <= 57 and load8(at + digit) >= 48) or 97 <= byte <= 102):
                    return FALLBACK
            at += 5
        elif (
            char == 34
            or char == 92
            or char == 47
            or char == 110
            or char == 116
            or char == 114
            or char == 98
            or char == 102
        ):  # " \ / n t r b f
            at += 1
        else:
            return FALLBACK
    return MORE


@compiled
def skip_digits(at, limit):
    """Address of the next byte that is no digit; the limit at most."""
    while at < limit and 48 <= load8(at) <= 57:
        at += 1
    return at


@compiled
def skip_number(at, limit):
    """A number as JSON writes it."""
    start = at
    if load8(at) == 45:
        at += 1
        if at >= limit:
            return MORE
    first = load8(at)
    if first < 48 or first > 57:
        return FALLBACK
    at = at + 1 if first == 48 else skip_digits(at, limit)
    if at < limit and load8(at) == 46:
        after = skip_digits(at + 1, limit)
        if after == at + 1:
            return MORE if after >= limit else FALLBACK
        at = after
    if at < limit and load8(at) | 32 == 101:
        at += 1
        if at < limit and (load8(at) == 43 or load8(at) == 45):
            at += 1
        after = skip_digits(at, limit)
        if after == at:
            return MORE if after >= limit else FALLBACK
        at = after
    if at >= limit:
        return MORE
    return FALLBACK if at - start > MAX_NUMBER else at


@compiled
def skip_word(at, limit):
    """`true`, `false` or `null`."""
    if at + 5 >= limit:
        return MORE
    word = load32(at)
    if word == 0x65757274 or word == 0x6C6C756E:
        return at + 4
    if word == 0x736C6166 and load8(at + 4) == 101:
        return at + 5
    return FALLBACK


@compiled
def skip_key(at, limit):
    """A key and its colon, from the opening quote to the value."""
    if at >= limit:
        return MORE
    if load8(at) != 34:
        return FALLBACK
    end = skip_string(at + 1, limit)
    if end < 0:
        return end
    at = skip_space((end & ~ESCAPES) + 1, limit)
    if at >= limit:
        return MORE
    if load8(at) != 58:
        return FALLBACK
    return skip_space(at + 1, limit)


@compiled
def skip_value(at, limit):
    """Any value, however nested; one bit of `objects` a level tells objects from lists."""
    depth = 0
    objects = 0
    while True:
        if at >= limit:
            return MORE
        char = load8(at)
        opened = False
        if char == 34:
            end = skip_string(at + 1, limit)
            if end < 0:
                return end
            at = (end & ~ESCAPES) + 1
        elif char == 123 or char == 91:  # { [
            if depth >= MAX_INNER_DEPTH:
                return FALLBACK
            depth += 1
            objects = objects << 1 | (1 if char == 123 else 0)
            at = skip_space(at + 1, limit)
            if at >= limit:
                return MORE
            opened = load8(at) != char + 2
            if opened and char == 123:
                at = skip_key(at, limit)
                if at < 0:
                    return at
        elif char == 45 or 48 <= char <= 57:
            at = skip_number(at, limit)
            if at < 0:
                return at
        else:
            at = skip_word(at, limit)
            if at < 0:
                return at
        while not opened:
            if depth == 0:
                return at
            at = skip_space(at, limit)
            if at >= limit:
                return MORE
            char = load8(at)
            if char == 44:
                at = skip_space(at + 1, limit)
                if objects & 1:
                    at = skip_key(at, limit)
                    if at < 0:
                        return at
                opened = True
            elif char == (125 if objects & 1 else 93):
                depth -= 1
                objects = shift_right(objects, 1)
                at += 1
            else:
                return FALLBACK
