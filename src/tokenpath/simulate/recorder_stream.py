"""Shares and tokens of a run to Parquet while it goes on, so that memory does not grow with them."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokenpath.capture.capture import Capture
from tokenpath.capture.parquet import FORMAT, MARKER
from tokenpath.capture.tables import SCHEMA_VERSION, TABLES
from tokenpath.core.errors import UsageError
from tokenpath.simulate.recorder import Int64s, RunRows, ShareRows
from tokenpath.simulate.recorder_tables import (
    RunFacts,
    share_table,
    summary_tables,
    token_table,
)
from tokenpath.simulate.workload.workload import Workload


class StreamWriter:
    """A `ShareSink` that writes a capture folder; use it as a context manager.

    `request_step` and `token` are written batch by batch, a row group each; `finish` adds the other tables.
    The folder must be new or empty, and appears whole or not at all.
    """

    def __init__(
        self, folder: Path, num_requests: int, request_ids: Sequence[str] | None = None
    ) -> None:
        """`request_ids` as the workload has them. UsageError when the folder cannot be written."""
        self._folder, self._ids = Path(folder), request_ids
        self._num_emitted = np.zeros(num_requests, np.int64)
        self._num_rows: dict[str, int] = {}
        self._writers: dict[str, pq.ParquetWriter] = {}
        if self._folder.exists() and (not self._folder.is_dir() or any(self._folder.iterdir())):
            raise UsageError(
                "the folder is not empty", where=str(folder), next_step="name a new folder"
            )
        self._scratch = self._folder.parent / f".{self._folder.name}-{secrets.token_hex(4)}"
        try:
            self._scratch.mkdir(parents=True)
        except OSError as error:
            raise UsageError(
                f"cannot write the capture: {error}",
                where=str(folder),
                next_step="name another folder",
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for writer in self._writers.values():
            writer.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def write(self, shares: ShareRows, end_ns: Int64s) -> None:
        """Append a batch of shares and their tokens."""
        self._append("request_step", share_table(shares, self._ids))
        tokens = token_table(shares, end_ns, self._num_emitted, self._ids)
        self._append("token", tokens)

    def finish(self, rows: RunRows, workload: Workload, facts: RunFacts) -> None:
        """Write the tables that are known at the end only, and let the folder appear."""
        for name, table in summary_tables(rows, workload, facts).items():
            if table.num_rows:
                self._append(name, table)
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
        marker = {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "tables": {name: self._num_rows[name] for name in TABLES if name in self._num_rows},
        }
        (self._scratch / MARKER).write_text(json.dumps(marker, indent=1) + "\n", encoding="utf-8")
        if self._folder.exists():
            self._folder.rmdir()
        self._scratch.rename(self._folder)

    def _append(self, name: str, table: pa.Table) -> None:
        Capture({name: table})
        if name not in self._writers:
            self._num_rows[name] = 0
            self._writers[name] = pq.ParquetWriter(
                self._scratch / f"{name}.parquet",
                table.schema,
                compression="zstd",
                write_page_checksum=True,
            )
        self._writers[name].write_table(table)
        self._num_rows[name] += table.num_rows
