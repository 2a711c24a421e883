"""Kernels, copies, fills and whole device graphs become rows of `kernel`."""

from __future__ import annotations

from collections.abc import Sequence, Sized

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s
from tokenpath.core.kernel_names import Family, classify_many
from tokenpath.core.units import INT64_MIN
from tokenpath.ingest import arrow
from tokenpath.ingest.nsys.names import codes_of
from tokenpath.ingest.nsys.places import process_key
from tokenpath.ingest.nsys.state import State, labels, repeated
from tokenpath.ingest.sqlite_columns import Columns

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"

_PLACE = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
_NAMES = ("demangledName", "shortName", "mangledName")
_GRID = ("gridX", "gridY", "gridZ")
_BLOCK = ("blockX", "blockY", "blockZ")
_SHARED = ("staticSharedMemory", "dynamicSharedMemory")

# CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind of CUPTI's cupti_activity.h, in Kineto's words. An
# export counts kinds of memory from 0 (ENUM_CUDA_MEM_KIND).
_COPIES = (
    *("unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"),
    *("UVM HtoD", "UVM DtoH", "UVM DtoD"),
)
_MEMORIES = (
    *("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"),
    "Unknown",
)
_KINDS = ("compute", "communication", "memcpy", "memset")


def read_device_work(state: State) -> None:
    """All device work of an export."""
    _read_kernels(state)
    _read_copies(state)
    _read_fills(state)
    _read_graphs(state)


def _read_kernels(state: State) -> None:
    columns = state.read(
        KERNEL,
        [
            *(*_PLACE, *_NAMES, *_GRID, *_BLOCK, *_SHARED),
            *("registersPerThread", "graphId", "graphNodeId"),
        ],
    )
    number = columns.integer(_NAMES[0])
    for other in _NAMES[1:]:
        number = np.where(number == INT64_MIN, columns.integer(other), number)
    texts, codes = state.strings.distinct(number)
    classes = classify_many([text or "" for text in texts])
    families = [str(found.family) for found in classes]
    kinds = np.array([int(found.is_communication) for found in classes], np.int32)
    rows, common = _common(state, columns)
    if len(rows) == 0:
        return
    codes = codes[rows]
    shared = [columns.integer(name)[rows] for name in _SHARED]
    has_shared = (shared[0] != INT64_MIN) & (shared[1] != INT64_MIN)
    state.builder.add(
        "kernel",
        common
        | {
            "name": state.named(texts, codes),
            "kind": labels(kinds[codes], _KINDS),
            "family": labels(codes, families),
            "grid": _triples([columns.integer(name)[rows] for name in _GRID]),
            "block": _triples([columns.integer(name)[rows] for name in _BLOCK]),
            "registers_per_thread": _small(columns.integer("registersPerThread")[rows]),
            "shared_memory_bytes": arrow.integers(
                np.where(has_shared, shared[0] + shared[1], INT64_MIN), INT64_MIN
            ),
            **_graph(columns, rows),
        },
    )


def _read_copies(state: State) -> None:
    columns = state.read(
        MEMCPY, [*_PLACE, "bytes", "copyKind", "srcKind", "dstKind", "graphId", "graphNodeId"]
    )
    rows, common = _common(state, columns)
    if len(rows) == 0:
        return
    sizes = (len(_COPIES) + 1, len(_MEMORIES) + 1, len(_MEMORIES) + 1)
    key = np.zeros(len(rows), np.int64)
    for name, size in zip(("copyKind", "srcKind", "dstKind"), sizes, strict=True):
        value = columns.integer(name)[rows]
        key = key * size + np.where((value >= 0) & (value < size - 1), value, size - 1)
    distinct, codes = codes_of(key)
    names = []
    for value in distinct.tolist():
        rest, target = divmod(value, sizes[2])
        copy, source = divmod(rest, sizes[1])
        names.append(_copy_name(copy, source, target))
    _add(state, columns, rows, common, labels(codes, names), "memcpy")


def _copy_name(copy: int, source: int, target: int) -> str:
    words = "Memcpy" + (f" {_COPIES[copy]}" if 0 < copy < len(_COPIES) else "")
    if source < len(_MEMORIES) and target < len(_MEMORIES):
        return f"{words} ({_MEMORIES[source]} -> {_MEMORIES[target]})"
    return words


def _read_fills(state: State) -> None:
    columns = state.read(MEMSET, [*_PLACE, "bytes", "memKind", "graphId", "graphNodeId"])
    rows, common = _common(state, columns)
    if len(rows) == 0:
        return
    kind = columns.integer("memKind")[rows]
    codes = np.where((kind >= 0) & (kind < len(_MEMORIES)), kind, len(_MEMORIES)).astype(np.int32)
    names = [*(f"Memset ({memory})" for memory in _MEMORIES), "Memset"]
    _add(state, columns, rows, common, labels(codes, names), "memset")


def _read_graphs(state: State) -> None:
    columns = state.read(GRAPH, [*_PLACE, "graphId", "graphExecId"])
    rows, common = _common(state, columns)
    if len(rows) == 0:
        return
    graph = columns.integer("graphId")[rows]
    graph = np.where(graph == INT64_MIN, columns.integer("graphExecId")[rows], graph)
    distinct, codes = codes_of(graph)
    names = [
        "CUDA graph" if number == INT64_MIN else f"CUDA graph {number}"
        for number in distinct.tolist()
    ]
    state.builder.add(
        "kernel",
        common
        | {
            "name": labels(codes, names),
            "kind": repeated("compute", len(rows)),
            "family": repeated(str(Family.OTHER), len(rows)),
            "graph_id": arrow.integers(graph, INT64_MIN),
        },
    )
    state.builder.note(
        "graph-level-trace",
        f"{len(rows):,} replays of {len(distinct):,} CUDA graphs were recorded whole: each is one "
        "piece of work, and the kernels and gaps inside are not in the file",
    )


def _add(
    state: State,
    columns: Columns,
    rows: Int64s,
    common: dict[str, Sized],
    names: pa.DictionaryArray,
    kind: str,
) -> None:
    state.builder.add(
        "kernel",
        common
        | {
            "name": names,
            "kind": repeated(kind, len(rows)),
            "family": repeated(kind, len(rows)),
            "bytes": arrow.integers(columns.integer("bytes")[rows], INT64_MIN),
            **_graph(columns, rows),
        },
    )


def _common(state: State, columns: Columns) -> tuple[Int64s, dict[str, Sized]]:
    """Rows that can be kept, and the columns that all device work has."""
    rows, start, end = state.in_time(columns)
    device = columns.integer("deviceId")[rows]
    placed = (device >= 0) & (device < 2**31)
    if not placed.all():
        state.builder.losses.add("missing device", int((~placed).sum()))
        state.num_unplaced += int((~placed).sum())
        rows, start, end, device = rows[placed], start[placed], end[placed], device[placed]
    key = process_key(columns.integer("globalPid")[rows])
    source = state.processes.rows(key)
    stream = columns.integer("streamId")[rows]
    unknown = (stream < 0) | (stream >= 2**32)
    state.builder.losses.add("missing stream", int(unknown.sum()), dropped=False)
    stream = np.where(unknown, 0, stream)
    row, stream = state.devices.rows(
        source, key, device, columns.integer("contextId")[rows], stream
    )
    return rows, {
        "source_id": source,
        "device_id": row,
        "stream_id": stream,
        "start_ns": start,
        "end_ns": end,
        "correlation_id": _correlation(columns, rows),
    }


def _correlation(columns: Columns, rows: Int64s) -> pa.Array:
    """Correlation ids; CUPTI's 0 is none."""
    number = columns.integer("correlationId")[rows]
    return arrow.integers(np.where(number == 0, INT64_MIN, number), INT64_MIN)


def _graph(columns: Columns, rows: Int64s) -> dict[str, pa.Array]:
    """Graph and node; CUPTI's 0 is none."""
    found = {}
    for name, source in (("graph_id", "graphId"), ("graph_node_id", "graphNodeId")):
        number = columns.integer(source)[rows]
        found[name] = arrow.integers(np.where(number == 0, INT64_MIN, number), INT64_MIN)
    return found


def _triples(axes: Sequence[Int64s]) -> pa.Array:
    valid: NDArray[np.bool_] = np.ones(len(axes[0]), np.bool_)
    for axis in axes:
        valid &= (axis >= 0) & (axis < 2**31)
    return arrow.triples(np.stack([np.where(valid, axis, 0) for axis in axes], axis=1), valid)


def _small(values: Int64s) -> pa.Array:
    """An int32 column; what is no natural number of that size is NULL."""
    valid = (values >= 0) & (values < 2**31)
    return arrow.integers(np.where(valid, values, -1).astype(np.int32), -1)
