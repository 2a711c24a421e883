"""Small Nsight Systems exports, as SQLite in an old and a new schema, or as a folder of Parquet files."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
NVTX = "NVTX_EVENTS"

HOST = 281474976710656
"""The part of a serialised id that names the machine."""


def serial(pid: int, tid: int = 0) -> int:
    """A serialised process or thread id."""
    return HOST | pid << 24 | tid


class NsysExport:
    """Rows by table; strings are registered as they come."""

    def __init__(self, epoch_ns: int | None = 1_000_000) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self._strings: dict[str, int] = {}
        self._correlations: Counter[int] = Counter()
        self.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_NAME", value="NVIDIA Nsight Systems")
        self.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="3.24.14")
        if epoch_ns is not None:
            self.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=epoch_ns)

    def add(self, table: str, **row: Any) -> NsysExport:
        """A row of any table."""
        self.rows.setdefault(table, []).append(row)
        return self

    def string(self, text: str) -> int:
        """The number of a text in StringIds."""
        if text not in self._strings:
            self._strings[text] = 10 * len(self._strings) + 5
            self.add("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    def call(self, name: str, start: int, dur: int, pid: int = 100, **more: Any) -> NsysExport:
        """A runtime call; its correlation id is the next one of the process."""
        self._correlations[pid] += 1
        row = {
            "start": start,
            "end": start + dur,
            "eventClass": 0,
            "globalTid": serial(pid, pid + 1),
            "correlationId": self._correlations[pid],
            "nameId": self.string(name),
        }
        return self.add(RUNTIME, **(row | more))

    def kernel(self, name: str, start: int, dur: int, pid: int = 100, **more: Any) -> NsysExport:
        """A kernel, launched by the last call of its process."""
        return self.add(
            KERNEL,
            **(
                self._work(start, dur, pid)
                | {
                    "demangledName": self.string(name),
                    "shortName": self.string(name),
                    "registersPerThread": 32,
                    "gridX": 4,
                    "gridY": 2,
                    "gridZ": 1,
                    "blockX": 128,
                    "blockY": 1,
                    "blockZ": 1,
                    "staticSharedMemory": 100,
                    "dynamicSharedMemory": 28,
                    "graphNodeId": None,
                    "graphId": None,
                }
                | more
            ),
        )

    def work(self, table: str, start: int, dur: int, pid: int = 100, **more: Any) -> NsysExport:
        """Other device work, launched by the last call of its process."""
        return self.add(table, **(self._work(start, dur, pid) | more))

    def _work(self, start: int, dur: int, pid: int) -> dict[str, Any]:
        return {
            "start": start,
            "end": start + dur,
            "deviceId": 0,
            "contextId": 1,
            "streamId": 7,
            "correlationId": self._correlations[pid] or None,
            "globalPid": serial(pid),
        }

    def nvtx(self, text: str | None, start: int, dur: int | None, **more: Any) -> NsysExport:
        """A push/pop range."""
        row = {
            "start": start,
            "end": None if dur is None else start + dur,
            "eventType": 59,
            "text": text,
            "globalTid": serial(100, 101),
            "textId": None,
            "domainId": 0,
        }
        return self.add(NVTX, **(row | more))

    def write(self, path: Path) -> Path:
        """The SQLite file."""
        connection = sqlite3.connect(path)
        for table, rows in self.rows.items():
            columns = dict.fromkeys(name for row in rows for name in row)
            kinds = ", ".join(f'"{name}" {_kind(rows, name)}' for name in columns)
            connection.execute(f'CREATE TABLE "{table}" ({kinds})')
            connection.executemany(
                f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(columns))})',
                [[row.get(name) for name in columns] for row in rows],
            )
        connection.commit()
        connection.close()
        return path

    def write_folder(self, folder: Path, suffix: str = ".parquet") -> Path:
        """The folder with one file a table."""
        folder.mkdir()
        for table, rows in self.rows.items():
            columns = dict.fromkeys(name for row in rows for name in row)
            whole = pa.table({name: [row.get(name) for row in rows] for name in columns})
            if suffix == ".parquet":
                pq.write_table(whole, folder / f"{table}.parquet")
            else:
                with pa.ipc.new_file(str(folder / f"{table}.arrow"), whole.schema) as target:
                    target.write_table(whole)
        return folder


def _kind(rows: list[dict[str, Any]], name: str) -> str:
    if (name, rows[0].keys()) == ("id", {"id", "value"}):
        return "INTEGER PRIMARY KEY"
    is_text = any(isinstance(row.get(name), str) for row in rows)
    return "TEXT" if is_text else "INTEGER"
