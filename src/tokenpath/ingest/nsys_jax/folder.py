"""One folder of nsys-jax: ranges as the host made them, and as the device worked for them.

`nsys stats --report nvtx_gpu_proj_trace` gives each NVTX range that launched device work the time from the
first to the last piece of that work: its projection. Both are kept, the host's range with side `host`, the
projection with side `device` and without a stream. There are no kernels in these folders. Times count from
the start of the recording; no file says when that was.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import Int64s
from tokenpath.core.errors import DamagedInput, LimitExceeded
from tokenpath.core.units import INT64_MIN
from tokenpath.ingest import arrow
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.nsys_jax.reader import TRACE
from tokenpath.ingest.reader import Options, Reader, stored_bytes

_DEVICES = "device-metadata.parquet"
_GPU = "('TARGET_INFO_GPU', '{}')"
_XLA_NAME = "('TARGET_INFO_NVTX_CUDA_DEVICE', 'name')"
_PROCESS = re.compile(r"process=(\d{1,6})\b", re.ASCII)
_LIMIT_NS = 2**53
"""Times are partly stored as doubles, which are exact up to here: 104 days."""
_COLUMNS = (
    *("Name", "Projected Start", "Projected Duration", "Orig Start", "Orig Duration", "PID", "TID"),
)


def read_folder(reader: Reader, path: Path, options: Options) -> Capture:
    """Read one folder. DamagedInput when its trace cannot be read."""
    builder = CaptureBuilder(reader, path, options)
    builder.origin.clock, builder.origin.profiler = "monotonic", "nsys-jax"
    trace = _read(path / TRACE, _COLUMNS, options.max_bytes)
    if trace is None or trace.num_columns < len(_COLUMNS):
        raise DamagedInput(
            "the trace cannot be read",
            where=str(path / TRACE),
            allowed="columns " + ", ".join(_COLUMNS),
            next_step="run nsys-jax again",
        )
    num_devices = _add_devices(builder, path, options)
    _add_ranges(builder, trace, num_devices)
    known = {_DEVICES, TRACE.parts[0]}
    others = [file.name for file in sorted(path.iterdir()) if file.name not in known]
    builder.num_events += len(others)
    builder.losses.add("file that is not read", len(others), what=", ".join(others[:3]), lost=False)
    if options.progress is not None:
        options.progress(stored_bytes(path), stored_bytes(path))
    return builder.finish()


def _read(file: Path, names: Sequence[str] | None, max_bytes: int) -> pa.Table | None:
    import pyarrow.parquet as pq

    try:
        source = pq.ParquetFile(file)
        if source.metadata.num_rows * 8 * max(1, source.metadata.num_columns) > max_bytes:
            raise LimitExceeded(
                "it has too many rows", where=str(file), allowed=f"{max_bytes} bytes"
            )
        known = set(source.schema_arrow.names)
        return source.read([name for name in names or sorted(known) if name in known])
    except (pa.ArrowException, OSError, ValueError):
        return None


def _add_devices(builder: CaptureBuilder, path: Path, options: Options) -> int:
    """Rows of `device`; the rank is the process that XLA names its devices by."""
    found = _read(path / _DEVICES, None, options.max_bytes)
    if found is None:
        builder.losses.add("table that cannot be read", what=_DEVICES, dropped=False)
        builder.add_rows("device", [{"index": 0, "vendor": "nvidia"}])
        return 1
    rows = []
    for number, row in enumerate(found.to_pylist()):
        name, index, sms, memory = (
            row.get(_GPU.format(field)) for field in ("name", "id", "smCount", "totalMemory")
        )
        rows.append(
            {
                "index": index if isinstance(index, int) else number,
                "name": name if isinstance(name, str) and name else None,
                "num_sms": sms if isinstance(sms, int) and 0 < sms < 2**31 else None,
                "memory_bytes": memory if isinstance(memory, int) and memory > 0 else None,
                "vendor": "nvidia",
            }
        )
        match = _PROCESS.search(str(row.get(_XLA_NAME)))
        if match is not None and builder.origin.rank is None:
            builder.origin.rank, builder.origin.rank_source = int(match[1]), "device name"
    builder.add_rows("device", rows)
    return len(rows)


def _add_ranges(builder: CaptureBuilder, trace: pa.Table, num_devices: int) -> None:
    builder.num_events += trace.num_rows
    names = _texts(trace["Name"])
    has_name = names.is_valid().to_numpy(zero_copy_only=False)
    # The work of a thread outside all ranges: one row a thread, without a name.
    builder.losses.add("work outside all ranges", int((~has_name).sum()), lost=False)
    start, dur = _times(trace["Projected Start"]), _times(trace["Projected Duration"])
    good = _is_interval(start, dur) & has_name
    rows = np.flatnonzero(good)
    builder.losses.add("projection without times", int((has_name & ~good).sum()), dropped=False)
    if num_devices != 1:
        builder.losses.add("projection onto one of several devices", len(rows), dropped=False)
    elif len(rows):
        builder.note(
            "projected-ranges",
            f"{len(rows):,} device ranges span the first to the last piece of work of a host range: they "
            "hold gaps and other work, and there are no kernels",
        )
        builder.add(
            "range",
            {
                "side": _label("device", len(rows)),
                "device_id": np.zeros(len(rows), np.int32),
                "start_ns": start[rows],
                "end_ns": start[rows] + dur[rows],
                "name": names.take(pa.array(rows)).dictionary_encode(),
            },
        )
    begin, length = _times(trace["Orig Start"]), _times(trace["Orig Duration"])
    good = _is_interval(begin, length) & has_name
    builder.losses.add("range without times", int((has_name & ~good).sum()))
    rows = np.flatnonzero(good)
    if len(rows) == 0:
        return
    builder.add(
        "range",
        {
            "side": _label("host", len(rows)),
            "thread_id": _threads(builder, _times(trace["PID"])[rows], _times(trace["TID"])[rows]),
            "start_ns": begin[rows],
            "end_ns": begin[rows] + length[rows],
            "name": names.take(pa.array(rows)).dictionary_encode(),
        },
    )


def _threads(builder: CaptureBuilder, pid: Int64s, tid: Int64s) -> NDArray[np.int32]:
    distinct, which = np.unique(np.stack([pid, tid], axis=1), axis=0, return_inverse=True)
    rows = [{"pid": _number(one), "tid": _number(other)} for one, other in distinct.tolist()]
    builder.add_rows("thread", rows)
    return which.reshape(-1).astype(np.int32)


def _number(value: int) -> str:
    return "unknown" if value == INT64_MIN else str(value)


def _is_interval(start: Int64s, dur: Int64s) -> NDArray[np.bool_]:
    known = (start != INT64_MIN) & (dur != INT64_MIN)
    result: NDArray[np.bool_] = known & (dur >= 0)
    return result


def _times(column: pa.ChunkedArray) -> Int64s:
    """Whole numbers, INT64_MIN for NULL and for what is none below 2**53."""
    array = column.combine_chunks()
    kind = array.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return np.full(len(array), INT64_MIN, np.int64)
    values = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    good = np.isfinite(values) & (np.abs(values) < _LIMIT_NS)
    return np.where(good, np.where(good, values, 0).astype(np.int64), INT64_MIN)


def _texts(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    is_text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    return array.cast(pa.string()) if is_text else pa.nulls(len(array), pa.string())


def _label(value: str, num_rows: int) -> pa.Array:
    return arrow.texts(np.zeros(num_rows, np.int32), [value])
