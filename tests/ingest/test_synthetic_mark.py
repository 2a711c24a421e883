"""A file that says that nobody measured it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.traces import Trace
from tokenpath.ingest import read


@pytest.mark.parametrize(
    ("mark", "state"),
    [
        ({"tokenpath": {"state": "synthetic", "generator": "x.py", "seed": 1}}, "synthetic"),
        ({"synthetic": True}, "synthetic"),
        ({"tokenpath": {"generator": "x.py"}}, "measured"),
        ({"tokenpath": "synthetic"}, "measured"),
        ({"synthetic": False}, "measured"),
        ({}, "measured"),
    ],
)
def test_the_mark_in_the_header_decides(
    tmp_path: Path, mark: dict[str, object], state: str
) -> None:
    trace = Trace().kernel("gemm", 0, 5)
    trace.head.update(mark)
    path = trace.write(tmp_path / "a.json")
    assert read([path])["source"]["state"].to_pylist() == [state]
