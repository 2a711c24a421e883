"""A whole file that is one pickle of plain data, packed or not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tokenpath.ingest.losses import Losses
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Options
from tokenpath.ingest.unpickle import MAX_BYTES, unpickle

_PICKLE = re.compile(rb"\x80[\x02-\x05]|[(}\]]")
"""How one begins: its protocol, or (protocols 0 and 1) an empty dict, list, or a mark."""


def looks_pickled(head: bytes) -> bool:
    """Whether a file may be a pickle of a dict or list."""
    return _PICKLE.match(head) is not None


def read_pickle(path: Path, options: Options, losses: Losses) -> tuple[Any, int]:
    """The value in a file, and the number of unpacked bytes.

    Of a file that is cut off, what had been put together, with the rest counted as a loss. InputError and
    its kinds as from `unpickle`.
    """
    unpacked = open_unpacked(
        path, max_bytes=min(options.max_bytes, MAX_BYTES), progress=options.progress
    )
    data = b"".join(chunk.tobytes() for chunk in unpacked.chunks)
    unpacked.report_done()
    found = unpickle(data, where=str(path), keep_partial=True)
    if found.cut_at is not None:
        losses.add("truncated", offset=found.cut_at, what="pickle", dropped=False)
    elif len(data) > found.num_bytes:
        losses.add("data after the end", offset=found.num_bytes, dropped=False)
    for problem in unpacked.problems:
        losses.add(problem, dropped=False)
    return found.value, len(data)
