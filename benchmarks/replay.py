"""Time building, re-timing and what-ifs of a graph of a million points.

    python benchmarks/replay.py [--ranks 8] [--kernels 31000]

The run is made up: on each rank one thread launches kernels onto two streams, waits now and then, and meets the
other ranks in a collective every hundred kernels. Four points a kernel: start and end of its call and of itself.
The first what-if loads or compiles machine code and is timed apart.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from tokenpath.capture.capture import Capture, build_table
from tokenpath.replay import what_ifs
from tokenpath.replay.change import HostChange, WhatIf
from tokenpath.replay.critical_path import critical_path
from tokenpath.replay.replay import DeviceWindow, Replay

PER_COLLECTIVE, PER_WAIT = 100, 1_000
Result = TypeVar("Result")


def made_up_run(ranks: int, kernels: int) -> Capture:
    """A capture with this many kernels on each rank."""
    rng = np.random.default_rng(0)
    number = np.arange(kernels)
    is_collective = number % PER_COLLECTIVE == PER_COLLECTIVE - 1
    is_wait = number % PER_WAIT == PER_WAIT - 1
    columns: dict[str, list[np.ndarray]] = {}

    def add(name: str, values: np.ndarray) -> None:
        columns.setdefault(name, []).append(values)

    # A collective ends for all when the last has arrived.
    duration = rng.integers(2_000, 20_000, (ranks, kernels))
    start = np.zeros((ranks, kernels), np.int64)
    end = np.zeros((ranks, kernels), np.int64)
    now = np.zeros(ranks, np.int64)
    for low in range(0, kernels, PER_COLLECTIVE):
        part = slice(low, min(low + PER_COLLECTIVE, kernels))
        end[:, part] = now[:, None] + np.cumsum(duration[:, part] + 1_000, axis=1)
        start[:, part] = end[:, part] - duration[:, part]
        last = part.stop - 1
        if is_collective[last]:
            end[:, last] = start[:, last].max() + 15_000
        now = end[:, last]
    for rank in range(ranks):
        call_end = np.maximum.accumulate(start[rank] - 2_000)
        add("call_start", call_end - 3_000)
        add("call_end", np.where(is_wait, end[rank] + 5_000, call_end))
        add("start", start[rank])
        add("end", end[rank])
        add("rank", np.full(kernels, rank))
    whole = {name: np.concatenate(parts) for name, parts in columns.items()}
    size = ranks * kernels
    source = whole["rank"].astype(np.int32)
    chosen = np.flatnonzero(np.tile(is_collective, ranks))
    per_rank = {"source_id": list(range(ranks))}
    return Capture(
        {
            "source": build_table(
                "source",
                {
                    "path": ["f"] * ranks,
                    "format": ["x"] * ranks,
                    "clock": ["epoch"] * ranks,
                    "state": ["synthetic"] * ranks,
                    "rank": list(range(ranks)),
                    **{
                        name: [0] * ranks
                        for name in (
                            *("reader_version", "num_bytes", "clock_offset_ns"),
                            *("num_events", "num_skipped"),
                        )
                    },
                },
            ),
            "device": build_table("device", {**per_rank, "index": list(range(ranks))}),
            "thread": build_table(
                "thread", {**per_rank, "pid": ["1"] * ranks, "tid": ["1"] * ranks}
            ),
            "api_call": build_table(
                "api_call",
                {
                    "source_id": source,
                    "thread_id": source,
                    "start_ns": whole["call_start"],
                    "end_ns": whole["call_end"],
                    "name": np.where(
                        np.tile(is_wait, ranks), "cudaMemcpy", "cudaLaunchKernel"
                    ).tolist(),
                },
            ),
            "kernel": build_table(
                "kernel",
                {
                    "source_id": source,
                    "device_id": source,
                    "name": ["k"] * size,
                    "start_ns": whole["start"],
                    "end_ns": whole["end"],
                    "stream_id": np.where(np.tile(is_collective, ranks), 20, 7),
                    "kind": np.where(
                        np.tile(is_collective, ranks), "communication", "compute"
                    ).tolist(),
                    "family": np.where(rng.random(size) < 0.5, "gemm", "elementwise").tolist(),
                    "api_call_id": np.arange(size, dtype=np.int32),
                },
            ),
            "collective": build_table(
                "collective",
                {
                    "source_id": source[chosen],
                    "op": ["allreduce"] * len(chosen),
                    "kernel_id": chosen.astype(np.int32),
                    "match": chosen % kernels,
                },
            ),
        }
    )


def timed(what: str, work: Callable[[], Result]) -> Result:
    """Do it and print how long it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    print(
        f"{what:28}  {time.perf_counter() - wall:7.3f} s wall  {time.process_time() - cpu:7.3f} s CPU"
    )
    return result


def main() -> None:
    """Make a run up, build its graph and replay it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--kernels", type=int, default=31_000, help="on each rank")
    arguments = parser.parse_args()
    capture = made_up_run(arguments.ranks, arguments.kernels)
    start, end = capture.int64("kernel", "start_ns"), capture.int64("kernel", "end_ns")
    device = capture.ids("kernel", "device_id")
    windows = [
        DeviceWindow(
            rank,
            int(start[device == rank].min()),
            int(end[device == rank].max()),
            np.empty(0, np.int64),
        )
        for rank in range(arguments.ranks)
    ]
    for turn in ("first", "second"):
        print(f"{turn} time in this process")
        replay = Replay(capture, windows)
        graph = timed("build", lambda replay=replay: replay.graph)
        timed("places of rows", lambda replay=replay: replay.places)
        exact = timed("re-time as measured", replay.is_exact)
    print(f"{graph.num_points:,} points, {len(graph.source):,} edges, exact: {exact}")
    rows = what_ifs.kernels_where(capture, "family", lambda name: name == "gemm")
    stretch = HostChange(
        np.zeros(1_000, np.int64), np.arange(1_000) * 100_000, np.arange(1_000) * 100_000 + 50_000
    )
    for what_if in (
        what_ifs.scale_kernels("scale family=gemm 0.5", rows, 0.5),
        what_ifs.scale_kernels("remove family=gemm", rows, 0.0),
        what_ifs.hide_kernels("hide communication", capture, "communication"),
        what_ifs.without_blocking_copies(graph, "remove blocking-copies"),
        what_ifs.balanced_ranks("balance ranks"),
        WhatIf("host stretches", host=[stretch]),
    ):
        timed(what_if.label, lambda what_if=what_if: replay.what_if(what_if))
    timed("graphs", lambda: replay.what_if(what_ifs.device_graphs(capture, graph)))
    timed("fuse elementwise", lambda: replay.what_if(what_ifs.fuse_elementwise(capture, graph)))
    timed("critical path", lambda: critical_path(capture, replay, replay.in_windows[0]))


if __name__ == "__main__":
    main()
