"""A real rocprofv3 recording: whole-file numbers to the nanosecond, and explained end to end."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from captures import facts, idle_percent

from ingest.compare import lost, rows
from tokenpath.api import WindowRequest, explain, load
from tokenpath.capture.intervals import union
from tokenpath.core.redact import Redactor

NAME = "tracelens/rocprof/908_results.json.gz"


def test_dispatches_span_and_busy_time(traces: Path) -> None:
    numbers = json.loads((traces / "reference_numbers.json").read_text())[NAME]
    (expected,) = numbers["devices"].values()
    capture = load([traces / NAME])
    start, end = capture.int64("kernel", "start_ns"), capture.int64("kernel", "end_ns")
    assert capture.num_rows("kernel") == expected["kernels"] == 43_915
    assert union(start, end).total == expected["busy_ns"]
    assert end.max() - start.min() == expected["span_ns"]
    assert rows(capture, "source", "num_events", "num_skipped") == [(43_915, 0)]
    assert lost(capture) == {}
    columns = ("index", "name", "vendor", "num_sms", "memory_bytes")
    assert rows(capture, "device", *columns) == [
        (0, "AMD Instinct MI350X", "amd", 256, 309_220_868_096)
    ]


def test_no_kernel_is_renamed_and_each_has_a_kind(traces: Path) -> None:
    capture = load([traces / NAME])
    names = rows(capture, "kernel", "name")
    assert "unknown kernel" not in names
    assert Redactor().mask(names) == names
    assert not any(name.endswith(".kd") for name in names)
    kinds = Counter(rows(capture, "kernel", "kind"))
    # The dispatches of ncclDevKernel_Generic_1, counted in the file.
    assert kinds == {"compute": 42_605, "communication": 1_310}


def test_explained_end_to_end(traces: Path) -> None:
    report = explain(load([traces / NAME]), window=WindowRequest(from_ns=0)).report
    told = facts(report)
    assert told["whole_file"]["busy_ns"] == 4_233_112_334
    assert told["whole_file"]["span_ns"] == 15_122_023_494
    assert idle_percent(report) == pytest.approx(100 * (1 - 4_233_112_334 / 15_122_023_494))
