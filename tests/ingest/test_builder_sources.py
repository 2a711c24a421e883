"""A file of several processes: each a row of `source`, rows told apart, events counted once."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ingest.compare import rows
from tokenpath.capture.validate import validate
from tokenpath.ingest.builder import CaptureBuilder, Origin
from tokenpath.ingest.formats import readers
from tokenpath.ingest.reader import Options


def test_rows_keep_to_their_process(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    builder = CaptureBuilder(readers()[0], path, Options())
    builder.num_events = 2
    builder.losses.add("broken")
    other = builder.add_source(Origin(rank=1), 1)
    one = {"index": np.array([0, 1], np.int64), "source_id": np.array([other, 0], np.int32)}
    builder.add("device", one)
    builder.add_rows("thread", [{"pid": "1", "tid": "2"}])
    capture = builder.finish()
    validate(capture)
    assert rows(capture, "source", "path", "rank", "num_events", "num_skipped") == [
        ("a", None, 2, 1),
        ("a", 1, 1, 0),
    ]
    assert rows(capture, "device", "source_id") == [1, 0]
    assert rows(capture, "thread", "source_id") == [0]
