"""From causes to findings: what each is called, what would falsify it, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tokenpath.capture.intervals import Int64s
from tokenpath.core.finding import Evidence, Finding, Kind, Status, rank, settle
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.analysis import Analysis, DeviceResult
from tokenpath.explain.causes import CAUSE_NUMBER, CAUSES

MIN_SHARE = 0.005
"""A cost below this share of the window is named under `not worth it`, not as a finding."""
MAX_EVIDENCE_ROWS = 5
"""Kernel rows given as examples."""
LONGEST_NORMAL_GAP_NS = 5_000
"""Gaps between queued kernels up to this are how devices hand over: on H100, H800, H200 and A100 the 99th percentile
in traces of vLLM, SGLang and training is 2.1 to 4.7 us on a stream, 0.8 us in a graph."""


@dataclass(frozen=True)
class IdleCode:
    """A finding made of idle causes."""

    code: str
    """Stable code; its page is explain/pages/CODE.md."""
    causes: tuple[str, ...]
    """Keys of the causes whose idle time it sums."""
    claim: str
    """What is claimed, after `idle time` and its length."""
    falsifier: str
    """What would prove it wrong."""
    fix: str
    """What to do."""
    kind: Kind = Kind.COST
    """Abstention where the capture lacks what would name the cause."""
    is_above_normal: bool = False
    """Only gaps above `LONGEST_NORMAL_GAP_NS` are claimed, without the length of the device's median one."""


IDLE_CODES = (
    IdleCode(
        "launch-bound",
        ("host_op", "host_api", "host_python", "host_untraced", "launch_latency"),
        "because the host had not launched the next kernel",
        "the gaps stay when the same kernels are replayed from a graph",
        "capture the repeated part in CUDA/HIP graphs, fuse small kernels (torch.compile), or "
        "take work off the launching thread",
    ),
    IdleCode(
        "synchronisation-stall",
        ("host_synchronize",),
        "after the host stood in a synchronising call",
        "the gap stays when the synchronising call is removed or moved after the next launch",
        "remove the synchronise, or launch the next work before it (asynchronous scheduling)",
    ),
    IdleCode(
        "blocking-copy",
        ("host_memcpy",),
        "in or after a copy that blocks the host",
        "the gap stays with pinned memory and non_blocking=True",
        "use pinned host memory and non_blocking copies; keep sampling results on the device",
    ),
    IdleCode(
        "allocator-stall",
        ("host_allocator",),
        "while the host allocated or freed device memory",
        "the gap stays after the allocator has reached its steady state",
        "warm the caching allocator up, preallocate, or avoid empty_cache in the loop",
    ),
    IdleCode(
        "host-wait",
        ("host_wait",),
        "while the launching thread waited in a lock, queue or poll",
        "the thread that it waits for shows no work in the same stretch",
        "find who holds the lock or fills the queue; overlap that work with the device",
    ),
    IdleCode(
        "no-work",
        ("no_work",),
        "with nothing recorded on any host thread",
        "requests were waiting in the engine during the gap",
        "send more load, or capture a window in which the engine has work",
    ),
    IdleCode(
        "event-wait",
        ("event_wait",),
        "in kernels that were queued behind an event of another stream",
        "the awaited event had been recorded and done before the gap",
        "reorder or split the work so that the awaited part ends earlier",
    ),
    IdleCode(
        "collective-wait",
        ("collective_wait",),
        "in kernels that were queued behind a communication kernel's event",
        "the collective had finished on this rank before the gap",
        "look at all ranks: find the one that arrives last",
    ),
    IdleCode(
        "stream-handover",
        ("stream_dependency",),
        "between queued kernels of one stream, above the usual hand-over",
        "the same gaps vanish without any change of kernels",
        "fewer, larger kernels; programmatic dependent launch where kernels support it",
        is_above_normal=True,
    ),
    IdleCode(
        "graph-gaps",
        ("graph_internal",),
        "between the nodes of a graph, above the usual gap",
        "a replay of the same graph shows no gaps between its nodes",
        "fuse small nodes; look for host nodes or memory nodes inside the graph",
        is_above_normal=True,
    ),
    IdleCode(
        "queued-unexplained",
        ("queued_unexplained",),
        "in kernels that were launched in time and waited behind nothing recorded",
        "a capture of all processes on the device, with synchronisation events, shows the work",
        "capture again with all processes and files of the run, and with CUDA sync events",
        Kind.ABSTENTION,
    ),
    IdleCode(
        "launch-unknown",
        ("launch_not_in_file",),
        "before kernels whose launch is not in the file",
        "a capture that holds the launches names another cause",
        "capture host activity too, and start the profiler before the work is launched",
        Kind.ABSTENTION,
    ),
    IdleCode(
        "unattributed-idle",
        ("unattributed",),
        "without a cause",
        "",
        "report the capture: every gap should get a cause",
        Kind.ABSTENTION,
    ),
)


@dataclass(frozen=True)
class Verdicts:
    """Findings and what was looked at and found too small."""

    findings: tuple[Finding, ...]
    """Ranked by what fixing them would bring."""
    dismissed: tuple[str, ...]
    """One phrase each, the largest first."""
    durations_ns: Mapping[str, int]
    """Time of every claim by code, dismissed ones included."""


def find(analysis: Analysis, status: Status, extra: Sequence[Finding] = ()) -> Verdicts:
    """The findings of an analysis; idle findings only where the capture supports idle time."""
    wall = analysis.wall_ns
    candidates = [*extra]
    if analysis.quality.idle_withheld is None:
        candidates += [
            finding for code in IDLE_CODES if (finding := _idle(analysis, code, status)) is not None
        ]
    candidates = settle(candidates)
    worth = [f for f in candidates if f.kind is Kind.QUALITY or _is_worth(f, wall)]
    small = [f for f in candidates if f not in worth and f.duration_ns]
    small.sort(key=lambda finding: -(finding.duration_ns or 0))
    dismissed = [f"{f.code} ({format_duration(f.duration_ns or 0)})" for f in small]
    durations = Counter[str]()
    for finding in candidates:
        durations[finding.code] += finding.duration_ns or 0
    return Verdicts(tuple(rank(worth)), tuple(dismissed), durations)


def _is_worth(finding: Finding, wall_ns: int) -> bool:
    return (finding.duration_ns or 0) >= MIN_SHARE * wall_ns


@dataclass(frozen=True)
class _Claimed:
    """The gaps of one device that a code claims."""

    device: DeviceResult
    """The device."""
    rows: Int64s
    """Rows of its gaps."""
    normal_ns: int
    """What of each gap is normal."""

    @property
    def excess_ns(self) -> int:
        """Time claimed."""
        return int((self.device.gaps.duration_ns[self.rows] - self.normal_ns).sum())


def _claimed(device: DeviceResult, code: IdleCode) -> _Claimed:
    gaps = device.gaps
    mine = np.flatnonzero(np.isin(gaps.cause, [CAUSE_NUMBER[key] for key in code.causes]))
    if not code.is_above_normal or len(mine) == 0:
        return _Claimed(device, mine, 0)
    length = gaps.duration_ns[mine]
    long = length > LONGEST_NORMAL_GAP_NS
    # Where most gaps are long, none of them is normal: what devices need at most is.
    middle = int(np.partition(length, (len(length) - 1) // 2)[(len(length) - 1) // 2])
    return _Claimed(device, mine[long], min(middle, LONGEST_NORMAL_GAP_NS))


def _idle(analysis: Analysis, code: IdleCode, status: Status) -> Finding | None:
    totals = analysis.totals
    if not any(totals.idle_ns[key] for key in code.causes):
        return None
    parts = [_claimed(device, code) for device in analysis.devices]
    duration = sum(part.excess_ns for part in parts)
    if duration == 0:
        return None
    lengths = np.concatenate([part.device.gaps.duration_ns[part.rows] for part in parts])
    count = len(lengths)
    largest = max(code.causes, key=lambda key: totals.idle_ns[key])
    sentence = (
        f"{format_percent(duration, analysis.wall_ns)} of the window idle {code.claim} "
        f"({count:,} gap{'s' if count > 1 else ''}, p50 {format_duration(_p50_ns(lengths))})"
    )
    details: dict[str, object] = {
        "num_gaps": count,
        "idle_ns_by_cause": {
            key: totals.idle_ns[key] for key in code.causes if totals.idle_ns[key]
        },
    }
    if detail := totals.top_detail[largest]:
        details["host_was_in"] = detail
    if code.is_above_normal:
        details["normal_gap_ns"] = max(part.normal_ns for part in parts)
    if code.code == "launch-bound":
        details |= launch_details(analysis)
    is_cost = code.kind is Kind.COST
    return Finding(
        code=code.code,
        sentence=sentence,
        kind=code.kind,
        value=duration / analysis.wall_ns,
        unit="share of the window",
        duration_ns=duration,
        share=duration / analysis.wall_ns,
        gain_ns=duration if is_cost else None,
        gain_method="ceiling" if is_cost else None,
        status=status,
        evidence=(_evidence(parts),),
        falsifier=code.falsifier,
        fix=code.fix,
        details=details,
    )


def launch_details(analysis: Analysis) -> dict[str, object]:
    """The launch-bound figures: launches a second, time in them, launch and queueing time."""
    figures = analysis.launches
    return {
        "num_launches": figures.num_launches,
        "num_kernels": figures.num_kernels,
        "launches_per_s": figures.launches_per_s,
        "launch_call_ns": figures.launch_call_ns,
        "p50_launch_call_ns": figures.p50_launch_call_ns,
        "launch_and_queue_ns": figures.launch_and_queue_ns,
        "num_synchronizing": figures.num_synchronizing,
        "synchronizing_ns": figures.synchronizing_ns,
    }


def _p50_ns(lengths: Int64s) -> int:
    middle = (len(lengths) - 1) // 2
    return int(np.partition(lengths, middle)[middle])


LAUNCH_BOUND_SHARE = 0.05
"""From this share of the window on, waiting for launches makes a capture launch-bound."""


def is_launch_bound(analysis: Analysis) -> bool | None:
    """The launch-bound verdict; None where the capture does not support idle time."""
    if analysis.quality.idle_withheld is not None or not analysis.wall_ns:
        return None
    starved = sum(analysis.totals.idle_ns[key] for key in IDLE_CODES[0].causes)
    return starved >= LAUNCH_BOUND_SHARE * analysis.wall_ns


def _evidence(parts: Sequence[_Claimed]) -> Evidence:
    found: list[tuple[int, int]] = []
    count = 0
    for part in parts:
        device, mine = part.device, part.rows
        count += len(mine)
        longest = mine[np.argsort(-device.gaps.duration_ns[mine], kind="stable")]
        for row in longest[:MAX_EVIDENCE_ROWS]:
            position = int(device.gaps.kernel[row])
            if position >= 0:
                duration = int(device.gaps.duration_ns[row])
                found.append((duration, int(device.work.row[position])))
    found.sort(reverse=True)
    rows = tuple(row for _, row in found[:MAX_EVIDENCE_ROWS])
    return Evidence("kernel", rows, count, "kernels that end the gaps; see table worst_gaps")


def cause_meaning(key: str) -> str:
    """What was seen when a gap gets this cause."""
    return CAUSES[CAUSE_NUMBER[key]].meaning
