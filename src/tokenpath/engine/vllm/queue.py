"""The waiting queue: first come first served with a way back to its front, or by priority.

A binary heap on (rank, arrival, number). First come first served: ranks count up for those who come and down
for those who are put back. By priority: the rank is the priority (vLLM's `Request.__lt__`).
"""

from __future__ import annotations

from tokenpath.engine.vllm.layout import (
    ARRIVAL_NS,
    BACK_RANK,
    FRONT_RANK,
    IS_PRIORITY,
    NUM_WAITING,
    PRIORITY,
    RANK,
    STATUS,
    WAITING,
    Memory,
)


def is_before(m: Memory, a: int, b: int) -> bool:
    """Whether request `a` is served before request `b`."""
    if m.requests[a, RANK] != m.requests[b, RANK]:
        return m.requests[a, RANK] < m.requests[b, RANK]
    if m.requests[a, ARRIVAL_NS] != m.requests[b, ARRIVAL_NS]:
        return m.requests[a, ARRIVAL_NS] < m.requests[b, ARRIVAL_NS]
    return a < b


def push_waiting(m: Memory, r: int) -> None:
    """Into the heap, with the rank it has."""
    at = m.state[NUM_WAITING]
    m.state[NUM_WAITING] = at + 1
    m.requests[r, STATUS] = WAITING
    m.waiting[at] = r
    raise_waiting(m, at)


def append_waiting(m: Memory, r: int) -> None:
    """A request arrives."""
    if m.state[IS_PRIORITY] == 1:
        m.requests[r, RANK] = m.requests[r, PRIORITY]
    else:
        m.state[BACK_RANK] += 1
        m.requests[r, RANK] = m.state[BACK_RANK]
    push_waiting(m, r)


def prepend_waiting(m: Memory, r: int) -> None:
    """A preempted request goes to the front; by priority, to where it belongs."""
    if m.state[IS_PRIORITY] == 1:
        m.requests[r, RANK] = m.requests[r, PRIORITY]
    else:
        m.state[FRONT_RANK] -= 1
        m.requests[r, RANK] = m.state[FRONT_RANK]
    push_waiting(m, r)


def raise_waiting(m: Memory, at: int) -> None:
    """Move the request at a place of the heap towards its top, as far as it belongs."""
    r = m.waiting[at]
    while at > 0:
        parent = (at - 1) // 2
        if not is_before(m, r, m.waiting[parent]):
            break
        m.waiting[at] = m.waiting[parent]
        at = parent
    m.waiting[at] = r


def remove_waiting(m: Memory, at: int) -> None:
    """Take out the request at a place of the heap; 0 is the first to serve."""
    last = m.state[NUM_WAITING] - 1
    m.state[NUM_WAITING] = last
    if at == last:
        return
    r = m.waiting[last]
    m.waiting[at] = r
    raise_waiting(m, at)
    while True:
        child = 2 * at + 1
        if child >= last:
            break
        if child + 1 < last and is_before(m, m.waiting[child + 1], m.waiting[child]):
            child += 1
        if not is_before(m, m.waiting[child], m.waiting[at]):
            break
        moved = m.waiting[at]
        m.waiting[at] = m.waiting[child]
        m.waiting[child] = moved
        at = child


def find_waiting(m: Memory, r: int) -> int:
    """Place of a request in the heap; -1 if it is not waiting."""
    for at in range(m.state[NUM_WAITING]):
        if m.waiting[at] == r:
            return at
    return -1
