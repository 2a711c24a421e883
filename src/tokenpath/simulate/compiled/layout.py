"""Where the compiled event loop keeps a run: named places in int64 tables, beside those of the scheduler."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenpath.engine.vllm.layout import Int64s, Memory

Float64s = NDArray[np.float64]

# run[...]
RUN_NOW = 0
RUN_EVENTS = 1
RUN_ROOTS_SENT = 2
RUN_IS_HELD = 3
RUN_IN_FLIGHT = 4
RUN_SENT = 5
RUN_FINISHED = 6
RUN_STEPS = 7
RUN_SHARES = 8
RUN_CONCURRENCY = 9
RUN_ROUTER = 10
RUN_CHOSEN = 11
RUN_DEPTH = 12
RUN_STAGES = 13
RUN_ROUND_TRIP = 14
RUN_LOOK_EVERY = 15
RUN_ASKED_REQUEST = 16
RUN_KEEPS_SHARES = 17
RUN_IS_OVERLAPPED = 18
RUN_STEP_BASE = 19
RUN_GAP_SUM = 20
RUN_GAP_LAST = 21
RUN_GAP_BIN = 22
NUM_RUN = 24

ROUTE_ROUND_ROBIN, ROUTE_LEAST_LOAD, ROUTE_OUTSIDE = 0, 1, 2
"""How requests find a replica; OUTSIDE: the caller is asked."""

DONE, STEPS_FULL, SHARES_FULL, LOOK, ROUTE = 0, 1, 2, 3, 4
"""Why `advance` returned: nothing is left; a buffer has to be emptied; the caller is to look at the run, or to
route `RUN_ASKED_REQUEST`."""

# work[r, ...]: the workload
WORK_ARRIVAL = 0
WORK_THINK = 1
WORK_IS_REFUSED = 2
NUM_WORK = 3

# rows[r, ...]: what happened to a request
ROW_ENDPOINT = 0
ROW_QUEUED = 1
ROW_SCHEDULED = 2
ROW_FIRST = 3
ROW_LAST = 4
ROW_FINISHED = 5
ROW_CACHED = 6
ROW_IS_REJECTED = 7
ROW_PREFILL_UNTIL = 8
ROW_IS_RESUMED = 9
NUM_ROW = 10
ROW_NOT_SEEN = -(2**63)

# replicas[k, ...]
REPLICA_FIRST_FLIGHT = 0
REPLICA_FLIGHTS = 1
REPLICA_IS_ASKED = 2
REPLICA_IS_READY = 3
REPLICA_OUTSTANDING = 4
REPLICA_OUTSTANDING_TOKENS = 5
REPLICA_PREEMPTED = 6
REPLICA_DECIDED = 7
NUM_REPLICA = 8

# steps[i, ...] and flights[k, which, ...]
STEP_ENDPOINT = 0
STEP_DECIDED = 1
STEP_START = 2
STEP_END = 3
STEP_RUNNING = 4
STEP_QUEUED = 5
STEP_PREEMPTED = 6
STEP_USED = 7
STEP_FEATURES = 8
NUM_STEP = 15
STEP_COUNT = 15
NUM_FLIGHT = 16

# shares[i, ...]
SHARE_STEP = 0
SHARE_REQUEST = 1
SHARE_IS_PREFILL = 2
SHARE_TOKENS = 3
SHARE_COMPUTED = 4
SHARE_EMITTED = 5
SHARE_IS_RESUMED = 6
NUM_SHARE = 7


class Sim(NamedTuple):
    """Everything that a run remembers; one array each. [k, ...] is of replica k."""

    run: Int64s
    """[NUM_RUN] settings and counts."""
    events: Int64s
    """[capacity, 3] a binary heap of (time, kind, index)."""
    work: Int64s
    """[requests, NUM_WORK]."""
    roots: Int64s
    """Requests without a predecessor."""
    turns: Int64s
    """Requests that wait for another, by that one."""
    turn_start: Int64s
    """[requests + 1] where those of each request are in `turns`."""
    rows: Int64s
    """[requests, NUM_ROW]."""
    replicas: Int64s
    """[replicas, NUM_REPLICA]."""
    flights: Int64s
    """[replicas, depth, NUM_FLIGHT] steps that are decided and have not run."""
    stage_free: Int64s
    """[replicas, stages] when each pipeline stage is rid of its last step."""
    steps: Int64s
    """[capacity, NUM_STEP] steps that have run."""
    shares: Int64s
    """[capacity, NUM_SHARE] requests' shares of those."""
    gap_bins: Int64s
    """[2, bins] longest gap between tokens of each bin, and how many there were; empty: not counted."""
    knots: Float64s
    mixed_ns: Float64s
    decode_ns: Float64s
    device: Float64s
    host: Float64s
    """Parts of the step curve."""
    host_ns: Float64s
    """[1], likewise."""
    noise: Float64s
    """[2, factors], likewise; no factors: no noise."""
    state: Int64s
    """[replicas, ...], as the following: the tables of each replica's scheduler, see `engine.vllm.layout`."""
    requests: Int64s
    """Of all replicas: a request is of one."""
    hashes: Int64s
    """Of all replicas."""
    waiting: Int64s
    blocks: Int64s
    scores: Int64s
    buckets: Int64s
    table: Int64s
    evictable: Int64s
    lists: Int64s
    batches: Int64s
    """[replicas, depth, ...]."""


def memory_of(s: Sim, k: int) -> Memory:
    """The tables of replica k's scheduler."""
    return Memory(
        s.state[k],
        s.requests,
        s.hashes,
        s.waiting[k],
        s.blocks[k],
        s.scores[k],
        s.buckets[k],
        s.table[k],
        s.evictable[k],
        s.lists[k],
        s.batches[k],
    )
