"""Several files to one capture: shared threads and devices, split parts, sources, skips."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.capture.tables import TABLES
from tokenpath.ingest import arrow
from tokenpath.ingest.kineto.assemble import Ids, build_tables
from tokenpath.ingest.kineto.collect import HOST_STORES, Rows, collect, link
from tokenpath.ingest.kineto.counters import counter_tables
from tokenpath.ingest.kineto.facts import (
    Origin,
    find_vendor,
    is_epoch,
    mask_file_name,
    read_devices,
    read_origin,
)
from tokenpath.ingest.kineto.pairing import pair_begin_end
from tokenpath.ingest.kineto.processes import Pairs, place, read_pairs
from tokenpath.ingest.kineto.siblings import drop_duplicates
from tokenpath.ingest.kineto.source import FileRows
from tokenpath.ingest.kineto.stores import NO_CODE
from tokenpath.ingest.kineto.unsorted import settle
from tokenpath.ingest.reader import Options
from tokenpath.ingest.workers import worker_count

Int32s = NDArray[np.int32]
READER_VERSION = 1
_WORKERS_FROM_EVENTS = 300_000
"""Fewer are put into tables before another thread has begun."""


class _Merge:
    """Gives ids while files are added one by one."""

    def __init__(self, options: Options, *, has_several: bool) -> None:
        self._redactor = options.masks()
        self._has_several = has_several
        self._num_workers = worker_count(options.num_workers)
        self.parts: dict[str, list[pa.Table]] = {}
        self.files: list[tuple[FileRows, Origin, bool]] = []
        self.runs: list[int] = []
        """Number of the run that each file is a part of: the row of its first file."""
        self._run_of: dict[object, int] = {}
        self._threads: list[pa.Table] = []
        self._num_threads = 0
        self._thread_ids: dict[int, dict[tuple[str, str], int]] = {}
        self._devices: dict[tuple[int, int], dict[str, object]] = {}
        self._kernels = 0

    def add(self, file: FileRows) -> None:
        """Turn the rows of a file into tables; the rows leave the file."""
        sorter = file.sorter
        if sorter.begin_end:
            begin_end = np.concatenate(sorter.begin_end)
            sorter.begin_end = []
            sorter.add_paired(pair_begin_end(begin_end, sorter.losses))
        origin = read_origin(file.header, file.path.name, file.texts)
        if origin.host is not None:
            self._redactor.host(origin.host)
        file.texts = self._redactor.mask(file.texts)
        pairs = read_pairs(sorter.stores["metadata"], file.pairs, file.texts)
        vendor = settle(sorter.stores["unsorted"], sorter.stores, pairs, sorter.losses)
        is_large = file.sorter.num_events >= _WORKERS_FROM_EVENTS
        num_workers = self._num_workers if is_large else 1
        rows = collect(sorter, origin.base_ns or 0, num_workers)
        link(rows, sorter)
        source = len(self.files)
        key = (origin.trace_id, origin.base_ns, origin.rank) if origin.trace_id else source
        run = self._run_of.setdefault(key, source)
        self.runs.append(run)
        epoch = is_epoch(_first_time(rows), origin.base_ns)
        self.files.append((file, origin, epoch))
        threads = self._add_threads(rows, pairs, source, run)
        self._add_devices(rows, pairs, file, source, run, vendor)
        ids = Ids(source, threads, lambda numbers: self._device_ids(run, numbers))
        tables = build_tables(rows, sorter, pairs, ids, num_workers)
        tables |= counter_tables(sorter, pairs.texts, origin.base_ns or 0, source)
        if "collective" in tables and self._kernels:
            tables["collective"] = _shift(tables["collective"], "kernel_id", self._kernels)
        self._kernels += tables["kernel"].num_rows if "kernel" in tables else 0
        for name, table in tables.items():
            self.parts.setdefault(name, []).append(table)

    def finish(self) -> Capture:
        """All tables; duplicates among the parts of one run are dropped."""
        tables = {name: _joined(parts) for name, parts in self.parts.items()}
        if len(set(self.runs)) < len(self.runs):
            losses = [file.sorter.losses for file, _, _ in self.files]
            tables = drop_duplicates(tables, np.array(self.runs, np.int32), losses)
        if self._threads:
            tables["thread"] = _joined(self._threads)
        if self._devices:
            tables["device"] = _rows_to_table("device", list(self._devices.values()))
        tables["source"] = self._sources()
        skips = self._skips()
        if skips is not None:
            tables["skip"] = skips
        return Capture({name: table for name, table in tables.items() if table.num_rows})

    def _add_threads(self, rows: Rows, pairs: Pairs, source: int, run: int) -> Int32s:
        used = np.zeros(len(pairs.pid), bool)
        for store in HOST_STORES:
            pair = rows.columns[store]["pair"]
            if pair is not None:
                used[pair] = True
        numbers = np.flatnonzero(used)
        ids = np.full(len(used), NO_CODE, np.int32)
        if self._has_several:
            numbers = self._reuse_threads(numbers, pairs, run, ids)
        ids[numbers] = np.arange(
            self._num_threads, self._num_threads + len(numbers), dtype=np.int32
        )
        if len(numbers):
            columns = {
                "source_id": arrow.constant(source, len(numbers)),
                "pid": _plain(pairs.pid[numbers], pairs.texts),
                "tid": _plain(pairs.tid[numbers], pairs.texts),
                "name": arrow.texts(pairs.thread_name[numbers], pairs.texts),
            }
            self._threads.append(arrow.build(TABLES["thread"], len(numbers), columns))
            self._num_threads += len(numbers)
        return ids

    def _reuse_threads(
        self, numbers: NDArray[np.int64], pairs: Pairs, run: int, ids: Int32s
    ) -> NDArray[np.int64]:
        """Give the threads that earlier parts of the run have their rows; the new ones are left."""
        known = self._thread_ids.setdefault(run, {})
        fresh: list[int] = []
        for number in numbers.tolist():
            key = (pairs.texts[pairs.pid[number]], pairs.texts[pairs.tid[number]])
            if key in known:
                ids[number] = known[key]
            else:
                known[key] = self._num_threads + len(fresh)
                fresh.append(number)
        return np.array(fresh, np.int64)

    def _add_devices(
        self, rows: Rows, pairs: Pairs, file: FileRows, source: int, run: int, vendor: str | None
    ) -> None:
        # A synchronisation may name a device that did nothing; that makes it no device of the capture.
        process_of: dict[int, str] = {}
        for store in ("sync", "device_range", "kernel"):
            columns = rows.columns[store]
            pair = columns["pair"]
            if pair is None:
                continue
            device, stream = place(pairs, pair, columns["device"], columns["stream"])
            columns["device"], columns["stream"] = device, stream
            if store != "sync":
                numbers, first = np.unique(device, return_index=True)
                for number, row in zip(numbers.tolist(), first.tolist(), strict=True):
                    process_of[number] = pairs.name_of(pair[row])
        listed = read_devices(file.header)
        calls = rows.columns["api_call"]["name"]
        codes = [] if calls is None else np.unique(calls).tolist()
        names = [pairs.texts[code] for code in codes if code >= 0]
        for number in sorted(process_of):
            known = listed.get(number)
            name = None if known is None else self._redactor.mask_one(known.name)
            row = {
                "source_id": source,
                "index": number,
                "name": name,
                "num_sms": None if known is None else known.num_sms,
                "memory_bytes": None if known is None else known.memory_bytes,
                "vendor": find_vendor(file.header, name or process_of[number], names, vendor),
            }
            self._devices.setdefault((run, number), row)

    def _device_ids(self, run: int, numbers: NDArray[np.int64]) -> Int32s:
        rows = {key: row for row, key in enumerate(self._devices)}
        distinct, which = np.unique(numbers, return_inverse=True)
        ids = np.array([rows.get((run, n), NO_CODE) for n in distinct.tolist()], np.int32)
        return ids[which]

    def _sources(self) -> pa.Table:
        redactor = self._redactor
        rows: list[dict[str, object]] = []
        for file, origin, epoch in self.files:
            losses = file.sorter.losses
            rows.append(
                {
                    "path": mask_file_name(file.path.name, redactor),
                    "format": "kineto",
                    "reader_version": READER_VERSION,
                    "sha256": file.sha256,
                    "num_bytes": file.num_stored_bytes,
                    "trace_id": redactor.mask_one(origin.trace_id),
                    "base_time_ns": origin.base_ns,
                    "clock_offset_ns": origin.base_ns or 0,
                    "clock": "epoch" if epoch else "monotonic",
                    "rank": origin.rank,
                    "world_size": origin.world_size,
                    "rank_source": origin.rank_source,
                    "host": None if origin.host is None else redactor.host(origin.host),
                    "profiler": origin.profiler,
                    "state": "synthetic" if origin.is_synthetic else "measured",
                    "num_events": file.sorter.num_events,
                    "num_skipped": losses.num_dropped(),
                }
            )
        return _rows_to_table("source", rows)

    def _skips(self) -> pa.Table | None:
        rows = [
            {
                "source_id": source,
                "reason": loss.reason,
                "lost": loss.lost,
                "num_events": loss.num_events,
                "example": loss.example,
            }
            for source, (file, _, _) in enumerate(self.files)
            for loss in file.sorter.losses.rows()
        ]
        return _rows_to_table("skip", rows) if rows else None


def merge_files(files: Iterable[FileRows], num_files: int, options: Options) -> Capture:
    """One capture from the rows of several files, which give them up one after the other."""
    merge = _Merge(options, has_several=num_files > 1)
    for file in files:
        merge.add(file)
    return merge.finish()


def _first_time(rows: Rows) -> int:
    firsts = []
    for columns in rows.columns.values():
        start = columns.get("start")
        if start is not None and len(start):
            firsts.append(int(start.min()))
    return min(firsts, default=0)


def _plain(codes: Int32s, texts: list[str]) -> pa.Array:
    """Texts by code; Array.take would import pyarrow.compute, which takes longer than all of this."""
    return pa.array([texts[code] for code in codes.tolist()], pa.string())


def _joined(parts: list[pa.Table]) -> pa.Table:
    if len(parts) == 1:
        return parts[0]
    return pa.concat_tables(parts).unify_dictionaries().combine_chunks()


def _shift(table: pa.Table, name: str, by: int) -> pa.Table:
    at = table.schema.get_field_index(name)
    values = [None if value is None else value + by for value in table[name].to_pylist()]
    return table.set_column(at, table.schema.field(at), pa.array(values, pa.int32()))


def _rows_to_table(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    arrays = []
    for column in TABLES[name].columns:
        values = [row.get(column.name) for row in rows]
        if column.type == "text":
            arrays.append(arrow.encode(values))
        else:
            arrays.append(pa.array(values, column.arrow_type))
    return pa.Table.from_arrays(arrays, schema=TABLES[name].schema)
