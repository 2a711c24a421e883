"""Gradients that are reduced after the backward pass although they could be reduced during it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenpath.capture.intervals import Int64s, covered
from tokenpath.core.finding import Evidence, Finding, Kind
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.analyses.communication_calls import Calls
from tokenpath.explain.analyses.contract import Context, Proposal
from tokenpath.explain.work import COMPUTE, DeviceWork
from tokenpath.replay.change import KernelChange, WhatIf

HEAVY = (
    *("gemm", "convolution", "attention", "attention_prefill", "attention_decode", "moe", "ssm"),
)
"""Families of forward and backward passes; an optimiser has none of them."""
GRADIENT_OPS = ("allreduce", "reduce_scatter")
"""How gradients are summed."""
MIN_LATE_SHARE = 0.5
"""From this share of the reductions' time after the backward pass on, it is more than the last bucket's ..."""
MIN_BEYOND_LAST = 0.2
"""... or from this share on without the last bucket."""
_QUEUED_NS = 20_000
"""A reduction that follows the one before so shortly was waiting in line."""
BACKWARD_SHARE = 2 / 3
"""Of the compute of a pass forward and back; a backward pass has two products for each of the forward's."""
MIN_BUCKETS = 4
"""With so many buckets at least, the last one alone stays behind the backward pass."""
_MAX_ROWS = 5


@dataclass(frozen=True)
class _Pass:
    """One pass forward and back on one device, and its optimiser."""

    device: int
    start_ns: int
    """First heavy kernel."""
    backward_end_ns: int
    """End of the last heavy kernel."""
    optimiser_ns: int
    """Start of the optimiser's first kernel."""


def late_communication(context: Context, calls: Calls) -> Proposal | None:
    """Gradient reductions between the end of the backward pass and the optimiser."""
    analysis = context.analysis
    is_gradient = np.isin(calls.op, [n for n, op in enumerate(calls.ops) if op in GRADIENT_OPS])
    late_rows: list[Int64s] = []
    all_ns = late_ns = last_ns = exposed_ns = gain = 0
    passes = [
        item
        for number, device in enumerate(analysis.devices)
        for item in _passes(number, device.work)
    ]
    for item in passes:
        mine = np.flatnonzero(
            is_gradient
            & (calls.device == item.device)
            & (calls.start >= item.start_ns)
            & (calls.start < item.optimiser_ns)
        )
        late = _late(calls, mine, item.backward_end_ns)
        all_ns += int(calls.length_ns[mine].sum())
        late_ns += int(calls.length_ns[late].sum())
        exposed = int(calls.exposed_ns[late].sum())
        exposed_ns += exposed
        compute = analysis.devices[item.device].work.busy(COMPUTE)
        beside = covered(np.array([item.start_ns]), np.array([item.backward_end_ns]), compute)[0]
        kept = exposed / max(len(late), MIN_BUCKETS)
        gain += int(min(exposed - kept, BACKWARD_SHARE * float(beside)))
        late_rows.append(late)
        last_ns += int(calls.length_ns[late[-1]]) if len(late) else 0
    is_late = late_ns >= MIN_LATE_SHARE * all_ns or late_ns - last_ns >= MIN_BEYOND_LAST * all_ns
    if not all_ns or not is_late or gain <= 0:
        return None
    rows = np.concatenate(late_rows)
    wall = analysis.wall_ns
    longest = rows[np.argsort(-calls.length_ns[rows], kind="stable")]
    finding = Finding(
        code="late-communication",
        sentence=(
            f"{format_percent(late_ns, all_ns)} of the time of gradient reductions comes after the backward "
            f"pass: {format_duration(exposed_ns)} with nothing beside it ({format_percent(exposed_ns, wall)} "
            f"of the window), of which the backward pass could hide {format_duration(gain)}"
        ),
        kind=Kind.COST,
        value=late_ns / all_ns,
        unit="share of the reductions",
        duration_ns=exposed_ns,
        share=exposed_ns / wall,
        gain_ns=gain,
        gain_method="estimated",
        status=context.status,
        evidence=(
            Evidence("kernel", tuple(calls.kernel[longest[:_MAX_ROWS]].tolist()), len(rows)),
        ),
        falsifier="the gradients that are reduced late are not there before the backward pass ends",
        fix=(
            "reduce buckets as they fill: DistributedDataParallel hooks instead of one reduction at the end, "
            "smaller bucket_cap_mb, overlap_grad_reduce (Megatron), static_graph; buckets in the order in "
            "which gradients come"
        ),
        details={
            "late_share": late_ns / all_ns,
            "num_passes": len(passes),
            "num_late": len(rows),
            "num_reductions": int(is_gradient.sum()),
        },
        place={"step_phase": "backward"},
        part_of_ns={"exposed-communication": exposed_ns},
        confidence=0.8,
        effort="setting",
    )
    return Proposal(finding, lambda: _hidden(calls, late_rows))


def _late(calls: Calls, mine: Int64s, backward_end_ns: int) -> Int64s:
    """Reductions that were not asked for before the backward pass ended, in order of time.

    What follows directly upon a reduction that began in time was waiting in line: the link is busy, not late.
    """
    ordered = mine[np.argsort(calls.start[mine], kind="stable")]
    after = calls.start[ordered] >= backward_end_ns
    free: dict[int, int] = {}
    late = np.zeros(len(ordered), np.bool_)
    for place, (row, is_after) in enumerate(zip(ordered.tolist(), after.tolist(), strict=True)):
        stream, start, end = int(calls.stream[row]), int(calls.start[row]), int(calls.end[row])
        late[place] = is_after and start - free.get(stream, start - 2 * _QUEUED_NS) > _QUEUED_NS
        if not late[place]:
            free[stream] = max(free.get(stream, end), end)
    return ordered[late]


def _hidden(calls: Calls, late_rows: Sequence[Int64s]) -> WhatIf:
    """All but the last bucket of each pass hidden; a pass with few has the same share of each left."""
    hidden, shorter = [], []
    for rows in late_rows:
        if len(rows) >= MIN_BUCKETS:
            hidden.append(calls.kernel[rows[:-1]])
        elif len(rows):
            shorter.append(calls.kernel[rows])
    changes = [KernelChange(np.concatenate(shorter), 1 / MIN_BUCKETS)] if shorter else []
    return WhatIf("gradients reduced during the backward pass", kernels=changes, hidden=hidden)


def _passes(number: int, work: DeviceWork) -> list[_Pass]:
    """Passes that an optimiser follows in the window; none for inference."""
    if "optimizer" not in work.families:
        return []
    heavy_codes = [n for n, name in enumerate(work.families) if name in HEAVY]
    is_heavy = np.isin(work.family, heavy_codes) & (work.kind == COMPUTE)
    is_optimiser = (work.family == work.families.index("optimizer")) & (work.kind == COMPUTE)
    rows = np.flatnonzero((is_heavy | is_optimiser) & work.in_window())
    heavy = is_heavy[rows]
    # Stretches of heavy kernels, each with the optimiser behind it.
    turns = np.flatnonzero(np.diff(heavy.astype(np.int8)))
    edges = np.concatenate(([0], turns + 1, [len(rows)]))
    found = []
    for low, middle in zip(edges[:-2].tolist(), edges[1:-1].tolist(), strict=True):
        if heavy[low]:
            found.append(
                _Pass(
                    number,
                    int(work.start[rows[low]]),
                    int(work.end[rows[low:middle]].max()),
                    int(work.start[rows[middle]]),
                )
            )
    return found
