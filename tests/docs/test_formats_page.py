"""The page on formats: reasons and categories exist in the reader, bounds are its bounds, traps hold."""

from __future__ import annotations

import ast
import re
from decimal import Decimal
from pathlib import Path

import pytest

import tokenpath.ingest
from docs.pages import read, rows, spans
from ingest.traces import Trace
from tokenpath import api
from tokenpath.ingest import packed
from tokenpath.ingest.formats import readers
from tokenpath.ingest.kineto import categories, event, slow
from tokenpath.stitch.steps import read_label

PAGE = read("docs/formats.md")


def literals_of_the_reader() -> set[str]:
    folder = Path(tokenpath.ingest.__file__).parent
    return {
        node.value
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def cells(column: str) -> list[str]:
    found, at = [], None
    for row in rows(PAGE):
        if column in row:
            at = row.index(column)
        elif at is not None and len(row) > at and not row[0].startswith("---"):
            found.append(row[at])
    return found


def test_every_reason_on_the_page_is_one_of_the_reader() -> None:
    quoted = set(re.findall(r"`([a-z]+(?: [a-z]+)+)`", " ".join(cells("what is done"))))
    assert len(quoted) >= 8
    assert quoted <= literals_of_the_reader()


def test_every_category_on_the_page_is_one_of_the_reader() -> None:
    told_by = " ".join(row[1] for row in rows(PAGE) if len(row) == 3)
    named = {name for name in spans(told_by) if re.fullmatch(r"[a-z]+_[a-z_]+", name)}
    assert {"cuda_runtime", "xpu_sync"} <= named
    assert named <= set(categories.FIRST_TEXTS)


def test_the_bounds_are_those_of_the_reader() -> None:
    assert f"{packed.MAX_UNPACKED_BYTES // 2**30} GiB" in PAGE
    assert (
        f"above {packed.RATIO_FROM_BYTES // 2**30} GiB to no more than {packed.MAX_RATIO:,} times"
        in PAGE
    )
    assert f"may be {slow.MAX_VALUE_BYTES // 2**20} MiB and\nnest {event.MAX_DEPTH} deep" in PAGE


def test_every_format_stands_on_the_page_with_a_page_of_its_own() -> None:
    listed = {
        row[0].strip("`"): row for row in rows(PAGE) if len(row) == 3 and row[0].startswith("`")
    }
    for reader in readers():
        assert listed[reader.name][1] == reader.describes
        page = re.fullmatch(r"\[[\w-]+\]\((formats/[\w-]+\.md)\)", listed[reader.name][2])
        assert page is None or read(f"docs/{page[1]}")
        assert page is not None or reader.name == "kineto"


@pytest.mark.parametrize("mark", re.findall(r"`([^`]+)`", " ".join(cells("mark"))))
def test_step_marks_are_read(mark: str) -> None:
    example = mark.replace("R(T)", "1(8)").replace("...", "bs=3")
    if mark != "sq..sk..":
        assert read_label(example) is not None


def test_traps_of_times_are_handled_as_the_page_says(tmp_path: Path) -> None:
    exact = Decimal("1700000000000000.123")
    trace = Trace()
    trace.kernel("gemm", exact, 5)
    trace.kernel("gemm", exact + 20, 5)
    trace.complete("kernel", "gemm", "1700000000000040.001", 5, 0, 7, {"device": 0, "stream": 7})
    trace.complete("kernel", "gemm", exact + 60, None, 0, 7, {"device": 0, "stream": 7})
    trace.kernel("gemm", 0, 5)
    trace.kernel("gemm", exact + 80, -1)
    trace.kernel("gemm", exact + Decimal("100.0004"), 5)
    capture = api.load([trace.write(tmp_path / "trace.json")])
    starts = capture["kernel"]["start_ns"].to_pylist()
    assert 1_700_000_000_000_000_123 in starts
    assert 1_700_000_000_000_040_001 in starts
    reasons = {row["reason"]: row["lost"] for row in capture["skip"].to_pylist()}
    assert reasons["missing duration"]
    assert reasons["zero timestamp"]
    assert reasons["negative duration"]
    assert not reasons["digits below a nanosecond"]


def test_what_is_private_is_not_kept(tmp_path: Path) -> None:
    trace = Trace(
        environment={"HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyz123456"},
        host_name="gpu-node-17",
        cmdline="python serve.py --api-key sk-1234567890abcdef",
    )
    trace.launched("gemm", launch_us=0, start_us=10, dur_us=5)
    folder = tmp_path / "somebody"
    folder.mkdir()
    path = trace.write(folder / "trace.json")
    shown = str(api.explain([path]).report)
    for secret in ("hf_abcdefgh", "gpu-node-17", "sk-1234567890", "somebody"):
        assert secret not in shown
    assert api.load([path])["source"]["host"].to_pylist() == ["host-0"]
    assert api.load([path], keep_hosts=True)["source"]["host"].to_pylist() == ["gpu-node-17"]
