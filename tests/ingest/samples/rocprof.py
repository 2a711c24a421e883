"""What AMD's rocprofv3 writes: JSON, CSV and the rocpd database."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ingest.samples import Sample

AGENTS = [
    {"id": {"handle": 70}, "type": 1, "node_id": 0, "logical_node_type_id": 0, "name": "EPYC"},
    {
        "id": {"handle": 72},
        "type": 2,
        "node_id": 4,
        "logical_node_type_id": 3,
        "name": "gfx942",
        "product_name": "AMD Instinct MI300X",
        "cu_count": 304,
        "mem_banks": [{"heap_type": 1, "size_in_bytes": 206141652992}],
    },
]
KINDS = [
    {"kind": "NONE", "operations": []},
    {"kind": "HIP_RUNTIME_API", "operations": ["none", "hipLaunchKernel", "hipMemcpyAsync"]},
    {"kind": "MARKER_CORE_API", "operations": ["none", "roctxRangePushA", "roctxRangePop"]},
    {"kind": "MEMORY_COPY", "operations": ["NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
    {"kind": "MEMORY_ALLOCATION", "operations": ["NONE", "ALLOCATE", "FREE"]},
]


def record(kind: int, operation: int, link: int, start: int, end: int, **more: object) -> Any:
    return {
        "size": 48,
        "kind": kind,
        "operation": operation,
        "correlation_id": {"internal": link, "external": 0},
        "start_timestamp": start,
        "end_timestamp": end,
        "thread_id": 7,
        **more,
    }


def dispatch(start: int, end: int, *, link: int = 1, kernel: int = 5, number: int = 1) -> Any:
    info = {
        "agent_id": {"handle": 72},
        "queue_id": {"handle": 1},
        "kernel_id": kernel,
        "dispatch_id": number,
        "group_segment_size": 1024,
        "workgroup_size": {"x": 256, "y": 1, "z": 1},
        "grid_size": {"x": 1000, "y": 2, "z": 1},
    }
    return record(11, 2, link, start, end, dispatch_info=info, stream_id={"handle": 9})


def document(
    records: dict[str, Any], *, name: str = "void f<4>(int)", host: str = "h", mark: str = "step 1"
) -> Any:
    """A file with one process; the kernel symbols stand last, as the format allows."""
    tool = {
        "metadata": {
            "pid": 42,
            "node": {"hostname": host},
            "command": ["python", host],
            "config": {"kernel_rename": False, "output_path": host},
        },
        "agents": AGENTS,
        "counters": [{"id": {"handle": 31}, "name": "SQ_WAVES"}],
        "strings": {"buffer_records": KINDS, "marker_api": [{"key": 4, "value": mark}]},
        "buffer_records": {"kernel_dispatch": [], "hip_api": [], **records},
        "callback_records": {
            "counter_collection": [
                {
                    "dispatch_data": {
                        "dispatch_info": {"dispatch_id": 1, "kernel_id": 5},
                        "start_timestamp": 2000,
                        "end_timestamp": 2500,
                    },
                    "records": [
                        {"counter_id": {"handle": 31}, "value": 3.0},
                        {"counter_id": {"handle": 31}, "value": 4.5},
                    ],
                }
            ]
        },
        "kernel_symbols": [
            {
                "kernel_id": 5,
                "kernel_name": "_Z1fi.kd",
                "formatted_kernel_name": name,
                "arch_vgpr_count": 20,
                "accum_vgpr_count": 4,
            }
        ],
    }
    return {"rocprofiler-sdk-tool": [tool]}


def small_records() -> dict[str, Any]:
    return {
        "kernel_dispatch": [dispatch(2000, 2500), dispatch(2600, 0, number=2)],
        "hip_api": [record(1, 1, 1, 1500, 1600)],
        "marker_api": [record(2, 1, 4, 1400, 3000)],
        "memory_copy": [
            record(
                3, 1, 6, 900, 950,
                src_agent_id={"handle": 70}, dst_agent_id={"handle": 72}, bytes=64,
            )
        ],
        "memory_allocation": [
            record(4, 1, 8, 100, 120, address="0x7f00", allocation_size=512),
            record(4, 2, 9, 5000, 5010, address="0x7f00", allocation_size=0),
        ],
        "scratch_memory": [{}],
    }  # fmt: skip


def write_json(folder: Path, value: object) -> Path:
    path = folder / "1_results.json"
    path.write_text(json.dumps(value))
    return path


KERNELS = (
    *("Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id"),
    *("Kernel_Name", "Correlation_Id", "Start_Timestamp", "End_Timestamp", "LDS_Block_Size"),
    *("Scratch_Size", "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count", "Workgroup_Size_X"),
    *("Workgroup_Size_Y", "Workgroup_Size_Z", "Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z"),
)
CALLS = (
    *("Domain", "Function", "Process_Id", "Thread_Id", "Correlation_Id"),
    *("Start_Timestamp", "End_Timestamp"),
)


def kernel_row(name: str, start: object, end: object, link: int = 1) -> tuple[object, ...]:
    where = ("KERNEL_DISPATCH", "Agent 4", 1, 9, 7, 1, 5)
    sizes = (1024, 0, 20, 4, 16, 256, 1, 1, 1000, 2, 1)
    return (*where, name, link, start, end, *sizes)


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_NONNUMERIC).writerows([header, *rows])
    return path


def small_csv(folder: Path) -> Path:
    rows = [kernel_row("void f<4>(int)", 2000, 2500), kernel_row("g", 3000, 2999), ("a", "b")]
    return write_csv(folder / "1_kernel_trace.csv", KERNELS, rows)


_SUFFIX = "_00001f4c_76a5_7ef1"
_TABLES = {
    "string": "id INTEGER PRIMARY KEY, string TEXT",
    "info_node": "id INTEGER PRIMARY KEY, hostname TEXT",
    "info_process": "id INTEGER PRIMARY KEY, pid INTEGER, command TEXT, environment TEXT",
    "info_thread": "id INTEGER PRIMARY KEY, pid INTEGER, tid INTEGER, name TEXT",
    "info_agent": "id INTEGER PRIMARY KEY, type TEXT, type_index INTEGER, absolute_index INTEGER,"
    " product_name TEXT, name TEXT, extdata TEXT",
    "info_kernel_symbol": "id INTEGER PRIMARY KEY, display_name TEXT, kernel_name TEXT,"
    " arch_vgpr_count INTEGER, accum_vgpr_count INTEGER, group_segment_size INTEGER",
    "event": "id INTEGER PRIMARY KEY, stack_id INTEGER, correlation_id INTEGER,"
    " category_id INTEGER, extdata TEXT",
    "region": "id INTEGER PRIMARY KEY, pid INTEGER, tid INTEGER, start BIGINT, end BIGINT,"
    " name_id INTEGER, event_id INTEGER",
    "kernel_dispatch": "id INTEGER PRIMARY KEY, pid INTEGER, tid INTEGER, agent_id INTEGER,"
    " kernel_id INTEGER, dispatch_id INTEGER, queue_id INTEGER, stream_id INTEGER, start BIGINT,"
    " end BIGINT, group_segment_size INTEGER, workgroup_size_x INTEGER, workgroup_size_y INTEGER,"
    " workgroup_size_z INTEGER, grid_size_x INTEGER, grid_size_y INTEGER, grid_size_z INTEGER,"
    " event_id INTEGER",
    "memory_copy": "id INTEGER PRIMARY KEY, pid INTEGER, tid INTEGER, start BIGINT, end BIGINT,"
    " name_id INTEGER, dst_agent_id INTEGER, src_agent_id INTEGER, size INTEGER, stream_id INTEGER,"
    " event_id INTEGER",
}


def write_rocpd(
    folder: Path,
    dispatches: Sequence[tuple[object, object]],
    *,
    name: str = "void f<4>(int)",
    text: str = "step 1",
) -> Path:
    path = folder / "1_results.db"
    connection = sqlite3.connect(path)
    for table, columns in _TABLES.items():
        connection.execute(f"CREATE TABLE rocpd_{table}{_SUFFIX} ({columns})")
        connection.execute(f"CREATE VIEW rocpd_{table} AS SELECT * FROM rocpd_{table}{_SUFFIX}")

    def add(table: str, *rows: Sequence[object]) -> None:
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO rocpd_{table}{_SUFFIX} VALUES ({marks})", rows)

    strings = ["HIP_RUNTIME_API", "MARKER_CORE_RANGE_API", "hipLaunchKernel", "roctxRangePushA"]
    add("string", *enumerate([*strings, "MEMORY_COPY_HOST_TO_DEVICE"], 1))
    add("info_node", (1, text))
    add("info_process", (42, 42, text, text))
    add("info_thread", (7, 42, 7, text))
    facts = json.dumps({"cu_count": 304, "mem_banks": [{"size_in_bytes": 206141652992}]})
    add("info_agent", (0, "CPU", 0, 0, "EPYC", "EPYC", "{}"))
    add_gpu = (4, "GPU", 3, 4, "AMD Instinct MI300X", "gfx942", facts)
    add("info_agent", add_gpu)
    add("info_kernel_symbol", (5, name, "_Z1fi.kd", 20, 4, 0))
    message = json.dumps({"message": text})
    add("event", (1, 101, 0, 1, "{}"), (2, 101, 0, 1, "{}"), (3, 102, 0, 2, message))
    add("region", (1, 42, 7, 1500, 1600, 3, 1), (2, 42, 7, 1400, 3000, 4, 3))
    add("memory_copy", (1, 42, 7, 900, 950, 5, 4, 0, 64, 2, None))
    place = (42, 7, 4, 5, 1, 1, 9)
    for number, (start, end) in enumerate(dispatches, 1):
        add("kernel_dispatch", (number, *place, start, end, 1024, 256, 1, 1, 1000, 2, 1, 2))
    connection.commit()
    connection.close()
    return path


KERNEL = ("void f<4>(int)", 9, 2000, 2500, "compute", [4, 2, 1], [256, 1, 1], 24, 1024)
_KERNEL_COLUMNS = (
    *("kernel", "name", "stream_id", "start_ns", "end_ns", "kind", "grid", "block"),
    *("registers_per_thread", "shared_memory_bytes"),
)
_COPY = ("MEMORY_COPY_HOST_TO_DEVICE", -1, 900, 950, "memcpy", None, None, None, None)
_GPU = [(3, "AMD Instinct MI300X", 304, 206141652992, "amd")]
_GPU_COLUMNS = ("device", "index", "name", "num_sms", "memory_bytes", "vendor")


def _many_json(folder: Path, num_events: int) -> Path:
    records = [dispatch(2 * n + 1, 2 * n + 2, link=n) for n in range(num_events)]
    return write_json(folder, document({"kernel_dispatch": records}))


SAMPLES = [
    Sample(
        "rocprof-json",
        "rocprof-json",
        lambda folder: write_json(folder, document(small_records())),
        {
            _KERNEL_COLUMNS: [_COPY, KERNEL],
            _GPU_COLUMNS: _GPU,
            ("kernel", "bytes", "api_call_id", "correlation_id"): [(64, None, 6), (None, 0, 1)],
            ("api_call", "name", "start_ns", "end_ns"): [("hipLaunchKernel", 1500, 1600)],
            ("range", "name", "start_ns", "end_ns"): [("step 1", 1400, 3000)],
            ("thread", "pid", "tid"): [("42", "7")],
            ("memory_event", "at_ns", "action", "bytes"): [
                (100, "segment_alloc", 512),
                (5000, "segment_free", -512),
            ],
            ("kernel_counter", "kernel_id", "name", "value", "launch"): [(1, "SQ_WAVES", 7.5, 1)],
            ("source", "clock", "host"): [("monotonic", "host-0")],
        },
        {"command line": 1, "end before start": 1, "scratch memory": 1},
        lambda folder, secret: write_json(
            folder, document(small_records(), name=secret, host=secret, mark=secret)
        ),
        _many_json,
    ),
    Sample(
        "rocprof-csv",
        "rocprof-csv",
        small_csv,
        {
            _KERNEL_COLUMNS: [KERNEL],
            ("device", "index", "name"): [(4, None)],
            ("source", "clock"): ["monotonic"],
        },
        {"end before start": 1, "row of another length": 1},
        lambda folder, secret: write_csv(
            folder / "1_kernel_trace.csv", KERNELS, [kernel_row(secret, 1, 2)]
        ),
        lambda folder, number: write_csv(
            folder / "1_kernel_trace.csv",
            KERNELS,
            [kernel_row("k", n + 1, n + 2, n) for n in range(number)],
        ),
    ),
    Sample(
        "rocpd",
        "rocpd",
        lambda folder: write_rocpd(folder, [(2000, 2500), (b"x", 2)]),
        {
            _KERNEL_COLUMNS: [(_COPY[0], 2, *_COPY[2:]), KERNEL],
            _GPU_COLUMNS: _GPU,
            ("kernel", "bytes", "api_call_id", "correlation_id"): [
                (64, None, None),
                (None, 0, 101),
            ],
            ("api_call", "name", "start_ns"): [("hipLaunchKernel", 1500)],
            ("range", "name", "start_ns", "end_ns"): [("step 1", 1400, 3000)],
        },
        {"command line": 1, "environment": 1, "missing timestamp": 1},
        lambda folder, secret: write_rocpd(folder, [(1, 2)], name=secret, text=secret),
        lambda folder, number: write_rocpd(folder, [(n + 1, n + 2) for n in range(number)]),
    ),
]
