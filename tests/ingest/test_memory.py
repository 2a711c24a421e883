"""Memory snapshots in their versions, and hostile ones."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from ingest.compare import lost, reasons, rows
from ingest.samples.memory import STACK, event, segment, snapshot, timeline, write
from tokenpath.core.errors import DamagedInput, InputError, LimitExceeded, TokenpathError
from tokenpath.ingest import call_stacks, read


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_gives_the_same(tmp_path: Path, protocol: int) -> None:
    capture = read([write(tmp_path, snapshot(), protocol)])
    assert rows(capture, "memory_block", "bytes", "state") == [(512, "allocated"), (1536, "free")]
    assert len(rows(capture, "memory_event", "bytes")) == 6


def test_a_bare_list_of_segments(tmp_path: Path) -> None:
    """What `torch.cuda.memory_snapshot()` gives."""
    capture = read([write(tmp_path, snapshot()["segments"])])
    assert rows(capture, "memory_block", "bytes") == [512, 1536]


def test_old_snapshots_without_times_addresses_and_frames(tmp_path: Path) -> None:
    history = [{"addr": 5, "real_size": 100, "frames": STACK}]
    block = {"size": 512, "state": "active_awaiting_free", "history": history}
    old = segment(1024)
    old |= {"total_size": 1024, "blocks": [block, {"size": 512, "state": "inactive"}]}
    del old["segment_pool_id"]
    capture = read([write(tmp_path, snapshot(segments=[old], device_traces=[[event("alloc", 3)]]))])
    assert rows(capture, "memory_block", "address", "requested_bytes", "state", "call_stack") == [
        (1024, 100, "pending_free", "model.py(12): forward;at::empty()"),
        (1536, None, "free", None),
    ]
    assert rows(capture, "memory_event", "at_ns", "bytes") == [(None, 3)]


@pytest.mark.parametrize(
    ("more", "pool"),
    [
        ({}, "large"),
        ({"segment_type": "small"}, "small"),
        ({"segment_pool_id": (0, 3)}, "private 0.3 large"),
        ({"segment_pool_id": (1, 0), "segment_type": None}, "private 1.0"),
        ({"segment_pool_id": "x", "segment_type": "huge"}, None),
    ],
)
def test_pools(tmp_path: Path, more: dict[str, Any], pool: str | None) -> None:
    part = segment(0, (512, "active_allocated"), **more)
    assert rows(read([write(tmp_path, snapshot(segments=[part]))]), "memory_block", "pool") == [
        pool
    ]


def test_blocks_fill_their_segments(tmp_path: Path) -> None:
    """A law of the allocator: the blocks of a segment add up to it."""
    parts = [
        segment(2**21 * n, *[(512 * (k + 1), "inactive") for k in range(n)]) for n in range(1, 6)
    ]
    capture = read([write(tmp_path, snapshot(segments=parts))])
    held: dict[tuple[int, int], int] = {}
    for address, size, own in rows(
        capture, "memory_block", "segment_address", "segment_bytes", "bytes"
    ):
        held[address, size] = held.get((address, size), 0) + own
    assert [size for _, size in held] == list(held.values())


def test_failed_allocations_are_noted(tmp_path: Path) -> None:
    capture = read([write(tmp_path, snapshot())])
    assert rows(capture, "source_note", "code") == ["allocation-failed"]
    (sentence,) = rows(capture, "source_note", "sentence")
    assert sentence == (
        "device 0 was out of memory once: the last request was for 953.7 MiB with 9 B free on it"
    )
    settings = dict(rows(capture, "setting", "name", "value"))
    assert settings["oom.0.0.device_free_bytes"] == "9"
    assert settings["allocator.max_split_size"] == "-1"
    assert settings["allocator.roundup_power2_divisions.1"] == "0"
    quiet = snapshot(device_traces=[[event("alloc", 1, 1)]])
    assert rows(read([write(tmp_path, quiet)]), "source_note", "code") == []


def test_annotations_nest_and_lone_marks_are_counted(tmp_path: Path) -> None:
    stages = [("START", 1), ("START", 2), ("END", 3), ("END", 5), ("END", 6), ("START", 7)]
    marks = [{"stage": s, "name": "a", "device": 0, "time_us": t} for s, t in stages]
    capture = read([write(tmp_path, snapshot(external_annotations=[*marks, 5]))])
    assert rows(capture, "range", "start_ns", "end_ns") == [(1000, 5000), (2000, 3000)]
    assert lost(capture) == {
        "annotation without its start": 1,
        "annotation without its end": 1,
        "malformed annotation": 1,
    }


def test_what_is_malformed_is_counted(tmp_path: Path) -> None:
    bad = [{"device": 0}, 5, segment(0, (512, "active_allocated"), total_size=-1)]
    odd = segment(0, (512, "gone"), (2**64, "inactive"))
    odd["blocks"].append(7)
    odd["total_size"] = 512
    trace = [event("teleport", 1), event("alloc", -5), {"action": ["alloc"], "size": 1}, None]
    capture = read(
        [write(tmp_path, snapshot(segments=[*bad, odd], device_traces=[trace, 3, [], "x"]))]
    )
    assert reasons(capture) == {
        "malformed segment": 3,
        "malformed block": 3,
        "malformed or unknown allocator event": 4,
    }


def test_times_and_addresses_outside_int64_are_unknown(tmp_path: Path) -> None:
    trace = [event("alloc", 1, 2**62, addr=2**63, stream=-1)]
    capture = read([write(tmp_path, snapshot(device_traces=[trace]))])
    assert rows(capture, "memory_event", "at_ns", "address", "stream_id") == [(None, None, None)]


def test_a_snapshot_that_runs_code_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (exec, ("raise SystemExit",))

    with pytest.raises(InputError, match=r"asks for builtins\.exec: refused"):
        read([write(tmp_path, snapshot(segments=[Evil()]))])


def test_one_block_named_a_million_times_is_refused(tmp_path: Path) -> None:
    part = segment(0, (512, "inactive"))
    part["blocks"] = part["blocks"] * 2000
    with pytest.raises(LimitExceeded, match="more blocks and events than its bytes"):
        read([write(tmp_path, snapshot(segments=[part] * 2000))])


def test_long_stacks_are_cut_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = [{"name": "f" * 1000, "filename": "a;b.py", "line": 1}] * 1000
    trace = [event("alloc", 1, 1, frames=deep), event("alloc", 1, 1, frames=list(deep))]
    path = write(tmp_path, snapshot(device_traces=[trace]))
    capture = read([path])
    stacks = rows(capture, "memory_event", "call_stack")
    assert [len(stack.split(";")) for stack in stacks] == [call_stacks.MAX_FRAMES] * 2
    assert reasons(capture) == {"call stack cut": 2}
    assert rows(capture, "source", "num_skipped") == [0]
    monkeypatch.setattr(call_stacks, "MAX_CHARS", 150_000)
    capture = read([path])
    assert rows(capture, "memory_event", "call_stack") == [stacks[0], None]
    assert reasons(capture)["call stack beyond the bound"] == 1


def test_a_cut_file_gives_what_is_there(tmp_path: Path) -> None:
    trace = [event("alloc", n, n) for n in range(5000)]
    path = write(tmp_path, snapshot(device_traces=[trace]))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    capture = read([path])
    assert 1000 < capture.num_rows("memory_event") < 4000
    assert "truncated" in reasons(capture)
    path.write_bytes(whole + b"more")
    assert reasons(read([path]))["data after the end"] == 1


def test_another_pickle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps({"device_traces_of": 1}))
    with pytest.raises(DamagedInput, match="no memory snapshot"):
        read([path])
    path.write_bytes(pickle.dumps(5))
    with pytest.raises(TokenpathError):
        read([path])


def test_timelines_balance(tmp_path: Path) -> None:
    """New versions move bytes between categories and change no sum."""
    capture = read([timeline(tmp_path)])
    moved = [
        size
        for action, size in rows(capture, "memory_event", "action", "bytes")
        if action == "new_version"
    ]
    assert sum(moved) == 0
    assert rows(capture, "source", "clock") == ["epoch"]


def test_damaged_rows_of_a_timeline_are_counted(tmp_path: Path) -> None:
    odd = [[1, 9, 5, 0], [1, 2, 2**70, 0], [1, 2], "x", [1, 2, 3, True], [2**63, 2, 3, 1]]
    capture = read([timeline(tmp_path, [[1, 2, 3, 4], *odd])])
    assert capture.num_rows("memory_event") == 1
    assert reasons(capture) == {"malformed event": 6}
