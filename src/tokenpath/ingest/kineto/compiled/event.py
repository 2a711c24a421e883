"""Compiled pieces of the fast scanner: one event.

It reads what profilers write and gives up (FALLBACK) on all else, so that what it does accept is valid
JSON and means the same as in the slow scanner. An event is a chain of steps from value to value; a step
whose text is remembered (see `state.Step`) is taken at once, any other is taken apart and remembered.
"""

from __future__ import annotations

# mypy: ignore-errors
# numba finds the types; all of them are int64.
from tokenpath.ingest.kineto.columns import NULL, Col, Flag, Kind
from tokenpath.ingest.kineto.compiled.json import (
    ESCAPES,
    FALLBACK,
    MORE,
    skip_space,
    skip_string,
    skip_value,
)
from tokenpath.ingest.kineto.compiled.machine import (
    compiled,
    load8,
    load16,
    load64,
    store8,
    store16,
    store64,
)
from tokenpath.ingest.kineto.compiled.numbers import read_dim3, read_int, read_real, read_us
from tokenpath.ingest.kineto.compiled.texts import last_word, mix, pair_of, same_bytes
from tokenpath.ingest.kineto.compiled.values import (
    has_escapes,
    read_flow_id,
    read_json,
    read_repeated,
    read_text,
)
from tokenpath.ingest.kineto.state import (
    GROW,
    KEY_ENTRY_BYTES,
    KEY_TEXT_BYTES,
    NUM_KEY_SLOTS,
    NUM_STEPS,
    STEP_BYTES,
    STEP_TEXT_BYTES,
    S,
    Step,
)

# numba takes plain ints as constants, but not members of an enum.
_KEYS, _RANGE, _STEPS = 8 * S.KEYS, 8 * S.PROFILER_RANGE, 8 * S.STEPS
_PHASE, _CATEGORY, _NAME, _PAIR = 8 * Col.PHASE, 8 * Col.CATEGORY, 8 * Col.NAME, 8 * Col.PAIR
_TS, _DUR, _FLAGS, _ID = 8 * Col.TS, 8 * Col.DUR, 8 * Col.FLAGS, 8 * Col.ID
_SUB_NS = int(Flag.SUB_NS)
_NULL, _GROW = NULL, GROW
_ENTRY, _KEY_TEXT, _KEY_MASK = KEY_ENTRY_BYTES, KEY_TEXT_BYTES, NUM_KEY_SLOTS - 1
_SIZE, _ACTION, _LEVEL, _NEXT = int(Step.SIZE), int(Step.ACTION), int(Step.LEVEL), int(Step.NEXT)
_BIT, _COLUMN, _TEXT = int(Step.BIT), int(Step.COLUMN), int(Step.TEXT)
_FROM = int(Step.FROM)
_STEP_BYTES, _STEP_MASK, _MAX_TEXT = STEP_BYTES, NUM_STEPS - 1, STEP_TEXT_BYTES

# Actions: the kinds of argument, and what only the fields of the event itself need.
_A_INT, _A_REAL, _A_TEXT = int(Kind.INT), int(Kind.REAL), int(Kind.TEXT)
_A_JSON, _A_DIM3 = int(Kind.JSON), int(Kind.DIM3)
_A_SKIP, _A_TIME, _A_PHASE, _A_CATEGORY, _A_PID, _A_TID = 8, 9, 10, 11, 12, 13
_A_FLOW_ID, _A_REFUSE, _A_END = 14, 15, 16
# Levels: before the first field, among the fields, at the first argument, among the arguments.
_OPENED, _FIELDS, _ARGS_OPENED, _ARGS = 0, 1, 2, 3
_HAS_TS, _HAS_DUR, _HAS_NAME, _HAS_PID, _HAS_TID, _HAS_CATEGORY = 1, 2, 4, 8, 16, 32
_HAS_PHASE, _HAS_ARGS, _HAS_ID = 64, 128, 256
_NEEDED = _HAS_PHASE | _HAS_PID | _HAS_TID


def _word(key: str) -> int:
    """A key of up to 4 bytes with its length above them."""
    return int.from_bytes(key.encode(), "little") | len(key) << 40


_W_PH, _W_CAT, _W_NAME, _W_PID, _W_TID = (_word(k) for k in ("ph", "cat", "name", "pid", "tid"))
_W_TS, _W_DUR, _W_ARGS, _W_ID, _W_ATTR = (_word(k) for k in ("ts", "dur", "args", "id", "attr"))


@compiled
def find_key(keys, at, size):
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
def describe_field(step, at, size):
    """Write action, bit and column of a field of the event itself into a step."""
    word = last_word(at, size) | size << 40 if size <= 4 else 0
    action, bit, column = _A_SKIP, 0, 0
    if word == _W_TS:
        action, bit, column = _A_TIME, _HAS_TS, _TS
    elif word == _W_DUR:
        action, bit, column = _A_TIME, _HAS_DUR, _DUR
    elif word == _W_NAME:
        action, bit, column = _A_TEXT, _HAS_NAME, _NAME
    elif word == _W_PID:
        action, bit, column = _A_PID, _HAS_PID, _PAIR
    elif word == _W_TID:
        action, bit, column = _A_TID, _HAS_TID, _PAIR
    elif word == _W_CAT:
        action, bit, column = _A_CATEGORY, _HAS_CATEGORY, _CATEGORY
    elif word == _W_PH:
        action, bit, column = _A_PHASE, _HAS_PHASE, _PHASE
    elif word == _W_ID:
        action, bit, column = _A_FLOW_ID, _HAS_ID, _ID
    elif word == _W_ATTR:
        action = _A_REFUSE
    store8(step + _ACTION, action)
    store16(step + _BIT, bit)
    store64(step + _COLUMN, column)
    return action


@compiled
def describe_argument(step, keys, at, size):
    """The same for an argument."""
    entry = find_key(keys, at, size)
    store16(step + _BIT, 0)
    store64(step + _COLUMN, load64(entry + 8) if entry != 0 else 0)
    store8(step + _ACTION, load64(entry + 16) if entry != 0 else _A_SKIP)
    return 0


@compiled
def take_step(state, at, limit, step, level):
    """Take apart what follows a value, and remember it; the address of the next value or the end."""
    start = at
    bits = 0
    store8(step + _SIZE, 0)
    store8(step + _FROM, level)
    while True:
        at = skip_space(at, limit)
        if at >= limit:
            return MORE
        char = load8(at)
        if level == _ARGS or level == _ARGS_OPENED:
            if char == 125:
                at += 1
                level = _FIELDS
                continue
        elif char == 125:
            at += 1
            store8(step + _ACTION, _A_END)
            store16(step + _BIT, bits)
            break
        if level == _FIELDS or level == _ARGS:
            if char != 44:
                return FALLBACK
            at = skip_space(at + 1, limit)
            if at >= limit:
                return MORE
            char = load8(at)
        if char != 34:
            return FALLBACK
        key = at + 1
        end = skip_string(key, limit)
        if end < 0 or end & ESCAPES:
            return end if end < 0 else FALLBACK
        at = skip_space(end + 1, limit)
        if at >= limit:
            return MORE
        if load8(at) != 58:
            return FALLBACK
        at = skip_space(at + 1, limit)
        if at >= limit:
            return MORE
        size = end - key
        if level == _ARGS or level == _ARGS_OPENED:
            level = _ARGS
            describe_argument(step, load64(state + _KEYS), key, size)
            store16(step + _BIT, bits)
            break
        if size == 4 and last_word(key, size) | size << 40 == _W_ARGS:
            if load8(at) != 123 or bits & _HAS_ARGS:
                return FALLBACK
            at += 1
            bits |= _HAS_ARGS
            level = _ARGS_OPENED
            continue
        level = _FIELDS
        describe_field(step, key, size)
        store16(step + _BIT, load16(step + _BIT) | bits)
        break
    store8(step + _LEVEL, level)
    number = (step - load64(state + _STEPS)) // _STEP_BYTES
    store8(
        step + _NEXT, mix(number * 8191 + (at - start) * 31 + load64(step + _COLUMN)) & _STEP_MASK
    )
    if at - start <= _MAX_TEXT:
        for i in range(at - start):
            store8(step + _TEXT + i, load8(start + i))
        store8(step + _SIZE, at - start)
    return at


@compiled
def read_time(at, limit, row, out):
    """`ts` or `dur`; the flags gather whether digits were cut."""
    # PAIR is written last, so it can lend its place for the flag.
    at = read_us(at, limit, out, row + _PAIR)
    if at >= 0 and load64(row + _PAIR) != 0:
        store64(row + _FLAGS, load64(row + _FLAGS) | _SUB_NS)
    return at


@compiled
def read_phase(at, limit, out):
    """A string of one ASCII character."""
    if at + 2 >= limit:
        return MORE
    char = load8(at + 1)
    if load8(at) != 34 or load8(at + 2) != 34 or char == 92 or char == 34 or char >= 128:
        return FALLBACK
    store64(out, char)
    return at + 3


@compiled
def read_argument(state, action, at, limit, out):
    """The value of an argument that is kept."""
    # A second value for one column is for the slow scanner to decide.
    if load64(out) != _NULL:
        return FALLBACK
    if action == _A_INT:
        return read_int(at, limit, out)
    if action == _A_TEXT:
        return read_text(state, at, limit, out)
    if action == _A_REAL:
        return read_real(state, at, limit, out)
    if action == _A_DIM3:
        return read_dim3(at, limit, out)
    return read_json(state, at, limit, out)


@compiled
def read_event(state, at, limit, row):
    """One event from behind its opening brace into a row of NULLs; the address after it, or why not."""
    pid = tid = -1
    seen = number = 0
    level = _OPENED
    steps = load64(state + _STEPS)
    while True:
        step = steps + number * _STEP_BYTES
        size = load8(step + _SIZE)
        known = size != 0 and load8(step + _FROM) == level and at + size <= limit
        if known and same_bytes(at, step + _TEXT, size):
            at += size
        else:
            at = take_step(state, at, limit, step, level)
            if at < 0:
                return at
        level, number = load8(step + _LEVEL), load8(step + _NEXT)
        action, bit = load8(step + _ACTION), load16(step + _BIT)
        if seen & bit:
            return FALLBACK
        seen |= bit
        out = row + load64(step + _COLUMN)
        if action <= _A_DIM3:
            at = read_argument(state, action, at, limit, out)
        elif action == _A_SKIP:
            at = skip_value(at, limit)
        elif action == _A_TIME:
            at = read_time(at, limit, row, out)
        elif action == _A_PID:
            at = read_repeated(state, at, limit, out, step)
            pid = load64(out)
        elif action == _A_TID:
            at = read_repeated(state, at, limit, out, step)
            tid = load64(out)
        elif action == _A_CATEGORY:
            if at < limit and load8(at) != 34:
                return FALLBACK
            at = read_repeated(state, at, limit, out, step)
            # Events of one category are alike, so the way goes on from here by category.
            number = (number + load64(out) * 13) & _STEP_MASK
        elif action == _A_PHASE:
            at = read_phase(at, limit, out)
            number = (number + load64(out) * 29) & _STEP_MASK
        elif action == _A_FLOW_ID:
            at = read_flow_id(at, limit, out)
        elif action == _A_END:
            break
        else:
            return FALLBACK
        if at < 0:
            return at
    # Events without phase, pid or tid, counters, and ranges of hardware counters are rare or odd.
    if seen & _NEEDED != _NEEDED or load64(row + _PHASE) == 67:
        return FALLBACK
    if load64(row + _CATEGORY) == load64(state + _RANGE):
        return FALLBACK
    # The names of other phases are compared with known ones, or with each other.
    if load64(row + _PHASE) != 88 and has_escapes(state, load64(row + _NAME)):
        return FALLBACK
    pair = pair_of(state, pid, tid)
    if pair < 0:
        return _GROW
    store64(row + _PAIR, pair)
    return at
