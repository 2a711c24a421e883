"""Reads what upstream schedulers decided (tools/differential/README.md) and replays it by the `Scheduler` protocol."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tokenpath.engine.scheduler import Decision, EngineRequest, Kind, Scheduler

DATA = Path(__file__).parent / "data"
POSITIONS = 1 << 20
NEVER_NS = 1 << 62


@dataclass
class Run:
    """One run of an upstream scheduler."""

    name: str
    """File and seed."""
    settings: dict[str, Any]
    """By the engine's own names."""
    granule_tokens: int
    """Tokens of a granule of content."""
    events: list[list[Any]] = field(default_factory=list)
    """Calls in their order: `a`dd, `s`chedule, `c`omplete."""


def runs_of(name: str) -> list[Run]:
    """The runs of one file."""
    runs: list[Run] = []
    with gzip.open(DATA / name, "rt") as lines:
        for line in lines:
            record = json.loads(line)
            if isinstance(record, list):
                runs[-1].events.append(record)
            else:
                seed = f"{name} seed {record['seed']}"
                runs.append(Run(seed, record["settings"], record["granule_tokens"]))
    return runs


def request_of(event: list[Any], granule_tokens: int) -> EngineRequest:
    """The request of an `a` record."""
    _, index, arrival_ns, prompt, output, priority, segments = event
    ids: list[int] = []
    for number, granules in zip(segments[::2], segments[1::2], strict=True):
        start = number * POSITIONS + len(ids)
        ids.extend(range(start, start + granules))
    return EngineRequest(
        index, prompt, output, arrival_ns, priority, np.array(ids, np.int64), granule_tokens
    )


def step_ns(tokens: int) -> int:
    """How long the recorders let a step take."""
    return 1_000_000 + 100_000 * (tokens // 4)


def answers(
    run: Run,
    scheduler: Scheduler,
    *,
    tokens_per_block: int = 1,
    now_ns: int | None = None,
    more: Callable[[], list[float]] = list,
) -> Iterator[tuple[list[Any], list[Any]]]:
    """For each call of the scheduler: what upstream answered, and what ours does.

    `tokens_per_block`: where upstream counts free tokens, tokens of one of our blocks. `now_ns`: the time to say,
    instead of the recorded one. `more`: what is recorded of each `s` besides, as ours has it.
    """
    decisions: list[Decision] = []
    time_ns = 0

    def state() -> list[int]:
        free = scheduler.num_free_blocks * tokens_per_block
        return [free, scheduler.num_waiting, scheduler.num_running]

    for event in run.events:
        if event[0] == "a":
            scheduler.add(request_of(event, run.granule_tokens))
            continue
        if event[0] == "s":
            time_ns = event[1] if now_ns is None else now_ns
            d = scheduler.schedule(time_ns)
            decisions.append(d)
            admitted = d.kind != Kind.RUN
            assert np.array_equal(d.num_cached, np.where(admitted, d.num_computed_before, 0))
            columns = (d.request, d.kind, d.num_computed_before, d.num_tokens)
            entries = np.stack(columns, axis=1).ravel().tolist()
            ours = ["s", event[1], entries, d.preempted.tolist(), *state(), *more()]
            yield event, ours
        else:
            d = decisions[event[1]]
            outcome = scheduler.complete(d, time_ns + step_ns(d.num_scheduled_tokens))
            silent = np.flatnonzero(outcome.num_emitted == 0).tolist()
            yield event, ["c", event[1], silent, outcome.finished.tolist(), *state()]


def difference(run: Run, calls: Iterator[tuple[list[Any], list[Any]]]) -> str | None:
    """The first call with another answer; None if there is none."""
    for at, (upstream, ours) in enumerate(calls):
        if upstream != ours:
            return f"{run.name}, call {at}: upstream {upstream}, ours {ours}"
    return None
