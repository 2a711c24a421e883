"""Several threads give what one gives, whether the guesses about where events begin hold or not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ingest.compare import difference, rows
from ingest.traces import Trace
from tokenpath.ingest import read
from tokenpath.ingest.kineto import pieces, source
from tokenpath.ingest.kineto.parallel import ParallelScanner

NUM_WORKERS = 3


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> list[ParallelScanner]:
    """Threads for any size, pieces of a few events; the scanners that were made."""
    for name in ("THREADS_FROM_BYTES", "THREADS_FROM_PACKED_BYTES", "_UNPACKED_APART_FROM_BYTES"):
        monkeypatch.setattr(source, name, 0)
    for name in ("MAPPED_PIECE_BYTES", "STREAMED_PIECE_BYTES"):
        monkeypatch.setattr(source, name, 20_000)
    monkeypatch.setattr(pieces, "SLACK_BYTES", 5000)
    monkeypatch.setattr(pieces, "_SEARCHED_BYTES", 2000)
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


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".json.zst"])
@pytest.mark.parametrize("style", ["kineto", "compact", "array"])
def test_pieces_are_one_whole(
    tmp_path: Path, small_pieces: list[ParallelScanner], style: str, suffix: str
) -> None:
    path = long_trace().write(tmp_path / f"t{suffix}", style)
    many = read([path], scanner="fast", num_workers=NUM_WORKERS)
    assert difference(many, read([path], scanner="fast", num_workers=1)) is None
    assert difference(many, read([path], scanner="slow")) is None
    assert [scanner.num_discarded for scanner in small_pieces] == [0]
    assert small_pieces[0].num_pieces > 10


def test_codes_do_not_depend_on_which_thread_was_faster(
    tmp_path: Path, small_pieces: list[ParallelScanner]
) -> None:
    path = long_trace().write(tmp_path / "t.json")
    alone = read([path], scanner="fast", num_workers=1)
    for _ in range(5):
        many = read([path], scanner="fast", num_workers=NUM_WORKERS)
        for name in alone:
            assert many[name].equals(alone[name])
            for one, other in zip(many[name].columns, alone[name].columns, strict=True):
                if hasattr(one.chunk(0), "dictionary"):
                    assert one.chunk(0).dictionary.equals(other.chunk(0).dictionary)
    assert len(small_pieces) == 5


def test_a_wrong_guess_changes_nothing(tmp_path: Path, small_pieces: list[ParallelScanner]) -> None:
    """An argument looks like events, right where the pieces are cut."""
    trap = [{"x": 1}, *({"ph": "X", "name": "trap"} for _ in range(3000))]
    trace = Trace().kernel("a", 1, 1).op("trap", 2, 1, trap=trap).kernel("b", 3, 1)
    path = trace.write(tmp_path / "t.json")
    capture = read([path], scanner="fast", num_workers=NUM_WORKERS)
    assert rows(capture, "kernel", "name") == ["a", "b"]
    assert rows(capture, "source", "num_events") == [3]
    assert [scanner.num_discarded for scanner in small_pieces] == [1]


@pytest.mark.parametrize("suffix", [".json", ".json.zst"])
def test_a_list_that_ends_early(
    tmp_path: Path, small_pieces: list[ParallelScanner], suffix: str
) -> None:
    """What follows the list looks like more events; the bytes that were cut already are read again."""
    data = long_trace().bytes()
    middle = data.index(b"},", len(data) // 2) + 1
    path = tmp_path / f"t{suffix}"
    other = data[middle + 1 :].rstrip().rstrip(b"}").rstrip()
    text = data[:middle] + b'], "other": [' + other + b', "traceName": "x"}'
    if suffix == ".json.zst":
        import zstandard

        text = zstandard.ZstdCompressor().compress(text)
    path.write_bytes(text)
    many = read([path], scanner="fast", num_workers=NUM_WORKERS)
    assert difference(many, read([path], scanner="slow")) is None
    assert small_pieces[0].num_pieces > 5


@pytest.mark.parametrize("suffix", [".json", ".json.zst"])
def test_damage_anywhere(tmp_path: Path, small_pieces: list[ParallelScanner], suffix: str) -> None:
    import zstandard

    data = long_trace().bytes()
    path = tmp_path / f"t{suffix}"
    random_ = random.Random(4)
    for _ in range(12):
        wounded = bytearray(data)
        for _ in range(3):
            at = random_.randrange(len(wounded))
            wounded[at : at + random_.randrange(1, 30)] = random_.choice(
                (b"", b'"', b"}", b"]", b"\\")
            )
        text = bytes(wounded)
        path.write_bytes(
            zstandard.ZstdCompressor().compress(text) if suffix == ".json.zst" else text
        )
        many = read([path], scanner="fast", num_workers=NUM_WORKERS)
        assert difference(many, read([path], scanner="fast", num_workers=1)) is None
    assert len(small_pieces) == 12
    assert max(scanner.num_pieces for scanner in small_pieces) > 5


def test_an_event_larger_than_a_piece(tmp_path: Path, small_pieces: list[ParallelScanner]) -> None:
    trace = Trace().op("first", 1, 1)
    trace.kernel("x" * 40_000, 2, 1).op("last", 4, 1, note="y" * 30_000)
    path = trace.write(tmp_path / "t.json.gz")
    many = read([path], scanner="fast", num_workers=NUM_WORKERS)
    assert difference(many, read([path], scanner="slow")) is None
    assert rows(many, "op", "name") == ["first", "last"]


def test_nothing_to_cut_is_read_alone(
    tmp_path: Path, small_pieces: list[ParallelScanner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "_MAX_REACH_BYTES", 6000)
    trace = Trace()
    for number in range(3):
        trace.op("x" * 40_000 + str(number), number, 1)
    path = trace.write(tmp_path / "t.json.gz")
    many = read([path], scanner="fast", num_workers=NUM_WORKERS)
    assert difference(many, read([path], scanner="slow")) is None
    assert small_pieces[0].num_pieces < 3


def test_progress_ends_at_the_end(tmp_path: Path, small_pieces: list[ParallelScanner]) -> None:
    path = long_trace().write(tmp_path / "t.json")
    seen: list[int] = []
    read([path], scanner="fast", num_workers=2, progress=lambda done, _: seen.append(done))
    assert seen[-1] == max(seen) == path.stat().st_size
    assert seen == sorted(seen)
