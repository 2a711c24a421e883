"""Whether requests arrive faster than they can be served, said while a run goes on.

The rule, for open loops only (a closed loop cannot be overloaded). Sixteen times a run, but at least every
512 requests, what was sent, has ended, waits and runs is looked at. Over the window from half of the looks so
far to now, all of these must hold, at two looks in a row:

1. requests were waiting in queues at every look;
2. as many requests have ended as ran at the window's start: the batch has turned over once;
3. more requests were sent than ended, by three standard deviations of a Poisson count, and the queues grew;
4. the requests that are still to come come faster than requests ended in the window.

What ended in the window over its length is then the capacity: nothing was idle. A burst fails 4, a batch
that still fills fails 1 or 2, a queue that wanders at a load just below one fails 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from tokenpath.core.units import NS_PER_S, format_duration
from tokenpath.simulate.workload.workload import NO_REQUEST, Workload

LOOK_EVERY = 512
"""Requests between two looks, at most."""
LOOKS_A_RUN = 16
"""Looks at a run, at least."""
STOP_FROM = 10_000
"""With fewer requests sent a run is never stopped: it does not take long anyway."""


@dataclass(frozen=True)
class Overload:
    """Requests arrive faster than they are served."""

    capacity_per_s: float
    """Requests that are served a second when none is idle."""
    arrival_per_s: float
    """Requests that arrive a second, all of the workload."""
    num_sent: int
    """Requests sent until it was found."""
    at_ns: int
    """When it was found, in the run's time."""
    is_stopped: bool
    """Whether the run was broken off there."""

    @property
    def sentence(self) -> str:
        """For people."""
        how = "stopped" if self.is_stopped else "found"
        return (
            f"arrival rate exceeds capacity {_rate(self.capacity_per_s)} req/s "
            f"({_rate(self.arrival_per_s)} req/s arrive; {how} after {self.num_sent:,} requests, "
            f"{format_duration(self.at_ns)})"
        )


def look_every(workload: Workload) -> int:
    """Requests sent between two looks at a run of this workload."""
    return max(1, min(LOOK_EVERY, workload.num_requests // LOOKS_A_RUN))


class Sent(Protocol):
    """Who counts requests."""

    num_sent: int


class Served(Protocol):
    """Who serves them."""

    num_finished: int

    @property
    def num_waiting(self) -> int:
        """Requests in queues."""

    @property
    def num_running(self) -> int:
        """Requests admitted and not ended."""


@dataclass(frozen=True)
class _Look:
    at_ns: int
    num_sent: int
    num_finished: int
    num_waiting: int
    num_running: int


class OverloadWatch:
    """Looks at a run after arrivals, and stops it once it is overloaded."""

    def __init__(
        self, workload: Workload, clients: Sent, cluster: Served, *, stops: bool = True
    ) -> None:
        """`stops`: whether an overloaded run is broken off; else it is only said."""
        self._clients, self._cluster, self._stops = clients, cluster, stops
        self._num_requests = workload.num_requests
        self._is_open = workload.concurrency is None
        roots = workload.arrival_ns[workload.after == NO_REQUEST]
        self._first_ns, self._last_ns = (int(roots[0]), int(roots[-1])) if len(roots) else (0, 0)
        self._every = look_every(workload)
        self._looks: list[_Look] = []
        self._was_over = False
        self.found: Overload | None = None
        """The verdict; None: not overloaded as far as seen."""

    def must_stop(self, _request: int, now_ns: int) -> bool:
        """Look, if it is time to; True when the run is overloaded and stops."""
        sent = self._clients.num_sent
        if not self._is_open or sent % self._every:
            return False
        self._looks.append(
            _Look(
                now_ns,
                sent,
                self._cluster.num_finished,
                self._cluster.num_waiting,
                self._cluster.num_running,
            )
        )
        capacity = self._capacity()
        is_sure, self._was_over = capacity is not None and self._was_over, capacity is not None
        if capacity is None or not is_sure:
            return False
        is_stopped = self._stops and sent >= STOP_FROM
        if self.found is not None and not is_stopped:
            return False
        span = max(1, self._last_ns - self._first_ns)
        arriving = self._num_requests * NS_PER_S / span
        self.found = Overload(capacity, arriving, sent, now_ns, is_stopped)
        return is_stopped

    def _capacity(self) -> float | None:
        """Requests served a second, if all conditions hold at the last look."""
        window = self._looks[len(self._looks) // 2 :]
        begin, end = window[0], window[-1]
        length = end.at_ns - begin.at_ns
        served = end.num_finished - begin.num_finished
        sent = end.num_sent - begin.num_sent
        if length <= 0 or any(look.num_waiting == 0 for look in window):
            return None
        if served < max(1, begin.num_running):
            return None
        if sent - served < 3 * math.sqrt(sent) or end.num_waiting <= begin.num_waiting:
            return None
        rate = served * NS_PER_S / length
        to_come, time_left = self._num_requests - end.num_sent, self._last_ns - end.at_ns
        if to_come > 0 and to_come * NS_PER_S <= rate * time_left:
            return None
        return rate


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= 100 else f"{per_s:.3g}"
