"""A recorded vLLM run, replayed: arrivals and step boundaries go in, every decision is compared."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokenpath.engine.config import EngineConfig
from tokenpath.engine.scheduler import EngineRequest, Kind, Scheduler

KINDS = {"run": Kind.RUN, "new": Kind.NEW, "resumed": Kind.RESUMED}


@dataclass(frozen=True)
class RecordedRun:
    """One run of data/engine/vllm-cpu/load."""

    config: EngineConfig
    requests: Mapping[str, EngineRequest]
    """By name, in order of arrival."""
    events: list[dict[str, Any]]
    """Arrivals and steps, in order of the file."""

    @property
    def num_steps(self) -> int:
        return sum(event["ev"] == "step" for event in self.events)


def load_run(folder: Path, name: str) -> RecordedRun:
    """A run by name: NAME.steps.jsonl.gz and NAME.requests.csv."""
    with gzip.open(folder / f"{name}.steps.jsonl.gz", "rt") as file:
        first, *events = (json.loads(line) for line in file)
    config = EngineConfig(
        num_blocks=first["num_blocks"],
        block_size=first["block_size"],
        max_num_batched_tokens=first["max_num_batched_tokens"],
        max_num_seqs=first["max_num_seqs"],
        max_model_len=first["max_model_len"],
        policy=first["policy"],
        version=first["vllm"],
    )
    with (folder / f"{name}.requests.csv").open() as file:
        rows = {row["req"]: row for row in csv.DictReader(file)}
    added = [event["req"] for event in events if event["ev"] == "add"]
    requests = {req: _request(i, rows[req], config.block_size) for i, req in enumerate(added)}
    return RecordedRun(config, requests, events)


def _request(index: int, row: Mapping[str, str], block_size: int) -> EngineRequest:
    """Requests of a group share the blocks that lie wholly inside its prefix."""
    num_shared = int(row["shared_prefix"]) // block_size
    return EngineRequest(
        index=index,
        prompt_tokens=int(row["prompt_tokens"]),
        output_tokens=int(row["max_tokens"]),
        hashes=int(row["group"]) * 1_000_000 + np.arange(num_shared, dtype=np.int64),
        hash_granule_tokens=block_size,
    )


def wrong_steps(run: RecordedRun, scheduler: Scheduler) -> Iterator[str]:
    """One line for each step that the scheduler decides otherwise; nothing is corrected on the way."""
    numbers = {name: request.index for name, request in run.requests.items()}
    for place, event in enumerate(run.events):
        if event["ev"] == "add":
            scheduler.add(run.requests[event["req"]])
            continue
        decision = scheduler.schedule(place)
        decided = set(
            zip(
                decision.request.tolist(),
                decision.kind.tolist(),
                decision.num_computed_before.tolist(),
                decision.num_tokens.tolist(),
                strict=True,
            )
        )
        recorded = {(numbers[r], KINDS[kind], c, n) for r, kind, c, n, _ in event["reqs"]}
        lost = {numbers[name] for name in event.get("preempted", ())}
        free = scheduler.num_free_blocks
        if not (
            decided == recorded
            and set(decision.preempted.tolist()) == lost
            and free == event["free_blocks"]
        ):
            yield (
                f"event {place}: {sorted(decided ^ recorded)}, preempted "
                f"{sorted(decision.preempted.tolist())} not {sorted(lost)}, free {free} not "
                f"{event['free_blocks']}"
            )
        outcome = scheduler.complete(decision, place)
        emitted = {numbers[r]: tokens for r, _, _, _, tokens in event["reqs"]}
        if decided == recorded and emitted != dict(
            zip(decision.request.tolist(), outcome.num_emitted.tolist(), strict=True)
        ):
            yield f"event {place}: other tokens emitted"
