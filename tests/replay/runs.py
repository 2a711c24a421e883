"""Small captures whose times are known: rows in, capture out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenpath.capture.capture import Capture, build_table

Call = tuple[int, str, int, int]
"""Thread, name, start and end in microseconds; the position is the row of `api_call`."""
Kernel = tuple[int | None, int, str, int, int]
"""Launching call, stream, kind, start and end in microseconds."""


def run(
    calls: Sequence[Call],
    kernels: Sequence[Kernel],
    *,
    rank_of_thread: Sequence[int] = (),
    rank_of_kernel: Sequence[int] = (),
    families: Sequence[str] = (),
    steps: Sequence[int] = (),
    **tables: Any,
) -> Capture:
    """A linked capture of one process, or of one a rank."""
    num_threads = max((call[0] for call in calls), default=0) + 1
    ranks = list(rank_of_thread) or [0] * num_threads
    of_kernel = list(rank_of_kernel) or [0] * len(kernels)
    num_ranks = max([*ranks, *of_kernel]) + 1
    filled = {
        "source": build_table(
            "source",
            {
                "path": ["f"] * num_ranks,
                "format": ["x"] * num_ranks,
                "reader_version": [1] * num_ranks,
                "num_bytes": [1] * num_ranks,
                "clock_offset_ns": [0] * num_ranks,
                "clock": ["epoch"] * num_ranks,
                "state": ["measured"] * num_ranks,
                "num_events": [0] * num_ranks,
                "num_skipped": [0] * num_ranks,
                "rank": list(range(num_ranks)),
            },
        ),
        "device": build_table(
            "device", {"source_id": list(range(num_ranks)), "index": list(range(num_ranks))}
        ),
        "thread": build_table(
            "thread",
            {
                "source_id": ranks,
                "pid": ["1"] * num_threads,
                "tid": [str(n) for n in range(num_threads)],
            },
        ),
        "api_call": build_table(
            "api_call",
            {
                "source_id": [ranks[call[0]] for call in calls],
                "thread_id": [call[0] for call in calls],
                "name": [call[1] for call in calls],
                "start_ns": [1_000 * call[2] for call in calls],
                "end_ns": [1_000 * call[3] for call in calls],
                "correlation_id": list(range(len(calls))),
            },
        ),
        "kernel": build_table(
            "kernel",
            {
                "source_id": of_kernel,
                "device_id": of_kernel,
                "stream_id": [kernel[1] for kernel in kernels],
                "kind": [kernel[2] for kernel in kernels],
                "name": [f"k{at}" for at in range(len(kernels))],
                "family": list(families) or ["gemm"] * len(kernels),
                "start_ns": [1_000 * kernel[3] for kernel in kernels],
                "end_ns": [1_000 * kernel[4] for kernel in kernels],
                "api_call_id": [kernel[0] for kernel in kernels],
                "step_id": list(steps) or [None] * len(kernels),
            },
        ),
    }
    filled |= {name: build_table(name, columns) for name, columns in tables.items()}
    return Capture(filled)
