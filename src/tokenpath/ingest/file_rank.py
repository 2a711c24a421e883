"""The rank that a file name gives: dumps of one rank each do not say theirs inside."""

from __future__ import annotations

import re
from pathlib import Path

_NAMED = re.compile(r"(?:^|[^a-z])(?:global[_-]?)?rank[-_.=]?(\d{1,6})(?!\d)", re.IGNORECASE)
_LAST = re.compile(r"[_.-](\d{1,6})$")


def rank_in_name(path: Path) -> int | None:
    """The number after `rank`, as in `rank0_memory_snapshot.pickle` or `nccl_trace_rank_7`."""
    match = _NAMED.search(path.name)
    return int(match[1]) if match else None


def last_number(path: Path) -> int | None:
    """The number at the end of a name without its suffixes: `dump_7.json.gz`; None when there is none."""
    stem = path.name.split(".")[0]
    match = _LAST.search(stem)
    return int(match[1]) if match else None
