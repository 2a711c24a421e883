"""Memory snapshots and raw memory timelines of PyTorch."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

from ingest.samples import Sample

STACK = [
    {"name": "forward", "filename": "model.py", "line": 12},
    {"name": "at::empty()", "filename": "??", "line": 0},
]


def event(action: str, size: int, time_us: int | None = None, **more: Any) -> dict[str, Any]:
    known = {} if time_us is None else {"time_us": time_us}
    where = {"device_free": 9} if action == "oom" else {"addr": 4096}
    return {"action": action, **where, "size": size, "stream": 0, "frames": STACK, **known, **more}


def segment(address: int, *blocks: tuple[int, str], **more: Any) -> dict[str, Any]:
    parts, at = [], address
    for size, state in blocks:
        part = {"address": at, "size": size, "requested_size": size - 1, "state": state}
        parts.append({**part, "frames": STACK})
        at += size
    return {
        "device": 0,
        "address": address,
        "total_size": at - address,
        "allocated_size": at - address,
        "stream": 7,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "blocks": parts,
        **more,
    }


def snapshot(**more: Any) -> dict[str, Any]:
    return {
        "segments": [segment(2**21, (512, "active_allocated"), (1536, "inactive"))],
        "device_traces": [
            [
                event("segment_alloc", 2048, 1),
                event("alloc", 512, 2),
                event("free_requested", 512, 3),
                event("free_completed", 512, 4),
                event("oom", 10**9, 5),
                event("snapshot", 0, 6),
            ],
            [event("alloc", 7, 8, user_metadata="kv cache")],
        ],
        "allocator_settings": {"max_split_size": -1, "roundup_power2_divisions": {"1": 0}},
        "external_annotations": [
            {"stage": "START", "name": "forward", "device": 0, "time_us": 1},
            {"stage": "END", "name": "forward", "device": 0, "time_us": 9},
        ],
        **more,
    }


def write(folder: Path, value: Any, protocol: int = 4) -> Path:
    path = folder / "rank3_memory_snapshot.pickle"
    path.write_bytes(pickle.dumps(value, protocol))
    return path


def planted_snapshot(folder: Path, secret: str) -> Path:
    frame = {"name": secret, "filename": secret, "line": 1}
    marks = [{"stage": s, "name": secret, "device": 0, "time_us": 1} for s in ("START", "END")]
    return write(
        folder,
        snapshot(
            device_traces=[[event("alloc", 1, 1, user_metadata=secret, frames=[frame, STACK[0]])]],
            segments=[
                segment(0, (512, "active_allocated"), segment_pool_id=(1, 2), frames=[frame])
            ],
            allocator_settings={"PYTORCH_CUDA_ALLOC_CONF": secret, secret: {secret: secret}},
            external_annotations=marks,
        ),
    )


def many_events(folder: Path, num_events: int) -> Path:
    trace = [event("alloc", number, number) for number in range(num_events)]
    return write(folder, snapshot(device_traces=[trace]))


ROWS = [
    [-1, 1, 1000, 0],
    [1696966047096061874, 2, 512, 7],
    [1696966047096061875, 3, -512, 7],
    [1696966047096061875, 3, 512, 4],
    [1696966047096061876, 4, -512, 4],
]


def timeline(folder: Path, rows: list[Any] = ROWS) -> Path:
    path = folder / "t.raw.json.gz"
    path.write_bytes(gzip.compress(json.dumps(rows).encode()))
    return path


def many_rows(folder: Path, num_events: int) -> Path:
    return timeline(folder, [[10**18 + n, 2, n, 7] for n in range(num_events)])


SAMPLES = [
    Sample(
        "memory_snapshot",
        "torch_memory_snapshot",
        lambda folder: write(folder, snapshot()),
        {
            ("memory_block", "segment_bytes", "address", "bytes", "requested_bytes", "state"): [
                (2048, 2**21, 512, 511, "allocated"),
                (2048, 2**21 + 512, 1536, None, "free"),
            ],
            ("memory_block", "pool", "stream_id", "call_stack"): [
                ("large", 7, "model.py(12): forward;at::empty()")
            ]
            * 2,
            ("memory_event", "at_ns", "action", "bytes", "device_index", "category"): [
                (1000, "segment_alloc", 2048, 0, None),
                (2000, "alloc", 512, 0, None),
                (3000, "free_requested", -512, 0, None),
                (4000, "free", -512, 0, None),
                (5000, "oom", 10**9, 0, None),
                (8000, "alloc", 7, 1, "kv cache"),
            ],
            ("memory_event", "address"): [4096, 4096, 4096, 4096, None, 4096],
            ("range", "side", "start_ns", "end_ns", "name"): [("host", 1000, 9000, "forward")],
            ("source", "rank"): [3],
        },
        {"mark of the snapshot itself": 1},
        planted_snapshot,
        many_events,
        # A pickle is a program: its whole value is there before the first row. 1.9 kB measured.
        bytes_an_event=2500,
    ),
    Sample(
        "memory_timeline",
        "torch_memory_timeline",
        timeline,
        {
            ("memory_event", "at_ns", "action", "bytes", "category"): [
                (None, "preexisting", 1000, "parameter"),
                (1696966047096061874, "alloc", 512, None),
                (1696966047096061875, "new_version", -512, None),
                (1696966047096061875, "new_version", 512, "activation"),
                (1696966047096061876, "free", -512, "activation"),
            ]
        },
        {},
        lambda folder, secret: timeline(folder, [*ROWS, [secret, 2, secret, secret]]),
        many_rows,
    ),
]
