"""Rows a second of the Nsight Systems reader, on a generated SQLite export.

    python benchmarks/nsys.py [--rows 1000000] [--runs 5]

A sixth of the rows are kernels, a quarter calls, the rest NVTX ranges of operators, each with a text of its
own, as PyTorch writes them. The first read compiles the scan, once for a machine, and is not counted.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

from tokenpath.ingest import read

_PLACE = '"start" INT, "end" INT, deviceId INT, contextId INT, streamId INT, correlationId INT, globalPid INT'
_KERNEL = (
    "demangledName INT, shortName INT, gridX INT, gridY INT, gridZ INT, blockX INT, blockY INT, "
    "blockZ INT, registersPerThread INT, staticSharedMemory INT, dynamicSharedMemory INT, graphNodeId INT"
)
_PID = 281474976710656 | 100 << 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "export.sqlite"
        write(path, options.rows)
        read([path])
        walls, cpus = [], []
        for _ in range(options.runs):
            wall, cpu = time.perf_counter(), time.process_time()
            capture = read([path])
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
        num_rows = sum(capture.num_rows(name) for name in ("kernel", "api_call", "op"))
        print(f"{num_rows:,} rows, {path.stat().st_size / 1e6:.0f} MB")
        for label, seconds in (("wall", walls), ("cpu", cpus)):
            rates = sorted(num_rows / value / 1e6 for value in seconds)
            median = statistics.median(rates)
            print(f"{label}: median {median:.2f} M rows/s ({rates[0]:.2f} .. {rates[-1]:.2f})")


def write(path: Path, num_rows: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    names = [(number, f"gemm_{number}_kernel") for number in range(200)]
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", names)
    connection.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({_PLACE}, {_KERNEL})")
    connection.execute(
        'CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME ("start" INT, "end" INT, eventClass INT, globalTid INT, '
        "correlationId INT, nameId INT)"
    )
    connection.execute(
        'CREATE TABLE NVTX_EVENTS ("start" INT, "end" INT, eventType INT, text TEXT, globalTid INT, '
        "textId INT, domainId INT)"
    )
    insert(
        connection,
        "CUPTI_ACTIVITY_KIND_KERNEL",
        (
            (
                *(10_000 * n, 10_000 * n + 5_000, 0, 1, 7, n, _PID, n % 200, n % 200),
                *(64, n % 7, 1, 128, 1, 1, 32, 0, 4096, None),
            )
            for n in range(num_rows // 6)
        ),
    )
    insert(
        connection,
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        ((6_000 * n, 6_000 * n + 2_000, 0, _PID + 101, n, n % 200) for n in range(num_rows // 4)),
    )
    insert(
        connection,
        "NVTX_EVENTS",
        (
            (
                3_000 * n,
                3_000 * n + 2_500,
                59,
                f"aten::op_{n % 90}, op_id = {n}",
                _PID + 101,
                None,
                0,
            )
            for n in range(num_rows - num_rows // 4 - num_rows // 6)
        ),
    )
    connection.commit()
    connection.close()


def insert(connection: sqlite3.Connection, table: str, rows: object) -> None:
    (columns,) = connection.execute(f"SELECT count(*) FROM pragma_table_info('{table}')").fetchone()
    connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * columns)})", rows)


if __name__ == "__main__":
    main()
