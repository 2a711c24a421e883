"""Real traces: both scanners agree, every event is accounted for, no kernel is renamed by masking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingest.compare import difference, lost, rows
from tokenpath.core.redact import Redactor
from tokenpath.ingest import read

_MAX_SLOW_BYTES = 450_000
"""Larger files take the slow scanner too long for every run."""
_NO_TRACES = ("_et.json", "execution_details", "memory_timeline", "908_results", "xplane/", "nsys/")


@pytest.fixture(scope="module")
def files(traces: Path) -> dict[str, dict[str, object]]:
    """The files of reference_numbers.json that are PyTorch traces, with their numbers."""
    numbers = json.loads((traces / "reference_numbers.json").read_text())
    return {
        name: row
        for name, row in numbers.items()
        if (traces / name).exists() and not any(mark in name for mark in _NO_TRACES)
        if "events" in row
    }


def test_every_file_is_read_whole(traces: Path, files: dict[str, dict[str, object]]) -> None:
    assert len(files) > 25
    for name, row in files.items():
        capture = read([traces / name])
        (num_events,) = rows(capture, "source", "num_events")
        assert num_events == row["events"], name
        assert lost(capture) == {}, name
        kernels = rows(capture, "kernel", "name")
        assert Redactor().mask(kernels) == kernels, name


def test_both_scanners_agree(traces: Path, files: dict[str, dict[str, object]]) -> None:
    for name in files:
        path = traces / name
        if path.stat().st_size < _MAX_SLOW_BYTES:
            fast = read([path], scanner="fast")
            assert difference(read([path], scanner="slow"), fast) is None, name


def test_other_accelerators(traces: Path) -> None:
    ascend = read([traces / "other_accel" / "ascend_trace_view.json.gz"])
    assert ascend.num_rows("kernel") == 276
    # Two copies have no arrow in the file.
    assert rows(ascend, "kernel", "correlation_id").count(None) == 2
    spyre = read([traces / "other_accel" / "aiu_sample_flex_3062_job_4.json"])
    assert spyre.num_rows("kernel") == 17
    mtia = read([traces / "hta" / "mtia_trace_single_rank" / "mtia_rank_0.json.gz"])
    assert mtia.num_rows("kernel") == 25814
    assert rows(mtia, "device", "index", "vendor") == [(9, "meta")]
