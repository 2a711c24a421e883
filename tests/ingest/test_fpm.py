"""Forward-pass metrics: workers apart, restarts, receipt, what cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingest.compare import reasons, rows
from ingest.samples.fpm import DECODE, IDLE, in_parts, metrics, positional, write
from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.fpm.reader import FpmReader
from tokenpath.ingest.reader import Options


def read(folder: Path, values: list[Any]) -> Capture:
    return FpmReader().read([write(folder / "t.fpm.msgpack", values)], Options())


def test_workers_and_ranks_are_numbered_apart(tmp_path: Path) -> None:
    messages = [
        metrics(number, 0.01, DECODE, worker_id=worker, dp_rank=rank)
        for number in (7, 8)
        for worker in ("a", "b")
        for rank in (0, 1)
    ]
    capture = read(tmp_path, messages)
    assert reasons(capture) == {}
    assert set(rows(capture, "step", "start_ns")) == {0, 10_000_000}


def test_a_smaller_number_is_a_restart(tmp_path: Path) -> None:
    numbers = (5, 6, 0, 1)
    assert reasons(read(tmp_path, [metrics(n, 0.01, DECODE) for n in numbers])) == {}


def test_sglangs_first_form_is_numbered_by_the_publisher(tmp_path: Path) -> None:
    short = {
        k: v for k, v in metrics(0, 0.01, DECODE).items() if k not in ("version", "counter_id")
    }
    values = []
    for number in (3, 5):
        parts = in_parts({**short, "counter_id": number}, 10**18)
        values.append([*parts[1:3], _packed(short if number == 3 else positional(short))])
    capture = read(tmp_path, values)
    assert rows(capture, "step", "number") == [3, 5]
    assert reasons(capture) == {"dropped by the publisher": 1}


def _packed(value: Any) -> bytes:
    from ingest.packing import pack

    return pack(value)


def test_what_cannot_be_read_is_counted(tmp_path: Path) -> None:
    messages = [
        metrics(1, 0.01, DECODE),
        metrics(2, 0.01, DECODE, version=2),
        metrics(2, -1.0, DECODE),
        metrics(2, float("nan"), DECODE),
        metrics(2, 0.01, [1, -5, 0.0, 0, 0, 0, 0.0]),
        metrics(2, 0.01, DECODE, scheduled_requests=4),
        3,
    ]
    capture = read(tmp_path, messages)
    assert capture.num_rows("step") == 1
    assert reasons(capture) == {"unknown version": 1, "damaged message": 5}


def test_only_heartbeats_are_a_capture_without_steps(tmp_path: Path) -> None:
    capture = read(tmp_path, [metrics(1, 0.0, IDLE)])
    assert capture.num_rows("step") == 0
    assert reasons(capture) == {"idle heartbeat": 1}


def test_nothing_readable_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedInput):
        read(tmp_path, [3, 4])
