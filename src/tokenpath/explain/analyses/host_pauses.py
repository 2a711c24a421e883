"""Rare long pieces of host time: the garbage collector, another Python thread, or too few cores.

A pause is told by its company, not by its name. While another thread of the process runs Python, the late thread
waits for the interpreter lock. A pause of much the same length each time, inside Python and never inside a native
call, is the collector. Pauses of all lengths, inside native calls as well, are the operating system's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s, covered, union
from tokenpath.core.finding import Finding
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.activity import API, OP, PYTHON, UNTRACED
from tokenpath.explain.analyses.contract import Context
from tokenpath.explain.analyses.host_late import LateTime
from tokenpath.explain.host_timeline import cut_into_segments, host_items
from tokenpath.replay.change import WhatIf

MIN_SHARE = 0.005
"""Pauses below this share of the window are not looked into."""
MIN_PAUSE_NS = 300_000
"""Shorter pieces of host time are ordinary work."""
MIN_STRETCH = 5.0
"""A pause is so many times as long as the median piece of late time."""
MIN_SAMPLES = 5
"""Pieces of one name from which on it is known how long they usually are."""
NUM_PARTS = 4
"""Parts of the window that must all have pauses before the operating system is blamed."""
MIN_PAUSES = 4
"""Fewer are chance."""
MIN_HELD = 0.5
"""Share of the pauses in which another Python thread runs, from which on that is why."""
MAX_SPREAD = 0.5
"""Standard deviation over mean of the collector's pauses."""
MAX_NATIVE = 0.1
"""Share of the pauses inside native calls that is no contradiction to the collector."""


_START = re.compile(r"threading\.py(?:\(\d+\))?: (?:_bootstrap\w*|run)$", re.ASCII)


def pauses(context: Context, late: LateTime, spent: Int64s) -> Iterator[tuple[Finding, WhatIf]]:
    """At most one claim for all pauses that no closer cause has."""
    from tokenpath.explain.analyses.host import finding_of

    pieces = late.pieces
    free = (spent == 0)[pieces.gap] & np.isin(pieces.activity, (PYTHON, OP, API, UNTRACED))
    if not free.any():
        return
    usual = float(np.median(pieces.length[free]))
    rows = np.flatnonzero(free & (pieces.length >= max(MIN_PAUSE_NS, MIN_STRETCH * usual)))
    rows = rows[_is_stretched(late, rows)]
    length = pieces.length[rows]
    wall = context.analysis.wall_ns
    if len(rows) < MIN_PAUSES or length.sum() < MIN_SHARE * wall:
        return
    mine = np.zeros(len(late.start), np.int64)
    np.add.at(mine, pieces.gap[rows], length)
    gaps = np.flatnonzero(mine)
    told = (
        f"{len(rows):,} pauses of {format_duration(int(np.median(length)))} at the median "
        f"({format_percent(int(length.sum()), wall)} of the window)"
    )
    holder, held = _other_python(context, late, pieces.start[rows], pieces.end[rows])
    spread = float(length.std() / length.mean())
    native = float(length[pieces.activity[rows] == API].sum() / length.sum())
    steps = max((len(device.spans.start) for device in context.analysis.devices), default=0)
    is_rare = not steps or len(gaps) <= 0.6 * steps
    if holder is not None and held >= MIN_HELD:
        spent += mine
        yield finding_of(
            context, late, gaps, mine[gaps], "gil-contention",
            f"the launching thread stood still in {told} while thread {late.thread_name(holder)} of its process ran "
            "Python: one of them at a time holds the interpreter lock",
            "move that work to another process, or into code that releases the lock; sys.setswitchinterval",
            "the pauses stay with that thread's work in another process", 0.5 + held / 2.1, "code", {},
            thread=holder,
        )  # fmt: skip
    elif spread <= MAX_SPREAD and native <= MAX_NATIVE and is_rare:
        spent += mine
        yield finding_of(
            context, late, gaps, mine[gaps], "gc-pause",
            f"the launching thread stood still in {told}, all much alike, inside Python and with no other thread at "
            "work: as it does when the interpreter collects garbage",
            "gc.freeze() after warm-up, a higher threshold, or gc.disable() with collections between requests",
            "with gc.disable() the pauses stay", 0.7, "setting", {},
        )  # fmt: skip
    elif len(rows) >= 3 * MIN_PAUSES and spread > MAX_SPREAD and _is_anywhere(late, rows):
        spent += mine
        yield finding_of(
            context, late, gaps, mine[gaps], "host-oversubscribed",
            f"the launching thread stood still in {told}, at no particular place and of all lengths: as it does when "
            "other threads take its core",
            "a core of its own for the launching thread; fewer threads (OMP_NUM_THREADS, loader workers)",
            "with the process bound to idle cores the pauses stay", 0.6, "setting", {},
        )  # fmt: skip


def _is_stretched(late: LateTime, rows: Int64s) -> NDArray[np.bool_]:
    """Whether pieces are long for what they are pieces of: items of the same name mostly are not."""
    pieces, items = late.pieces, late.segments.items
    known = pieces.item >= 0
    label = (
        np.where(known, items.label[np.maximum(pieces.item, 0)], -1)
        if len(items.label)
        else np.full(len(known), -1)
    )
    result = np.zeros(len(rows), np.bool_)
    for one in np.unique(label[rows]).tolist():
        same = pieces.length[label == one]
        mine = rows[label[rows] == one]
        # Names that were never seen to be short say nothing: a first call, a lazy import.
        limit = MIN_STRETCH * float(np.median(same)) if len(same) >= MIN_SAMPLES else np.inf
        result[np.isin(rows, mine)] = pieces.length[mine] >= limit
    return result


def _is_anywhere(late: LateTime, rows: Int64s) -> bool:
    """Whether pauses fall into all parts of the window, and into no one item in particular."""
    pieces, items = late.pieces, late.segments.items
    length, start = pieces.length[rows], pieces.start[rows]
    edges = np.linspace(int(late.start.min()), int(late.end.max()) + 1, NUM_PARTS + 1)
    parts = np.bincount(
        np.clip(np.searchsorted(edges, start, "right") - 1, 0, NUM_PARTS - 1), length, NUM_PARTS
    )
    known = pieces.item[rows] >= 0
    label = np.where(known, items.label[np.maximum(pieces.item[rows], 0)], -1)
    by_label = np.bincount(np.unique(label, return_inverse=True)[1], length)
    return bool(
        (parts > 0).all()
        and parts.max() <= 0.6 * length.sum()
        and by_label.max() <= 0.6 * length.sum()
    )


def _other_python(
    context: Context, late: LateTime, start: Int64s, end: Int64s
) -> tuple[int | None, float]:
    """The thread of the same process with most Python during the pauses, and its share of them."""
    capture = context.capture
    pids = capture["thread"]["pid"].to_pylist()
    own = set(np.unique(late.thread).tolist())
    processes = {pids[row] for row in own}
    others = [row for row, pid in enumerate(pids) if pid in processes and row not in own]
    if not others:
        return None, 0.0
    segments = cut_into_segments(host_items(capture, np.array(others, np.int32), union(start, end)))
    # Where Python frames are recorded, only Python counts: native operators run without the lock.
    has_frames = capture.num_rows("frame") > 0
    wanted = (PYTHON,) if has_frames else (PYTHON, OP)
    # The frames that start a thread only call what it does; innermost, nothing below them was running.
    is_start = np.array([_START.search(label) is not None for label in segments.items.labels], bool)
    best: tuple[int | None, float] = (None, 0.0)
    for thread, (low, high) in segments.first_of_thread.items():
        item = segments.item[low:high]
        runs = np.isin(segments.items.activity[item], wanted)
        runs &= ~is_start[segments.items.label[item]]
        busy = union(segments.start[low:high][runs], segments.end[low:high][runs])
        share = float(covered(start, end, busy).sum() / (end - start).sum())
        if share > best[1]:
            best = thread, share
    return best
