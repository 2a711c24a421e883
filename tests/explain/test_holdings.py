"""Captures of memory or KV events alone say what they hold, not that a GPU was idle."""

from __future__ import annotations

from explain.serving import SOURCE
from tokenpath.capture.capture import Capture, build_table
from tokenpath.explain.report import explain


def source() -> object:
    return build_table("source", {name: [value] for name, value in SOURCE.items()})


def test_a_memory_snapshot() -> None:
    blocks = {
        "source_id": [0, 0, 0],
        "device_index": [0, 0, 0],
        "segment_address": [0, 0, 0],
        "segment_bytes": [4 * 2**30] * 3,
        "address": [0, 2**30, 3 * 2**30],
        "bytes": [2**30, 2 * 2**30, 2**30],
        "state": ["allocated", "free", "allocated"],
    }
    report, _ = explain(
        Capture({"source": source(), "memory_block": build_table("memory_block", blocks)})
    )
    assert "3 rows of memory_block" in report.answer[0]
    assert "2.00 of 4.00 GiB" in report.answer[1]
    assert report.funnel is None
    assert [table.key for table in report.tables] == ["memory"]
    assert not [note for note in report.notes if note.code == "no-device-work"]


def test_an_empty_capture_is_called_empty() -> None:
    report, _ = explain(Capture({"source": source()}))
    assert "the capture is empty" in report.answer[0]
