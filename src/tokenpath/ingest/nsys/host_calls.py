"""Calls of the CUDA runtime and driver, of libraries above them, and the profiler's own overhead."""

from __future__ import annotations

import re

import numpy as np

from tokenpath.core.units import INT64_MIN
from tokenpath.ingest import arrow
from tokenpath.ingest.nsys.places import process_key
from tokenpath.ingest.nsys.state import State, labels, repeated

CALLS = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
LIBRARIES = {
    "CUDNN_EVENTS": "cuDNN",
    "CUBLAS_EVENTS": "cuBLAS",
    "MPI_OTHER_EVENTS": "MPI",
    "MPI_P2P_EVENTS": "MPI",
    "MPI_COLLECTIVES_EVENTS": "MPI",
    "MPI_START_WAIT_EVENTS": "MPI",
}
"""Tables of library calls -> library."""
OVERHEADS = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")

_BACKTRACE_CLASS = 67
"""TRACE_PROCESS_EVENT_CUDABACKTRACE (ENUM_NSYS_EVENT_CLASS): the same call again, for its call chain."""
_VERSION = re.compile(r"_v\d{4,5}$", re.ASCII)
"""`cudaLaunchKernel_v7000`: the version of CUDA in which a signature came, which no other source writes."""


def read_host_calls(state: State) -> None:
    """All calls of an export."""
    for table in CALLS:
        _read_calls(state, table)
    for table, library in LIBRARIES.items():
        _read_ranges(state, table, library)
    for table in OVERHEADS:
        _read_ranges(state, table, None)


def _read_calls(state: State, table: str) -> None:
    columns = state.read(
        table, ["start", "end", "globalTid", "correlationId", "nameId", "eventClass"]
    )
    rows, start, end = state.in_time(columns)
    is_repeat = columns.integer("eventClass")[rows] == _BACKTRACE_CLASS
    if is_repeat.any():
        num_repeats = int(is_repeat.sum())
        state.builder.losses.add("call repeated for its call chain", num_repeats, lost=False)
        state.num_unplaced += num_repeats
        rows, start, end = rows[~is_repeat], start[~is_repeat], end[~is_repeat]
    if len(rows) == 0:
        return
    serial = columns.integer("globalTid")[rows]
    source = state.processes.rows(process_key(serial))
    texts, codes = state.strings.distinct(columns.integer("nameId")[rows])
    names = [None if text is None else _VERSION.sub("", text) for text in texts]
    correlation = columns.integer("correlationId")[rows]
    state.builder.add(
        "api_call",
        {
            "source_id": source,
            "thread_id": state.threads.rows(serial, source),
            "start_ns": start,
            "end_ns": end,
            "name": state.named(names, codes),
            "correlation_id": arrow.integers(
                np.where(correlation == 0, INT64_MIN, correlation), INT64_MIN
            ),
        },
    )


def _read_ranges(state: State, table: str, library: str | None) -> None:
    columns = state.read(table, ["start", "end", "globalTid", "nameId", "textId"])
    rows, start, end = state.in_time(columns)
    if len(rows) == 0:
        return
    serial = columns.integer("globalTid")[rows]
    source = state.processes.rows(process_key(serial))
    number = columns.integer("nameId")[rows]
    number = np.where(number == INT64_MIN, columns.integer("textId")[rows], number)
    texts, codes = state.strings.distinct(number)
    if library is None:
        # As the reader of Kineto traces names them.
        names = [f"overhead: {text or 'profiler'}" for text in texts]
        named = labels(codes, names)
    else:
        named = state.named(texts, codes)
    columns_of_range = {
        "source_id": source,
        "side": repeated("host", len(rows)),
        "thread_id": state.threads.rows(serial, source),
        "start_ns": start,
        "end_ns": end,
        "name": named,
    }
    if library is not None:
        columns_of_range["domain"] = repeated(library, len(rows))
    state.builder.add("range", columns_of_range)
