"""The history in a snapshot: allocator events of each device, and annotated ranges."""

from __future__ import annotations

from typing import Any

from tokenpath.core.units import INT64_MAX, NS_PER_US, format_bytes
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.call_stacks import CallStacks

_SIGNS = {
    "alloc": 1,
    "free_requested": -1,
    "free_completed": -1,
    "segment_alloc": 1,
    "segment_free": -1,
    "segment_map": 1,
    "segment_unmap": -1,
    "oom": 1,
}
"""By action of the snapshot: whether the bytes come or go."""
_NAMES = {"free_completed": "free"}
_MAX_OOM_SETTINGS = 100
_MAX_NAME = 1000


def add_events(builder: CaptureBuilder, device: int, trace: list[Any], stacks: CallStacks) -> None:
    """The events of one device, in the order in which they happened."""
    rows: list[dict[str, Any]] = []
    failed: list[tuple[int, int | None]] = []
    for event in trace:
        builder.num_events += 1
        action = event.get("action") if isinstance(event, dict) else None
        if action == "snapshot":
            builder.losses.add("mark of the snapshot itself", lost=False)
            continue
        size = _whole(event.get("size")) if isinstance(event, dict) else None
        sign = _SIGNS.get(action) if isinstance(action, str) else None
        if size is None or sign is None:
            builder.losses.add("malformed or unknown allocator event")
            continue
        note = event.get("user_metadata")
        rows.append(
            {
                "at_ns": _time_ns(event.get("time_us")),
                "action": _NAMES.get(str(action), action),
                "address": _whole(event.get("addr")),
                "bytes": sign * size,
                "stream_id": _whole(event.get("stream")),
                "category": note[:_MAX_NAME] if isinstance(note, str) and note else None,
                "device_index": device,
                "call_stack": stacks.text(event.get("frames")),
            }
        )
        if action == "oom":
            failed.append((size, _whole(event.get("device_free"))))
    builder.add_rows("memory_event", rows)
    if failed:
        _tell_of_failures(builder, device, failed)


def _tell_of_failures(
    builder: CaptureBuilder, device: int, failed: list[tuple[int, int | None]]
) -> None:
    for number, (size, free) in enumerate(failed[:_MAX_OOM_SETTINGS]):
        builder.setting(f"oom.{device}.{number}.requested_bytes", size)
        builder.setting(f"oom.{device}.{number}.device_free_bytes", free)
    size, free = failed[-1]
    there = "" if free is None else f" with {format_bytes(free)} free on it"
    times = "once" if len(failed) == 1 else f"{len(failed)} times"
    builder.note(
        "allocation-failed",
        f"device {device} was out of memory {times}: "
        f"the last request was for {format_bytes(size)}{there}",
    )


def add_annotations(builder: CaptureBuilder, marks: list[Any]) -> None:
    """Ranges from START and END marks; an END belongs to the last START of its name and device."""
    open_marks: dict[tuple[Any, str], list[int]] = {}
    rows: list[dict[str, Any]] = []
    for mark in marks:
        builder.num_events += 1
        name = mark.get("name") if isinstance(mark, dict) else None
        at = _time_ns(mark.get("time_us")) if isinstance(mark, dict) else None
        if not isinstance(name, str) or at is None:
            builder.losses.add("malformed annotation")
            continue
        key = (_whole(mark.get("device")), name)
        if mark.get("stage") == "START":
            open_marks.setdefault(key, []).append(at)
        elif mark.get("stage") == "END" and open_marks.get(key):
            start = open_marks[key].pop()
            rows.append({"start": start, "end": max(start, at), "name": name[:_MAX_NAME]})
        else:
            builder.losses.add("annotation without its start")
    builder.losses.add("annotation without its end", sum(map(len, open_marks.values())))
    rows.sort(key=lambda row: (row["start"], -row["end"]))
    builder.add(
        "range",
        {
            "side": ["host"] * len(rows),
            "start_ns": [row["start"] for row in rows],
            "end_ns": [row["end"] for row in rows],
            "name": [row["name"] for row in rows],
        },
    )


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= INT64_MAX else None


def _time_ns(time_us: Any) -> int | None:
    known = _whole(time_us)
    return known * NS_PER_US if known is not None and known <= INT64_MAX // NS_PER_US else None
