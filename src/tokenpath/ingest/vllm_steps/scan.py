"""The lines of a step log to rows of numbers, as one loop that is compiled for large files.

It takes lines as a recorder writes them: one object a line, plain ASCII texts without escapes, whole numbers.
At any other line it stops, and the caller reads that line as JSON, so the rows are the same either way.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.compiled import compiled
from tokenpath.ingest.vllm_steps.record import KINDS, NULL, STEP_FIELDS, Int32s, Int64s

Bytes = NDArray[np.uint8]


class State(IntEnum):
    """Words of the scanner's state."""

    POSITION = 0
    """Byte at which to go on."""
    LINE = 1
    """Line of the file there."""
    STEPS = 2
    """Rows of steps written; likewise the next ones."""
    SHARES = 3
    ADDS = 4
    MARKS = 5
    CODES = 6
    ARENA = 7
    """Bytes of texts kept."""


class Status(IntEnum):
    """Why the scanner stopped."""

    DONE = 0
    OTHER_LINE = 1
    """At a line that it does not take."""
    FULL = 2
    """No room for another text."""
    ROWS_FULL = 3
    """No room for the rows of another line."""


TABLE_SIZE = 2**16
"""Slots of the table of texts."""
MAX_CODES = 2**15
"""Texts that it holds: half, so that chains are short."""
ARENA_BYTES = 2**20
"""Bytes of those texts."""
MAX_ROWS = 4096
"""Rows of steps, of added requests and of marks that one call may write."""
MAX_SHARES = 2**15
"""Rows of shares likewise."""
MAX_TEXT = 4096
"""Longer ids are left to the caller."""
NUM_STEP_COLUMNS = len(STEP_FIELDS) + 2
"""STEP_FIELDS, the line, and the number of shares."""
PREEMPTED = -1
"""Stands for the reason of a mark that is a preemption."""

_MAX_PROBES = 64
"""Longer chains are made by somebody who wants the scanner to be slow."""
_MAX_DIGITS = 17
_KEYS = (*STEP_FIELDS, "ev", "req", "prompt", "reqs", "done", "preempted")
_NUM_FIELDS = len(STEP_FIELDS)
_EVENT, _REQUEST, _PROMPT, _SHARES, _DONE, _PREEMPTED = range(_NUM_FIELDS + 1, len(_KEYS) + 1)
_KEY_SLOTS = 1024


def _hash(text: str) -> int:
    value = 0
    for byte in text.encode():
        value = (value * 31 + byte) & 0x7FFFFFFF
    return value


def key_table() -> Int64s:
    """Where `scan` looks a key up: by the low bits of its hash, the whole hash and the number of the key."""
    table = np.zeros((_KEY_SLOTS, 2), np.int64)
    for number, key in enumerate(_KEYS, 1):
        slot = _hash(key) % _KEY_SLOTS
        if table[slot, 1]:
            raise AssertionError("two keys in one slot: take a larger table")
        table[slot] = _hash(key), number
    return table


_STEP_HASH, _ADD_HASH = _hash("step"), _hash("add")
_NEW_HASH, _RUN_HASH, _RESUMED_HASH = (_hash(kind) for kind in KINDS)
_NULL, _MASK, _MAX_TEXT, _MAX_CODES = NULL, 0x7FFFFFFF, MAX_TEXT, MAX_CODES
_ARENA, _TABLE_MASK = ARENA_BYTES, TABLE_SIZE - 1
_POSITION, _LINE, _STEP_ROWS, _SHARE_ROWS, _ADD_ROWS, _MARK_ROWS, _CODES, _ARENA_USED = range(8)
_OTHER_LINE, _FULL, _ROWS_FULL = (
    int(s) for s in (Status.OTHER_LINE, Status.FULL, Status.ROWS_FULL)
)
_MAX_ROWS, _MAX_SHARES = MAX_ROWS, MAX_SHARES
# What may come next within a line.
_OBJECT, _KEY, _COLON, _VALUE, _AFTER, _END = 0, 1, 2, 3, 4, 5
_SHARE, _SHARE_ID, _SHARE_KIND, _SHARE_NUMBER, _SHARE_END, _NEXT_SHARE = 10, 11, 12, 13, 14, 15
_DONE_ID, _DONE_COLON, _DONE_REASON, _NEXT_DONE = 20, 21, 22, 23
_LOST_ID, _NEXT_LOST = 30, 31
_IS_ID = 1 << _SHARE_ID | 1 << _DONE_ID | 1 << _DONE_REASON | 1 << _LOST_ID
_VALUE_OR_NUMBER = 1 << _VALUE | 1 << _SHARE_NUMBER
_LIST_ENDS = 1 << _NEXT_SHARE | 1 << _NEXT_LOST
_LISTS = 1 << _SHARES | 1 << _PREEMPTED


@compiled
def scan(
    data: Bytes,
    end: int,
    keys: Int64s,
    state: Int64s,
    steps: Int64s,
    shares: Int64s,
    adds: Int64s,
    marks: Int64s,
    table: Int32s,
    texts: Int64s,
    arena: Bytes,
) -> int:
    """Read lines from the state's position to `end`; a `Status`.

    `steps` gets STEP_FIELDS, line and number of shares; `shares` text, kind, tokens before, tokens,
    emitted; `adds` line, text, time, prompt; `marks` line, text, text of the reason. Texts are codes;
    `texts` has where each begins in `arena` and its length.
    """
    pos, line = state[_POSITION], state[_LINE]
    num_steps, num_shares = state[_STEP_ROWS], state[_SHARE_ROWS]
    num_adds, num_marks = state[_ADD_ROWS], state[_MARK_ROWS]
    num_codes, used = state[_CODES], state[_ARENA_USED]
    status = 0
    while pos < end and status == 0:
        if data[pos] == 10:
            pos += 1
            line += 1
            continue
        if num_steps == _MAX_ROWS or num_adds == _MAX_ROWS:
            status = _ROWS_FULL
            break
        start = pos
        first_share, first_mark = num_shares, num_marks
        for number in range(_NUM_FIELDS):
            steps[num_steps, number] = _NULL
        request, prompt, event = -1, _NULL, 0
        wants, key, seen, column, code = _OBJECT, 0, 0, 0, 0
        is_taken = True
        while pos < end and is_taken:
            if num_shares == _MAX_SHARES or num_marks == _MAX_ROWS:
                status = _ROWS_FULL
                is_taken = False
                break
            char = int(data[pos])
            if char == 32:
                pos += 1
            elif char == 34:
                # A text: its hash on the way to the closing quote.
                begin = pos + 1
                pos = begin
                value = 0
                while pos < end and data[pos] != 34 and is_taken:
                    char = int(data[pos])
                    is_taken = 32 <= char < 127 and char != 92
                    value = (value * 31 + char) & _MASK
                    pos += 1
                length = pos - begin
                if pos >= end or not is_taken or length > _MAX_TEXT:
                    is_taken = False
                    break
                pos += 1
                if _IS_ID >> wants & 1 == 1 or (wants == _VALUE and key == _REQUEST):
                    slot = value & _TABLE_MASK
                    code, probes = -1, 0
                    while table[slot] != 0 and code < 0 and probes < _MAX_PROBES:
                        known = int(table[slot]) - 1
                        if texts[known, 1] == length:
                            at, same = texts[known, 0], 0
                            while same < length and arena[at + same] == data[begin + same]:
                                same += 1
                            if same == length:
                                code = known
                        slot = (slot + 1) & _TABLE_MASK
                        probes += 1
                    if code < 0:
                        if probes >= _MAX_PROBES:
                            is_taken = False
                            break
                        if num_codes >= _MAX_CODES or used + length > _ARENA:
                            status = _FULL
                            is_taken = False
                            break
                        code = num_codes
                        table[slot] = code + 1
                        texts[code, 0] = used
                        texts[code, 1] = length
                        for number in range(length):
                            arena[used + number] = data[begin + number]
                        used += length
                        num_codes += 1
                if wants == _KEY:
                    slot = value & 1023
                    key = keys[slot, 1] if keys[slot, 0] == value else 0
                    is_taken = key == 0 or (seen >> key) & 1 == 0
                    seen |= 1 << key
                    wants = _COLON
                elif wants == _SHARE_ID:
                    shares[num_shares, 0] = code
                    wants = _SHARE_KIND
                    is_taken = pos < end and data[pos] == 44
                    pos += 1
                elif wants == _SHARE_KIND:
                    if value == _RUN_HASH and length == 3:
                        shares[num_shares, 1] = 1
                    elif value == _NEW_HASH and length == 3:
                        shares[num_shares, 1] = 0
                    elif value == _RESUMED_HASH and length == 7:
                        shares[num_shares, 1] = 2
                    else:
                        is_taken = False
                    wants, column = _SHARE_NUMBER, 2
                    is_taken = is_taken and pos < end and data[pos] == 44
                    pos += 1
                elif wants == _DONE_ID:
                    marks[num_marks, 1] = code
                    wants = _DONE_COLON
                elif wants == _DONE_REASON:
                    marks[num_marks, 0] = line
                    marks[num_marks, 2] = code
                    num_marks += 1
                    wants = _NEXT_DONE
                elif wants == _LOST_ID:
                    marks[num_marks, 0] = line
                    marks[num_marks, 1] = code
                    marks[num_marks, 2] = -1
                    num_marks += 1
                    wants = _NEXT_LOST
                elif wants == _VALUE and key == _REQUEST:
                    request = code
                    wants = _AFTER
                elif wants == _VALUE and key == _EVENT:
                    event = value
                    wants = _AFTER
                elif wants == _VALUE and key == 0:
                    wants = _AFTER
                else:
                    is_taken = False
            elif 48 <= char <= 57 and _VALUE_OR_NUMBER >> wants & 1 == 1:
                begin, value = pos, 0
                while pos < end and 48 <= data[pos] <= 57 and pos - begin <= _MAX_DIGITS:
                    value = value * 10 + int(data[pos]) - 48
                    pos += 1
                is_whole = pos < end and pos - begin <= _MAX_DIGITS
                is_whole = is_whole and (data[pos] == 44 or data[pos] == 125 or data[pos] == 93)
                is_whole = is_whole and (char != 48 or pos - begin == 1)
                if wants == _SHARE_NUMBER:
                    is_taken = is_whole
                    shares[num_shares, column] = value
                    column += 1
                    if column == 5:
                        wants = _SHARE_END
                    elif is_whole and data[pos] == 44:
                        pos += 1
                    else:
                        is_taken = False
                elif key == 0:
                    # A number that is not wanted, with a fraction perhaps.
                    while pos < end and (
                        48 <= data[pos] <= 57
                        or data[pos] == 46
                        or data[pos] == 101
                        or data[pos] == 45
                    ):
                        pos += 1
                    wants = _AFTER
                else:
                    is_taken = is_whole
                    if key <= _NUM_FIELDS:
                        steps[num_steps, key - 1] = value
                    elif key == _PROMPT:
                        prompt = value
                    else:
                        is_taken = False
                    wants = _AFTER
            else:
                pos += 1
                if char == 44:  # ,
                    if wants == _AFTER:
                        wants = _KEY
                    elif wants == _NEXT_SHARE:
                        wants = _SHARE
                    elif wants == _NEXT_DONE:
                        wants = _DONE_ID
                    elif wants == _NEXT_LOST:
                        wants = _LOST_ID
                    else:
                        is_taken = False
                elif char == 58:  # :
                    if wants == _COLON:
                        wants = _VALUE
                    elif wants == _DONE_COLON:
                        wants = _DONE_REASON
                    else:
                        is_taken = False
                elif char == 91:  # [
                    if wants == _SHARE:
                        wants = _SHARE_ID
                    elif wants == _VALUE and _LISTS >> key & 1 == 1:
                        wants = _SHARE if key == _SHARES else _LOST_ID
                        if pos < end and data[pos] == 93:
                            pos += 1
                            wants = _AFTER
                    else:
                        is_taken = False
                elif char == 93:  # ]
                    if wants == _SHARE_END:
                        num_shares += 1
                        wants = _NEXT_SHARE
                    elif _LIST_ENDS >> wants & 1 == 1:
                        wants = _AFTER
                    else:
                        is_taken = False
                elif char == 123:  # {
                    if wants == _OBJECT:
                        wants = _KEY
                    elif wants == _VALUE and key == _DONE:
                        wants = _DONE_ID
                        if pos < end and data[pos] == 125:
                            pos += 1
                            wants = _AFTER
                    else:
                        is_taken = False
                elif char == 125:  # }
                    if wants == _NEXT_DONE:
                        wants = _AFTER
                    elif wants == _AFTER:
                        wants = _END
                    else:
                        is_taken = False
                elif char == 10 and wants == _END:
                    break
                else:
                    is_taken = False
        is_taken = is_taken and wants == _END
        if is_taken and event == _STEP_HASH:
            steps[num_steps, _NUM_FIELDS] = line
            steps[num_steps, _NUM_FIELDS + 1] = num_shares - first_share
            num_steps += 1
        elif is_taken and event == _ADD_HASH and request >= 0 and num_shares == first_share:
            is_taken = num_marks == first_mark
            adds[num_adds, 0] = line
            adds[num_adds, 1] = request
            adds[num_adds, 2] = steps[num_steps, 1]
            adds[num_adds, 3] = prompt
            num_adds += 1 if is_taken else 0
        else:
            is_taken = False
        if is_taken:
            line += 1
        else:
            # Back to where the line begins; the caller goes on from there.
            pos, num_shares, num_marks = start, first_share, first_mark
            if status == 0:
                status = _OTHER_LINE
    state[_POSITION] = pos
    state[_LINE] = line
    state[_STEP_ROWS] = num_steps
    state[_SHARE_ROWS] = num_shares
    state[_ADD_ROWS] = num_adds
    state[_MARK_ROWS] = num_marks
    state[_CODES] = num_codes
    state[_ARENA_USED] = used
    return status
