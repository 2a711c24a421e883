"""Who sends requests, as `simulate.loop_clients` says: open loop, closed loop, turns of sessions."""

from __future__ import annotations

from tokenpath.simulate.compiled.events import push_event
from tokenpath.simulate.compiled.layout import (
    RUN_CONCURRENCY,
    RUN_IN_FLIGHT,
    RUN_IS_HELD,
    RUN_ROOTS_SENT,
    RUN_SENT,
    WORK_ARRIVAL,
    WORK_THINK,
    Sim,
)
from tokenpath.simulate.loop import ARRIVE


def push_next_root(s: Sim, now_ns: int) -> None:
    """The next request without a predecessor comes when it is due."""
    sent = s.run[RUN_ROOTS_SENT]
    if sent < len(s.roots):
        request = s.roots[sent]
        push_event(s, max(now_ns, s.work[request, WORK_ARRIVAL]), ARRIVE, request)


def send_request(s: Sim, request: int, now_ns: int) -> bool:
    """Send a request; False if the closed loop holds it back."""
    sent = s.run[RUN_ROOTS_SENT]
    is_root = sent < len(s.roots) and s.roots[sent] == request
    limit = s.run[RUN_CONCURRENCY]
    if is_root and limit >= 0 and s.run[RUN_IN_FLIGHT] >= limit:
        s.run[RUN_IS_HELD] = 1
        return False
    s.run[RUN_IN_FLIGHT] += 1
    s.run[RUN_SENT] += 1
    if is_root:
        s.run[RUN_ROOTS_SENT] = sent + 1
        push_next_root(s, now_ns)
    return True


def release_request(s: Sim, request: int, now_ns: int) -> None:
    """The client has the last token: next turns are sent, and the request that was held back."""
    s.run[RUN_IN_FLIGHT] -= 1
    for place in range(s.turn_start[request], s.turn_start[request + 1]):
        turn = s.turns[place]
        at_ns = max(now_ns + s.work[turn, WORK_THINK], s.work[turn, WORK_ARRIVAL])
        push_event(s, at_ns, ARRIVE, turn)
    if s.run[RUN_IS_HELD] == 1:
        s.run[RUN_IS_HELD] = 0
        push_next_root(s, now_ns)
