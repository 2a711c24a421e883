"""The one function of the event loop that is compiled: `simulate.loop.run_events` over tables."""

from __future__ import annotations

from tokenpath.engine.vllm.layout import Int64s
from tokenpath.simulate.compiled.clients import release_request, send_request
from tokenpath.simulate.compiled.events import drop_event
from tokenpath.simulate.compiled.layout import (
    DONE,
    LOOK,
    REPLICA_IS_READY,
    ROUTE,
    ROUTE_OUTSIDE,
    RUN_ASKED_REQUEST,
    RUN_EVENTS,
    RUN_KEEPS_SHARES,
    RUN_LOOK_EVERY,
    RUN_NOW,
    RUN_ROUTER,
    RUN_SENT,
    RUN_SHARES,
    RUN_STEPS,
    SHARES_FULL,
    STEPS_FULL,
    Float64s,
    Sim,
)
from tokenpath.simulate.compiled.serving import (
    choose_replica,
    complete_step,
    decide_steps,
    place_request,
)
from tokenpath.simulate.loop import ARRIVE, COMPLETE, JOIN, RELEASE


def advance(
    op: int,
    chosen: int,
    run: Int64s,
    events: Int64s,
    work: Int64s,
    roots: Int64s,
    turns: Int64s,
    turn_start: Int64s,
    rows: Int64s,
    replicas: Int64s,
    flights: Int64s,
    stage_free: Int64s,
    steps: Int64s,
    shares: Int64s,
    gap_bins: Int64s,
    knots: Float64s,
    mixed_ns: Float64s,
    decode_ns: Float64s,
    device: Float64s,
    host: Float64s,
    host_ns: Float64s,
    noise: Float64s,
    state: Int64s,
    requests: Int64s,
    hashes: Int64s,
    waiting: Int64s,
    blocks: Int64s,
    scores: Int64s,
    buckets: Int64s,
    table: Int64s,
    evictable: Int64s,
    lists: Int64s,
    batches: Int64s,
) -> int:
    """Run until nothing is left or the caller is needed: why. `op` ROUTE brings the replica it chose."""
    s = Sim(
        run,
        events,
        work,
        roots,
        turns,
        turn_start,
        rows,
        replicas,
        flights,
        stage_free,
        steps,
        shares,
        gap_bins,
        knots,
        mixed_ns,
        decode_ns,
        device,
        host,
        host_ns,
        noise,
        state,
        requests,
        hashes,
        waiting,
        blocks,
        scores,
        buckets,
        table,
        evictable,
        lists,
        batches,
    )
    if op == ROUTE:
        place_request(s, run[RUN_ASKED_REQUEST], chosen, run[RUN_NOW])
        if is_time_to_look(s):
            return LOOK
    while run[RUN_EVENTS] > 0:
        status = take_event(s)
        if status != DONE:
            return status
    return DONE


def take_event(s: Sim) -> int:
    """Handle the next event; DONE unless the caller is needed."""
    now_ns = s.events[0, 0]
    kind = s.events[0, 1]
    index = s.events[0, 2]
    if kind == COMPLETE:
        if s.run[RUN_STEPS] == len(s.steps):
            return STEPS_FULL
        if s.run[RUN_KEEPS_SHARES] == 1 and s.run[RUN_SHARES] + s.batches.shape[2] > len(s.shares):
            return SHARES_FULL
    drop_event(s)
    s.run[RUN_NOW] = now_ns
    if kind == COMPLETE:
        complete_step(s, index, now_ns)
    elif kind == JOIN:
        s.replicas[index, REPLICA_IS_READY] = 1
    elif kind == RELEASE:
        release_request(s, index, now_ns)
    elif kind == ARRIVE:
        if send_request(s, index, now_ns):
            s.run[RUN_ASKED_REQUEST] = index
            if s.run[RUN_ROUTER] == ROUTE_OUTSIDE:
                return ROUTE
            place_request(s, index, choose_replica(s), now_ns)
            if is_time_to_look(s):
                return LOOK
    else:
        decide_steps(s, index, now_ns)
    return DONE


def is_time_to_look(s: Sim) -> bool:
    """Whether the caller wants to see the run now: after every so many requests."""
    every = s.run[RUN_LOOK_EVERY]
    return every > 0 and s.run[RUN_SENT] % every == 0
