"""What an export says about its origin: clock, profiler, host, settings, warnings of the profiler."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from tokenpath.core.units import INT64_MIN
from tokenpath.ingest.nsys.places import pid_of
from tokenpath.ingest.nsys.state import State
from tokenpath.ingest.sqlite_columns import Columns

_EXPORT_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_SETTINGS = {
    "EXPORT_SCHEMA_VERSION": "nsys.schema_version",
    "CUDA_GRAPH_TRACE_OPTIONS:MODE": "nsys.cuda_graph_trace",
    "CUDA_SKIP_SOME_API_CALLS": "nsys.skip_some_api_calls",
    "EXPORT_PARAM_TIME_SHIFT": "nsys.time_shift_ns",
    "NvDriverVersion": "driver.version",
    "CudaDriverVersion": "cuda.driver_version",
    "CpuDescription": "cpu.name",
    "OsDescription": "os.name",
}
"""Entries that are kept, and their name as a setting."""
_WARNING = 2
"""ENUM_DIAGNOSTIC_SEVERITY_LEVEL: from here on it is a warning or an error."""
_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])rank[-_.=]?(\d{1,6})(?!\d)", re.IGNORECASE)
_MAX_NS = 2**62


def read_origin(state: State) -> None:
    """Clock and settings; before any row is read."""
    entries: dict[str, str] = {}
    for table in (*_EXPORT_TABLES, "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV"):
        columns = state.read(table, [], ["name", "value"])
        for name, value in zip(
            columns.text("name").to_pylist(), columns.text("value").to_pylist(), strict=True
        ):
            if name is not None and value is not None:
                # Captures of several processes begin these names with `PROCESS_0:`.
                entries.setdefault(re.sub(r"^PROCESS_\d+:", "", name), value)
    builder, origin = state.builder, state.builder.origin
    for name, shown in _SETTINGS.items():
        if entries.get(name) not in (None, "", "0", "unknown"):
            builder.setting(shown, entries[name])
    words = (entries.get("EXPORT_PRODUCT_NAME"), entries.get("EXPORT_PRODUCT_VERSION"))
    origin.profiler = " ".join(word for word in words if word) or None
    origin.host = entries.get("Hostname") or None
    _read_clock(state, entries.get("EXPORT_PARAM_TIME_NORMALIZE") == "true")


def _read_clock(state: State, is_normalised: bool) -> None:
    """Stamps count from the start of the session, unless `nsys export --ts-normalize` was used."""
    origin = state.builder.origin
    begun = state.read("TARGET_INFO_SESSION_START_TIME", ["utcEpochNs"]).integer("utcEpochNs")
    start = int(begun[0]) if len(begun) else INT64_MIN
    if not 0 < start < _MAX_NS:
        origin.clock = "epoch" if is_normalised else "monotonic"
        return
    origin.clock, origin.base_time_ns = "epoch", start
    if not is_normalised:
        state.offset_ns = origin.clock_offset_ns = start


def read_warnings(state: State) -> None:
    """Warnings and errors of the profiler itself."""
    columns = state.export.read("DIAGNOSTIC_EVENT", ["severity"], ["text"])
    severity = columns.integer("severity")
    rows = np.flatnonzero(severity >= _WARNING)
    if len(rows) == 0:
        return
    worst = rows[np.argmax(severity[rows])]
    text = columns.text("text")[int(worst)].as_py() or "without a text"
    state.builder.note(
        "profiler-warning",
        f"warnings or errors of the profiler: {len(rows):,}, the gravest: {text[:300]}",
    )


def name_sources(state: State, file_name: str) -> None:
    """Origins of all processes: ranks from MPI, or from the file name where there is one process."""
    builder, processes = state.builder, state.processes
    ranks, world = _mpi_ranks(state)
    named = _RANK_IN_NAME.search(file_name)
    shared = replace(builder.origin)
    for number, key in enumerate(processes.keys or [INT64_MIN]):
        origin = builder.origin if number == 0 else replace(shared)
        if key in ranks:
            origin.rank, origin.rank_source, origin.world_size = ranks[key], "MPI", world
        elif named is not None and len(processes.keys) <= 1:
            origin.rank, origin.rank_source = int(named[1]), "file name"
        if number:
            builder.add_source(origin, processes.num_events[number])
    builder.num_events = state.num_unplaced + sum(processes.num_events[:1])
    if state.devices.are_ambiguous:
        builder.note(
            "shared-device-number",
            "several processes use a device of the same number, and the file does not say whether it "
            "is the same device: their work is shown as work of one",
        )
    if len(processes.keys) > 1:
        pids = ", ".join(str(pid_of(key)) for key in processes.keys if key != INT64_MIN)
        builder.setting("nsys.processes", pids)


def _mpi_ranks(state: State) -> tuple[dict[int, int], int | None]:
    """Ranks by serialised process id, and how many there are in all (when the file holds them all)."""
    columns: Columns = state.read("MPI_RANKS", ["globalTid", "rank"])
    ranks = dict(state.ranks)
    for serial, rank in zip(
        columns.integer("globalTid").tolist(), columns.integer("rank").tolist(), strict=True
    ):
        if serial != INT64_MIN and 0 <= rank < 2**31:
            ranks[serial & ~0xFFFFFF] = rank
    return ranks, None
