"""The causes of time without compute: their names, and which of four groups each belongs to."""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from dataclasses import dataclass, field


class Group(enum.StrEnum):
    """The four groups that reconcile to the time without compute."""

    LAUNCH_STARVED = "launch_starved"
    """The device had nothing to run because the host had not launched it yet."""
    BLOCKING = "blocking"
    """Something had to finish first: the host waited for it, or the next kernel was ordered behind."""
    DEPENDENCY_STALLED = "dependency_stalled"
    """Work was queued and waited for its turn: stream order, an event, the inside of a graph."""
    UNATTRIBUTED = "unattributed"
    """The capture does not say."""


@dataclass(frozen=True)
class Cause:
    """One cause of time without compute."""

    key: str
    """Stable key."""
    label: str
    """What a person reads."""
    group: Group
    """Which of the four groups it counts in."""
    meaning: str
    """What was seen when a gap gets this cause."""


_STARVED, _BLOCKING = Group.LAUNCH_STARVED, Group.BLOCKING
_STALLED, _UNKNOWN = Group.DEPENDENCY_STALLED, Group.UNATTRIBUTED

HOST_NOT_READY = (
    Cause("host_op", "in a framework op", _STARVED,
          "launched after the device went idle; the host was in an operator, outside any API call"),
    Cause("host_api", "in an API call", _STARVED,
          "the same; most of the time in runtime or driver calls, the launch itself included"),
    Cause("host_python", "in Python", _STARVED,
          "the same; most of the time in Python frames outside any operator"),
    Cause("host_wait", "in a lock, queue or poll", _STARVED,
          "the same; most of the time in frames that wait: lock, queue, poll, receive"),
    Cause("host_allocator", "in the allocator", _STARVED,
          "the same; most of the time in cudaMalloc, cudaFree and their kin"),
    Cause("host_untraced", "outside anything traced", _STARVED,
          "the same; nothing recorded on the launching thread for most of the time"),
    Cause("host_synchronize", "after a synchronise", _BLOCKING,
          "the host stood in a synchronising call when the device ran dry, then launched again"),
    Cause("host_memcpy", "after a blocking copy", _BLOCKING,
          "the host stood in a copy that blocks it when the device ran dry, then launched again"),
)  # fmt: skip

DEVICE_CAUSES = (
    Cause("launch_latency", "launch latency", _STARVED,
          "launched so shortly before that the way from call to device is the gap"),
    Cause("stream_dependency", "stream order", _STALLED,
          "queued behind an earlier kernel of its stream; the hand-over is the gap"),
    Cause("event_wait", "event wait", _STALLED,
          "queued behind a stream-wait-event"),
    Cause("collective_wait", "collective wait", _STALLED,
          "queued behind an event that follows a communication kernel"),
    Cause("graph_internal", "inside a graph or call", _STALLED,
          "between two nodes of one graph launch, or two pieces of work of one call"),
    Cause("communication_order", "ordered behind communication", _BLOCKING,
          "communication alone ran; the next compute was launched and ordered behind it"),
    Cause("memcpy_order", "ordered behind a copy", _BLOCKING,
          "copies alone ran; the next compute was launched and ordered behind them"),
    Cause("no_work", "no work", _STARVED,
          "Python frames are recorded and none runs on any thread, or the window ends"),
    Cause("launch_not_in_file", "launch not in file", _UNKNOWN,
          "the launch of the kernel that ends the gap was not recorded"),
    Cause("queued_unexplained", "queued, not explained", _UNKNOWN,
          "launched long before, and no recorded work or wait stood in front of it"),
    Cause("unattributed", "unattributed", _UNKNOWN,
          "none of the above"),
)  # fmt: skip

CAUSES = (*HOST_NOT_READY, *DEVICE_CAUSES)
"""All causes; a cause number in arrays is the position here."""
CAUSE_NUMBER = {cause.key: number for number, cause in enumerate(CAUSES)}


@dataclass
class CauseTotals:
    """Time without compute by cause, summed over devices."""

    idle_ns: Counter[str] = field(default_factory=Counter)
    """Device idle, by cause."""
    communication_ns: Counter[str] = field(default_factory=Counter)
    """Exposed communication, by cause."""
    memcpy_ns: Counter[str] = field(default_factory=Counter)
    """Exposed copies, by cause."""
    num_gaps: Counter[str] = field(default_factory=Counter)
    """Idle gaps, by cause."""
    p50_ns: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Median length of the idle gaps, by cause."""
    top_detail: defaultdict[str, str] = field(default_factory=lambda: defaultdict(str))
    """What the host was doing most, by cause."""

    def groups_ns(self) -> dict[Group, int]:
        """Time without compute by group; adds up to idle + exposed communication + exposed copies."""
        totals = dict.fromkeys(Group, 0)
        for counter in (self.idle_ns, self.communication_ns, self.memcpy_ns):
            for key, duration in counter.items():
                totals[CAUSES[CAUSE_NUMBER[key]].group] += duration
        return totals
