"""Pieces of host time that are stretched: another Python thread, the collector, or too few cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s, Intervals, covered, union
from tokenpath.core.finding import Finding, Kind
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.activity import PYTHON, WAIT
from tokenpath.explain.analyses.cpu_view import Host, Side, cost, pieces_left, thread_name
from tokenpath.explain.host_timeline import cut_into_segments, host_items

MIN_STRETCH = 4.0
"""A piece is stretched when it is so many times as long as the median one of its name ..."""
MIN_EXCESS_NS = 1_000_000
"""... and so much longer: a fifth of the interpreter's switch interval."""
MIN_SAMPLES = 8
"""Pieces of one name from which on it is known how long they usually are."""
MIN_HELD = 0.5
"""Share of the pauses in which another Python thread runs, from which on that is why."""
MAX_SPREAD = 0.35
"""Standard deviation over mean of a collector's pauses."""
MIN_PAUSES = 4
"""Fewer are chance."""


def pauses(host: Host) -> Iterator[Finding]:
    """At most one finding a process: `gil-contention`, `gc-pause` or `host-oversubscribed`."""
    for side in host.sides:
        if not side.capture.num_rows("frame"):
            continue
        start, length, item, excess = _stretched(host, side)
        total = int(excess.sum())
        if len(start) < MIN_PAUSES or total < 0.01 * host.wall_ns:
            continue
        told = (
            f"{len(start):,} pieces of the main thread took {format_duration(total)} longer than they mostly do "
            f"({format_percent(total, host.wall_ns)} of the window)"
        )
        holder, held = _other_python(side, start, start + length)
        spread = float(excess.std() / excess.mean())
        in_python = float(excess[side.items.activity[item] == PYTHON].sum() / total)
        place = {"thread": side.thread_name(), **side.place()}
        time = union(start, start + length)
        if holder is not None and held >= MIN_HELD:
            host.spend(side, time)
            yield cost(
                host, "gil-contention",
                f"{told}, while thread {thread_name(side.capture, holder)} ran Python: one thread at a time holds the "
                "interpreter lock",
                total, fix="move that work to another process, or into code that releases the lock",
                falsifier="with that thread's work in another process the pauses stay",
                confidence=min(0.95, 0.5 + held / 2), effort="code",
                place={**place, "thread": thread_name(side.capture, holder)},
            )  # fmt: skip
        elif spread <= MAX_SPREAD and in_python >= 0.8 and not _names_collector(side):
            host.spend(side, time)
            yield cost(
                host, "gc-pause",
                f"{told}, all by much the same, inside Python: as it does when the interpreter collects garbage",
                total, fix="gc.freeze() after warm-up, a higher threshold, or gc.disable() in the loop",
                falsifier="with gc.disable() the pauses stay", confidence=0.4, effort="setting",
                place=place,
            )  # fmt: skip
        elif len(start) >= 3 * MIN_PAUSES and in_python < 0.8 and total >= 0.1 * side.wall_ns:
            # Who took the core is not in the capture: what a fix would bring cannot be told either.
            yield replace(
                cost(
                    host, "host-oversubscribed",
                    f"{told}, in operators and outside of them: as it does when other threads take its core",
                    total, fix="fewer threads (torch.set_num_threads, OMP_NUM_THREADS), or cores of its own",
                    falsifier="with the process bound to idle cores the pauses stay", confidence=0.5,
                    effort="setting", place=place,
                ),
                kind=Kind.QUALITY, gain_ns=None, gain_method=None,
            )  # fmt: skip


def _stretched(host: Host, side: Side) -> tuple[Int64s, Int64s, NDArray[np.int32], Int64s]:
    """Start, length, item and excess of the pieces that are long for what they are pieces of."""
    start, length, item = pieces_left(host, side)
    keep = (length > 0) & (side.items.activity[item] != WAIT)
    start, length, item = start[keep], length[keep], item[keep]
    label = side.items.label[item]
    # The size of an operator's tensors is not known here; frames and operators of one name that mostly take as long.
    usual = np.full(len(side.items.labels) + 1, np.iinfo(np.int64).max // 8)
    order = np.lexsort((length, label))
    code, first, count = np.unique(label[order], return_index=True, return_counts=True)
    known = count >= MIN_SAMPLES
    usual[code[known]] = length[order][(first + (count * 3) // 4)[known]]
    excess = length - usual[label]
    rows = np.flatnonzero((excess >= MIN_EXCESS_NS) & (length >= MIN_STRETCH * usual[label]))
    return start[rows], length[rows], item[rows], excess[rows]


def _names_collector(side: Side) -> bool:
    _, names = side.capture.codes("frame", "name")
    return any("Python GC" in name for name in names)


def _other_python(side: Side, start: Int64s, end: Int64s) -> tuple[int | None, float]:
    """The thread of the process with most Python during the pauses, and its share of them."""
    capture = side.capture
    rows = capture["thread"].to_pylist()
    me = rows[side.thread]
    others = [
        at
        for at, row in enumerate(rows)
        if at != side.thread and row["pid"] == me["pid"] and row["source_id"] == me["source_id"]
    ]
    if not others:
        return None, 0.0
    pausing: Intervals = union(start, end)
    segments = cut_into_segments(host_items(capture, np.array(others, np.int32), pausing))
    best: tuple[int | None, float] = (None, 0.0)
    for thread, (low, high) in segments.first_of_thread.items():
        activity = segments.items.activity[segments.item[low:high]]
        runs = activity == PYTHON
        busy = union(segments.start[low:high][runs], segments.end[low:high][runs])
        share = float(covered(start, end, busy).sum() / (end - start).sum())
        if share > best[1]:
            best = thread, share
    return best
