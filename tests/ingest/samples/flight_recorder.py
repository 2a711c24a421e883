"""Dumps of the NCCL flight recorder, as JSON and as pickle."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

from ingest.samples import Sample

T0 = 1_700_000_000_000_000_001


def entry(number: int, state: str = "completed", **more: Any) -> dict[str, Any]:
    started = T0 + 100 if state != "scheduled" else 0
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": T0,
        "input_sizes": [[3, 4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[3, 4]],
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": started,
        "time_discovered_completed_ns": T0 + 200 if state == "completed" else 0,
        "retired": state == "completed",
        "timeout_ms": 600000,
        "is_p2p": False,
        **more,
    }


def entries() -> list[dict[str, Any]]:
    return [
        entry(1, duration_ms=0.25),
        entry(
            2,
            "started",
            profiling_name="nccl:_all_gather_base",
            input_dtypes=["BFloat16"],
            output_sizes=[[6, 4]],
            output_dtypes=["BFloat16"],
        ),
        entry(
            2,
            "scheduled",
            profiling_name="nccl:send 0->1",
            is_p2p=True,
            p2p_seq_id=7,
            process_group=["5", "pp"],
            input_dtypes=["Opaque"],
        ),
    ]


def dump(found: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "version": "2.10",
        "comm_lib_version": "2.26.2",
        "pg_config": {
            "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
            "5": {"name": "5", "desc": "pp", "ranks": "[0, 1]"},
        },
        "pg_status": {"0": {"last_enqueued_collective": 2, "last_completed_collective": 1}},
        "entries": found,
        **more,
    }


def write_json(folder: Path, value: Any) -> Path:
    path = folder / "nccl_trace_rank_3.json"
    path.write_text(json.dumps(value, sort_keys=True), encoding="utf-8")
    return path


def write_pickle(folder: Path, value: Any) -> Path:
    path = folder / "nccl_trace_rank_3"
    path.write_bytes(pickle.dumps(value, 2))
    return path


def pickled(folder: Path) -> Path:
    """The pickled form: unknown times are None, groups are tuples, stacks are there."""
    frames = [
        {"name": "all_reduce", "filename": "c10d.py", "line": 5},
        {"name": "step", "filename": "train.py", "line": 9},
    ]
    found = []
    for one in entries():
        timed = {key: value or None for key, value in one.items() if key.startswith("time_disc")}
        found.append(
            {**one, **timed, "process_group": tuple(one["process_group"]), "frames": frames}
        )
    return write_pickle(folder, dump(found))


def planted(folder: Path, secret: str) -> dict[str, Any]:
    frames = [{"name": secret, "filename": secret, "line": 1}]
    one = entry(1, profiling_name="nccl:" + secret, process_group=[secret, secret], frames=frames)
    odd = {"input_dtypes": [secret], "state": secret, secret: secret}
    groups = {
        secret: {"name": secret, "desc": secret, "ranks": secret},
        "0": {"name": "0", "desc": secret, "ranks": "[0]"},
    }
    return dump(
        [one, {**one, **odd}, entry(2, "started", profiling_name=secret)],
        pg_config=groups,
        version=secret,
        nccl_comm_state={secret: {secret: secret}},
    )


def many(folder: Path, num_events: int) -> Path:
    return write_json(folder, dump([entry(number) for number in range(num_events)]))


ROWS: dict[tuple[str, ...], list[Any]] = {
    ("collective", "op", "payload_bytes", "output_bytes", "dtype", "state"): [
        ("allreduce", 48, 48, "Float", "completed"),
        ("allgather", 24, 48, "BFloat16", "started"),
        ("send", None, 48, "Opaque", "scheduled"),
    ],
    ("collective", "group", "group_size", "sequence", "is_p2p", "peer"): [
        ("0", 4, 1, False, None),
        ("0", 4, 2, False, None),
        ("5", 2, 7, True, 1),
    ],
    ("collective", "created_ns", "start_ns", "end_ns", "duration_ns"): [
        (T0, T0 + 100, T0 + 200, 250_000),
        (T0, T0 + 100, None, None),
        (T0, None, None, None),
    ],
    ("source", "rank", "world_size"): [(3, 4)],
    ("source_note", "code"): ["unfinished-collectives", "watchdog-times"],
}

SAMPLES = [
    Sample(
        "flight_recorder_json",
        "nccl_flight_recorder",
        lambda folder: write_json(folder, dump(entries())),
        {**ROWS, ("collective", "call_stack"): [None] * 3},
        {},
        lambda folder, secret: write_json(folder, planted(folder, secret)),
        many,
        # Fourteen columns of Python values until the sizes of groups are known: 1.1 kB measured.
        bytes_an_event=1600,
    ),
    Sample(
        "flight_recorder_pickle",
        "nccl_flight_recorder",
        pickled,
        {**ROWS, ("collective", "call_stack"): ["c10d.py(5): all_reduce;train.py(9): step"] * 3},
        {},
        lambda folder, secret: write_pickle(folder, planted(folder, secret)),
    ),
]
