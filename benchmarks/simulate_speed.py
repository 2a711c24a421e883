"""How fast the event loop is: steady decode, Mooncake's trace, a long run. One core, request and step tables on.

    python benchmarks/simulate_speed.py [--mooncake conversation_trace.jsonl] [--repeats 5] [--long]

Prints median and spread of requests a second, by the wall and by the processor's clock (on a busy machine the
wall measures the neighbours), and bytes that a finished request leaves behind: what the process has more than
before the run (Linux), with and without the engine's own tables, which do not grow, and in the temporary file.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from tokenpath.core.units import NS_PER_S
from tokenpath.engine.config import EngineConfig
from tokenpath.simulate.compiled.run import CompiledRun
from tokenpath.simulate.recorder import RunRows
from tokenpath.simulate.recorder_tables import RunFacts, summary_tables
from tokenpath.simulate.replica import ReplicaSettings
from tokenpath.simulate.spool import MEMORY_ROWS
from tokenpath.simulate.step_model import NUM_FEATURES, StepCurve
from tokenpath.simulate.workload.workload import NO_REQUEST, Workload

CURVE = StepCurve(
    np.array([1.0, 256.0, 8192.0]),
    np.array([9e6, 12e6, 200e6]),
    np.array([8e6, 9e6, 100e6]),
    np.full(NUM_FEATURES, 0.1),
    1e6,
    np.full(NUM_FEATURES, 0.1),
    False,
)
"""A step of some 10 ms: an 8B model on one GPU, roughly. The loop's speed does not depend on it."""
CONCURRENCY, TOKENS, PROMPT = 256, 256, 64
MOONCAKE_GRANULE = 512
MS = NS_PER_S // 1000


@dataclass(frozen=True)
class Measured:
    """One run."""

    num_requests: int
    wall_s: float
    cpu_s: float
    num_steps: int
    memory_bytes: int | None
    """Memory of the process after the run with its tables made, less that before it; None: not known."""
    engine_bytes: int | None
    """What it had more while the engine's own tables were there."""
    file_bytes: int
    """Of the temporary file."""


def steady(num_requests: int) -> tuple[Workload, EngineConfig, int]:
    """A closed loop whose requests end one after another, as they began."""
    return (
        _workload(
            arrival_ns=np.arange(num_requests) * 10 * MS,
            prompt=np.full(num_requests, PROMPT),
            output=np.full(num_requests, TOKENS),
            concurrency=CONCURRENCY,
        ),
        EngineConfig(20_000, max_num_seqs=256, max_num_batched_tokens=8192, max_model_len=4096),
        1,
    )


def mooncake(path: Path, faster: float) -> tuple[Workload, EngineConfig, int]:
    """The trace on four replicas, with prefix caching; `faster` times its rate."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return (
        _workload(
            arrival_ns=np.array([int(row["timestamp"] * MS / faster) for row in rows]),
            prompt=np.array([row["input_length"] for row in rows]),
            output=np.array([row["output_length"] for row in rows]),
            hashes=[row["hash_ids"] for row in rows],
        ),
        EngineConfig(30_000, max_num_seqs=256, max_num_batched_tokens=8192, max_model_len=140_000),
        4,
    )


def _workload(
    arrival_ns: np.ndarray,
    prompt: np.ndarray,
    output: np.ndarray,
    hashes: Sequence[Sequence[int]] = (),
    concurrency: int | None = None,
) -> Workload:
    size, none = len(prompt), np.zeros(len(prompt), np.int64)
    starts = np.cumsum([0, *map(len, hashes)]) if hashes else np.zeros(size + 1, np.int64)
    ids = np.array([one for row in hashes for one in row], np.int64)
    return Workload(
        "benchmark",
        "synthetic",
        arrival_ns.astype(np.int64),
        prompt.astype(np.int64),
        output.astype(np.int64),
        none,
        np.full(size, NO_REQUEST),
        none,
        np.arange(size),
        starts,
        ids,
        MOONCAKE_GRANULE,
        concurrency,
    )


def measure(make: Callable[[], tuple[Workload, EngineConfig, int]]) -> Measured:
    """Build and run once; only the run is timed, and the columns that it gives."""
    workload, config, replicas = make()
    facts = RunFacts("benchmark", "vllm", [config.num_usable_blocks] * replicas)
    gc.collect()
    pa.default_memory_pool().release_unused()
    before = memory_bytes()
    run = CompiledRun(workload, config, CURVE, [ReplicaSettings()] * replicas, is_compiled=True)
    wall, cpu = time.perf_counter(), time.process_time()
    run.run()
    rows = run.rows()
    tables = summary_tables(rows, workload, facts)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    whole, num_finished = _since(before), run.num_finished
    del run
    gc.collect()
    kept = _since(before)
    if tables["step"].num_rows != len(rows.steps) or num_finished != workload.num_requests:
        raise SystemExit(f"{num_finished} of {workload.num_requests} requests finished")
    engine = None if whole is None or kept is None else whole - kept
    return Measured(
        workload.num_requests, wall, cpu, len(rows.steps), kept, engine, file_bytes(rows)
    )


def _since(before: int | None) -> int | None:
    now = memory_bytes()
    return None if before is None or now is None else now - before


def memory_bytes() -> int | None:
    """Memory of this process that is of no file, which the system cannot take back."""
    path = Path("/proc/self/status")
    if not path.exists():
        return None
    found = dict(line.split(":", 1) for line in path.read_text().splitlines())
    return int(found["RssAnon"].split()[0]) * 1024


def file_bytes(rows: RunRows) -> int:
    """Of the steps, where they outgrew memory."""
    if len(rows.steps) <= MEMORY_ROWS:
        return 0
    return sum(column.nbytes for column in vars(rows.steps).values())


def report(name: str, runs: Sequence[Measured]) -> None:
    """A line for several runs of one kind."""
    by_wall = [one.num_requests / one.wall_s for one in runs]
    by_cpu = [one.num_requests / one.cpu_s for one in runs]
    first = runs[0]
    print(
        f"{name}: {first.num_requests:,} requests, {first.num_steps:,} steps; requests/s wall "
        f"{_spread(by_wall)}, processor {_spread(by_cpu)}; "
        f"{_per_request(first.memory_bytes, first)} bytes of memory a request "
        f"(and {_per_request(first.engine_bytes, first)} for the engine's tables), "
        f"{_per_request(first.file_bytes, first)} in the file"
    )


def _per_request(num_bytes: int | None, run: Measured) -> str:
    return "?" if num_bytes is None else f"{num_bytes / run.num_requests:,.0f}"


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mooncake", type=Path, help="conversation_trace.jsonl of Mooncake")
    parser.add_argument("--faster", type=float, default=1.0, help="times the trace's rate")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20_000, help="of the steady run")
    parser.add_argument("--long", action="store_true", help="10^6 requests, once")
    options = parser.parse_args()
    measure(lambda: steady(1000))  # loads, or compiles, the loop
    runs = [measure(lambda: steady(options.requests)) for _ in range(options.repeats)]
    report(f"steady decode, {CONCURRENCY} concurrent x {TOKENS} tokens", runs)
    if options.mooncake is not None:
        path, faster = options.mooncake, options.faster
        runs = [measure(lambda: mooncake(path, faster)) for _ in range(options.repeats)]
        report(f"Mooncake x {faster:g}, 4 replicas", runs)
    if options.long:
        report("long", [measure(lambda: steady(1_000_000))])


if __name__ == "__main__":
    main()
