"""The events of a run: a binary heap on (time, kind, index), as `simulate.loop` orders them."""

from __future__ import annotations

from tokenpath.simulate.compiled.layout import RUN_EVENTS, Sim


def comes_first(s: Sim, a: int, b: int) -> bool:
    """Whether the event at place `a` of the heap comes before the one at `b`."""
    for field in range(3):
        if s.events[a, field] != s.events[b, field]:
            return s.events[a, field] < s.events[b, field]
    return False


def swap_events(s: Sim, a: int, b: int) -> None:
    """Exchange two places of the heap."""
    for field in range(3):
        kept = s.events[a, field]
        s.events[a, field] = s.events[b, field]
        s.events[b, field] = kept


def push_event(s: Sim, at_ns: int, kind: int, index: int) -> None:
    """Something is going to happen."""
    place = s.run[RUN_EVENTS]
    s.run[RUN_EVENTS] = place + 1
    s.events[place, 0] = at_ns
    s.events[place, 1] = kind
    s.events[place, 2] = index
    while place > 0 and comes_first(s, place, (place - 1) // 2):
        swap_events(s, place, (place - 1) // 2)
        place = (place - 1) // 2


def drop_event(s: Sim) -> None:
    """Take the next event away."""
    last = s.run[RUN_EVENTS] - 1
    s.run[RUN_EVENTS] = last
    for field in range(3):
        s.events[0, field] = s.events[last, field]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        if child + 1 < last and comes_first(s, child + 1, child):
            child += 1
        if not comes_first(s, child, place):
            break
        swap_events(s, place, child)
        place = child
