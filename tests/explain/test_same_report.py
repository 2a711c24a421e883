"""The same capture gives the same report: read twice, shuffled, packed, converted, moved in time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import CASES, Case
from explaining import CUSTOM, GEMM, NCCL

from ingest.traces import Trace
from tokenpath.api import convert, explain, inspect
from tokenpath.core.report import Report
from tokenpath.export import json as report_json

SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float>()"


def server(seed: int = 1) -> Trace:
    """Steps on two threads, three streams, a graph, copies, frames, collectives and a device unlinked."""
    chance = random.Random(seed)
    trace = Trace(rank=0, world_size=2, trace_id="run", base_time_ns=1_700_000_000_000_000_000)
    at = 0
    for step in range(8):
        length_us = chance.randint(300, 400)
        trace.range(f"execute_context_0(0)_generation_{step}({step})", at, length_us)
        trace.frame("engine.py(5): step", at, length_us).op("aten::linear", at + 5, 60)
        trace.launched(GEMM, launch_us=at + 10, start_us=at + 20, dur_us=chance.randint(20, 60))
        trace.launched(SOFTMAX, launch_us=at + 20, start_us=at + 85, dur_us=30, stream=8)
        trace.launched(NCCL, launch_us=at + 30, start_us=at + 100, dur_us=40, stream=20)
        trace.call("cudaMemcpyAsync", at + 40, 5, correlation=700 + step)
        trace.memcpy(at + 150, chance.randint(5, 20), correlation=700 + step)
        trace.call("cudaGraphLaunch", at + 60, 9, correlation=800 + step)
        for node in range(3):
            trace.kernel(GEMM, at + 180 + 20 * node, 18, correlation=800 + step)
        trace.call("cudaStreamSynchronize", at + 75, 160, tid=200)
        trace.kernel(CUSTOM, at + 250, 20)
        at += length_us
    return trace


def captures() -> list[tuple[str, Callable[[], Trace]]]:
    """Every trace of the cases and the busy one."""

    def of(case: Callable[[], Case]) -> Callable[[], Trace]:
        return lambda: case().trace

    return [("server", server), *((case.__name__, of(case)) for case in CASES)]


every_trace = pytest.mark.parametrize(
    "build", [build for _, build in captures()], ids=[name for name, _ in captures()]
)


def numbers(report: Report, *, rows: bool = True) -> dict[str, Any]:
    """The report as JSON without what names the file."""
    document: dict[str, Any] = json.loads(report_json.render(report))
    for source in document["facts"]["sources"]:
        for key in ("path", "sha256", "num_bytes"):
            source.pop(key)
    if not rows:
        _drop(document, ("rows", "kernel_row"))
    return document


def _drop(value: Any, keys: tuple[str, ...]) -> None:
    """Row numbers of the capture tables, which follow the order of the file."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in items:
        _drop(item, keys)
    if isinstance(value, dict):
        if "evidence" in value:
            for evidence in value["evidence"]:
                evidence.pop("rows", None)
        value.pop("kernel_row", None)


def no_constant(name: str) -> None:
    """What json calls for NaN and Infinity."""
    raise AssertionError(f"{name} in JSON")


@every_trace
def test_json_is_json_and_the_same_bytes_each_time(
    build: Callable[[], Trace], tmp_path: Path
) -> None:
    path = build().write(tmp_path / "trace.json")
    one = report_json.render(explain([path]).report)
    json.loads(one, parse_constant=no_constant)
    assert report_json.render(explain([path]).report) == one


@every_trace
def test_the_order_of_events_does_not_matter(build: Callable[[], Trace], tmp_path: Path) -> None:
    trace = build()
    expected = numbers(explain([trace.write(tmp_path / "a.json")]).report, rows=False)
    random.Random(1).shuffle(trace.events)
    shuffled = numbers(explain([trace.write(tmp_path / "b.json")]).report, rows=False)
    assert shuffled == expected


@every_trace
def test_a_converted_capture_gives_the_same_report(
    build: Callable[[], Trace], tmp_path: Path
) -> None:
    path = build().write(tmp_path / "trace.json")
    expected = report_json.render(explain([path]).report)
    convert([path], tmp_path / "capture")
    assert report_json.render(explain([tmp_path / "capture"]).report) == expected


@pytest.mark.parametrize("name", ["a.json.gz", "a.json.zst", "a.json.zip"])
def test_packing_changes_nothing(name: str, tmp_path: Path) -> None:
    expected = numbers(explain([server().write(tmp_path / "a.json")]).report)
    assert numbers(explain([server().write(tmp_path / name)]).report) == expected


@pytest.mark.parametrize("style", ["compact", "pretty"])
def test_white_space_changes_nothing(style: str, tmp_path: Path) -> None:
    expected = numbers(explain([server().write(tmp_path / "a.json")]).report)
    assert numbers(explain([server().write(tmp_path / "b.json", style)]).report) == expected


def test_inspect_of_a_converted_capture_counts_the_same(tmp_path: Path) -> None:
    path = server().write(tmp_path / "trace.json")
    convert([path], tmp_path / "capture")
    one, other = inspect([path]), inspect([tmp_path / "capture"])
    assert one.answer == other.answer
    assert one.headline == other.headline
    for key in ("sources", "devices", "skips", "steps"):
        (mine,) = [table for table in one.tables if table.key == key]
        (theirs,) = [table for table in other.tables if table.key == key]
        assert mine == theirs
