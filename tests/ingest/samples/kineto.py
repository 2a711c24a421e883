"""PyTorch profiler traces."""

from __future__ import annotations

from pathlib import Path

from ingest.samples import Sample
from ingest.traces import Trace


def small() -> Trace:
    trace = Trace(base_time_ns=1_000_000, rank=2)
    trace.launched("k", launch_us=1, start_us=5, dur_us=2, op="aten::mm")
    return trace.flow("s", 1, 1, 1, 1, cat="other")


def planted(folder: Path, secret: str) -> Path:
    trace = Trace(base_time_ns=5, rank=0, host_name=secret)
    trace.kernel(secret, 1, 1).op(secret, 1, 1, dims=[secret]).frame(secret, 1, 1)
    trace.range(secret, 1, 1).thread_name(secret, tid=secret)
    return trace.write(folder / "t.json")


def many(folder: Path, num_events: int) -> Path:
    trace = Trace()
    for number in range(num_events):
        trace.kernel("k", number, 1)
    return trace.write(folder / "t.json")


SAMPLES = [
    Sample(
        "kineto",
        "kineto",
        lambda folder: small().write(folder / "t.json"),
        {
            ("kernel", "name", "start_ns", "end_ns"): [("k", 1_005_000, 1_007_000)],
            ("op", "name"): ["aten::mm"],
            ("source", "rank"): [2],
        },
        {"flow arrow": 1, "metadata": 0},
        planted,
        many,
    )
]
