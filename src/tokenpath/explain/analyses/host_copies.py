"""Copies from or to pageable memory, in which the host stands until they are done while nothing computes."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s, covered
from tokenpath.core.finding import Evidence, Finding, Kind
from tokenpath.core.units import format_bytes, format_duration, format_percent
from tokenpath.explain.analyses.contract import Context, Proposal, Result
from tokenpath.explain.analyses.host_names import SAMPLING_CORE
from tokenpath.explain.work import COMMUNICATION, COMPUTE, MEMCPY, MEMSET, DeviceWork
from tokenpath.replay.change import WhatIf

MIN_SHARE = 0.005
"""Copies below this share of the window are not spoken of."""
_PAGEABLE = re.compile(r"pageable", re.IGNORECASE)
_MAX_ROWS = 5


def analyse(context: Context) -> Result:
    """The time of pageable copies that held the host and had nothing beside them."""
    row, alone = held_by_copies(context, for_sampling=False)
    total = int(alone.sum())
    if total < MIN_SHARE * context.analysis.wall_ns or total == 0:
        return Result()
    finding = _finding(context, row, alone, total)
    change = without_waiting(context, row, "these copies from pinned memory, beside compute")
    return Result([finding], proposals=[Proposal(finding, lambda: change)])


def without_waiting(context: Context, row: Int64s, label: str) -> WhatIf:
    """The host goes on at once, and no other work waits for these copies."""
    calls = context.capture.ids("kernel", "api_call_id")[row]
    return WhatIf(label, not_waiting=[calls], hidden=[row])


def held_by_copies(context: Context, *, for_sampling: bool) -> tuple[Int64s, Int64s]:
    """Rows of `kernel` of pageable copies that held the host with nothing beside them, and for how long.

    Either those of logits that the host then samples from, or all others.
    """
    analysis = context.analysis
    codes, names = analysis.capture.codes("kernel", "name")
    is_pageable = np.array([_PAGEABLE.search(name) is not None for name in names] or [False])
    rows, exposed = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for device in analysis.devices if is_pageable.any() else ():
        work = device.work
        mine = np.flatnonzero(
            (work.kind == MEMCPY)
            & work.in_window()
            & is_pageable[np.maximum(codes[work.row], 0)]
            # The call came back only when the copy was done; a staged copy returns before.
            & (work.launch_end >= work.end)
        )
        mine = mine[_is_sampled(context, work, mine) == for_sampling]
        start, end = work.start[mine], work.end[mine]
        alone = (end - start) - covered(start, end, work.busy(COMPUTE, MEMSET, COMMUNICATION))
        rows.append(work.row[mine[alone > 0]].astype(np.int64))
        exposed.append(alone[alone > 0])
    return np.concatenate(rows), np.concatenate(exposed)


def _is_sampled(context: Context, work: DeviceWork, mine: Int64s) -> NDArray[np.bool_]:
    """Copies of logits: where the host then samples, that is why they are made."""
    capture = context.capture
    none = np.zeros(len(mine), np.bool_)
    codes, texts = capture.codes("op", "name")
    core = np.array([SAMPLING_CORE.search(text) is not None for text in texts] or [False])
    if not core.any() or len(mine) == 0:
        return none
    starts = np.sort(capture.int64("op", "start_ns")[core[np.maximum(codes, 0)] & (codes >= 0)])
    names = capture.codes("kernel", "name")
    to_host = np.array(["dtoh" in name.lower() for name in names[1]] or [False])
    at = np.searchsorted(starts, work.launch_end[mine])
    there = at < len(starts)
    soon = starts[np.minimum(at, len(starts) - 1)] - work.launch_end[mine] < (
        work.end[mine] - work.start[mine]
    )
    result: NDArray[np.bool_] = there & soon & to_host[names[0][work.row[mine]]]
    return result


def _finding(context: Context, row: Int64s, alone: Int64s, total: int) -> Finding:
    capture, wall = context.capture, context.analysis.wall_ns
    size = float(np.median(capture.int64("kernel", "bytes", 0)[row]))
    calls = capture.ids("kernel", "api_call_id")[row]
    of_thread = Counter(capture.ids("api_call", "thread_id")[calls].tolist())
    thread = capture["thread"]
    main = of_thread.most_common(1)[0][0]
    worst = row[np.argsort(-alone, kind="stable")]
    return Finding(
        code="blocking-copy",
        sentence=(
            f"{len(row):,} copies from or to pageable memory, {format_bytes(size)} at the median, held the host "
            f"until they were done, and for {format_duration(total)} of them nothing else ran "
            f"({format_percent(total, wall)} of the window)"
        ),
        kind=Kind.COST,
        value=total / wall,
        unit="share of the window",
        duration_ns=total,
        share=total / wall,
        gain_ns=total,
        gain_method="ceiling",
        status=context.status,
        evidence=(Evidence("kernel", tuple(worst[:_MAX_ROWS].tolist()), len(row)),),
        falsifier="the device stands as long with pinned memory and non_blocking=True",
        fix="copy from pinned memory with non_blocking=True while the device computes; copy less, or keep it on the device",
        details={"num_copies": len(row), "p50_bytes": size},
        place={"thread": f"{thread['pid'][main].as_py()}/{thread['tid'][main].as_py()}"},
        part_of_ns={"exposed-copy": total},
        confidence=0.9,
        effort="code",
    )
