"""The real snapshot with a real failure, and the real timeline."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ingest.compare import lost, rows
from tokenpath.capture.validate import validate
from tokenpath.ingest import read


def test_the_snapshot_of_a_job_out_of_memory(traces: Path) -> None:
    """The manifest: 284 segments, 35,356 MiB reserved, one failed allocation."""
    capture = read([traces / "memory" / "rank0_memory_snapshot.pickle"])
    validate(capture)
    blocks = rows(capture, "memory_block", "segment_address", "segment_bytes", "bytes", "state")
    segments = {address: size for address, size, *_ in blocks}
    assert len(segments) == 284
    assert sum(segments.values()) == 35_356 * 2**20 == sum(size for *_, size, _ in blocks)
    assert Counter(state for *_, state in blocks) == {"allocated": 590, "free": 27}
    assert Counter(rows(capture, "memory_event", "action")) == {
        "alloc": 1231,
        "free_requested": 933,
        "free": 933,
        "segment_alloc": 164,
        "segment_free": 12,
        "oom": 1,
    }
    (failed,) = [
        row
        for row in rows(capture, "memory_event", "action", "at_ns", "bytes", "address")
        if row[0] == "oom"
    ]
    assert failed == ("oom", 1_766_124_546_225_256_000, 4_202_692_608, None)
    assert rows(capture, "source_note", "code") == ["allocation-failed"]
    assert dict(rows(capture, "setting", "name", "value"))["oom.0.0.device_free_bytes"] == (
        "4028760064"
    )
    assert capture.num_rows("range") == 209
    assert rows(capture, "source", "rank") == [0]
    stacks = rows(capture, "memory_block", "call_stack")
    assert sum(stack is not None for stack in stacks) == 298, (
        "the others were made before the record"
    )
    assert not lost(capture)


def test_the_timeline(traces: Path) -> None:
    capture = read([traces / "hta" / "memory_analysis" / "memory_timeline.raw.gz"])
    validate(capture)
    events = rows(capture, "memory_event", "at_ns", "action", "bytes", "category")
    assert Counter(action for _, action, *_ in events) == {
        "preexisting": 645,
        "alloc": 3345,
        "new_version": 9510,
        "free": 3345,
    }
    assert sum(size for _, action, size, _ in events if action == "new_version") == 0
    assert all((at is None) == (action == "preexisting") for at, action, *_ in events)
    assert not lost(capture)
