"""KV cache events: no token id is kept, numbers of messages are checked, damage ends cleanly."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.compare import reasons, rows
from ingest.packing import pack
from ingest.samples.kv_events import STORED, batches, write
from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.kv_events.reader import KvEventsReader
from tokenpath.ingest.reader import Options


def read(path: Path) -> Capture:
    return KvEventsReader().read([path], Options())


def test_token_ids_are_counted_and_not_kept(tmp_path: Path) -> None:
    event = {**STORED, "token_ids": [987654321] * 20, "extra_keys": ["a secret"]}
    capture = read(write(tmp_path, batches([event])))
    assert rows(capture, "kv_event", "num_tokens") == [16, 4]
    kept = "".join(str(capture[name].to_pydict()) for name in capture)
    assert "987654321" not in kept
    assert "a secret" not in kept


def test_a_cut_file_gives_what_is_there(tmp_path: Path) -> None:
    path = write(tmp_path, batches([STORED]))
    path.write_bytes(path.read_bytes()[:-5])
    capture = read(path)
    assert capture.num_rows("kv_event") == 2
    assert reasons(capture) == {"no end of the file": 1}


def test_after_damage_reading_ends(tmp_path: Path) -> None:
    path = write(tmp_path, batches([STORED]))
    path.write_bytes(path.read_bytes() + b"\xc1" + pack([1.0, [STORED], 0]))
    capture = read(path)
    assert capture.num_rows("kv_event") == 2
    assert reasons(capture)["damaged message"] == 1


def test_nothing_readable_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedInput):
        read(write(tmp_path, [[1.0, [3, "x"], 0]]))


def test_hashes_of_bytes_and_times_out_of_range(tmp_path: Path) -> None:
    event = {**STORED, "block_hashes": [b"\x01\xff"], "parent_block_hash": b"", "medium": "TAPE"}
    capture = read(write(tmp_path, [[1.0, [event], 0], [1e300, [event], 0], [-1.0, [event], 0]]))
    columns = ("block_hash", "parent_hash", "medium")
    assert rows(capture, "kv_event", *columns) == [("01ff", None, "TAPE")]
    assert reasons(capture) == {"damaged message": 2}
