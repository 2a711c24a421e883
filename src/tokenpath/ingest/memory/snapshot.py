"""Snapshots of PyTorch's caching allocator, as `torch.cuda.memory._snapshot()` gives them.

The form is that of torch/csrc/cuda/memory_snapshot.cpp: `segments` with their blocks, `device_traces` with
the events of each device, `allocator_settings`, and in newer versions `external_annotations`. Older ones
have no times, and blocks without an address or with `history` in place of `frames`. `time_us` is
microseconds since 1970.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput, LimitExceeded
from tokenpath.core.units import INT64_MAX
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.call_stacks import CallStacks
from tokenpath.ingest.file_rank import rank_in_name
from tokenpath.ingest.memory.events import add_annotations, add_events
from tokenpath.ingest.nested_settings import add_settings
from tokenpath.ingest.pickle_file import read_pickle
from tokenpath.ingest.reader import Options, Reader

_STATES = {
    "active_allocated": "allocated",
    "active_pending_free": "pending_free",
    "active_awaiting_free": "pending_free",
    "inactive": "free",
}


MIN_ROW_BYTES = 16
"""No block, event or annotation is written in fewer bytes, if each is there once."""


def read_file(reader: Reader, path: Path, options: Options) -> Capture:
    """One snapshot."""
    builder = CaptureBuilder(reader, path, options)
    root, num_bytes = read_pickle(path, options, builder.losses)
    if isinstance(root, list):
        root = {"segments": root}
    if not isinstance(root, dict) or not (root.keys() & {"segments", "device_traces"}):
        raise DamagedInput(
            "no memory snapshot: neither segments nor traces of devices",
            where=str(path),
            next_step="write it with torch.cuda.memory._dump_snapshot",
        )
    if _num_rows(root) * MIN_ROW_BYTES > num_bytes:
        raise LimitExceeded(
            "more blocks and events than its bytes can hold: parts are named over and over",
            where=str(path),
            allowed="a snapshot in which every block and event is there once",
        )
    builder.origin.profiler = "torch.cuda.memory"
    builder.origin.rank = rank_in_name(path)
    builder.origin.rank_source = None if builder.origin.rank is None else "file name"
    stacks = CallStacks(builder.losses)
    _add_blocks(builder, items(root.get("segments")), stacks)
    for device, trace in enumerate(items(root.get("device_traces"))):
        add_events(builder, device, items(trace), stacks)
    add_annotations(builder, items(root.get("external_annotations")))
    if root.get("allocator_settings"):
        add_settings(builder, "allocator", root["allocator_settings"])
    return builder.finish()


def items(value: Any) -> list[Any]:
    """A list, or an empty one for anything else."""
    return value if isinstance(value, list) else []


def _num_rows(root: dict[Any, Any]) -> int:
    blocks = (
        len(items(segment.get("blocks")))
        for segment in items(root.get("segments"))
        if isinstance(segment, dict)
    )
    events = (len(items(trace)) for trace in items(root.get("device_traces")))
    return sum(blocks) + sum(events) + len(items(root.get("external_annotations")))


def whole(value: Any) -> int | None:
    """An address or size that fits int64."""
    return value if type(value) is int and 0 <= value <= INT64_MAX else None


def _add_blocks(builder: CaptureBuilder, segments: list[Any], stacks: CallStacks) -> None:
    rows: list[dict[str, Any]] = []
    for segment in segments:
        builder.num_events += 1
        row = _of_segment(segment)
        if row is None:
            builder.losses.add("malformed segment")
            continue
        address = row["segment_address"]
        for block in items(segment.get("blocks")):
            size = whole(block.get("size")) if isinstance(block, dict) else None
            state = _STATES.get(str(block.get("state"))) if isinstance(block, dict) else None
            if size is None or state is None:
                builder.num_events += 1
                builder.losses.add("malformed block")
                continue
            # Older snapshots give no addresses: the blocks of a segment lie one after the other.
            own = whole(block.get("address"))
            address = own if own is not None else min(address, INT64_MAX)
            requested, frames = _of_block(block)
            rows.append(
                {
                    **row,
                    "address": address,
                    "bytes": size,
                    "requested_bytes": requested,
                    "state": state,
                    "call_stack": stacks.text(frames),
                }
            )
            address += size
    builder.num_events += len(rows)
    builder.add_rows("memory_block", rows)


def _of_segment(segment: Any) -> dict[str, Any] | None:
    """What all blocks of a segment share; None when its size or place is not given."""
    if not isinstance(segment, dict):
        return None
    row = {
        "device_index": whole(segment.get("device", 0)),
        "segment_address": whole(segment.get("address")),
        "segment_bytes": whole(segment.get("total_size")),
    }
    if None in row.values():
        return None
    kind, pool = segment.get("segment_type"), segment.get("segment_pool_id")
    name = kind if kind in ("large", "small") else None
    # (0, 0) is the shared pool; CUDA graphs and MemPool have pools of their own.
    if isinstance(pool, tuple) and len(pool) == 2 and pool != (0, 0):
        first, second = (whole(part) for part in pool)
        if first is not None and second is not None:
            name = f"private {first}.{second}" + (f" {name}" if name else "")
    return {**row, "pool": name, "stream_id": whole(segment.get("stream"))}


def _of_block(block: dict[Any, Any]) -> tuple[int | None, Any]:
    """Bytes asked for, and the frames of the allocation."""
    history = items(block.get("history"))
    if history and isinstance(history[0], dict):
        return whole(history[0].get("real_size")), history[0].get("frames")
    # A free block keeps the last request in some versions: that says nothing of it.
    is_free = block.get("state") == "inactive"
    return None if is_free else whole(block.get("requested_size")), block.get("frames")
