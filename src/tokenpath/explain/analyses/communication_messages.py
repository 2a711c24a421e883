"""Many small collectives where few large ones would do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s
from tokenpath.core.finding import Evidence, Finding, Kind
from tokenpath.core.units import format_bytes, format_duration, format_percent
from tokenpath.explain.analyses.communication_calls import UNKNOWN, Calls, Judged
from tokenpath.explain.analyses.contract import Context, Proposal
from tokenpath.explain.analysis import Analysis
from tokenpath.explain.work import COMMUNICATION
from tokenpath.replay.change import KernelChange, WhatIf

MERGEABLE = (
    "allreduce",
    "reduce_scatter",
    "allgather",
    "broadcast",
    "reduce",
    "alltoall",
    "sendrecv",
)
"""Operations of which several can be one, given their data is there; sends and receives in one group call are one
kernel (NCCL, "Group Calls")."""
MIN_RUN = 3
"""Shorter runs of collectives are not worth merging."""
LATENCY_SHARE = 0.3
"""A message is small when at least this share of its time does not depend on its size."""
_MAX_GAP = 5.0
"""A run ends where nothing follows for this many times a message's duration."""
_FLOOR_NS = 25_000
_MIN_UNSIZED_RUN = 3
_MAX_ROWS = 5


def small_messages(context: Context, calls: Calls, judged: Judged) -> Proposal | None:
    """Runs of small collectives of one kind with no compute between them on their stream."""
    analysis = context.analysis
    run = _runs(analysis, calls)
    fixed = _fixed_ns(calls, judged)
    small = ~np.isnan(fixed) & (fixed >= LATENCY_SHARE * calls.transfer_ns)
    count = np.bincount(run[small], minlength=int(run.max()) + 1)
    # Of unknown size, more of them must follow each other to be taken for pieces of one.
    least = np.where(calls.buffer_bytes == UNKNOWN, _MIN_UNSIZED_RUN, MIN_RUN)
    chosen = np.flatnonzero(small & (count[run] >= least))
    if len(chosen) == 0:
        return None
    runs, which = np.unique(run[chosen], return_inverse=True)
    num = np.bincount(which)
    fixed_ns = np.bincount(which, fixed[chosen])
    variable = np.bincount(which, calls.transfer_ns[chosen] - fixed[chosen])
    # One message for as much data as makes its fixed part a fifth of it, and one at least.
    merged = np.maximum(1.0, np.ceil(variable / np.maximum(4 * fixed_ns / num, 1.0)))
    saved_of_run = np.maximum(num - merged, 0) / num * fixed_ns
    exposed = np.bincount(which, calls.exposed_ns[chosen])
    length = np.bincount(which, calls.length_ns[chosen])
    lost = int((saved_of_run * exposed / np.maximum(length, 1)).sum())
    wall = analysis.wall_ns
    if lost <= 0:
        return None
    sizes = calls.buffer_bytes[chosen]
    is_known = bool((sizes != UNKNOWN).all())
    usual = f" of {format_bytes(float(np.median(sizes)))}" if is_known else ""
    per_message = format_duration(float(fixed_ns.sum() / num.sum()))
    finding = Finding(
        code="small-messages",
        sentence=(
            f"{len(chosen):,} small collectives{usual} in {len(runs):,} runs of about {int(np.median(num))}: "
            f"{per_message} of each is there at any size, and {int(merged.sum()):,} larger ones would save "
            f"{format_duration(lost)} that nothing hides ({format_percent(lost, wall)} of the window)"
        ),
        kind=Kind.COST,
        value=lost / wall,
        unit="share of the window",
        duration_ns=lost,
        share=lost / wall,
        gain_ns=lost,
        gain_method="estimated",
        status=context.status,
        evidence=(
            Evidence("kernel", tuple(calls.kernel[chosen[:_MAX_ROWS]].tolist()), len(chosen)),
        ),
        falsifier="one collective of the summed size takes as long as the many together",
        fix=(
            "merge them: larger gradient buckets (bucket_cap_mb), coalesced or grouped calls "
            "(torch.distributed._coalescing_manager), one flat buffer instead of one tensor each"
        ),
        details={
            "num_messages": len(chosen),
            "num_runs": len(runs),
            "num_merged": int(merged.sum()),
            "fixed_ns_per_message": float(fixed_ns.sum() / num.sum()),
        },
        part_of_ns={"exposed-communication": lost},
        confidence=0.8 if is_known else 0.5,
        effort="code",
    )
    return Proposal(finding, lambda: _merge(calls, chosen, which, merged, fixed))


def _merge(
    calls: Calls,
    chosen: Int64s,
    which: Int64s,
    merged: NDArray[np.float64],
    fixed: NDArray[np.float64],
) -> WhatIf:
    """The first messages of each run carry all data; the others go."""
    first = np.flatnonzero(np.diff(which, prepend=-1))
    place = np.arange(len(which)) - first[which]
    goes = place >= merged[which]
    # Of a matched collective replay scales the transfer, of another one all that its kernel took.
    whole = np.where(
        calls.match[chosen] == UNKNOWN, calls.length_ns[chosen], calls.transfer_ns[chosen]
    )
    keeps = np.maximum(whole - fixed[chosen], 0) / np.maximum(whole, 1)
    return WhatIf(
        "fewer, larger collectives",
        kernels=[KernelChange(calls.kernel[chosen[goes]], keeps[goes], with_launch=True)],
    )


def _runs(analysis: Analysis, calls: Calls) -> Int64s:
    """A number for each call: equal where calls of one kind of operation follow each other directly."""
    run = np.zeros(len(calls), np.int64)
    order = np.lexsort((calls.start, calls.stream, calls.device))
    before, after = order[:-1], order[1:]
    breaks = (
        (calls.device[before] != calls.device[after])
        | (calls.stream[before] != calls.stream[after])
        | (calls.op[before] != calls.op[after])
        | (calls.group_size[before] != calls.group_size[after])
    )
    gap = calls.start[after] - calls.end[before]
    longest = np.maximum(calls.length_ns[before], calls.length_ns[after])
    breaks |= gap > _MAX_GAP * longest
    breaks |= _work_between(analysis, calls, before, after)
    mergeable = np.array([name in MERGEABLE for name in calls.ops])[calls.op]
    breaks |= ~mergeable[after] | ~mergeable[before]
    run[order] = np.cumsum(np.concatenate(([False], breaks)))
    return run


def _work_between(
    analysis: Analysis, calls: Calls, before: Int64s, after: Int64s
) -> NDArray[np.bool_]:
    """Whether other work ran between two calls on their own stream: then the second may need it."""
    result = np.zeros(len(before), np.bool_)
    for number, device in enumerate(analysis.devices):
        work = device.work
        mine = np.flatnonzero(
            (calls.device[before] == number) & (calls.stream[before] == calls.stream[after])
        )
        for stream in np.unique(calls.stream[before[mine]]):
            pairs = mine[calls.stream[before[mine]] == stream]
            other = (work.stream == stream) & (work.kind != COMMUNICATION)
            starts = work.start[other]
            low = np.searchsorted(starts, calls.end[before[pairs]], side="left")
            high = np.searchsorted(starts, calls.start[after[pairs]], side="left")
            result[pairs] = high > low
    return result


def _fixed_ns(calls: Calls, judged: Judged) -> NDArray[np.float64]:
    """The part of each call's transfer that does not depend on its size; NaN where that cannot be told."""
    fixed = calls.transfer_ns - judged.wire_ns / 0.75
    # Without a size, what takes no longer than an empty message may is taken for one.
    unsized = np.isnan(fixed) & (calls.buffer_bytes == UNKNOWN) & (calls.transfer_ns <= _FLOOR_NS)
    return np.where(unsized, calls.transfer_ns * 1.0, np.maximum(fixed, 0))
