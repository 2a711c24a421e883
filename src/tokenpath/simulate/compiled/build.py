"""A run's tables at the start: workload, replicas, step curve, nothing sent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenpath.engine.config import EngineConfig
from tokenpath.engine.vllm import layout as engine
from tokenpath.engine.vllm.layout import Int64s
from tokenpath.engine.vllm.tables import aligned_zeros, memory_for
from tokenpath.simulate.compiled import layout as at
from tokenpath.simulate.loop import JOIN
from tokenpath.simulate.replica import ReplicaSettings
from tokenpath.simulate.spool import MEMORY_ROWS
from tokenpath.simulate.step_model import StepCurve
from tokenpath.simulate.token_gaps import longest_gaps_ns
from tokenpath.simulate.workload.workload import NO_REQUEST, Workload

STEP_ROWS = MEMORY_ROWS
"""Steps that are kept before the caller takes them."""
SHARE_ROWS = 262_144
"""Shares of requests in steps likewise, at least."""


def sim_for(
    workload: Workload,
    config: EngineConfig,
    curve: StepCurve,
    settings: Sequence[ReplicaSettings],
    *,
    refused: Int64s,
    router: int,
    round_trip_ns: int,
    look_every: int,
    keeps_shares: bool,
    counts_gaps: bool,
) -> at.Sim:
    """Replicas of one kind, which may be ready at different times. `refused` can never run."""
    num_replicas, size = len(settings), workload.num_requests
    depth, stages = settings[0].steps_in_flight, settings[0].num_stages
    one = memory_for(config)
    is_root = workload.after == NO_REQUEST
    turns = np.argsort(workload.after, kind="stable")[int(is_root.sum()) :]
    turn_start = np.searchsorted(workload.after[turns], np.arange(size + 1))
    share_rows = max(SHARE_ROWS, config.max_num_seqs) if keeps_shares else 1
    sim = at.Sim(
        run=np.zeros(at.NUM_RUN, np.int64),
        # At once at most: a release a request, its next turns, and what replicas have going on.
        events=np.zeros((2 * size + num_replicas * (depth + 2) + 2, 3), np.int64),
        work=np.stack([workload.arrival_ns, workload.think_ns, refused], axis=1),
        roots=np.flatnonzero(is_root),
        turns=turns,
        turn_start=turn_start,
        rows=_rows(workload),
        replicas=np.zeros((num_replicas, at.NUM_REPLICA), np.int64),
        flights=np.zeros((num_replicas, depth, at.NUM_FLIGHT), np.int64),
        stage_free=np.zeros((num_replicas, stages), np.int64),
        steps=np.zeros((STEP_ROWS, at.NUM_STEP), np.int64),
        shares=np.zeros((share_rows, at.NUM_SHARE), np.int64),
        gap_bins=_gap_bins() if counts_gaps else np.zeros((2, 0), np.int64),
        knots=_floats(curve.knots),
        mixed_ns=_floats(curve.mixed_ns),
        decode_ns=_floats(curve.decode_ns),
        device=_floats(curve.device_coefficients),
        host=_floats(curve.host_coefficients),
        host_ns=_floats([curve.host_ns]),
        noise=np.empty((2, 0)) if curve.noise is None else _floats(curve.noise),
        state=_for_each(one.state, num_replicas),
        requests=_requests(workload),
        hashes=np.append(workload.hashes, 0),
        waiting=np.zeros((num_replicas, max(size, 1)), np.int64),
        blocks=_for_each(one.blocks, num_replicas),
        scores=_for_each(one.scores, num_replicas),
        buckets=_for_each(one.buckets, num_replicas),
        table=np.zeros((num_replicas, *one.table.shape), np.int64),
        evictable=_for_each(one.evictable, num_replicas),
        lists=_for_each(one.lists, num_replicas),
        batches=np.zeros(
            (num_replicas, depth, config.max_num_seqs, engine.NUM_BATCH_FIELDS), np.int64
        ),
    )
    sim.run[at.RUN_CONCURRENCY] = -1 if workload.concurrency is None else workload.concurrency
    sim.run[at.RUN_ROUTER] = router
    sim.run[at.RUN_DEPTH] = depth
    sim.run[at.RUN_STAGES] = stages
    sim.run[at.RUN_ROUND_TRIP] = round_trip_ns
    sim.run[at.RUN_LOOK_EVERY] = look_every
    sim.run[at.RUN_KEEPS_SHARES] = keeps_shares
    sim.run[at.RUN_GAP_LAST] = -1
    sim.run[at.RUN_IS_OVERLAPPED] = curve.is_overlapped
    _first_events(sim, settings)
    return at.Sim(*map(np.ascontiguousarray, sim))


def _first_events(sim: at.Sim, settings: Sequence[ReplicaSettings]) -> None:
    from tokenpath.simulate.compiled.clients import push_next_root
    from tokenpath.simulate.compiled.events import push_event

    for k, replica in enumerate(settings):
        sim.replicas[k, at.REPLICA_IS_READY] = replica.ready_ns == 0
        if replica.ready_ns > 0:
            push_event(sim, replica.ready_ns, JOIN, k)
    push_next_root(sim, 0)


def _rows(workload: Workload) -> Int64s:
    rows = np.full((workload.num_requests, at.NUM_ROW), at.ROW_NOT_SEEN)
    rows[:, at.ROW_ENDPOINT] = -1
    rows[:, at.ROW_IS_REJECTED] = 0
    rows[:, at.ROW_PREFILL_UNTIL] = workload.prompt_tokens
    return rows


def _requests(workload: Workload) -> Int64s:
    requests = np.zeros((workload.num_requests, engine.NUM_REQUEST_FIELDS), np.int64)
    requests[:, engine.PROMPT_TOKENS] = workload.prompt_tokens
    requests[:, engine.OUTPUT_TOKENS] = workload.output_tokens
    requests[:, engine.PRIORITY] = workload.priority
    requests[:, engine.SLOT] = -1
    requests[:, engine.HASH_START] = workload.hash_start[:-1]
    requests[:, engine.NUM_HASHES] = np.diff(workload.hash_start)
    requests[:, engine.GRANULE_TOKENS] = workload.hash_granule_tokens
    return requests


def _gap_bins() -> Int64s:
    longest = np.append(longest_gaps_ns(), np.iinfo(np.int64).max)
    return np.stack([longest, np.zeros_like(longest)])


def _for_each(array: Int64s, count: int) -> Int64s:
    result = aligned_zeros(count, *array.shape)
    result[:] = array
    return result


def _floats(values: object) -> at.Float64s:
    return np.array(values, np.float64)
