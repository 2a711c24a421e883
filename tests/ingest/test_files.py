"""Containers, folders, globs, ranks, split captures, and files that are no traces."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest

from ingest.compare import difference, lost, rows
from ingest.traces import Trace
from tokenpath.core.errors import DamagedInput, InputError, LimitExceeded, UnknownFormat
from tokenpath.ingest import packed, read, sniff

BASE = 1_700_000_000_000_000_000


def simple(rank: int | None = None, **more: object) -> Trace:
    trace = Trace(rank=rank, base_time_ns=BASE, **more)
    return trace.launched("gemm", launch_us=1, start_us=5, dur_us=3, op="mm")


@pytest.mark.parametrize("suffix", [".json.gz", ".json.zst", ".json.zip"])
@pytest.mark.parametrize("scanner", ["slow", "fast"])
def test_every_container_gives_the_same_rows(tmp_path: Path, suffix: str, scanner: str) -> None:
    trace = simple()
    for number in range(2_000):
        trace.kernel(f"k{number % 50}", number, 1, correlation=number)
    plain = read([trace.write(tmp_path / "t.json")], scanner=scanner)
    stored = read([trace.write(tmp_path / f"t{suffix}")], scanner=scanner)
    for table in ("kernel", "api_call", "op", "device", "thread"):
        assert stored[table].equals(plain[table])


def test_contents_decide_and_not_the_suffix(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(simple().bytes()))
    assert rows(read([path]), "kernel", "name") == ["gemm"]


def test_gzip_members_follow_one_another(tmp_path: Path) -> None:
    data = simple().bytes()
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(data[:100]) + gzip.compress(data[100:]) + b"\0" * 64)
    capture = read([path])
    assert rows(capture, "kernel", "name") == ["gemm"]
    assert lost(capture) == {}


@pytest.mark.parametrize("suffix", [".json.gz", ".json.zst", ".json.zip"])
def test_a_cut_container_gives_what_it_has(tmp_path: Path, suffix: str) -> None:
    trace = Trace()
    for number in range(3000):
        trace.kernel(f"kernel {number * 7919 % 3001}", number, 1, correlation=number * 104729)
    path = trace.write(tmp_path / f"t{suffix}")
    data = path.read_bytes()
    if suffix == ".json.zip":
        # The directory of a zip file is at its end; damage within a member leaves it readable.
        data = data[: len(data) // 2] + bytes(64) + data[len(data) // 2 + 64 :]
    else:
        data = data[: len(data) // 2]
    path.write_bytes(data)
    capture = read([path])
    found = rows(capture, "kernel", "name")
    assert 0 < len(found) <= 3000
    assert lost(capture)


@pytest.mark.parametrize("suffix", [".json.gz", ".json.zst"])
@pytest.mark.parametrize("at", [0.2, 0.6, 0.95])
def test_a_corrupt_container_gives_what_it_has(tmp_path: Path, suffix: str, at: float) -> None:
    trace = Trace()
    for number in range(3000):
        trace.kernel(f"kernel {number * 7919 % 3001}", number, 1, correlation=number * 104729)
    path = trace.write(tmp_path / f"t{suffix}")
    data = bytearray(path.read_bytes())
    middle = int(len(data) * at)
    data[middle : middle + 40] = bytes(range(200, 240))
    path.write_bytes(data)
    try:
        capture = read([path])
    except InputError:
        return  # nothing could be unpacked
    assert lost(capture)


def test_progress_counts_stored_bytes(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    path = simple().write(tmp_path / "t.json.gz")
    read([path], progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)


def test_a_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "RATIO_FROM_BYTES", 2**20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"schemaVersion": 1, "traceEvents": [' + b" " * 2**25))
    with pytest.raises(LimitExceeded, match="1000 times"):
        read([path])


def test_the_bound_on_unpacked_bytes(tmp_path: Path) -> None:
    path = simple().write(tmp_path / "t.json.gz")
    with pytest.raises(LimitExceeded, match="500 bytes"):
        read([path], max_bytes=500)
    with pytest.raises(LimitExceeded):
        read([simple().write(tmp_path / "t.json")], max_bytes=500)


def test_a_zip_of_several_files_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.json", simple().bytes())
        archive.writestr("b.json", simple().bytes())
    with pytest.raises(InputError, match="2 files"):
        read([path])


def test_a_damaged_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.zip"
    path.write_bytes(b"PK\x03\x04" + b"x" * 100)
    with pytest.raises(DamagedInput):
        read([path])


def test_raw_nsys_reports_need_an_export(tmp_path: Path) -> None:
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"\x00NSYS" * 20)
    with pytest.raises(UnknownFormat, match="needs nsys export"):
        read([path])


@pytest.mark.parametrize("content", [b"SQLite format 3\0....", b"PAR1....", b"\x80\x04...."])
def test_other_formats_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(UnknownFormat, match="unknown format: a ") as caught:
        sniff(path)
    assert "kineto" in str(caught.value)


def test_traces_of_the_xla_profiler_are_not_taken_for_ours(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b'{"metadata":{"highres-ticks":true},"traceEvents":[{"ph":"M","pid":1}]}')
    assert sniff(path).name == "xla-json"


def test_sniff_gives_the_reader(tmp_path: Path) -> None:
    assert sniff(simple().write(tmp_path / "t.json.zst")).name == "kineto"
    assert sniff(simple().write(tmp_path / "u.json", "array")).name == "kineto"


def test_folders_and_globs_of_ranks(tmp_path: Path) -> None:
    for rank in range(3):
        simple(rank).write(tmp_path / f"worker{rank}.json.gz")
    (tmp_path / "notes.txt").write_text("no trace")
    (tmp_path / ".hidden.json").write_text("no trace")
    for named in (tmp_path, tmp_path / "worker*.json.gz"):
        capture = read([named])
        assert rows(capture, "source", "rank", "path") == [
            (rank, f"worker{rank}.json.gz") for rank in range(3)
        ]
        assert rows(capture, "kernel", "source_id", "device_id") == [(r, r) for r in range(3)]
        assert rows(capture, "op", "source_id", "thread_id") == [(r, r) for r in range(3)]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank0.json", 0),
        ("rank-34.Jul_15.pt.trace.json", 34),
        ("mtia_rank_7.json", 7),
        ("worker3.1623143089861.pt.trace.json", 3),
        ("run-TP-5-DECODE.json", 5),
        ("rank_non_gpu.json", None),
        ("prof_ep64_tp1.json", None),
        ("franklin5.json", None),
    ],
)
def test_rank_from_the_file_name(tmp_path: Path, name: str, rank: int | None) -> None:
    capture = read([simple().write(tmp_path / name)])
    source = None if rank is None else "file name"
    assert rows(capture, "source", "rank", "rank_source") == [(rank, source)]


def test_nothing_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file"):
        read([])
    with pytest.raises(InputError, match="no such file"):
        read([tmp_path / "absent.json"])
    with pytest.raises(InputError, match="matches no file"):
        read([tmp_path / "absent*.json"])
    with pytest.raises(UnknownFormat, match="no trace files"):
        read([tmp_path])
    with pytest.raises(InputError, match="folder"):
        sniff(tmp_path)


def test_parts_of_one_split_capture_are_one_run(tmp_path: Path) -> None:
    """The same event in both parts counts once; threads and devices are shared."""
    shared = {"trace_id": "RUN", "base_time_ns": BASE, "rank": 0}
    first = Trace(**shared).op("prefill", 0, 9).kernel("k1", 5, 9, correlation=1)
    first.kernel("stray", 30, 2, correlation=2).kernel("twin", 40, 1).kernel("twin", 40, 1)
    second = Trace(**shared).op("decode", 20, 9).kernel("stray", 30, 2, correlation=2)
    second.kernel("k2", 50, 4, correlation=3)
    other = Trace(trace_id="OTHER", base_time_ns=BASE, rank=0).kernel("stray", 30, 2, correlation=2)
    paths = [
        trace.write(tmp_path / f"{number}.json")
        for number, trace in enumerate((first, second, other))
    ]
    capture = read(paths)
    assert rows(capture, "kernel", "name", "source_id", "device_id") == [
        ("k1", 0, 0),
        ("stray", 0, 0),
        ("twin", 0, 0),
        ("twin", 0, 0),
        ("k2", 1, 0),
        ("stray", 2, 1),
    ]
    assert rows(capture, "op", "name", "thread_id") == [("prefill", 0), ("decode", 0)]
    duplicates = [
        (source, number)
        for source, reason, number in rows(capture, "skip", "source_id", "reason", "num_events")
        if reason == "duplicate of a split sibling"
    ]
    assert duplicates == [(1, 1)]


def test_reading_twice_gives_the_same(tmp_path: Path) -> None:
    path = simple().write(tmp_path / "t.json")
    assert difference(read([path]), read([path])) is None
    assert rows(read([path, path]), "source", "path") == ["t.json"]


def test_a_folder_may_hold_other_files_beside_its_traces(tmp_path: Path) -> None:
    simple(rank=0).write(tmp_path / "rank0.json")
    (tmp_path / "config.json").write_text('{"hidden_size": 128}')
    capture = read([tmp_path])
    assert rows(capture, "source", "path") == ["rank0.json"]
    reasons = dict(
        zip(rows(capture, "skip", "reason"), rows(capture, "skip", "example"), strict=True)
    )
    assert reasons["file of another format in the folder"] == "config.json"


def test_a_stranger_that_was_named_itself_is_refused(tmp_path: Path) -> None:
    trace = simple(rank=0).write(tmp_path / "rank0.json")
    (tmp_path / "config.json").write_text('{"hidden_size": 128}')
    with pytest.raises(UnknownFormat, match=r"config\.json"):
        read([trace, tmp_path / "config.json"])
    trace.unlink()
    with pytest.raises(UnknownFormat, match=r"config\.json"):
        read([tmp_path])
