"""Two threads give what one gives, whether the guess about the middle holds or not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ingest.compare import difference, rows
from ingest.traces import Trace
from tokenpath.ingest import read
from tokenpath.ingest.kineto import source
from tokenpath.ingest.kineto.parallel import ParallelScanner


@pytest.fixture
def small_threads(monkeypatch: pytest.MonkeyPatch) -> list[ParallelScanner]:
    """Two threads for any size; the scanners that were made."""
    monkeypatch.setattr(source, "THREADS_FROM_BYTES", 0)
    made: list[ParallelScanner] = []
    original = ParallelScanner.scan

    def scan(self: ParallelScanner, *args: object) -> tuple[int, bool]:
        made.append(self)
        return original(self, *args)

    monkeypatch.setattr(ParallelScanner, "scan", scan)
    return made


def long_trace() -> Trace:
    trace = Trace(base_time_ns=1_700_000_000_000_000_000, rank=1)
    attributes = {"Collective name": "allreduce", "In msg nelems": 5, "dtype": "Float"}
    for number in range(400):
        trace.launched(f"k{number}", launch_us=number, start_us=number, dur_us=1, op="o")
        trace.kernel("nccl", number, 1, **attributes).op(
            "comm", number, 1, tid=number, **attributes
        )
        trace.memory(number, number).counter("c", number, value=number)
        for phase in "BE":
            trace.event(ph=phase, name=f"b{number % 3}", pid=1, tid=1, ts=number)
        trace.thread_name(f"thread {number}", tid=number)
        trace.flow("s", number, number, 1, 1, cat="other")
    return trace


@pytest.mark.parametrize("style", ["kineto", "compact", "array"])
def test_halves_are_one_whole(
    tmp_path: Path, small_threads: list[ParallelScanner], style: str
) -> None:
    path = long_trace().write(tmp_path / "t.json", style)
    both = read([path], scanner="fast", num_workers=2)
    assert difference(both, read([path], scanner="fast", num_workers=1)) is None
    assert difference(both, read([path], scanner="slow")) is None
    assert [scanner.num_discarded for scanner in small_threads] == [0]


def test_a_wrong_guess_changes_nothing(
    tmp_path: Path, small_threads: list[ParallelScanner]
) -> None:
    """The middle lies within an argument that looks like events."""
    trap = [{"x": 1}, *({"ph": "X", "name": "trap"} for _ in range(3000))]
    trace = Trace().kernel("a", 1, 1).op("trap", 2, 1, trap=trap).kernel("b", 3, 1)
    path = trace.write(tmp_path / "t.json")
    capture = read([path], scanner="fast", num_workers=2)
    assert rows(capture, "kernel", "name") == ["a", "b"]
    assert rows(capture, "source", "num_events") == [3]
    assert [scanner.num_discarded for scanner in small_threads] == [1]


def test_damage_anywhere(tmp_path: Path, small_threads: list[ParallelScanner]) -> None:
    data = long_trace().bytes()
    path = tmp_path / "t.json"
    random_ = random.Random(4)
    for _ in range(12):
        wounded = bytearray(data)
        for _ in range(3):
            at = random_.randrange(len(wounded))
            wounded[at : at + random_.randrange(1, 30)] = random_.choice(
                (b"", b'"', b"}", b"]", b"\\")
            )
        path.write_bytes(wounded)
        both = read([path], scanner="fast", num_workers=2)
        assert difference(both, read([path], scanner="fast", num_workers=1)) is None
    assert len(small_threads) == 12


def test_progress_ends_at_the_end(tmp_path: Path, small_threads: list[ParallelScanner]) -> None:
    path = long_trace().write(tmp_path / "t.json")
    seen: list[int] = []
    read([path], scanner="fast", num_workers=2, progress=lambda done, _: seen.append(done))
    assert seen[-1] == max(seen) == path.stat().st_size


@pytest.mark.parametrize("suffix", [".json.gz", ".json.zst"])
def test_unpacking_in_a_thread(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_THREADS_FROM_PACKED_BYTES", 0)
    path = long_trace().write(tmp_path / f"t{suffix}")
    assert difference(read([path], num_workers=2), read([path], num_workers=1)) is None
