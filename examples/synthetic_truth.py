"""What really happened in a synthetic trace, from the knowledge of the machine that made it.

Nothing in the package reads this. Every idle gap of the device gets the condition that the work at its
end met last: its own arrival (then what the host was doing instead of launching it, or the way to the
device if it had been launched before the gap began), an event, the work before it, its graph.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass

from synthetic_machine import ARRIVAL, Machine, Segment, Work

BLOCKING = ("host_synchronize", "host_memcpy")
"""A host that stands in such a call when the device runs dry is held up by it, not by what it does next."""
WAITING = "host_wait"
"""Unless it next waits for work: then there was none, with or without that call."""


@dataclass(frozen=True)
class Gap:
    """A stretch without any work on the device."""

    start_ns: int
    """Start."""
    end_ns: int
    """End."""
    cause: str
    """Why, in the words of `tokenpath explain`."""
    injection: str | None
    """The injected fault behind it; None for what the program does anyway."""


def find_gaps(machine: Machine) -> list[Gap]:
    """All idle gaps between the first and the last work, in order."""
    works = sorted(machine.works, key=lambda work: (work.start_ns, work.end_ns))
    found = []
    busy_until = works[0].start_ns
    for work in works:
        if work.start_ns > busy_until:
            cause, injection = _why(machine.segments, work, busy_until)
            found.append(Gap(busy_until, work.start_ns, cause, injection))
        busy_until = max(busy_until, work.end_ns)
    return found


def _why(segments: list[Segment], work: Work, gap_start_ns: int) -> tuple[str, str | None]:
    if work.reason != ARRIVAL:
        return work.reason, work.injection
    if work.launch_ns <= gap_start_ns:
        return "launch_latency", None
    first = bisect_right(segments, gap_start_ns, key=lambda segment: segment.end_ns)
    spent: Counter[str] = Counter()
    behind: dict[str, Counter[str | None]] = {}
    for segment in segments[first:]:
        if segment.start_ns >= work.launch_ns:
            break
        length = min(segment.end_ns, work.launch_ns) - max(segment.start_ns, gap_start_ns)
        spent[segment.cause] += length
        behind.setdefault(segment.cause, Counter())[segment.injection] += length
    at_start = segments[first]
    cause = spent.most_common(1)[0][0]
    if at_start.cause in BLOCKING and cause != WAITING:
        return at_start.cause, at_start.injection
    return cause, behind[cause].most_common(1)[0][0]


def measure(works: list[Work]) -> dict[str, int]:
    """Time under each kind of work, by walking over all starts and ends with counters."""
    edges = sorted(
        edge
        for work in works
        if work.end_ns > work.start_ns
        for edge in ((work.start_ns, 1, work.kind), (work.end_ns, -1, work.kind))
    )
    running: Counter[str] = Counter()
    totals = dict.fromkeys(
        (
            "span_ns",
            "busy_ns",
            "idle_ns",
            "compute_ns",
            "communication_ns",
            "exposed_communication_ns",
            "memcpy_ns",
            "exposed_memcpy_ns",
        ),
        0,
    )
    now = edges[0][0]
    for at_ns, change, kind in edges:
        length, now = at_ns - now, at_ns
        totals["span_ns"] += length
        totals["busy_ns" if any(running.values()) else "idle_ns"] += length
        for one in ("compute", "communication", "memcpy"):
            totals[f"{one}_ns"] += length if running[one] else 0
        if not running["compute"] and not running["memset"]:
            if running["communication"]:
                totals["exposed_communication_ns"] += length
            elif running["memcpy"]:
                totals["exposed_memcpy_ns"] += length
        running[kind] += change
    return totals


def truth(machine: Machine, seed: int, origin_ns: int) -> dict[str, object]:
    """The truth as JSON; times of gaps are relative to the first work on the device."""
    gaps = find_gaps(machine)
    first = min(work.start_ns for work in machine.works)
    by_cause: Counter[str] = Counter()
    by_injection: dict[str, Counter[str]] = {}
    for gap in gaps:
        by_cause[gap.cause] += gap.end_ns - gap.start_ns
        if gap.injection is not None:
            length = gap.end_ns - gap.start_ns
            by_injection.setdefault(gap.injection, Counter())[gap.cause] += length
    return {
        "about": "what the generator did; never read by tokenpath",
        "seed": seed,
        "first_work_ns": origin_ns + first,
        **measure(machine.works),
        "idle_ns_by_cause": dict(sorted(by_cause.items())),
        "idle_ns_by_injection": {name: dict(causes) for name, causes in by_injection.items()},
        "gaps": [
            [gap.start_ns - first, gap.end_ns - first, gap.cause, gap.injection] for gap in gaps
        ],
    }
