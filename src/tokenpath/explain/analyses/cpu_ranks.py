"""Ranks without a device: who the others wait for in collectives, and messages that are too small or too late."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tokenpath.capture.intervals import Int64s, Intervals, difference, intersection, union
from tokenpath.core.finding import Finding
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.analyses.cpu_view import Host, Side, cost
from tokenpath.explain.analyses.kernel_roofline_shapes import read_tensors

MIN_STEADY = 0.7
"""Share of the waiting that one rank must cause to be named."""
MIN_TIMES = 5
"""Fewer collectives that ranks wait in are chance."""
MIN_LARGER = 1.05
"""A rank has more work when its operators' inputs are so much larger than the others'."""
SMALL_BYTES = 64 << 10
"""Messages up to this take what a message takes, whatever is in them."""
MIN_MESSAGES = 16
"""Small messages a step from which on they are worth joining."""
BUCKET_BYTES = 25 << 20
"""What data-parallel training joins into one message."""
_COLLECTIVE = re.compile(r"^c10d::(?!wait|monitored)\w+")
_SHARED = re.compile(r"^c10d|_foreach_|distributed|optimizer", re.IGNORECASE)
_TRANSFER = re.compile(r"^(?:gloo|mpi|ucc):")
_WAIT = re.compile(r"built-in method wait of")
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function")


@dataclass(frozen=True)
class _Rank:
    """The collectives of one rank, in order."""

    side: Side
    """Its main thread."""
    start: Int64s
    """When it called each."""
    step: Int64s
    """Number of the step, -1 before the first."""
    num_bytes: Int64s
    """Bytes of each, four an element; 0 when shapes are not recorded."""
    is_blocking: bool
    """Whether the main thread waits for each before it goes on."""
    exposed: Intervals
    """Time in transfers while no operator ran on the main thread."""


def ranks(host: Host, others: Sequence[Finding]) -> Iterator[Finding]:
    """Findings `straggler`, `rank-imbalance`, `small-messages` and `late-communication`.

    `others` are the findings on single processes: what holds up one rank alone holds up all of them.
    """
    found = [rank for side in host.sides if (rank := _rank(side)) is not None]
    if found:
        yield from _messages(host, found)
    if len(found) > 1 and len({len(rank.start) for rank in found}) == 1:
        yield from _stragglers(host, found) or _held_up(host, found, others)


def _rank(side: Side) -> _Rank | None:
    capture = side.capture
    rows = side.rows_named("op", _COLLECTIVE)
    start = capture.int64("op", "start_ns")
    rows = rows[(start[rows] >= side.low) & (start[rows] < side.high)]
    rows = rows[np.argsort(start[rows], kind="stable")]
    if not len(rows):
        return None
    shape, shapes = capture.codes("op", "input_shapes")
    sizes = np.zeros(len(shapes) + 1, np.int64)
    for code in np.unique(shape[rows]).tolist():
        if code >= 0:
            sizes[code] = 4 * sum(tensor.elements for tensor in read_tensors(shapes[code], None))
    waits = side.rows_named("frame", _WAIT)
    op_rows = np.flatnonzero(capture.ids("op", "thread_id") == side.thread)
    busy = union(start[op_rows], capture.int64("op", "end_ns")[op_rows])
    return _Rank(
        side, start[rows], np.searchsorted(side.step_start, start[rows], side="right") - 1,
        sizes[shape[rows]], 2 * len(waits) >= len(rows), difference(_transfers(side), busy),
    )  # fmt: skip


def _transfers(side: Side) -> Intervals:
    """Time of the window in which any thread of the process moved data for a collective."""
    capture = side.capture
    if not capture.num_rows("range"):
        return side.named(_TRANSFER)
    codes, names = capture.codes("range", "name")
    wanted = np.array([bool(_TRANSFER.search(name)) for name in names] or [False])
    mine = np.flatnonzero(
        (capture.ids("range", "source_id") == side.source) & (codes >= 0) & wanted[codes]
    )
    both = union(capture.int64("range", "start_ns")[mine], capture.int64("range", "end_ns")[mine])
    return intersection(both, side.window)


def _stragglers(host: Host, found: list[_Rank]) -> list[Finding]:
    start = np.stack([rank.start for rank in found])
    late = start.argmax(axis=0)
    waits = start.max(axis=0) - start
    if not all(rank.is_blocking for rank in found):
        # Called and not waited for: what counts is how late the last one of each step is.
        step = found[0].step
        waits = waits[:, np.append(step[1:] != step[:-1], True)]
        late = late[np.append(step[1:] != step[:-1], True)]
    caused = np.bincount(late, waits.sum(axis=0), len(found)).astype(np.int64)
    total = int(caused.sum())
    worst = int(caused.argmax())
    others = np.delete(caused, worst)
    net = int(caused[worst] - np.median(others))
    # One rank that is late once is chance: it must be the last in most of them, and for most of the time.
    often = float((late[waits.sum(axis=0) > 0] == worst).mean()) if total else 0.0
    if len(late) < MIN_TIMES or caused[worst] < MIN_STEADY * total or often < MIN_STEADY:
        return []
    side = found[worst].side
    # Each rank is held up for as long as the others wait for it, itself included.
    gain = net * len(found) // (len(found) - 1)
    work = np.array([_work(rank.side) for rank in found], np.float64)
    is_larger = work[worst] >= MIN_LARGER * float(np.median(np.delete(work, worst)))
    who = f"rank {side.rank}" if side.rank is not None else f"process {side.thread_name()}"
    told = f"the others waited {format_duration(int(caused[worst]))} in collectives for {who}, the last to arrive"
    code = "rank-imbalance" if is_larger else "straggler"
    if is_larger:
        times = work[worst] / np.median(np.delete(work, worst))
        why = f", whose operators have {times:.2f} x the data"
        fix = "give each rank the same amount of work: split by tokens or elements, not by samples"
    else:
        why = ", although it has no more work"
        fix = "look at what that rank's main thread does before the collective, and at the cores it has"
    return [cost(
        host, code, f"{told}{why} ({format_percent(gain, host.wall_ns)} of the window over all ranks)", gain,
        fix=fix, falsifier="with that rank's work done by another process the waiting stays", confidence=0.85,
        effort="code", place={} if side.rank is None else {"rank": str(side.rank)},
        details={"waited_ns_by_rank_caused": {str(r.side.rank): int(c) for r, c in zip(found, caused, strict=True)}},
    )]  # fmt: skip


def _held_up(host: Host, found: list[_Rank], others: Sequence[Finding]) -> list[Finding]:
    """The rank with a slow function that no other rank has: arrivals alone are too noisy to tell it."""
    mine = [f for f in others if f.code == "slow-host-code" and "rank" in f.place]
    by_rank = {
        f.place["rank"]: sum(g.gain_ns or 0 for g in mine if g.place["rank"] == f.place["rank"])
        for f in mine
    }
    if not by_rank:
        return []
    rank = max(by_rank, key=lambda one: by_rank[one])
    gain = (by_rank[rank] - sorted([0, *by_rank.values()])[-2]) * len(found)
    return [cost(
        host, "straggler",
        f"rank {rank} alone spends {format_duration(by_rank[rank])} in Python before its collectives, and the others "
        f"wait for it ({format_percent(gain, host.wall_ns)} of the window over all ranks)",
        gain, fix="look at what that rank's main thread does before the collective",
        falsifier="without that time the other ranks wait as long", confidence=0.6, effort="code",
        place={"rank": rank},
    )]  # fmt: skip


def _work(side: Side) -> int:
    """Elements of the inputs of all operators of the window."""
    capture = side.capture
    shape, shapes = capture.codes("op", "input_shapes")
    start = capture.int64("op", "start_ns")
    mine = (capture.ids("op", "thread_id") == side.thread) & (shape >= 0)
    mine &= (start >= side.low) & (start < side.high)
    # Weights and their gradients are the same on every rank, and hide what is not.
    codes, names = capture.codes("op", "name")
    mine &= ~np.array([bool(_SHARED.search(name)) for name in names] or [False])[codes]
    count = np.bincount(shape[mine], minlength=len(shapes))
    return sum(
        int(count[code]) * sum(tensor.elements for tensor in read_tensors(shapes[code], None))
        for code in np.flatnonzero(count).tolist()
    )


def _messages(host: Host, found: list[_Rank]) -> Iterator[Finding]:
    small, late, backward_ns, exposed_ns, count = 0, 0, 0, 0, 0
    for rank in found:
        steps = max(len(rank.side.step_start), 1)
        exposed = rank.exposed.total
        is_small = rank.num_bytes <= SMALL_BYTES
        if is_small.sum() >= max(MIN_MESSAGES * steps, len(is_small) // 2) and rank.num_bytes.any():
            buckets = steps * (1 + int(rank.num_bytes.sum()) // steps // BUCKET_BYTES)
            small += exposed - exposed * buckets // len(rank.start)
            count += int(is_small.sum())
            continue
        ends, spans = _backward(rank.side)
        if len(ends) and (after := rank.start >= ends[np.maximum(rank.step, 0)]).mean() >= 0.9:
            backward_ns += int(spans.sum())
            exposed_ns += exposed
            late += int(after.sum())
    if small:
        yield cost(
            host, "small-messages",
            f"{count:,} collectives of {format_bytes(found[0].num_bytes)} at the median, one after the other, took "
            f"most of {format_duration(small)} for being messages ({format_percent(small, host.wall_ns)} of the window)",
            small, fix="join gradients or activations into one buffer (buckets, coalescing) before the collective",
            falsifier="one message of the same bytes takes as long", confidence=0.8, effort="code", place={},
        )  # fmt: skip
    gain = min(exposed_ns, backward_ns)
    if gain:
        yield cost(
            host, "late-communication",
            f"{late:,} collectives began only after the backward pass, and {format_duration(exposed_ns)} of them hid "
            f"behind nothing ({format_percent(exposed_ns, host.wall_ns)} of the window)",
            gain, duration_ns=exposed_ns,
            fix="start each bucket when its gradients are there (DistributedDataParallel, hooks)",
            falsifier="started during the backward pass the step takes as long", confidence=0.7, effort="code", place={},
        )  # fmt: skip


def format_bytes(sizes: Int64s) -> str:
    """The median size in KiB."""
    return f"{float(np.median(sizes)) / 1024:,.0f} KiB"


def _backward(side: Side) -> tuple[Int64s, Int64s]:
    """For each step when its backward pass ended, and how long it took; empty where a step has none."""
    capture = side.capture
    rows = side.rows_named("op", _BACKWARD)
    start, end = capture.int64("op", "start_ns")[rows], capture.int64("op", "end_ns")[rows]
    number = np.searchsorted(side.step_start, start, side="right") - 1
    steps = len(side.step_start)
    none = np.empty(0, np.int64)
    if not steps or len(np.unique(number[number >= 0])) < steps:
        return none, none
    last, first = np.zeros(steps, np.int64), np.full(steps, np.iinfo(np.int64).max)
    np.maximum.at(last, number[number >= 0], end[number >= 0])
    np.minimum.at(first, number[number >= 0], start[number >= 0])
    return last, last - first
