"""Runs of the upstream scheduler on random workloads (tools/differential), through ours."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokenpath.engine.config import EngineConfig
from tokenpath.engine.scheduler import Decision, EngineRequest
from tokenpath.engine.vllm import VllmScheduler

FOLDER = Path(__file__).parent.parent / "upstream" / "data"
IDS_PER_SEGMENT = 2**20


@dataclass(frozen=True)
class UpstreamRun:
    """One run, as `tools/differential/README.md` describes it."""

    name: str
    config: EngineConfig
    granule_tokens: int
    events: list[list[Any]]


@functools.cache
def upstream_runs() -> tuple[UpstreamRun, ...]:
    """All recorded runs of vLLM."""
    runs: list[UpstreamRun] = []
    for path in sorted(FOLDER.glob("vllm-*.jsonl.gz")):
        with gzip.open(path, "rt") as file:
            for line in file:
                record = json.loads(line)
                if isinstance(record, list):
                    runs[-1].events.append(record)
                    continue
                settings = dict(record["settings"])
                config = EngineConfig(
                    num_blocks=settings.pop("num_gpu_blocks"),
                    version=record["version"],
                    **settings,
                )
                name = f"{path.name.split('.')[0]} seed {record['seed']}"
                runs.append(UpstreamRun(name, config, record["granule_tokens"], []))
    return tuple(runs)


def differences(run: UpstreamRun, scheduler: VllmScheduler) -> Iterator[str]:
    """A line for each call whose result is another than upstream's."""
    steps: list[Decision] = []
    for kind, *event in run.events:
        if kind == "a":
            scheduler.add(_request(run, event))
            continue
        if kind == "s":
            decision = scheduler.schedule(event[0])
            steps.append(decision)
            entries = np.stack(
                [
                    decision.request,
                    decision.kind,
                    decision.num_computed_before,
                    decision.num_tokens,
                ],
                axis=1,
            )
            found = [event[0], entries.ravel().tolist(), decision.preempted.tolist()]
        else:
            outcome = scheduler.complete(steps[event[0]], 0)
            silent = np.flatnonzero(outcome.num_emitted == 0)
            found = [event[0], silent.tolist(), outcome.finished.tolist()]
        found += [scheduler.num_free_blocks, scheduler.num_waiting, scheduler.num_running]
        if found != event:
            yield f"{run.name}: {kind} {found} not {event}"


def _request(run: UpstreamRun, event: list[Any]) -> EngineRequest:
    index, arrival_ns, prompt, output, priority, segments = event
    ids: list[int] = []
    for segment, granules in zip(segments[::2], segments[1::2], strict=True):
        ids += [segment * IDS_PER_SEGMENT + len(ids) + i for i in range(granules)]
    hashes = np.array(ids, np.int64)
    return EngineRequest(index, prompt, output, arrival_ns, priority, hashes, run.granule_tokens)
