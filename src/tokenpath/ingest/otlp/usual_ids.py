"""Ids of requests as vLLM mostly writes them, taken apart all at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tokenpath.capture.compiled import compiled

USUAL_ID = r"^(?:chatcmpl|cmpl)-(?P<id>[0-9A-Za-z_]+(?:-[0-9]{5})?)-(?P<choice>[0-9]{1,4})$"
"""What vLLM makes of most ids; any other goes through `core.request_ids.plain_request_id`."""


def usual_ids(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Id and choice of each text that `USUAL_ID` matches; both NULL for the others."""
    loop = take_apart(len(texts))
    if texts.type != pa.string() or not hasattr(loop, "__wrapped__") or not texts.buffers()[2]:
        found = pc.extract_regex(texts, USUAL_ID)
        return pc.struct_field(found, ["id"]), pc.cast(
            pc.struct_field(found, ["choice"]), pa.int32()
        )
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    ids = np.empty(max(1, int(ends[-1] - ends[0])), np.uint8)
    new_ends = np.zeros(len(texts) + 1, np.int32)
    choices = np.zeros(len(texts), np.int32)
    loop(np.frombuffer(data, np.uint8), ends, ids, new_ends, choices)
    missing = choices < 0
    if texts.null_count:
        missing |= texts.is_null().to_numpy(zero_copy_only=False)
    plain = pa.StringArray.from_buffers(len(texts), pa.py_buffer(new_ends), pa.py_buffer(ids))
    if missing.any():
        plain = pc.if_else(pa.array(missing), pa.scalar(None, pa.string()), plain)
    return plain, pa.array(choices, mask=missing)


@compiled
def take_apart(
    data: NDArray[np.uint8],
    ends: NDArray[np.int32],
    ids: NDArray[np.uint8],
    new_ends: NDArray[np.int32],
    choices: NDArray[np.int32],
) -> int:
    """Copy the ids one behind the other; choice -1 for a text that is no usual id."""
    done = 0
    for row in range(len(ends) - 1):
        begin = int(ends[row])
        end = int(ends[row + 1])
        choices[row] = -1
        new_ends[row + 1] = done
        at = begin
        is_chat = end - at >= 9 and data[at] == 99 and data[at + 1] == 104
        if is_chat and data[at + 2] == 97 and data[at + 3] == 116:
            at += 4
        if end - at < 8 or data[at] != 99 or data[at + 1] != 109 or data[at + 2] != 112:
            continue
        if data[at + 3] != 108 or data[at + 4] != 45:
            continue
        first = at + 5
        # From the end: up to four digits and a dash.
        stop = end
        choice = 0
        scale = 1
        while stop > first and 48 <= data[stop - 1] <= 57 and end - stop < 5:
            stop -= 1
            choice += scale * (int(data[stop]) - 48)
            scale *= 10
        if end - stop == 0 or end - stop > 4 or stop <= first or data[stop - 1] != 45:
            continue
        stop -= 1
        # Letters, digits and _; then perhaps a dash and five digits.
        at = first
        while at < stop and (
            48 <= data[at] <= 57 or 65 <= data[at] <= 90 or 97 <= data[at] <= 122 or data[at] == 95
        ):
            at += 1
        if at == first:
            continue
        if at < stop:
            if data[at] != 45 or stop - at != 6:
                continue
            at += 1
            while at < stop and 48 <= data[at] <= 57:
                at += 1
            if at < stop:
                continue
        for place in range(first, stop):
            ids[done] = data[place]
            done += 1
        new_ends[row + 1] = done
        choices[row] = choice
    return done
