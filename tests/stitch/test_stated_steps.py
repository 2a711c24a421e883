"""A step that the source states for a kernel is kept; the launch decides only where it does not."""

from __future__ import annotations

from tokenpath.capture.capture import Capture, build_table
from tokenpath.stitch import link

_SOURCE = {
    "path": ["a"],
    "format": ["xplane"],
    "reader_version": [1],
    "num_bytes": [1],
    "clock_offset_ns": [0],
    "clock": ["epoch"],
    "state": ["measured"],
    "num_events": [1],
    "num_skipped": [0],
}


def test_stated_steps_stand() -> None:
    """Both kernels are launched in the first step; the first one says that it belongs to the second."""
    kernel = {
        "source_id": [0, 0],
        "device_id": [0, 0],
        "stream_id": [1, 1],
        "start_ns": [20, 30],
        "end_ns": [25, 35],
        "name": ["a", "b"],
        "kind": ["compute", "compute"],
        "family": ["other", "other"],
        "correlation_id": [1, 2],
        "step_id": [1, None],
    }
    call = {
        "source_id": [0, 0],
        "thread_id": [0, 0],
        "start_ns": [1, 2],
        "end_ns": [2, 3],
        "name": ["cudaLaunchKernel"] * 2,
        "correlation_id": [1, 2],
    }
    step = {
        "source_id": [0, 0],
        "name": ["0", "1"],
        "observer": ["profiler"] * 2,
        "start_ns": [0, 20],
        "end_ns": [10, 40],
    }
    tables = {
        "source": _SOURCE,
        "thread": {"source_id": [0], "pid": ["1"], "tid": ["1"]},
        "device": {"source_id": [0], "index": [0]},
        "kernel": kernel,
        "api_call": call,
        "step": step,
    }
    capture = Capture({name: build_table(name, columns) for name, columns in tables.items()})
    assert link(capture)["kernel"]["step_id"].to_pylist() == [1, 0]
