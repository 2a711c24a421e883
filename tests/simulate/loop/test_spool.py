"""Columns that outgrow memory are the same columns, and leave no file."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path
from typing import Self

import numpy as np
import pytest
from small_engines import FirstCome, curve, workload

from tokenpath.capture.capture import Capture
from tokenpath.capture.parquet import read_capture
from tokenpath.capture.validate import validate
from tokenpath.core.errors import UsageError
from tokenpath.simulate.loop_run import simulate_workload
from tokenpath.simulate.recorder_stream import StreamWriter
from tokenpath.simulate.recorder_tables import RunFacts, capture_of_run
from tokenpath.simulate.replica import Replica
from tokenpath.simulate.spool import Spool

LOAD = workload(np.arange(60) * 40, np.arange(60) % 17 + 1, np.arange(60) % 9 + 1)
FACTS = RunFacts("test", "vllm", [1000, 1000])


def _replicas() -> list[Replica]:
    return [Replica([FirstCome(4, 1000)], curve(50, 2, 1)) for _ in range(2)]


def _small(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    for module in ("spool", "recorder", "recorder_tables"):
        monkeypatch.setattr(f"tokenpath.simulate.{module}.MEMORY_ROWS", rows)


def _capture(detail: str) -> Capture:
    done = simulate_workload(LOAD, _replicas(), detail=detail)
    return capture_of_run(done.rows, LOAD, FACTS, tokens=detail == "token")


@pytest.mark.parametrize("num_rows", [0, 1, 7, 20])
def test_columns_come_back_as_they_went(num_rows: int) -> None:
    spool = Spool([np.int64, np.int32, np.int8], memory_rows=6)
    table = np.arange(3 * num_rows).reshape(3, num_rows)
    for begin in range(0, num_rows, 3):
        spool.append(list(table[:, begin : begin + 3]))
    assert len(spool) == num_rows
    found = spool.finish()
    assert [one.dtype for one in found] == [np.int64, np.int32, np.int8]
    assert [one.tolist() for one in found] == table.tolist()
    assert spool.finish() is found


def test_a_run_through_a_file_is_the_same_capture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = _capture("token")
    assert expected.num_rows("step") > 70
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    _small(monkeypatch, 7)
    found = _capture("token")
    validate(found)
    assert list(found) == list(expected)
    for name in expected:
        assert found[name].equals(expected[name]), name
    with StreamWriter(tmp_path / "run", LOAD.num_requests) as writer:
        done = simulate_workload(LOAD, _replicas(), detail="token", sink=writer)
        writer.finish(done.rows, LOAD, FACTS)
    again = read_capture(tmp_path / "run")
    for name in expected:
        assert again[name].to_pylist() == expected[name].to_pylist(), name
    assert not any((tmp_path / "scratch").iterdir())


def test_the_table_keeps_the_file_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _capture("request")["step"].to_pylist()
    _small(monkeypatch, 7)
    table = _capture("request")["step"]
    gc.collect()
    assert table.to_pylist() == expected


def test_no_room_is_an_error_that_names_the_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Full:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def write(self, _data: object) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full())
    with pytest.raises(UsageError, match="No space left"):
        Spool([np.int64], memory_rows=0).append([np.arange(3)])
