"""The blocks of a step log as one set of columns, and its times; what is impossible is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.units import NS_PER_US
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.vllm_steps.record import MAX_EMITTED, NULL, Int32s, Int64s, Rows

MAX_US = 4 * 10**15
"""Later than 126 years after the start is damage; in nanoseconds after 1970 it still fits int64."""
MAX_TOKENS = 2**40
"""No count of tokens or blocks is larger; sums over a step stay within int64."""


@dataclass(frozen=True)
class Log:
    """A whole log as columns."""

    steps: dict[str, Int64s]
    """Numbers of each step by their names in the file."""
    line: Int64s
    """Line of each step."""
    share_step: Int64s
    """Step of each share."""
    share_number: Int32s
    """Number of the id of each share."""
    kind: Int32s
    """Position in KINDS."""
    before: Int64s
    """Tokens computed before."""
    tokens: Int64s
    """Tokens scheduled."""
    emitted: Int64s
    """Tokens emitted."""


@dataclass(frozen=True)
class Times:
    """Times of each step in nanoseconds, NULL if absent."""

    start: Int64s
    end: Int64s
    schedule_end: Int64s
    execute_start: Int64s
    execute_end: Int64s
    output: Int64s
    emitted: Int64s
    """The scheduler had processed the outputs: from then on the tokens are there."""


def join_blocks(parts: Sequence[Rows], losses: Losses) -> Log:
    """All blocks as one; steps without a time and shares with impossible counts are counted."""

    def joined(values: Sequence[NDArray[np.int64]]) -> Int64s:
        return np.concatenate([np.zeros(0, np.int64), *values])

    steps = {
        name: joined([part.steps[name] for part in parts])
        for name in (parts[0].steps if parts else ())
    }
    line = joined([part.step_line for part in parts])
    counts = joined([part.num_shares for part in parts])
    number, kind = (
        joined([getattr(part, name) for part in parts]).astype(np.int32)
        for name in ("share_request", "share_kind")
    )
    before, tokens, emitted = (
        joined([getattr(part, name) for part in parts])
        for name in ("share_before", "share_tokens", "share_emitted")
    )
    if not steps:
        return Log({}, line, counts, number, kind, before, tokens, emitted)
    start = steps["t_us"]
    keep = (start != NULL) & (start <= MAX_US)
    losses.add("step without a time", int((~keep).sum()))
    keep_share = np.repeat(keep, counts)
    is_sound = (before <= MAX_TOKENS) & (tokens <= MAX_TOKENS)
    losses.add("damaged share of a step", int((keep_share & ~is_sound).sum()))
    too_many = (emitted > tokens) | (emitted > MAX_EMITTED)
    losses.add("more tokens emitted than computed", int(too_many.sum()), dropped=False)
    emitted = np.where(too_many, 0, emitted)
    keep_share &= is_sound
    step_of = np.repeat(np.cumsum(keep) - 1, counts)
    for name in ("running", "waiting", "free_blocks"):
        steps[name] = np.where(steps[name] > MAX_TOKENS, NULL, steps[name])
    return Log(
        {name: values[keep] for name, values in steps.items()},
        line[keep],
        step_of[keep_share],
        *(values[keep_share] for values in (number, kind, before, tokens, emitted)),
    )


def times_of(log: Log, t0_ns: int, losses: Losses) -> Times:
    """The times of each step; `t0_ns` is when the file's clock began."""
    nothing = np.zeros(0, np.int64)
    start = log.steps.get("t_us", nothing)

    def later(name: str, length: str | None = None) -> Int64s:
        """A time that may not lie before the step's start, or that plus a length; else NULL."""
        at = log.steps.get(name, nothing)
        by = log.steps.get(length, nothing) if length else np.zeros(len(at), np.int64)
        known = (at != NULL) & (by != NULL) & (at <= MAX_US) & (by <= MAX_US)
        wrong = known & (at < start)
        losses.add("time before the start of its step", int(wrong.sum()), dropped=False)
        known &= ~wrong
        return np.where(known, np.where(known, at, 0) + np.where(known, by, 0), NULL)

    schedule_end = later("t_us", "sched_us")
    execute_start, execute_end = later("exec_t_us"), later("exec_t_us", "exec_us")
    output, emitted = later("out_t_us"), later("out_t_us", "update_us")
    end = np.max([start, schedule_end, execute_end, output, emitted], axis=0)

    def in_ns(values: Int64s) -> Int64s:
        return np.where(
            values == NULL, NULL, np.where(values == NULL, 0, values) * NS_PER_US + t0_ns
        )

    return Times(
        *(
            in_ns(values)
            for values in (start, end, schedule_end, execute_start, execute_end, output, emitted)
        )
    )
