"""Workload files: found by content, read with every loss counted, written and read back the same."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpath.core.errors import DamagedInput, InputError, LimitExceeded, UnknownFormat, UsageError
from tokenpath.simulate.workload import rows, trace_jsonl
from tokenpath.simulate.workload.arrivals import Poisson
from tokenpath.simulate.workload.files import read_workload, sniff
from tokenpath.simulate.workload.generate import SharedPrefix, closed_loop, poisson
from tokenpath.simulate.workload.lengths import Fixed, TwoLaws, Uniform
from tokenpath.simulate.workload.own_format import to_csv, to_jsonl
from tokenpath.simulate.workload.sessions import Sessions, sessions
from tokenpath.simulate.workload.workload import Workload

COLUMNS = (
    "arrival_ns", "prompt_tokens", "output_tokens", "priority", "after", "think_ns", "session",
    "hash_start", "hashes",
)  # fmt: skip
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
MOONCAKE = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}


def _file(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def _jsonl(*records: object) -> str:
    return "".join(f"{json.dumps(record)}\n" for record in records)


def _same(first: Workload, second: Workload) -> None:
    for name in COLUMNS:
        assert np.array_equal(getattr(first, name), getattr(second, name)), name
    assert (first.name, first.state, first.concurrency, first.hash_granule_tokens) == (
        second.name, second.state, second.concurrency, second.hash_granule_tokens,
    )  # fmt: skip


def test_azure(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "trace.csv",
        AZURE
        + "2023-11-16 18:17:04.5000000,30,8\n"
        + "2023-11-16 18:17:03.9799601,4808,10\n"
        + "2024-05-10 00:00:00.009930+00:00,1,1\n"
        + "yesterday,3,4\n"
        + "2023-11-16 18:17:04,0,4\n"
        + "2023-11-16 18:17:04,5\n"
        + "2023-13-16 18:17:04,5,5\n",
    )
    read = read_workload(path)
    assert read.format == "azure"
    assert read.workload.prompt_tokens.tolist() == [4808, 30, 1]
    assert read.workload.arrival_ns[:2].tolist() == [0, 520_039_900]
    assert {skip.reason: (skip.num_rows, skip.first_line) for skip in read.skips} == {
        "a value is missing or no number": (2, 5),
        "prompt without tokens": (1, 6),
        "a row with too few columns": (1, 7),
    }


def test_burstgpt_and_lengths(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "burst.csv",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45.5,ChatGPT,1087,230,1317,Conversation log\n",
    )
    read = read_workload(path)
    assert read.format == "burstgpt"
    assert read.workload.arrival_ns.tolist() == [0, 40_500_000_000]
    path = _file(tmp_path, "lengths.csv", "\ufeffinput_length,output_length\n3,4\n")
    read = read_workload(path)
    assert (read.format, read.workload.num_requests) == ("lengths", 1)
    assert "all requests come at once" in read.notes[0]
    path = _file(tmp_path, "prompts.csv", "input_length\n3\n9\n0\n7\n")
    with pytest.raises(UsageError, match="no output lengths"):
        read_workload(path)
    read = read_workload(path, output=Uniform(5, 6))
    assert read.workload.prompt_tokens.tolist() == [3, 9, 7]
    assert set(read.workload.output_tokens.tolist()) <= {5, 6}


def test_our_csv_knows_groups(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "run.csv",
        "req,group,shared_prefix,prompt_tokens,output_tokens,arrival_us\n"
        "a,1,64,100,5,0\nb,1,32,100,5,1000\nc,2,64,100,5,2000\nd,-1,0,100,5,3000\n",
    )
    workload = read_workload(path).workload
    assert workload.arrival_ns.tolist() == [0, 1_000_000, 2_000_000, 3_000_000]
    ids = [
        workload.hashes[workload.hash_start[row] : workload.hash_start[row + 1]].tolist()
        for row in range(4)
    ]
    assert [len(row) for row in ids] == [4, 2, 4, 0]
    assert ids[0][:2] == ids[1]
    assert not set(ids[0]) & set(ids[2])


def test_mooncake_with_and_without_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean = _file(
        tmp_path, "m.jsonl",
        _jsonl(MOONCAKE, {**MOONCAKE, "timestamp": 3000, "hash_ids": [0, 7]}, {**MOONCAKE, "timestamp": 5, "hash_ids": []}),
    )  # fmt: skip
    fast = read_workload(clean)
    monkeypatch.setattr(trace_jsonl, "_read_mooncake_at_once", lambda *_: None)
    slow = read_workload(clean)
    assert fast.format == slow.format == "mooncake"
    _same(fast.workload, slow.workload)
    assert fast.workload.hashes.tolist() == [0, 1, 0, 7]
    assert fast.workload.hash_start.tolist() == [0, 2, 2, 4]
    assert fast.workload.arrival_ns.tolist() == [0, 5_000_000, 3_000_000_000]
    assert fast.workload.hash_granule_tokens == 512


def test_mooncake_counts_what_it_cannot_use(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "m.jsonl",
        _jsonl(MOONCAKE, {**MOONCAKE, "hash_ids": "x"}, {**MOONCAKE, "hash_ids": [1.5]}, [1])
        + "\n"
        + _jsonl({**MOONCAKE, "input_length": True}, {**MOONCAKE, "output_length": 0})
        + _jsonl({**MOONCAKE, "timestamp": 1e300}, {**MOONCAKE, "hash_ids": [1, 2, 3, 4, 5]})
        + '{"timestamp": 1, "input_len',
    )
    read = read_workload(path)
    assert read.workload.num_requests == 2
    # 605 tokens are two granules: ids beyond them mean nothing.
    assert np.diff(read.workload.hash_start).tolist() == [2, 2]
    assert {skip.reason: (skip.num_rows, skip.first_line) for skip in read.skips} == {
        "hash_ids is no list of ids": (2, 2),
        "not an object": (1, 4),
        "a value is missing or no number": (2, 6),
        "output without tokens": (1, 7),
        "not JSON": (1, 10),
    }


def test_llmservingsim_by_hashes_and_by_tokens(tmp_path: Path) -> None:
    base = {"input_toks": 40, "output_toks": 8, "arrival_time_ns": 5}
    by_hash = _file(
        tmp_path, "h.jsonl",
        _jsonl({**base, "block_hashes_16": ["aa", "bb"]}, {**base, "block_hashes_16": ["aa", "cc"]}),
    )  # fmt: skip
    read = read_workload(by_hash)
    assert read.format == "llmservingsim"
    assert read.workload.hashes.tolist() == [0, 1, 0, 2]
    tokens = list(range(40))
    other = [*tokens[:16], 99, *tokens[17:]]
    by_token = _file(
        tmp_path, "t.jsonl",
        _jsonl(
            {**base, "input_tok_ids": tokens, "output_tok_ids": list(range(8))},
            {**base, "input_tok_ids": other, "output_tok_ids": list(range(8))},
            {**base, "input_tok_ids": "x"},
        ),
    )  # fmt: skip
    read = read_workload(by_token)
    assert read.workload.hashes.tolist() == [0, 1, 2, 0, 3, 4]
    assert [skip.reason for skip in read.skips] == ["ids are no list of ids"]


@given(
    seed=st.integers(0, 1000),
    count=st.integers(0, 40),
    turns=st.integers(1, 4),
    kind=st.sampled_from(["plain", "prefix", "closed", "sessions"]),
)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int, turns: int, kind: str
) -> None:
    lengths = TwoLaws(Uniform(1, 90), Uniform(1, 90))
    if kind == "sessions":
        workload = sessions(Poisson(2.0), count, Sessions(turns, lengths, 1.0), seed=seed)
    elif kind == "closed":
        workload = closed_loop(3, count, Uniform(1, 9), 4, seed=seed)
    else:
        prefix = SharedPrefix(2, 70) if kind == "prefix" else None
        workload = poisson(2.0, count, Uniform(1, 90), 5, prefix=prefix, seed=seed)
    path = tmp_path_factory.mktemp("own") / "w.jsonl"
    path.write_text("".join(to_jsonl(workload)), encoding="utf-8")
    read = read_workload(path)
    assert (read.format, read.skips) == ("tokenpath", ())
    _same(read.workload, workload)


def test_csv_holds_arrivals_and_lengths_or_says_what_it_cannot(tmp_path: Path) -> None:
    workload = poisson(2.0, 50, Uniform(1, 90), 5)
    path = _file(tmp_path, "w.csv", "".join(to_csv(workload)))
    read = read_workload(path).workload
    assert np.array_equal(read.prompt_tokens, workload.prompt_tokens)
    assert np.array_equal(np.diff(read.arrival_ns), np.diff(workload.arrival_ns))
    for held in (poisson(2.0, 5, 20, 5, prefix=SharedPrefix(1, 64)), closed_loop(2, 5, 1, 1)):
        with pytest.raises(UsageError, match="CSV file cannot hold"):
            list(to_csv(held))


HEADER = {"format": "tokenpath.workload", "version": 1, "name": "w", "state": "synthetic",
          "hash_granule_tokens": 16, "concurrency": None, "num_requests": 2}  # fmt: skip
ROW = {"arrival_ns": 5, "prompt_tokens": 1, "output_tokens": 1}


@pytest.mark.parametrize(
    ("records", "line", "what"),
    [
        ([{**HEADER, "version": 2}, ROW, ROW], 1, "version"),
        ([{**HEADER, "state": "guessed"}, ROW, ROW], 1, "state"),
        ([{**HEADER, "concurrency": 0}, ROW, ROW], 1, "concurrency"),
        ([{**HEADER, "hash_granule_tokens": 0}, ROW, ROW], 1, "granule"),
        ([HEADER, ROW], 2, "1 requests instead of 2"),
        ([HEADER, ROW, {**ROW, "arrival_ns": 4}], 3, "go back"),
        ([HEADER, ROW, {**ROW, "after": 1}], 3, "after"),
        ([HEADER, ROW, {**ROW, "prompt_tokens": 0}], 3, "prompt_tokens"),
        ([HEADER, ROW, {**ROW, "output_tokens": 1.5}], 3, "output_tokens"),
        ([HEADER, ROW, {**ROW, "think_ns": -1}], 3, "think_ns"),
        ([HEADER, ROW, {**ROW, "hashes": [2**70]}], 3, "hashes"),
        ([HEADER, ROW, {**ROW, "hashes": 3}], 3, "hashes"),
        ([HEADER, ROW, [1]], 3, "JSON object"),
    ],
)
def test_our_file_is_as_declared_or_refused_with_its_line(
    tmp_path: Path, records: list[object], line: int, what: str
) -> None:
    path = _file(tmp_path, "w.jsonl", _jsonl(*records))
    with pytest.raises(DamagedInput, match=what) as error:
        read_workload(path)
    assert error.value.where == f"{path}:{line}"


def test_packed_and_cut_off(tmp_path: Path) -> None:
    random = np.random.default_rng(0).integers(1, 10**6, 6000)
    text = AZURE + "".join(f"{second},{tokens},4\n" for second, tokens in enumerate(random))
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    assert read_workload(path).workload.num_requests == 6000
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    read = read_workload(path)
    assert read.workload.num_requests < 6000
    assert "file is cut off" in [skip.reason for skip in read.skips]
    path.write_bytes(content[:20])
    with pytest.raises(InputError):
        read_workload(path)


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_LINE_BYTES", 100)
    path = _file(tmp_path, "t.csv", AZURE + "1,3,4\n" + "9" * 1000 + ",3,4\n2,5,6\n")
    read = read_workload(path)
    assert read.workload.prompt_tokens.tolist() == [3, 5]
    assert read.skips[0].first_line == 3
    monkeypatch.setattr(rows, "MAX_REQUESTS", 1)
    with pytest.raises(LimitExceeded):
        read_workload(path)
    monkeypatch.setattr(rows, "MAX_UNPACKED_BYTES", 50)
    with pytest.raises(LimitExceeded):
        read_workload(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.csv", b""),
        ("blank.jsonl", b"\n\n  \n"),
        ("text.txt", b"hello world\n"),
        ("binary.bin", bytes(range(256)) * 10),
        ("other.json", b'{"traceEvents": []}\n'),
        ("deep.json", b"[" * 100_000),
    ],
)
def test_what_is_no_workload_file_is_said(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert sniff(path) is None
    with pytest.raises(UnknownFormat):
        read_workload(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_workload(tmp_path / "none.csv")
    with pytest.raises(UnknownFormat):
        read_workload(tmp_path)
    with pytest.raises(UsageError):
        read_workload([])
    path = _file(tmp_path, "t.csv", AZURE)
    with pytest.raises(DamagedInput, match="no request in it"):
        read_workload(path)
    path = _file(tmp_path, "u.csv", AZURE + "x,y,z\n")
    with pytest.raises(DamagedInput, match="no row can be used") as error:
        read_workload(path)
    assert error.value.where == f"{path}:2"
    with pytest.raises(UsageError, match="2 files"):
        read_workload([path, path])


def test_a_stretch_of_a_file(tmp_path: Path) -> None:
    path = _file(tmp_path, "t.csv", AZURE + "".join(f"{second},3,4\n" for second in range(50)))
    read = read_workload(path, begin_s=10.0, duration_s=5.0)
    assert read.workload.arrival_ns.tolist() == [second * 1_000_000_000 for second in range(5)]


@given(st.binary(max_size=300))
def test_no_bytes_make_a_reader_fail(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    for head in (
        b"",
        AZURE.encode(),
        json.dumps(MOONCAKE).encode() + b"\n",
        json.dumps(HEADER).encode() + b"\n",
    ):
        path = folder / "f"
        path.write_bytes(head + content)
        try:
            read = read_workload(path, output=Fixed(1))
        except InputError:
            continue
        assert read.workload.num_requests > 0
