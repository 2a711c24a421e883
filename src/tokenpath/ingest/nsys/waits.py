"""Recorded synchronisation becomes rows of `dependency`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tokenpath.capture.intervals import Int64s
from tokenpath.core.units import INT64_MIN
from tokenpath.ingest import arrow
from tokenpath.ingest.nsys.names import Codes, codes_of
from tokenpath.ingest.nsys.places import process_key
from tokenpath.ingest.nsys.state import State, labels
from tokenpath.ingest.sqlite_columns import Columns

SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"

_KINDS = ("event_sync", "event_wait", "stream_sync", "context_sync")
"""CUpti_ActivitySynchronizationType, from 1."""
_NONE = 2**32 - 1
"""CUPTI's word for: does not apply."""


def read_waits(state: State) -> None:
    """All waits of an export, with the recorded event that each was for."""
    columns = state.read(
        SYNC,
        [
            *("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid"),
            *("syncType", "deprecatedSyncType", "eventId", "eventSyncId"),
        ],
    )
    rows, start, end = state.in_time(columns)
    kind = columns.integer("syncType")[rows]
    kind = np.where(kind == INT64_MIN, columns.integer("deprecatedSyncType")[rows], kind)
    known = (kind >= 1) & (kind <= len(_KINDS))
    unknown = int((~known).sum())
    state.builder.losses.add("synchronisation of an unknown kind", unknown)
    state.num_unplaced += unknown
    rows, start, end, kind = rows[known], start[known], end[known], kind[known]
    events = state.read(
        EVENT,
        [
            "deviceId",
            "contextId",
            "streamId",
            "correlationId",
            "globalPid",
            "eventId",
            "eventSyncId",
        ],
    )
    state.num_unplaced += events.num_rows
    state.builder.losses.add("event record, joined to its waits", events.num_rows, lost=False)
    if len(rows) == 0:
        return
    key = process_key(columns.integer("globalPid")[rows])
    source = state.processes.rows(key)
    device = _device_rows(state, key, columns.integer("deviceId")[rows])
    stream = _stream(columns.integer("streamId")[rows])
    record = _record_of(columns, rows, events)
    from_stream = _taken(_stream(events.integer("streamId")), record)
    base = _bases(state, device, source, columns.integer("contextId")[rows])
    from_base = _bases(state, device, source, _taken(events.integer("contextId"), record))
    correlation = columns.integer("correlationId")[rows]
    state.builder.add(
        "dependency",
        {
            "source_id": source,
            "kind": labels((kind - 1).astype(np.int32), _KINDS),
            "start_ns": start,
            "end_ns": end,
            "device_id": arrow.integers(device.astype(np.int32), -1),
            "stream_id": _shifted(stream, base),
            "from_stream_id": _shifted(from_stream, from_base),
            "from_correlation_id": arrow.integers(
                _taken(events.integer("correlationId"), record), INT64_MIN
            ),
            "correlation_id": arrow.integers(
                np.where(correlation == 0, INT64_MIN, correlation), INT64_MIN
            ),
        },
    )


def _device_rows(state: State, key: Int64s, device: Int64s) -> Int64s:
    """Rows of devices; a wait that names a device without work does not make it one of the capture."""
    processes, process = codes_of(key)
    devices, number = codes_of(device)
    found = np.array(
        [
            [state.devices.known_row(one, other) for other in devices.tolist()]
            for one in processes.tolist()
        ],
        np.int64,
    )
    return found[process, number]


def _bases(state: State, device: Int64s, source: Codes, context: Int64s) -> Int64s:
    place = np.stack([device, source.astype(np.int64), context], axis=1)
    distinct, which = np.unique(place, axis=0, return_inverse=True)
    bases = np.array([state.devices.base_of(*row) for row in distinct.tolist()], np.int64)
    return bases[which.reshape(-1)]


def _stream(number: Int64s) -> Int64s:
    return np.where((number < 0) | (number >= _NONE), INT64_MIN, number)


def _shifted(stream: Int64s, base: Int64s) -> pa.Array:
    return arrow.integers(np.where(stream == INT64_MIN, INT64_MIN, stream + base), INT64_MIN)


def _taken(values: Int64s, record: Int64s) -> Int64s:
    if len(values) == 0:
        return np.full(len(record), INT64_MIN, np.int64)
    return np.where(record >= 0, values[np.maximum(record, 0)], INT64_MIN)


def _record_of(columns: Columns, rows: Int64s, events: Columns) -> Int64s:
    """The event record that each wait is for, -1 for none: the same process, event and record number.

    Without a record number (`eventSyncId`, since 2023) an event recorded twice says nothing.
    """
    result = np.full(len(rows), -1, np.int64)
    if events.num_rows == 0:
        return result
    waits, records = [], []
    for name in ("globalPid", "eventId", "eventSyncId"):
        wait, record = columns.integer(name)[rows], events.integer(name)
        waits.append(np.where(wait == _NONE, INT64_MIN, wait))
        records.append(np.where(record == _NONE, INT64_MIN, record))
    both = np.concatenate([np.stack(records, axis=1), np.stack(waits, axis=1)])
    _, which = np.unique(both, axis=0, return_inverse=True)
    which = which.reshape(-1)
    of_record, of_wait = which[: events.num_rows], which[events.num_rows :]
    times = np.bincount(of_record, minlength=int(which.max()) + 1)
    last = np.full(len(times), -1, np.int64)
    last[of_record] = np.arange(events.num_rows)
    is_known = (times[of_wait] == 1) & (waits[1] != INT64_MIN)
    result[is_known] = last[of_wait[is_known]]
    return result
