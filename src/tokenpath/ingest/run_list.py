"""The list of runs (`runs.json`) that lies beside the files of our load generator and recorder.

Their times are microseconds after the run's first request; only the list says when that was.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from tokenpath.core.units import INT64_MAX
from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder

NAME = "runs.json"
MAX_BYTES = 2**20
"""A larger list is not read."""

_MAX_RUNS = 10_000
_LATEST_NS = INT64_MAX - 4 * 10**18
"""So late that times after it would not fit int64."""


def find_run(path: Path, name: str | None) -> dict[str, Any]:
    """What the list beside a file says of a run; empty when there is none, or it is not to be trusted.

    Only a plain file of that name in the same folder is read, never one that a link points to.
    """
    beside = path.parent / NAME
    try:
        status = beside.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            return {}
        listed = json.loads(beside.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    runs = listed.get("runs") if isinstance(listed, dict) else None
    for run in runs[:_MAX_RUNS] if isinstance(runs, list) else ():
        if isinstance(run, dict) and name is not None and run.get("run") == name:
            return run
    return {}


def place_on_epoch(builder: CaptureBuilder, path: Path, run: str | None) -> int:
    """What to add to the file's times, in nanoseconds; the source's clock and a note are set.

    Without a list that names the run the times stay as they are, on a clock of unknown origin.
    """
    t0_ns = fields.count(find_run(path, run).get("t0_unix_ns"))
    if t0_ns is None or t0_ns > _LATEST_NS:
        builder.origin.clock = "monotonic"
        builder.note(
            "clock-unknown",
            f"Times count from the run's first request; no {NAME} beside the file says when that was, "
            "so the rows cannot be placed beside those of other sources",
        )
        return 0
    builder.origin.clock_offset_ns = builder.origin.base_time_ns = t0_ns
    return t0_ns
