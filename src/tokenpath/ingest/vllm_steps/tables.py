"""Columns of a step log to the tables of a capture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tokenpath.capture.capture import dictionary, nullable
from tokenpath.core.request_ids import plain_request_id
from tokenpath.core.units import NS_PER_US
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.vllm_steps.follow import NUM_SUMS, Progress, follow
from tokenpath.ingest.vllm_steps.log import MAX_TOKENS, MAX_US, Log, Times, join_blocks, times_of
from tokenpath.ingest.vllm_steps.record import (
    NEW,
    NULL,
    RESUMED,
    Int32s,
    Int64s,
    Rows,
)
from tokenpath.ingest.vllm_steps.requests import Requests, find_requests

_PHASES = ("prefill", "decode", "mixed")


def write_tables(
    builder: CaptureBuilder,
    parts: Sequence[Rows],
    ids: Sequence[str],
    *,
    t0_ns: int,
    num_blocks: int | None,
    engine_id: int | None,
    num_lines: int,
) -> None:
    """Add all rows to the builder. `num_blocks` as the engine reports it, the null block included."""
    log = join_blocks(parts, builder.losses)
    adds = _Adds.join(parts)
    requests = find_requests(
        adds.line, adds.number, adds.at_us, adds.prompt,
        log.line[log.share_step], log.share_number, len(ids), num_lines + 1,
    )  # fmt: skip
    request = requests.rows(log.share_number, log.line[log.share_step])
    numbers = (log.before, log.tokens, log.emitted)
    progress = follow(request, log.share_step, log.kind, numbers, requests.prompt, len(log.line))
    strangers = len(requests.number) - requests.num_added
    builder.losses.add("request without an add record", strangers, dropped=False)
    times = times_of(log, t0_ns, builder.losses)
    names = _Names.of(ids)
    marks = _Marks.join(parts, requests, log.line)
    _add_steps(builder, log, times, progress, marks, num_blocks, engine_id)
    _add_requests(builder, log, times, requests, request, progress, marks, names, t0_ns)
    _add_shares(builder, log, times, requests, request, progress, names)


@dataclass(frozen=True)
class _Adds:
    line: Int64s
    number: Int32s
    at_us: Int64s
    prompt: Int64s

    @classmethod
    def join(cls, parts: Sequence[Rows]) -> _Adds:
        at_us = np.array([at for part in parts for at in part.adds.at_us], np.int64)
        prompt = np.array([n for part in parts for n in part.adds.prompt], np.int64)
        return cls(
            np.array([line for part in parts for line in part.adds.line], np.int64),
            np.array([number for part in parts for number in part.adds.request], np.int32),
            np.where(at_us > MAX_US, NULL, at_us),
            np.where(prompt > MAX_TOKENS, NULL, prompt),
        )


@dataclass(frozen=True)
class _Marks:
    """What steps say of requests beside their shares."""

    finished: Int64s
    """Request of each end."""
    finished_step: Int64s
    """Step of each end."""
    reason: list[str | None]
    """Why it ended."""
    preempted: Int64s
    """Request of each preemption."""
    num_preempted: Int64s
    """Preemptions of each step."""

    @classmethod
    def join(cls, parts: Sequence[Rows], requests: Requests, line: Int64s) -> _Marks:
        ends = [part.finished for part in parts]
        end_line = np.array([n for marks in ends for n in marks.line], np.int64)
        end_number = np.array([n for marks in ends for n in marks.request], np.int32)
        lost = [part.preempted for part in parts]
        lost_line = np.array([n for marks in lost for n in marks.line], np.int64)
        lost_number = np.array([n for marks in lost for n in marks.request], np.int32)
        # Steps that were dropped take what they say with them.
        kept, lost_kept = np.isin(end_line, line), np.isin(lost_line, line)
        at = np.searchsorted(line, lost_line[lost_kept])
        reasons = [reason for marks in ends for reason in marks.reason]
        return cls(
            requests.rows(end_number, end_line)[kept],
            np.searchsorted(line, end_line[kept]),
            [reason for reason, is_kept in zip(reasons, kept, strict=True) if is_kept],
            requests.rows(lost_number, lost_line)[lost_kept],
            np.bincount(at, minlength=len(line)).astype(np.int64),
        )


@dataclass(frozen=True)
class _Names:
    """Ids as they are for every observer."""

    codes: Int32s
    """Code of the text of each id."""
    texts: list[str]
    """Distinct texts."""
    choices: list[int | None]
    """Which of several answers each id is."""

    @classmethod
    def of(cls, ids: Sequence[str]) -> _Names:
        distinct: dict[str, int] = {}
        plain = [plain_request_id(text) for text in ids]
        codes = [distinct.setdefault(text, len(distinct)) for text, _ in plain]
        return cls(np.array(codes, np.int32), list(distinct), [choice for _, choice in plain])

    def column(self, numbers: Int32s) -> pa.DictionaryArray:
        """The column of texts for numbers of ids."""
        return dictionary(self.codes[numbers], self.texts)


def _add_steps(
    builder: CaptureBuilder,
    log: Log,
    times: Times,
    progress: Progress,
    marks: _Marks,
    num_blocks: int | None,
    engine_id: int | None,
) -> None:
    num_steps = len(times.start)

    sums = [progress.sums[:, number].copy() for number in range(NUM_SUMS)]
    num_prefill, num_decode = sums[0], sums[3]
    phase = np.full(num_steps, -1, np.int32)
    phase[num_prefill > 0] = 0
    phase[num_decode > 0] = 1
    phase[(num_prefill > 0) & (num_decode > 0)] = 2
    builder.add(
        "step",
        {
            "name": dictionary(np.zeros(num_steps, np.int32), ["step"]),
            "engine": dictionary(np.zeros(num_steps, np.int32), ["vllm"]),
            "engine_id": pa.array([engine_id] * num_steps, pa.int32()),
            "observer": dictionary(np.zeros(num_steps, np.int32), ["scheduler"]),
            "number": nullable(log.steps.get("step", np.zeros(0, np.int64)), NULL),
            "phase": dictionary(phase, list(_PHASES)),
            "start_ns": times.start,
            "end_ns": times.end,
            "schedule_end_ns": nullable(times.schedule_end, NULL),
            "execute_start_ns": nullable(times.execute_start, NULL),
            "execute_end_ns": nullable(times.execute_end, NULL),
            "output_ns": nullable(times.output, NULL),
            "num_prefill_requests": num_prefill,
            "num_prefill_tokens": sums[1],
            "sum_prefill_kv_tokens": sums[2],
            "num_decode_requests": num_decode,
            "num_decode_tokens": sums[4],
            "sum_decode_kv_tokens": sums[5],
            "num_running": nullable(log.steps.get("running", times.start), NULL),
            "num_queued": nullable(log.steps.get("waiting", times.start), NULL),
            "num_preempted": marks.num_preempted,
            **_blocks(log, num_blocks),
        },
    )


def _blocks(log: Log, num_blocks: int | None) -> dict[str, pa.Array]:
    """KV blocks in use and in all; the engine's null block is neither."""
    if num_blocks is None or not log.steps:
        return {}
    usable, free = num_blocks - 1, log.steps["free_blocks"]
    used = np.where(
        (free == NULL) | (free > usable), NULL, usable - np.where(free == NULL, 0, free)
    )
    return {
        "kv_used_blocks": nullable(used, NULL),
        "kv_total_blocks": pa.array(np.full(len(free), usable, np.int64)),
    }


def _add_requests(
    builder: CaptureBuilder,
    log: Log,
    times: Times,
    requests: Requests,
    request: Int64s,
    progress: Progress,
    marks: _Marks,
    names: _Names,
    t0_ns: int,
) -> None:
    num_requests = len(requests.number)
    is_known = requests.added_us != NULL
    added = np.where(is_known, np.where(is_known, requests.added_us, 0) * NS_PER_US + t0_ns, NULL)
    has_share = progress.first_share >= 0
    first = progress.first_share[has_share]
    scheduled, cached = np.full((2, num_requests), NULL)
    scheduled[has_share] = times.start[log.share_step[first]]
    cached[has_share] = np.where(log.kind[first] == NEW, log.before[first], NULL)
    emitting = (log.emitted > 0) & (times.emitted[log.share_step] != NULL)
    at, of = times.emitted[log.share_step[emitting]], request[emitting]
    first_token, last_token = (
        np.full(num_requests, np.iinfo(np.int64).max),
        np.full(num_requests, NULL),
    )
    np.minimum.at(first_token, of, at)
    np.maximum.at(last_token, of, at)
    first_token[last_token == NULL] = NULL
    outputs = np.bincount(request, log.emitted, num_requests).astype(np.int64)
    finished = np.full(num_requests, NULL)
    reason: list[str | None] = [None] * num_requests
    for row, step, why in zip(
        marks.finished.tolist(), marks.finished_step.tolist(), marks.reason, strict=True
    ):
        if row >= 0:
            finished[row], reason[row] = times.end[step], why
    preempted = marks.preempted[marks.preempted >= 0]
    choice = [names.choices[number] for number in requests.number.tolist()]
    # A request that was running before the log began may have emitted and been preempted before, too.
    is_whole = np.arange(num_requests) < requests.num_added
    builder.add(
        "request",
        {
            "request_id": names.column(requests.number),
            "choice": pa.array(choice, pa.int32()),
            "observer": dictionary(np.zeros(num_requests, np.int32), ["engine"]),
            "arrival_ns": nullable(added, NULL),
            "queued_ns": nullable(added, NULL),
            "scheduled_ns": nullable(np.where(is_whole, scheduled, NULL), NULL),
            "first_token_ns": nullable(np.where(is_whole, first_token, NULL), NULL),
            "last_token_ns": nullable(last_token, NULL),
            "finished_ns": nullable(finished, NULL),
            "prompt_tokens": nullable(requests.prompt, NULL),
            "cached_tokens": nullable(cached, NULL),
            "output_tokens": nullable(np.where(is_whole, outputs, NULL), NULL),
            "num_preemptions": nullable(
                np.where(is_whole, np.bincount(preempted, minlength=num_requests), NULL), NULL
            ),
            "finish_reason": reason,
        },
    )


def _add_shares(
    builder: CaptureBuilder,
    log: Log,
    times: Times,
    requests: Requests,
    request: Int64s,
    progress: Progress,
    names: _Names,
) -> None:
    column = names.column(requests.number[request])
    builder.add(
        "request_step",
        {
            "request_id": column,
            "step_id": log.share_step.astype(np.int32),
            "phase": dictionary(progress.is_decode.astype(np.int32), list(_PHASES)),
            "num_tokens": log.tokens,
            "num_computed_before": log.before,
            "num_emitted": log.emitted,
            "is_resumed": log.kind == RESUMED,
        },
    )
    at = times.emitted[log.share_step]
    has_token = (log.emitted > 0) & (at != NULL)
    builder.losses.add(
        "token without a time", int(log.emitted[(log.emitted > 0) & (at == NULL)].sum())
    )
    repeats = log.emitted[has_token]
    shares = np.repeat(np.flatnonzero(has_token), repeats)
    within = np.arange(len(shares)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    builder.add(
        "token",
        {
            "request_id": names.column(requests.number[request[shares]]),
            "observer": dictionary(np.zeros(len(shares), np.int32), ["engine"]),
            "index": progress.outputs_before[shares] + within,
            "at_ns": at[shares],
        },
    )
