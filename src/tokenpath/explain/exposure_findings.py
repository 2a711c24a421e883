"""Findings about communication and copies that run with nothing beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import clip, union
from tokenpath.core.finding import Evidence, Finding, Kind, Status
from tokenpath.core.kernel_names import classify_many
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.analyses.communication_calls import UNKNOWN, find_calls, judge
from tokenpath.explain.analysis import Analysis
from tokenpath.explain.causes import CAUSE_NUMBER, CAUSES
from tokenpath.explain.work import COMMUNICATION, MEMCPY

DISPATCHER_LIBRARIES = frozenset({"deepep"})
"""Libraries whose kernels pack, send, wait for and combine expert tokens in one kernel."""
LATENCY_NS = 60_000
"""A collective of unknown size that takes no longer may be a small one, which cannot be made much shorter."""
_MAX_ROWS = 5


def exposure_findings(analysis: Analysis, status: Status) -> list[Finding]:
    """Exposed communication, dispatcher communication, exposed copies."""
    splits = [device.funnel.split for device in analysis.devices]
    communication = sum(split.exposed_communication.total for split in splits)
    memcpy = sum(split.exposed_memcpy.total for split in splits)
    found = []
    if communication:
        claim = _exposed(
            analysis, status, "exposed-communication", communication,
            sum(split.communication_ns for split in splits),
            analysis.totals.communication_ns, COMMUNICATION, "communication",
            "the next compute does not need what the collective brings",
            "overlap it: other stream, smaller chunks, two micro-batches; or make it faster "
            "(custom or NVLink-SHARP all-reduce, fewer ranks)",
        )  # fmt: skip
        found.append(_with_honest_gain(claim, analysis))
    if memcpy:
        found.append(
            _exposed(
                analysis, status, "exposed-copy", memcpy,
                sum(split.memcpy_ns for split in splits),
                analysis.totals.memcpy_ns, MEMCPY, "copies",
                "the next compute does not need what the copy brings",
                "copy on a stream of its own from pinned memory, or keep the data on the device",
            )
        )  # fmt: skip
    return found + _dispatcher(analysis, status)


def _exposed(
    analysis: Analysis,
    status: Status,
    code: str,
    exposed_ns: int,
    total_ns: int,
    causes: Mapping[str, int],
    kind: int,
    what: str,
    falsifier: str,
    fix: str,
) -> Finding:
    by_cause = {key: value for key, value in causes.items() if value}
    blocking = sum(
        value
        for key, value in by_cause.items()
        if CAUSES[CAUSE_NUMBER[key]].key in ("communication_order", "memcpy_order")
    )
    return Finding(
        code=code,
        sentence=(
            f"{format_duration(exposed_ns)} of {format_duration(total_ns)} of {what} run with no "
            f"compute beside them ({format_percent(exposed_ns, analysis.wall_ns)} of the window); "
            f"{format_duration(blocking)} of it with the next compute ordered behind"
        ),
        kind=Kind.COST,
        value=exposed_ns / analysis.wall_ns,
        unit="share of the window",
        duration_ns=exposed_ns,
        share=exposed_ns / analysis.wall_ns,
        gain_ns=exposed_ns,
        gain_method="ceiling",
        status=status,
        evidence=(_longest(analysis, kind),),
        falsifier=falsifier,
        fix=fix,
        details={"total_ns": total_ns, "exposed_ns": exposed_ns, "exposed_ns_by_cause": by_cause},
    )


def _with_honest_gain(claim: Finding, analysis: Analysis) -> Finding:
    """Communication that compute depends on is no loss as such: only what could go counts as a gain.

    That is what no recorded order keeps from being hidden, and of what compute waits for the time above
    what its size should take on that link (`analyses.collective_model`); of unknown sizes, above a small
    message's. Where several ranks were seen, waiting for peers is left to the analysis of ranks.
    """
    calls = find_calls(analysis)
    if calls is None:
        return claim
    judged = judge(analysis, calls)
    should = np.where(judged.is_known, judged.typical_ns, LATENCY_NS)
    # Of one rank alone nobody can say how much of a long collective was waiting.
    took = np.where(calls.match == UNKNOWN, calls.length_ns, calls.transfer_ns)
    above = np.maximum(took - should, 0)
    above = above * calls.exposed_ns / np.maximum(calls.length_ns, 1)
    exposed = claim.duration_ns or 0
    causes = analysis.totals.communication_ns
    free = causes["queued_unexplained"]
    ordered = causes["communication_order"] + causes["launch_not_in_file"]
    gain = min(exposed, round(free + float(above.sum()) * ordered / exposed))
    is_judged = bool(judged.is_known[calls.exposed_ns > 0].all())
    return replace(
        claim,
        gain_ns=gain,
        gain_method="estimated" if is_judged else "ceiling",
        confidence=0.8,
        effort="code",
        details={
            **claim.details,
            "above_expected_ns": round(float(above.sum())),
            "not_ordered_ns": free,
            "is_size_known": is_judged,
        },
    )


def _longest(analysis: Analysis, kind: int) -> Evidence:
    rows: list[tuple[int, int]] = []
    count = 0
    for device in analysis.devices:
        work = device.work
        mine = np.flatnonzero(work.in_window() & (work.kind == kind))
        count += len(mine)
        length = (work.end - work.start)[mine]
        longest = np.argsort(-length, kind="stable")[:_MAX_ROWS]
        rows += [(int(length[at]), int(work.row[mine[at]])) for at in longest]
    rows.sort(reverse=True)
    return Evidence("kernel", tuple(row for _, row in rows[:_MAX_ROWS]), count)


def communication_libraries(capture: Capture) -> dict[str, str | None]:
    """The library of each communication kernel name."""
    codes, names = capture.codes("kernel", "name")
    kinds, kind_names = capture.codes("kernel", "kind")
    if "communication" not in kind_names:
        return {}
    used = np.unique(codes[kinds == kind_names.index("communication")])
    chosen = [names[code] for code in used]
    return {name: found.library for name, found in zip(chosen, classify_many(chosen), strict=True)}


def _dispatcher(analysis: Analysis, status: Status) -> list[Finding]:
    """Expert-parallel dispatch and combine: time in the dispatcher is not time on the network."""
    libraries = communication_libraries(analysis.capture)
    mine = {
        name
        for name, library in libraries.items()
        if library is not None and library.lower().replace("-", "") in DISPATCHER_LIBRARIES
    }
    if not mine:
        return []
    codes, names = analysis.capture.codes("kernel", "name")
    wanted = np.array([name in mine for name in names], np.bool_)
    duration = count = 0
    for device in analysis.devices:
        work = device.work
        chosen = wanted[codes[work.row]] & work.in_window()
        start, end = clip(
            work.start[chosen], work.end[chosen], work.window_start_ns, work.window_end_ns
        )
        duration += union(start, end).total
        count += int(chosen.sum())
    if not count:
        return []
    who = ", ".join(sorted({str(libraries[name]) for name in mine}))
    return [
        Finding(
            code="dispatcher-communication",
            sentence=(
                f"{format_duration(duration)} of communication is the MoE dispatcher ({who}, "
                f"{count:,} kernels): packing and waiting for peers included, not network time"
            ),
            kind=Kind.QUALITY,
            value=duration / analysis.wall_ns,
            unit="share of the window",
            duration_ns=duration,
            share=duration / analysis.wall_ns,
            gain_ns=None,
            gain_method=None,
            status=status,
            evidence=(Evidence("kernel", (), count, "kernels of the dispatcher's library"),),
            falsifier="the same kernels with all ranks arriving at once take as long",
            fix="compare ranks: the time that differs between them is waiting, not transfer",
            details={"num_kernels": count, "dispatcher_ns": duration},
        )
    ]
