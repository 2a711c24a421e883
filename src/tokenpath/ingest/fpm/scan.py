"""Messages of forward-pass metrics to rows of numbers, as one loop that is compiled for large files.

It takes messages as the publishers write them, in the forms that `messages` describes. At any other it
stops, and the caller decodes that one message, so the rows are the same either way.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.compiled import compiled
from tokenpath.core.units import INT64_MIN
from tokenpath.ingest.fpm.record import FIELDS, QUEUED, SCHEDULED, SHORT_FIELDS

Int64s = NDArray[np.int64]

NULL = INT64_MIN
"""Stands for an absent number."""
MAX_ROWS = 8192
"""Messages that one call reads."""


class Col(IntEnum):
    """Columns of a row."""

    OFFSET = 0
    RECEIVED = 1
    SEQUENCE = 2
    VERSION = 3
    RANK = 4
    COUNTER = 5
    WORKER_AT = 6
    """Where the worker's name lies in the data, and its length."""
    WORKER_LENGTH = 7
    PREFILL_REQUESTS = 8
    """Counts of requests and tokens, as in `record.SCHEDULED` without the variances; 0 if absent."""
    PREFILL_TOKENS = 9
    PREFILL_KV = 10
    DECODE_REQUESTS = 11
    DECODE_KV = 12
    QUEUED_PREFILL = 13
    QUEUED_DECODE = 14


class Status(IntEnum):
    """Why the loop stopped."""

    DONE = 0
    """No whole message is left, or no room for a row."""
    OTHER = 1
    """At a message that it does not take."""


_SLOTS = 1024
_IGNORED, _WALL, _SCHEDULED, _QUEUED, _WORKER = 0, 100, 101, 102, 103
_TOP: dict[str, int] = {
    "version": Col.VERSION, "worker_id": _WORKER, "dp_rank": Col.RANK, "counter_id": Col.COUNTER,
    "wall_time": _WALL, "scheduled_requests": _SCHEDULED, "queued_requests": _QUEUED,
}  # fmt: skip
_OF_SCHEDULED: dict[str, int] = {
    "num_prefill_requests": Col.PREFILL_REQUESTS, "sum_prefill_tokens": Col.PREFILL_TOKENS,
    "sum_prefill_kv_tokens": Col.PREFILL_KV, "num_decode_requests": Col.DECODE_REQUESTS,
    "sum_decode_kv_tokens": Col.DECODE_KV,
}  # fmt: skip
_OF_QUEUED: dict[str, int] = {
    "num_prefill_requests": Col.QUEUED_PREFILL, "num_decode_requests": Col.QUEUED_DECODE,
}  # fmt: skip


def _hash(text: str, section: int) -> int:
    value = section
    for byte in text.encode():
        value = (value * 31 + byte) & 0x7FFFFFFF
    return value


def key_table() -> Int64s:
    """By the low bits of a key's hash (which begins with its section): the whole hash, what the key is."""
    table = np.zeros((_SLOTS, 2), np.int64)
    for section, keys in enumerate((_TOP, _OF_SCHEDULED, _OF_QUEUED)):
        for key, meaning in keys.items():
            value = _hash(key, section)
            if table[value % _SLOTS, 1]:
                raise AssertionError("two keys in one slot: take a larger table")
            table[value % _SLOTS] = value, meaning
    return table


def position_table() -> Int64s:
    """What each position of an array is: of a message of 7, of 5, of scheduled and of queued requests."""
    table = np.zeros((4, 8), np.int64)
    for row, (names, known) in enumerate(
        ((FIELDS, _TOP), (SHORT_FIELDS, _TOP), (SCHEDULED, _OF_SCHEDULED), (QUEUED, _OF_QUEUED))
    ):
        for at, name in enumerate(names):
            table[row, at] = known.get(name, _IGNORED)
    return table


_NULL, _MASK, _MAX_ROWS, _MAX_WALL_S = NULL, 0x7FFFFFFF, MAX_ROWS, 10**6
_RECEIVED, _SEQUENCE, _OFFSET, _VERSION = 1, 2, 0, 3
_WORKER_AT, _WORKER_LENGTH, _FIRST_COUNT, _NUM_COLUMNS = 6, 7, 8, 15


@compiled
def scan(
    data: NDArray[np.uint8],
    end: int,
    keys: Int64s,
    positions: Int64s,
    state: Int64s,
    rows: Int64s,
    walls: NDArray[np.float64],
    scratch: NDArray[np.uint8],
    real: NDArray[np.float64],
) -> int:
    """Read messages from byte `state[0]` to `end`; `state[1]` rows are written. A `Status`.

    `scratch` and `real` are one memory: eight bytes, and the double that they are.
    """
    pos, num = state[0], 0
    status = 0
    while pos < end and num < _MAX_ROWS and status == 0:
        start = pos
        is_taken, is_whole = True, True
        for column in range(_NUM_COLUMNS):
            rows[num, column] = _NULL if column < 8 or column > 12 else 0
        rows[num, _OFFSET] = start
        walls[num] = -1.0
        has_scheduled = False
        stop = end
        # The parts of a ZMQ message around the payload.
        if data[pos] == 0x93 or data[pos] == 0x94:
            num_parts = int(data[pos]) - 0x90
            pos += 1
            for part in range(num_parts):
                if pos + 9 > end:
                    is_whole = False
                    break
                first = int(data[pos])
                if part == 0 and num_parts == 4:
                    if first != 0xCF or data[pos + 1] >= 128:
                        is_taken = False
                        break
                    value = 0
                    for byte in range(8):
                        value = value * 256 + int(data[pos + 1 + byte])
                    rows[num, _RECEIVED] = value
                    pos += 9
                    continue
                width = 0
                length = 0
                if first == 0xC4 or first == 0xD9:
                    width = 1
                elif first == 0xC5:
                    width = 2
                elif first == 0xC6:
                    width = 4
                elif 0xA0 <= first < 0xC0:
                    length = first - 0xA0
                else:
                    is_taken = False
                    break
                for byte in range(width):
                    length = length * 256 + int(data[pos + 1 + byte])
                pos += 1 + width
                if pos + length > end:
                    is_whole = False
                    break
                if part == num_parts - 1:
                    is_taken = 0xC4 <= first <= 0xC6
                    stop = pos + length
                elif part == num_parts - 2:
                    if length != 8 or not 0xC4 <= first <= 0xC6 or data[pos] >= 128:
                        is_taken = False
                        break
                    value = 0
                    for byte in range(8):
                        value = value * 256 + int(data[pos + byte])
                    rows[num, _SEQUENCE] = value
                    pos += 8
                else:
                    pos += length
        section, left, left_above, index, index_above = 0, 0, 0, 0, 0
        is_map, is_map_above, layout, layout_above = False, False, 0, 0
        if is_taken and is_whole:
            first = int(data[pos]) if pos < stop else 0
            pos += 1
            if 0x80 <= first < 0x90:
                left, is_map = first - 0x80, True
            elif first == 0x97:
                left, layout = 7, 0
            elif first == 0x95:
                left, layout = 5, 1
            else:
                is_taken = False
        while is_taken and is_whole and (left > 0 or section > 0):
            if left == 0:
                section, left, index = 0, left_above, index_above
                is_map, layout = is_map_above, layout_above
                continue
            left -= 1
            meaning = 0
            if is_map:
                if pos >= stop:
                    is_whole = False
                    break
                first = int(data[pos])
                if not 0xA0 <= first < 0xC0:
                    is_taken = False
                    break
                length = first - 0xA0
                pos += 1
                if pos + length > stop:
                    is_whole = False
                    break
                value = section
                for byte in range(length):
                    value = (value * 31 + int(data[pos + byte])) & _MASK
                pos += length
                if keys[value & 1023, 0] == value:
                    meaning = keys[value & 1023, 1]
            else:
                meaning = positions[layout, index] if index < 8 else 0
                index += 1
            if pos >= stop:
                is_whole = False
                break
            first = int(data[pos])
            pos += 1
            if meaning == 101 or meaning == 102:
                left_above, index_above, is_map_above, layout_above = left, index, is_map, layout
                section, index = meaning - 100, 0
                layout = 2 if meaning == 101 else 3
                has_scheduled = has_scheduled or meaning == 101
                if 0x80 <= first < 0x90:
                    left, is_map = first - 0x80, True
                elif 0x90 <= first < 0xA0:
                    left, is_map = first - 0x90, False
                else:
                    is_taken = False
                continue
            if 0xA0 <= first < 0xC0 or first == 0xD9:
                length = first - 0xA0
                if first == 0xD9:
                    if pos >= stop:
                        is_whole = False
                        break
                    length = int(data[pos])
                    pos += 1
                if pos + length > stop:
                    is_whole = False
                    break
                if meaning == 103:
                    rows[num, _WORKER_AT] = pos
                    rows[num, _WORKER_LENGTH] = length
                elif meaning != 0:
                    is_taken = False
                pos += length
                continue
            value, is_real = 0, False
            size = 0
            if first < 0x80:
                value = first
            elif 0xCC <= first <= 0xCF:
                size = 1 << (first - 0xCC)
            elif first == 0xCB:
                size, is_real = 8, True
            else:
                is_taken = False
                break
            if pos + size > stop:
                is_whole = False
                break
            if is_real:
                for byte in range(8):
                    scratch[7 - byte] = data[pos + byte]
                if meaning == 100:
                    walls[num] = real[0]
                elif meaning != 0:
                    is_taken = False
            else:
                if size == 8 and data[pos] >= 128:
                    is_taken = False
                    break
                for byte in range(size):
                    value = value * 256 + int(data[pos + byte])
                if meaning == 100:
                    walls[num] = value
                elif meaning == 103:
                    is_taken = False
                elif meaning != 0:
                    rows[num, meaning] = value
            pos += size
        if is_whole and is_taken:
            version = rows[num, _VERSION]
            is_taken = has_scheduled and (version == _NULL or version == 1)
            is_taken = is_taken and 0.0 <= walls[num] <= _MAX_WALL_S
            is_taken = is_taken and (stop == end or pos == stop)
        if is_whole and is_taken:
            num += 1
            continue
        pos = start
        if stop < end or not is_taken:
            # A payload that ends within its part is damage, not the end of the data.
            status = 1
        else:
            break
    state[0], state[1] = pos, num
    return status
