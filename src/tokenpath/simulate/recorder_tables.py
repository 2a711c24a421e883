"""The columns of a run as tables of a capture, which `explain` reads like those of a recorded engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture, build_table, dictionary, nullable
from tokenpath.capture.tables import TABLES
from tokenpath.core.errors import UsageError
from tokenpath.core.units import NS_PER_S
from tokenpath.simulate.recorder import (
    NO_ENDPOINT,
    NOT_SEEN,
    Int64s,
    RequestRows,
    RunRows,
    ShareRows,
    StepRows,
    UserTokens,
)
from tokenpath.simulate.spool import MEMORY_ROWS, Spool
from tokenpath.simulate.workload.workload import Workload

READER_VERSION = 1
"""1: first release."""
_PHASES = ("prefill", "decode", "mixed")
_GAUGES = ("requests.running", "requests.waiting", "kv.usage")
SAMPLE_INTERVAL_NS = NS_PER_S
"""Between two samples of the counters."""


@dataclass(frozen=True)
class RunFacts:
    """What tables say of a run beside what happened in it."""

    name: str
    """What was simulated, a line for people."""
    engine: str
    """`vllm`, `sglang`, ...: the engine whose scheduler it is."""
    total_blocks: Sequence[int]
    """KV blocks of each scheduler, by endpoint."""
    send_ns: int = 0
    """From the client to the engine's queue: network, HTTP, tokenisation."""
    deliver_ns: int = 0
    """From the engine to the client: detokenisation, network."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the run, nested names joined by dots."""
    loaded_tokens: Mapping[str, int] = field(default_factory=dict)
    """Tokens loaded from each tier of KV below the GPU."""
    sample_interval_ns: int = SAMPLE_INTERVAL_NS
    """Between two samples of the counters."""

    def __post_init__(self) -> None:
        if self.sample_interval_ns < 1:
            raise UsageError(
                f"a counter sample every {self.sample_interval_ns} ns", allowed="1 ns or more"
            )


def capture_of_run(rows: RunRows, workload: Workload, facts: RunFacts, *, tokens: bool) -> Capture:
    """The tables of a run; `token` only where asked for, as there is a row for each."""
    tables = summary_tables(rows, workload, facts)
    if rows.shares is not None:
        tables["request_step"] = share_table(rows.shares, workload.request_ids)
        if tokens:
            ends = rows.steps.end_ns[rows.shares.step]
            before = np.zeros(workload.num_requests, np.int64)
            tables["token"] = token_table(rows.shares, ends, before, workload.request_ids)
    return Capture(tables)


def summary_tables(rows: RunRows, workload: Workload, facts: RunFacts) -> dict[str, pa.Table]:
    """All tables but those with a row for each share or token."""
    return {
        "source": _source(rows, facts),
        "setting": _settings(facts),
        "step": _steps(rows.steps, facts),
        "request": _requests(rows, workload, facts),
        "counter_sample": _samples(rows.steps, facts),
        "summary": _totals(facts),
    }


def share_table(shares: ShareRows, ids: Sequence[str] | None = None) -> pa.Table:
    """Rows of `request_step`; `ids` of the workload's requests, None: their numbers."""
    return build_table(
        "request_step",
        {
            "source_id": np.zeros(len(shares), np.int32),
            "request_id": _request_ids(shares.request, ids),
            "step_id": shares.step.astype(np.int32),
            "phase": dictionary((~shares.is_prefill).astype(np.int32), _PHASES[:2]),
            "num_tokens": shares.num_tokens,
            "num_computed_before": shares.num_computed_before,
            "num_emitted": shares.num_emitted,
            "is_resumed": shares.is_resumed,
        },
    )


def token_table(
    shares: ShareRows, end_ns: Int64s, before: Int64s, ids: Sequence[str] | None = None
) -> pa.Table:
    """Rows of `token`; `before` counts the tokens of each request so far, and is moved on. `ids` as above."""
    repeats = shares.num_emitted
    request, at = np.repeat(shares.request, repeats), np.repeat(end_ns, repeats)
    # Tokens of one request in order: its rank among equals, found in a stable sort.
    order = np.argsort(request, kind="stable")
    ordered = request[order]
    is_first = np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(ordered)]
    begin = np.maximum.accumulate(np.where(is_first, np.arange(len(ordered)), 0))
    index = np.empty(len(ordered), np.int64)
    index[order] = before[ordered] + np.arange(len(ordered)) - begin
    before += np.bincount(request, minlength=len(before))
    return build_table(
        "token",
        {
            "source_id": np.zeros(len(request), np.int32),
            "request_id": _request_ids(request, ids),
            "observer": _constant("engine", len(request)),
            "index": index,
            "at_ns": at,
        },
    )


def _request_ids(requests: Int64s, ids: Sequence[str] | None) -> pa.DictionaryArray:
    """Ids as text; the dictionary holds those that are there, so that a batch stays small."""
    known, codes = np.unique(requests, return_inverse=True)
    numbers = pa.array(known).cast(pa.string())
    texts = numbers if ids is None else pa.array([ids[one] for one in known.tolist()], pa.string())
    return dictionary(codes.astype(np.int32), texts)


def _constant(text: str, size: int) -> pa.DictionaryArray:
    return dictionary(np.zeros(size, np.int32), [text])


def _source(rows: RunRows, facts: RunFacts) -> pa.Table:
    return build_table(
        "source",
        {
            "path": [facts.name],
            "format": ["simulated"],
            "reader_version": np.array([READER_VERSION], np.int32),
            "num_bytes": [0],
            "clock_offset_ns": [0],
            "clock": ["monotonic"],
            "profiler": ["tokenpath simulate"],
            "state": ["simulated"],
            "num_events": [len(rows.steps)],
            "num_skipped": [0],
        },
    )


def _settings(facts: RunFacts) -> pa.Table:
    return build_table(
        "setting",
        {
            "source_id": np.zeros(len(facts.settings), np.int32),
            "name": list(facts.settings),
            "value": list(facts.settings.values()),
        },
    )


def _steps(steps: StepRows, facts: RunFacts) -> pa.Table:
    size, features = len(steps), [np.ascontiguousarray(column) for column in steps.features.T]
    phase, engine_id, number, total_blocks = _derived(steps, np.asarray(facts.total_blocks))
    return build_table(
        "step",
        {
            "source_id": np.zeros(size, np.int32),
            "name": _constant("step", size),
            "engine": _constant(facts.engine, size),
            "engine_id": engine_id,
            "observer": _constant("scheduler", size),
            "number": number,
            "phase": dictionary(phase, _PHASES),
            "start_ns": steps.decided_ns,
            "schedule_end_ns": steps.decided_ns,
            "execute_start_ns": steps.start_ns,
            "execute_end_ns": steps.end_ns,
            "output_ns": steps.end_ns,
            "end_ns": steps.end_ns,
            "num_prefill_requests": features[0],
            "num_prefill_tokens": features[1],
            "sum_prefill_kv_tokens": features[2],
            "num_decode_requests": features[4],
            "num_decode_tokens": features[5],
            "sum_decode_kv_tokens": features[6],
            "num_running": steps.num_running,
            "num_queued": steps.num_queued,
            "num_preempted": steps.num_preempted,
            "kv_used_blocks": steps.kv_used_blocks,
            "kv_total_blocks": total_blocks,
            **_nothing(size),
        },
    )


def _totals(facts: RunFacts) -> pa.Table:
    names, size = list(facts.loaded_tokens), len(facts.loaded_tokens)
    return build_table(
        "summary",
        {
            "source_id": np.zeros(size, np.int32),
            "name": _constant("kv.offload_loaded_tokens", size),
            "source_name": _constant("loaded_tokens", size),
            "statistic": _constant("total", size),
            "value": np.array(list(facts.loaded_tokens.values()), np.float64),
            "unit": _constant("token", size),
            "labels": [json.dumps({"tier": name}) for name in names],
        },
    )


def _derived(steps: StepRows, total_blocks: Int64s) -> list[NDArray[Any]]:
    """Each step's phase, scheduler, number on its own scheduler, and blocks there are."""
    spool = Spool([np.int32, np.int32, np.int64, np.int64])
    num_before = np.zeros(len(total_blocks), np.int64)
    for begin in range(0, len(steps), MEMORY_ROWS):
        part = slice(begin, begin + MEMORY_ROWS)
        endpoint = steps.endpoint[part]
        has_prefill, has_decode = steps.features[part, 0] > 0, steps.features[part, 4] > 0
        phase = np.where(has_decode, 1, 0) + (has_prefill & has_decode)
        phase[~has_prefill & ~has_decode] = NO_ENDPOINT
        number = np.empty(len(endpoint), np.int64)
        for one in range(len(total_blocks)):
            mine = endpoint == one
            number[mine] = num_before[one] + np.arange(mine.sum())
            num_before[one] += mine.sum()
        spool.append([phase, endpoint, number, total_blocks[endpoint]])
    return spool.finish()


def _nothing(size: int) -> dict[str, Sized]:
    """Columns of NULL over memory that is never touched, so that a long run has no pages of them."""
    found = {}
    for name in ("cuda_graph", "scheduler_step_id", "linked_by", "confidence"):
        kind = TABLES["step"].schema.field(name).type
        bits = pa.py_buffer(np.zeros(size // 8 + 8, np.uint8))
        values = pa.py_buffer(np.zeros(8 * size + 8, np.uint8))
        if pa.types.is_dictionary(kind):
            codes = pa.Array.from_buffers(kind.index_type, size, [bits, values], size)
            found[name] = pa.DictionaryArray.from_arrays(codes, pa.array([], kind.value_type))
        else:
            found[name] = pa.Array.from_buffers(kind, size, [bits, values], size)
    return found


def _requests(rows: RunRows, workload: Workload, facts: RunFacts) -> pa.Table:
    parts = [_of_stage(stage, workload) for stage in rows.requests]
    if facts.send_ns or facts.deliver_ns or rows.users is not None:
        parts.append(_of_clients(rows, workload, facts))
    table: pa.Table = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    return table


def _of_stage(rows: RequestRows, workload: Workload) -> pa.Table:
    """What the engines of one stage saw of requests."""
    seen = np.flatnonzero(rows.endpoint != NO_ENDPOINT)
    mine = {name: values[seen] for name, values in vars(rows).items()}
    finished = mine["finished_ns"]
    reason = np.where(finished == NOT_SEEN, -1, np.where(mine["is_rejected"], 1, 0))
    return build_table(
        "request",
        {
            **_who(seen, "engine", workload),
            "arrival_ns": mine["queued_ns"],
            "queued_ns": mine["queued_ns"],
            **{
                name: nullable(mine[name], NOT_SEEN)
                for name in ("scheduled_ns", "first_token_ns", "last_token_ns", "finished_ns")
            },
            "prompt_tokens": workload.prompt_tokens[seen],
            "cached_tokens": nullable(mine["cached_tokens"], NOT_SEEN),
            "output_tokens": mine["output_tokens"],
            "num_preemptions": mine["num_preemptions"],
            "finish_reason": dictionary(reason.astype(np.int32), ["length", "error"]),
        },
    )


def _of_clients(rows: RunRows, workload: Workload, facts: RunFacts) -> pa.Table:
    """What clients saw: engines' times moved by the way there and back."""
    first, last = rows.requests[0], rows.requests[-1]
    seen = np.flatnonzero(first.endpoint != NO_ENDPOINT)
    users = rows.users or UserTokens(first.first_token_ns, first.output_tokens)
    ends = [np.where(stage.is_rejected, NOT_SEEN, stage.last_token_ns) for stage in rows.requests]
    is_done = (last.finished_ns != NOT_SEEN) & ~last.is_rejected
    times = {
        "first_token_ns": users.first_token_ns,
        "last_token_ns": np.maximum.reduce([users.first_token_ns, *ends]),
        "finished_ns": np.where(is_done, last.finished_ns, NOT_SEEN),
    }
    return build_table(
        "request",
        {
            **_who(seen, "client", workload),
            "arrival_ns": first.queued_ns[seen] - facts.send_ns,
            **{name: _later(values[seen], facts.deliver_ns) for name, values in times.items()},
            "prompt_tokens": workload.prompt_tokens[seen],
            "output_tokens": users.output_tokens[seen],
        },
    )


def _who(seen: Int64s, observer: str, workload: Workload) -> dict[str, Sized]:
    return {
        "source_id": np.zeros(len(seen), np.int32),
        "request_id": _request_ids(seen, workload.request_ids),
        "observer": _constant(observer, len(seen)),
    }


def _later(values: Int64s, delay_ns: int) -> pa.Array:
    return nullable(np.where(values == NOT_SEEN, NOT_SEEN, values + delay_ns), NOT_SEEN)


def _samples(steps: StepRows, facts: RunFacts) -> pa.Table:
    """Gauges of each scheduler at equal intervals: of the last step decided before, 0 when none is in flight.

    Between its steps a scheduler has nothing to run, so no request holds a block then.
    """
    columns: dict[str, list[NDArray[Any]]] = {"at": [], "name": [], "label": [], "value": []}
    for endpoint, total in enumerate(facts.total_blocks):
        mine = np.flatnonzero(steps.endpoint == endpoint)
        if len(mine) == 0:
            continue
        last = int(steps.end_ns[mine[-1]])
        at = np.arange(0, last + facts.sample_interval_ns, facts.sample_interval_ns)
        # Decisions of one scheduler are in order, as its steps run in order.
        step = np.searchsorted(steps.decided_ns[mine], at, side="right") - 1
        row = mine[np.maximum(step, 0)]
        is_in_flight = (step >= 0) & (steps.end_ns[row] > at)
        for name, values in enumerate(
            (
                steps.num_running[row],
                steps.num_queued[row],
                steps.kv_used_blocks[row] / max(1, total),
            )
        ):
            columns["at"].append(at)
            columns["name"].append(np.full(len(at), name, np.int32))
            columns["label"].append(np.full(len(at), endpoint, np.int32))
            columns["value"].append(np.where(is_in_flight, values, 0).astype(np.float64))
    if not columns["at"]:
        return build_table("counter_sample", {})
    joined = {key: np.concatenate(parts) for key, parts in columns.items()}
    labels = [json.dumps({"engine": str(number)}) for number in range(len(facts.total_blocks))]
    size = len(joined["at"])
    return build_table(
        "counter_sample",
        {
            "source_id": np.zeros(size, np.int32),
            "at_ns": joined["at"],
            "name": dictionary(joined["name"], _GAUGES),
            "source_name": dictionary(joined["name"], _GAUGES),
            "kind": _constant("gauge", size),
            "labels": dictionary(joined["label"], labels),
            "value": joined["value"],
            # A dictionary that held a text twice would not be written as the same bytes each time.
            "unit": dictionary((joined["name"] == 2).astype(np.int32), ["request", "ratio"]),
        },
    )
