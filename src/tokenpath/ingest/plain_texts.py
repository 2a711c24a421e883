"""Which texts can hold nothing to mask: numbers and ids, of which there are many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.compiled import compiled

NOTHING_TO_MASK = (
    r"^(?:(?:(?:chat)?cmpl-)?[0-9a-f]*(?:-[0-9]{1,4})?|[+-]?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)$"
)
"""Numbers and ids in lower-case hexadecimal digits: no rule of `core.redact` can match one of them."""


def not_plain(texts: pa.Array) -> NDArray[np.bool_]:
    """Of each text, whether a rule may match it. NULL is not looked at."""
    loop = mark_others(len(texts))
    if texts.type != pa.string() or not hasattr(loop, "__wrapped__"):
        import pyarrow.compute as pc

        others = pc.invert(pc.match_substring_regex(texts, NOTHING_TO_MASK)).fill_null(False)
        return np.asarray(others.to_numpy(zero_copy_only=False), bool)
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    found = np.zeros(len(texts), np.uint8)
    if data is not None:
        loop(np.frombuffer(data, np.uint8), ends, found)
    if texts.null_count:
        found &= texts.is_valid().to_numpy(zero_copy_only=False)
    return found.view(bool)


@compiled
def mark_others(data: NDArray[np.uint8], ends: NDArray[np.int32], found: NDArray[np.uint8]) -> int:
    """1 for each text between two ends that `NOTHING_TO_MASK` does not match; how many there are."""
    num_found = 0
    for row in range(len(ends) - 1):
        begin = int(ends[row])
        end = int(ends[row + 1])
        at = begin
        # chat, then cmpl-; each letter stands in the way of hexadecimal digits if it is not whole.
        is_chat = end - at >= 9 and data[at] == 99 and data[at + 1] == 104
        if is_chat and data[at + 2] == 97 and data[at + 3] == 116:
            at += 4
        if end - at >= 5 and data[at] == 99 and data[at + 1] == 109 and data[at + 2] == 112:
            at = at + 5 if data[at + 3] == 108 and data[at + 4] == 45 else begin
        elif at > begin:
            at = begin
        while at < end and (48 <= data[at] <= 57 or 97 <= data[at] <= 102):
            at += 1
        if at < end and data[at] == 45 and end - at >= 2 and end - at <= 5:
            at += 1
            while at < end and 48 <= data[at] <= 57:
                at += 1
        if at == end:
            continue
        at = begin
        if at < end and data[at] in (43, 45):
            at += 1
        first = at
        while at < end and 48 <= data[at] <= 57:
            at += 1
        is_number = at > first
        if is_number and at < end and data[at] == 46:
            at += 1
            first = at
            while at < end and 48 <= data[at] <= 57:
                at += 1
            is_number = at > first
        if is_number and at < end and data[at] == 101:
            at += 1
            if at < end and data[at] in (43, 45):
                at += 1
            first = at
            while at < end and 48 <= data[at] <= 57:
                at += 1
            is_number = at > first
        if not is_number or at < end:
            found[row] = 1
            num_found += 1
    return num_found
