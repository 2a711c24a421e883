"""A folder of nsys-jax."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.samples import Sample

COLUMNS = ("Name", "Projected Start", "Projected Duration", "Orig Start", "Orig Duration")


def write(
    folder: Path, rows: list[tuple[Any, ...]], gpu: str = "NVIDIA A100", process: int = 2
) -> Path:
    path = folder / "proc"
    (path / "nvtx_gpu_proj_trace").mkdir(parents=True)
    columns: dict[str, Any] = {name: [row[at] for row in rows] for at, name in enumerate(COLUMNS)}
    columns |= {name: pa.array(columns[name], pa.float64()) for name in COLUMNS[3:]}
    columns |= {"PID": [100] * len(rows), "TID": [101] * len(rows)}
    pq.write_table(pa.table(columns), path / "nvtx_gpu_proj_trace" / "trace.parquet")
    device = {
        "('TARGET_INFO_GPU', 'id')": [0],
        "('TARGET_INFO_GPU', 'name')": [gpu],
        "('TARGET_INFO_GPU', 'smCount')": [108],
        "('TARGET_INFO_NVTX_CUDA_DEVICE', 'name')": [f"Xla:#global=2,process={process}#"],
    }
    pq.write_table(pa.table(device), path / "device-metadata.parquet")
    pq.write_table(pa.table({"name": ["x"]}), path / "system-metadata.parquet")
    return path


ROWS = [
    ("TSL:Thunk:#hlo_op=dot.1#", 2_000, 50, 1_000.0, 100.0),
    (None, 0, 9_000, None, None),
    ("TSL:XlaModule:#module=jit_f#", 2_000, 70, None, None),
]

SAMPLES = [
    Sample(
        "nsys_jax",
        "nsys_jax",
        lambda folder: write(folder, ROWS),
        {
            ("range", "name", "side", "start_ns", "end_ns", "device_id", "thread_id"): [
                (ROWS[0][0], "device", 2_000, 2_050, 0, None),
                (ROWS[2][0], "device", 2_000, 2_070, 0, None),
                (ROWS[0][0], "host", 1_000, 1_100, None, 0),
            ],
            ("device", "index", "name", "num_sms"): [(0, "NVIDIA A100", 108)],
            ("thread", "pid", "tid"): [("100", "101")],
            ("source", "rank", "clock"): [(2, "monotonic")],
            ("source_note", "code"): ["projected-ranges"],
        },
        {"work outside all ranges": 1, "range without times": 1, "file that is not read": 1},
        lambda folder, secret: write(folder, [(secret, 1, 2, 3.0, 4.0)], secret),
    )
]
