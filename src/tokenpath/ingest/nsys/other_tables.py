"""GPU metrics, and what an export holds that no table of a capture does: counted, by what it is."""

from __future__ import annotations

import json
import re

import numpy as np

from tokenpath.core.units import INT64_MIN
from tokenpath.ingest import arrow
from tokenpath.ingest.nsys.names import codes_of
from tokenpath.ingest.nsys.state import State, labels, repeated

METRICS = "GPU_METRICS"
METRIC_NAMES = "TARGET_INFO_GPU_METRICS"

_UNIT = re.compile(r"^(.*\S)\s*\[([^\[\]]+)\]$")

_LOST: tuple[tuple[str, str], ...] = (
    ("CUDA_GPU_MEMORY_USAGE_EVENTS", "use of device memory"),
    ("CUDA_UM_CPU_PAGE_FAULT_EVENTS", "page fault of unified memory"),
    ("CUDA_UM_GPU_PAGE_FAULT_EVENTS", "page fault of unified memory"),
    ("GENERIC_EVENTS", "event of a plug-in"),
)
# What no question about the device needs, beside descriptions: not a reason to trust the capture less.
_NOT_LOST: tuple[tuple[str, str], ...] = (
    ("OSRT_API", "call of the operating system"),
    ("SCHED_EVENTS", "switch or sample of a processor"),
    ("COMPOSITE_EVENTS", "switch or sample of a processor"),
    ("NET_NIC_METRIC", "sample of a network card"),
    ("DIAGNOSTIC_EVENT", "message of the profiler"),
    ("CUDA_GRAPH_EVENTS", "making of a graph"),
    ("TARGET_INFO_SYSTEM_ENV", "setting of the machine"),
    ("META_DATA_CAPTURE", "setting of the profiler or command line"),
    ("META_DATA_EXPORT", "setting of the profiler or command line"),
    ("EXPORT_META_DATA", "setting of the profiler or command line"),
    ("CUDA_CALLCHAINS", "call chain"),
    ("OSRT_CALLCHAINS", "call chain"),
    ("SAMPLING_CALLCHAINS", "call chain"),
)
_NO_EVENTS = re.compile(
    r"StringIds|PROCESSES|ThreadNames|ProcessStreams|UnwindMethodType|ANALYSIS_\w+|ENUM_\w+|TARGET_INFO_\w+"
    r"|NVTX_PAYLOAD_\w+|MPI_(?:RANKS|COMMUNICATORS|\w*INFO)|sqlite_\w+|MODULES|\w+_CONFIG"
)
"""Tables that describe others, and hold no events."""


def read_metrics(state: State) -> None:
    """Samples of GPU metrics become rows of `counter_sample`."""
    columns = state.read(METRICS, ["timestamp", "typeId", "metricId", "value"])
    at, value = columns.integer("timestamp"), columns.integer("value")
    good = (
        (at != INT64_MIN)
        & (value != INT64_MIN)
        & (np.abs(np.where(at == INT64_MIN, 0, at)) < 2**62)
    )
    broken = int((~good).sum())
    state.builder.losses.add("sample without time or number", broken)
    state.num_unplaced += columns.num_rows
    rows = np.flatnonzero(good)
    if len(rows) == 0:
        return
    kind, metric = columns.integer("typeId")[rows], columns.integer("metricId")[rows]
    kinds, kind_codes = codes_of(kind)
    metrics, metric_codes = codes_of(metric)
    named = _metric_names(state)
    both = kind_codes.astype(np.int64) * len(metrics) + metric_codes
    distinct, codes = codes_of(both)
    names, units = [], []
    for number in distinct.tolist():
        one, other = divmod(number, len(metrics))
        text = named.get((int(kinds[one]), int(metrics[other])), f"metric {int(metrics[other])}")
        match = _UNIT.match(text)
        names.append(match[1] if match else text)
        units.append(None if match is None else "percent" if "%" in match[2] else match[2])
    # The lower half of a type id is the number of the GPU.
    gpus = [json.dumps({"gpu": str(number & 0xFFFFFFFF)}) for number in kinds.tolist()]
    state.builder.add(
        "counter_sample",
        {
            "at_ns": at[rows] + state.offset_ns,
            "name": labels(codes, names),
            "kind": repeated("gauge", len(rows)),
            "labels": labels(kind_codes, gpus),
            "value": arrow.reals(value[rows].astype(np.float64)),
            "unit": labels(
                np.where(np.array([unit is None for unit in units])[codes], -1, codes).astype(
                    np.int32
                ),
                [unit or "" for unit in units],
            ),
        },
    )


def _metric_names(state: State) -> dict[tuple[int, int], str]:
    columns = state.read(METRIC_NAMES, ["typeId", "metricId"], ["metricName"])
    return {
        (kind, metric): text
        for kind, metric, text in zip(
            columns.integer("typeId").tolist(),
            columns.integer("metricId").tolist(),
            columns.text("metricName").to_pylist(),
            strict=True,
        )
        if text
    }


def count_others(state: State) -> None:
    """Rows of all tables that were not read."""
    reasons = {table: (reason, True) for table, reason in _LOST}
    reasons |= {table: (reason, False) for table, reason in _NOT_LOST}
    for table in sorted(set(state.export.tables) - (state.seen - set(reasons))):
        number = state.export.num_rows(table)
        if table in reasons:
            reason, is_lost = reasons[table]
        elif table in state.seen or _NO_EVENTS.fullmatch(table):
            continue
        else:
            reason, is_lost = "row of a table that is not read", True
        state.num_unplaced += number
        state.builder.losses.add(reason, number, what=table, lost=is_lost)
