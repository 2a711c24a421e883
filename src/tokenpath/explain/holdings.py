"""The answer for captures without kernels, operators or requests: what they hold instead."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenpath.capture.capture import Capture
from tokenpath.core.finding import Finding
from tokenpath.core.report import ShownTable, TableColumn, Unit

_ASIDE = frozenset({"source", "skip", "source_note", "setting", "device", "thread", "finding"})
_GIB = 2**30
HANG_CODES = frozenset({"missing-rank", "collective-mismatch", "stuck-collective"})
"""Findings about collectives that did not get through."""
_COLUMNS = (
    TableColumn("state", "state", Unit.TEXT),
    TableColumn("num_blocks", "blocks", Unit.COUNT),
    TableColumn("bytes", "bytes", Unit.BYTES),
    TableColumn("requested_bytes", "asked for", Unit.BYTES),
)


def has_work(capture: Capture) -> bool:
    """Whether there is anything whose time can be explained."""
    return any(capture.num_rows(name) for name in ("kernel", "op", "api_call"))


def hang_of(findings: Sequence[Finding]) -> str | None:
    """Why the job hangs, where its flight recorders tell."""
    return next((finding.sentence for finding in findings if finding.code in HANG_CODES), None)


def holdings_answer(capture: Capture, findings: Sequence[Finding] = ()) -> tuple[str, ...]:
    """What the capture holds, in one or two sentences; what was found in it, where anything was."""
    if hang := hang_of(findings):
        return (hang[0].upper() + hang[1:] + ".",)
    held = [
        f"{capture.num_rows(name):,} rows of {name}"
        for name in sorted(capture)
        if name not in _ASIDE and capture.num_rows(name)
    ]
    first = "No kernels, operators or requests whose time could be explained"
    first += f": the capture holds {', '.join(held)}." if held else "; the capture is empty."
    return (first, *_memory(capture))


def memory_table(capture: Capture) -> ShownTable | None:
    """Blocks of an allocator's snapshot by state; None without one."""
    codes, names = capture.codes("memory_block", "state")
    if len(codes) == 0:
        return None
    size = capture.int64("memory_block", "bytes")
    asked = capture.int64("memory_block", "requested_bytes", 0)
    rows = [
        (names[code], int(mine.sum()), int(size[mine].sum()), int(asked[mine].sum()))
        for code in np.unique(codes).tolist()
        for mine in (codes == code,)
    ]
    rows.sort(key=lambda row: -row[2])
    return ShownTable("memory", "Device memory by state", _COLUMNS, rows, len(rows))


def _memory(capture: Capture) -> tuple[str, ...]:
    table = memory_table(capture)
    if table is None:
        return ()
    size = {row[0]: row[2] for row in table.rows}
    reserved = sum(value for value in size.values() if isinstance(value, int))
    used = size.get("allocated", 0)
    share = (
        f"{used / _GIB:.2f} of {reserved / _GIB:.2f} GiB" if isinstance(used, int) else "unknown"
    )
    return (f"Of the reserved device memory {share} were allocated at the moment of the snapshot.",)
