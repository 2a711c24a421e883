"""Header, names of processes and threads, and end of a file of torch.profiler."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.lab.programs.plan import Program
from tokenpath.lab.programs.setup import Setup

STREAM_IDS = (7, 20, 24, 28)
"""What CUPTI calls the streams: the default stream of the process is 7."""


@dataclass(frozen=True)
class Ids:
    """Numbers of a rank's process."""

    pid: int
    """Its process."""
    tids: tuple[int, ...]
    """Its threads."""
    external: int
    """First external id."""
    correlation: int
    """First correlation id."""
    trace_id: str
    """Id of the profiler run."""
    seed: int
    """For the gaps between correlation ids: calls that are not recorded take some."""

    def steps(self, count: int) -> NDArray[np.int64]:
        """Distances between correlation ids."""
        return np.random.Generator(np.random.SFC64([self.seed, 3])).integers(1, 4, count)


def header(setup: Setup, program: Program, rank: int, ids: Ids) -> str:
    """Everything up to the first event."""
    hardware = setup.gpu.hardware
    devices = [
        {
            "id": number,
            "name": setup.gpu.name,
            "totalGlobalMem": setup.gpu.memory_bytes,
            "computeMajor": 9,
            "computeMinor": 0,
            "maxThreadsPerBlock": 1024,
            "maxThreadsPerMultiprocessor": 2048,
            "regsPerBlock": 65536,
            "warpSize": 32,
            "sharedMemPerBlock": 49152,
            "numSms": hardware.num_cores,
            "regsPerMultiprocessor": 65536,
            "sharedMemPerBlockOptin": 232448,
            "sharedMemPerMultiprocessor": 233472,
        }
        for number in range(max(1, setup.ranks))
    ]
    group = {
        "pg_name": "0",
        "pg_desc": "default_pg",
        "backend_config": "cuda:nccl",
        "pg_size": setup.ranks,
        "ranks": list(range(setup.ranks)),
    }
    entries: dict[str, object] = {
        "schemaVersion": 1,
        "deviceProperties": devices,
        "cupti_version": 26,
        "cuda_runtime_version": 12080,
        "cuda_driver_version": 12080,
        "record_shapes": 1,
        "with_stack": int(setup.with_stack),
        "profile_memory": int(setup.with_memory),
        "trace_id": ids.trace_id,
        **program.header,
    }
    if setup.ranks > 1 or setup.program != "hf":
        entries["distributedInfo"] = {
            "backend": "nccl",
            "rank": rank,
            "world_size": setup.ranks,
            "pg_count": 1,
            "pg_config": [group],
            "nccl_version": "2.27.3",
        }
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in entries.items()]
    return "\n".join(["{", *lines, '  "traceEvents": [', ""])


def metadata(program: Program, rank: int, ids: Ids, first_ns: int) -> str:
    """Names of processes and threads."""
    when = f"{first_ns // 1000}.{first_ns % 1000:03d}"
    found: list[tuple[str, int, int, dict[str, object]]] = []
    for pid, label, order in ((ids.pid, "CPU", ids.pid), (rank, f"GPU {rank}", 5_000_000 + rank)):
        found += [
            ("process_name", pid, 0, {"name": program.process}),
            ("process_labels", pid, 0, {"labels": label}),
            ("process_sort_index", pid, 0, {"sort_index": order}),
        ]
    for tid, thread in zip(ids.tids, program.threads, strict=False):
        found += [
            ("thread_name", ids.pid, tid, {"name": f"thread {tid} ({thread.name})"}),
            ("thread_sort_index", ids.pid, tid, {"sort_index": tid}),
        ]
    for stream in STREAM_IDS:
        found += [
            ("thread_name", rank, stream, {"name": f"stream {stream} "}),
            ("thread_sort_index", rank, stream, {"sort_index": stream}),
        ]
    return "".join(
        f'  {{\n    "name": "{name}", "ph": "M", "ts": {when}, "pid": {pid}, "tid": {tid},\n'
        f'    "args": {{\n      {json.dumps(args)[1:-1]}\n    }}\n  }},\n'
        for name, pid, tid, args in found
    )


def footer(base_ns: int, ids: Ids, first_ns: int, wall_ns: int) -> str:
    """The profiler's own marks, and everything after the last event."""
    start = first_ns - 180_000
    length = wall_ns + 420_000
    begin = f"{start // 1000}.{start % 1000:03d}"
    end = f"{(start + length + 90_000) // 1000}.{(start + length) % 1000:03d}"
    return (
        f'  {{\n    "ph": "X", "cat": "Trace", "ts": {begin}, "dur": {length // 1000}.{length % 1000:03d},\n'
        '    "pid": "Spans", "tid": "PyTorch Profiler",\n    "name": "PyTorch Profiler (0)",\n'
        '    "args": {\n      "Op count": 0\n    }\n  },\n'
        '  {\n    "name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g",\n'
        f'    "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": {begin}\n  }},\n'
        '  {\n    "name": "Record Window End", "ph": "i", "s": "g",\n'
        f'    "pid": "", "tid": "", "ts": {end}\n  }}\n  ],\n'
        f'  "traceName": "/tmp/tmp{ids.trace_id[:8].lower()}.json",\n'
        f'  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": {base_ns}\n}}'
    )
