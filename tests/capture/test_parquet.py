"""A capture on disk: what is written is read back, what is damaged is said to be."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from declared_rows import columns, sample_row
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpath.capture.capture import Capture, build_table
from tokenpath.capture.parquet import MARKER, read_capture, write_capture
from tokenpath.capture.tables import SCHEMA_VERSION, TABLES
from tokenpath.core.errors import CaptureError, DamagedInput, TokenpathError, UsageError


def spelled(capture: Capture) -> dict[str, str]:
    """Every value of every table with rows; NaN, -0.0 and NULL all differ."""
    return {
        name: repr(capture[name].to_pylist())
        for name in sorted(TABLES)
        if name in capture and capture.num_rows(name)
    }


def written(capture: Capture, folder: Path) -> Capture:
    write_capture(capture, folder)
    return read_capture(folder)


@pytest.fixture
def capture() -> Capture:
    kernel = sample_row("kernel", 40) | {"start_ns": list(range(40)), "grid": [[1, 2, 3]] * 40}
    tables = {"kernel": kernel, "device": sample_row("device"), "op": sample_row("op", 3)}
    return Capture({name: build_table(name, rows) for name, rows in tables.items()})


@pytest.fixture
def folder(capture, tmp_path) -> Path:
    """The capture on disk."""
    write_capture(capture, tmp_path / "c")
    return tmp_path / "c"


@pytest.mark.parametrize("name", list(TABLES))
@given(data=st.data())
@settings(max_examples=6)
def test_every_table_survives_the_disk(name, data):
    parts = data.draw(st.lists(columns(name, max_rows=4), min_size=1, max_size=3))
    # Each part brings dictionaries of its own.
    table = pa.concat_tables([build_table(name, part) for part in parts])
    before = Capture({name: table})
    with tempfile.TemporaryDirectory() as folder:
        after = written(before, Path(folder) / "c")
    assert spelled(after) == spelled(before)
    assert after[name].schema.equals(TABLES[name].schema)
    for column in TABLES[name].columns:
        if column.type == "text":
            codes, texts = after.codes(name, column.name)
            read = [None if code < 0 else texts[code] for code in codes]
            assert read == table[column.name].to_pylist()


def test_a_whole_capture_and_an_empty_one(tmp_path):
    tables = {name: build_table(name, sample_row(name, 2)) for name in TABLES}
    tables["op"] = build_table("op", {})
    after = written(Capture(tables), tmp_path / "c")
    assert spelled(after) == spelled(Capture(tables))
    assert set(after) == set(TABLES) - {"op"}
    assert list(written(Capture({}), tmp_path / "empty")) == []


def test_floats_that_compare_badly(tmp_path):
    floats = [float("nan"), float("inf"), -float("inf"), -0.0, 5e-324, None]
    rows = {**sample_row("kernel", len(floats)), "blocks_per_sm": floats}
    after = written(Capture({"kernel": build_table("kernel", rows)}), tmp_path / "c")
    assert str(after["kernel"]["blocks_per_sm"].to_pylist()) == str(floats)


def test_dictionaries_larger_than_a_page(tmp_path):
    # Parquet gives up on dictionaries over 1 MiB in the middle of a column.
    names = [f"void cutlass::Kernel<{i:0100}>" for i in range(30_000)]
    column = pa.array([*names, None, *names[::-1]]).dictionary_encode()
    rows = {**sample_row("thread", len(column)), "name": column}
    before = Capture({"thread": build_table("thread", rows)})
    after = written(before, tmp_path / "c")
    codes, texts = after.codes("thread", "name")
    assert len(texts) == len(names)
    assert [None if code < 0 else texts[code] for code in codes] == column.to_pylist()


def test_more_rows_than_a_row_group(tmp_path):
    size = 2**20 + 5
    zeros = np.zeros(size, np.int64)
    columns = {
        "request_id": pa.array(["r"] * size),
        "source_id": zeros.astype(np.int32),
        "observer": pa.array(["engine"] * size),
    }
    columns |= {"index": np.arange(size), "at_ns": zeros}
    after = written(Capture({"token": build_table("token", columns)}), tmp_path / "c")
    assert (after.int64("token", "index") == np.arange(size)).all()
    codes, texts = after.codes("token", "observer")
    assert (texts, int(codes.max()), len(codes)) == (["engine"], 0, size)


def test_names_of_folders_are_not_read_as_columns(capture, tmp_path):
    assert spelled(written(capture, tmp_path / "rank=0" / "c")) == spelled(capture)


def test_the_folder_must_be_new_or_empty(capture, folder, tmp_path):
    with pytest.raises(UsageError, match="not empty"):
        write_capture(capture, folder)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="not empty"):
        write_capture(capture, tmp_path / "file")
    with pytest.raises(UsageError, match=r"cannot write the capture: .*\n  next: name another"):
        write_capture(capture, tmp_path / "file" / "c")
    (tmp_path / "new").mkdir()
    assert spelled(written(capture, tmp_path / "new")) == spelled(capture)


@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt(), MemoryError()])
def test_a_write_that_fails_leaves_nothing(capture, tmp_path, monkeypatch, error):
    calls = []

    def fail_at_second(*args, _write=pq.write_table, **options):
        calls.append(args)
        if len(calls) == 2:
            raise error
        _write(*args, **options)

    monkeypatch.setattr(pq, "write_table", fail_at_second)
    expected = UsageError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected):
        write_capture(capture, tmp_path / "c")
    assert len(calls) == 2
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_not_there_before_it_is_whole(capture, tmp_path, monkeypatch):
    seen = []

    def look(*args, _write=pq.write_table, **options):
        seen.append((tmp_path / "c").exists())
        _write(*args, **options)

    monkeypatch.setattr(pq, "write_table", look)
    write_capture(capture, tmp_path / "c")
    assert seen == [False] * 3
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_the_folder_gets_the_permissions_that_the_user_asks_for(capture, tmp_path):
    before = os.umask(0o077)
    try:
        write_capture(capture, tmp_path / "c")
    finally:
        os.umask(before)
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700


def test_null_in_a_required_column_is_not_written(tmp_path):
    schema = TABLES["device"].schema
    table = pa.Table.from_arrays([pa.nulls(1, kind) for kind in schema.types], schema=schema)
    with pytest.raises(CaptureError, match="table device"):
        write_capture(Capture({"device": table}), tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


MARKERS = {
    "empty file": (DamagedInput, ""),
    "no JSON": (DamagedInput, "{"),
    "no UTF-8": (DamagedInput, b"\xff\xfe"),
    "deep nesting": (DamagedInput, "[" * 200_000),
    "too large": (DamagedInput, " " * (2**20 + 1)),
    "a list": (DamagedInput, "[]"),
    "a number": (DamagedInput, "NaN"),
    "of another program": (DamagedInput, {"format": "other"}),
    "no format": (DamagedInput, {"format": None}),
    "no version": (CaptureError, {"schema_version": None}),
    "newer version": (CaptureError, {"schema_version": SCHEMA_VERSION + 1}),
    "version as text": (CaptureError, {"schema_version": str(SCHEMA_VERSION)}),
    "version true": (CaptureError, {"schema_version": True}),
    "tables missing": (DamagedInput, {"tables": None}),
    "tables as list": (DamagedInput, {"tables": ["kernel"]}),
    "tables as text": (DamagedInput, {"tables": "kernel"}),
    "rows as text": (DamagedInput, {"tables": {"kernel": "40"}}),
    "wrong number of rows": (DamagedInput, {"tables": {"kernel": 39}}),
    "a table that is not there": (DamagedInput, {"tables": {"frame": 1}}),
    "an unknown table": (CaptureError, {"tables": {"kernels": 1}}),
    "path out of the folder": (CaptureError, {"tables": {"../c/kernel": 40}}),
    "absolute path": (CaptureError, {"tables": {"/etc/passwd": 1}}),
    "empty name": (CaptureError, {"tables": {"": 1}}),
}


@pytest.mark.parametrize("case", MARKERS)
def test_markers_that_cannot_be_used(folder, case):
    expected, content = MARKERS[case]
    path = folder / MARKER
    if isinstance(content, dict):
        content = json.dumps(json.loads(path.read_text()) | content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(expected) as error:
        read_capture(folder)
    assert type(error.value) is expected
    assert str(folder) in str(error.value)


def test_what_is_no_capture_folder(tmp_path):
    (tmp_path / "file").write_text("{}")
    (tmp_path / "marker is a folder" / MARKER).mkdir(parents=True)
    for path in (
        tmp_path,
        tmp_path / "nothing",
        tmp_path / "file",
        tmp_path / "marker is a folder",
    ):
        with pytest.raises(DamagedInput, match="not a capture folder"):
            read_capture(path)


def test_a_table_that_is_missing_truncated_or_something_else(folder):
    path = folder / "kernel.parquet"
    good = path.read_bytes()
    for content in (b"", b"PAR1", b"not parquet at all", good[:-1], good[: len(good) // 2]):
        path.write_bytes(content)
        with pytest.raises(DamagedInput, match=r"kernel\.parquet: cannot read the table"):
            read_capture(folder)
    path.unlink()
    with pytest.raises(DamagedInput, match=r"kernel\.parquet: cannot read the table"):
        read_capture(folder)
    path.mkdir()
    with pytest.raises(DamagedInput, match=r"kernel\.parquet: cannot read the table"):
        read_capture(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.select(["pid"]),
        lambda t: t.drop_columns(["name"]),
        lambda t: t.append_column("extra", t["pid"]),
        lambda t: t.set_column(3, "name", t["name"].cast(pa.string())),
        lambda t: t.set_column(0, "source_id", pa.array([0.0])),
        lambda t: t.set_column(0, "source_id", pa.nulls(1, pa.int32())),
    ],
)
def test_columns_that_differ_are_refused_not_filled(tmp_path, change):
    table = build_table("thread", {**sample_row("thread"), "name": ["a"]})
    write_capture(Capture({"thread": table}), tmp_path / "c")
    pq.write_table(change(table), tmp_path / "c" / "thread.parquet")
    with pytest.raises(
        CaptureError, match=r"thread\.parquet: columns differ.*\n  allowed: source_id"
    ):
        read_capture(tmp_path / "c")


@given(st.integers(0, 10**9), st.integers(0, 7), st.sampled_from(["kernel.parquet", MARKER]))
@settings(max_examples=150)
def test_a_flipped_bit_is_an_error_or_harmless(flipped_folder, at, bit, name):
    folder, before = flipped_folder
    path = folder / name
    good = path.read_bytes()
    bad = bytearray(good)
    bad[at % len(good)] ^= 1 << bit
    path.write_bytes(bad)
    try:
        after = spelled(read_capture(folder))
    except TokenpathError as error:
        after = str(error)
    finally:
        path.write_bytes(good)
    assert after == before or str(folder) in after


@pytest.fixture(scope="module")
def flipped_folder(tmp_path_factory) -> tuple[Path, dict[str, str]]:
    rows = sample_row("kernel", 40) | {"start_ns": [i * i for i in range(40)]}
    capture = Capture({"kernel": build_table("kernel", rows)})
    folder = tmp_path_factory.mktemp("flip") / "c"
    write_capture(capture, folder)
    return folder, spelled(capture)
