"""What the commands write and which code they end with, seen from outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from running import GEMM, process, small, tokenpath

from ingest.traces import Trace


def no_constant(name: str) -> None:
    """What json calls for NaN and Infinity."""
    raise AssertionError(f"{name} in JSON")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Four steps of 100 us, 30 of each but the last idle: 90 of 370 us."""
    return small().write(tmp_path / "a.json")


def test_text_is_the_answer_in_80_columns_without_colour(trace: Path) -> None:
    result = process("explain", trace)
    assert (result.code, result.stderr) == (0, "")
    assert "The GPU waited 24.3 % of the time" in result.stdout
    assert "\x1b" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_json(trace: Path) -> None:
    result = tokenpath("explain", "--json", trace)
    assert (result.code, result.stderr) == (0, "")
    document: dict[str, Any] = json.loads(result.stdout, parse_constant=no_constant)
    assert document["verb"] == "explain"
    (device,) = document["facts"]["devices"]
    for part in ("whole_file", "window"):
        assert device[part]["span_ns"] == 370_000
        assert device[part]["busy_ns"] == 280_000
        assert all(type(device[part][key]) is int for key in ("span_ns", "busy_ns"))


def test_steps_and_times_choose_the_window(trace: Path) -> None:
    for arguments, span_ns in (
        (("--steps", "1:3"), 200_000),
        (("--steps", "1"), 100_000),
        (("--steps", ":2"), 200_000),
        (("--from", "20us", "--to", "0.1ms"), 80_000),
    ):
        result = tokenpath("explain", "--json", *arguments, trace)
        assert json.loads(result.stdout)["window"]["duration_ns"] == span_ns


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (("idle>10%",), 1),
        (("idle>24.4%",), 0),
        (("idle>89us",), 1),
        (("idle>90us",), 0),
        (("launch-bound>5%",), 1),
        (("launch-bound>50%", "idle>50%"), 0),
        (("launch-bound>50%", "idle>5%"), 1),
        (("exposed-communication>0%",), 0),
    ],
)
def test_limits_decide_the_exit_code(limits: tuple[str, ...], code: int, trace: Path) -> None:
    arguments = [part for limit in limits for part in ("--fail-on", limit)]
    result = tokenpath("explain", trace, *arguments)
    assert result.code == code
    assert ("check failed" in result.stderr) == bool(code)
    assert "The GPU waited" in result.stdout


def test_a_broken_limit_is_the_exit_code_of_the_process(trace: Path) -> None:
    result = process("explain", trace, "--fail-on", "launch-bound>5%")
    assert result.code == 1
    assert "check failed: launch-bound is 24.32%, allowed 5.00%" in result.stderr


def test_a_limit_below_half_a_per_cent_counts_too(tmp_path: Path) -> None:
    """3 us in a second are too little for a finding, and still over a limit of 1 us."""
    trace = Trace().launched(GEMM, launch_us=0, start_us=10, dur_us=1_000_000)
    trace.op("aten::linear", 1_000_005, 12)
    trace.launched(GEMM, launch_us=1_000_012, start_us=1_000_013, dur_us=10)
    path = trace.write(tmp_path / "a.json")
    assert tokenpath("explain", path, "--fail-on", "launch-bound>1us").code == 1
    assert tokenpath("explain", path, "--fail-on", "launch-bound>3us").code == 0


def test_a_limit_that_cannot_be_checked_is_broken(tmp_path: Path) -> None:
    path = Trace().op("aten::mm", 0, 10).write(tmp_path / "a.json")
    result = tokenpath("explain", path, "--fail-on", "idle>50%")
    assert result.code == 1
    assert "does not support idle time" in result.stderr
    assert tokenpath("explain", path).code == 0


def test_html_and_perfetto_are_written_whole(trace: Path, tmp_path: Path) -> None:
    html, perfetto = tmp_path / "report.html", tmp_path / "out.json.gz"
    result = tokenpath("explain", trace, "--html", html, "--perfetto", perfetto)
    assert (result.code, result.stderr) == (0, "")
    assert html.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert perfetto.read_bytes()[:2] == b"\x1f\x8b"
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a.json", "out.json.gz", "report.html"]


def test_inspect_says_what_is_in_the_file(trace: Path) -> None:
    result = tokenpath("inspect", "--json", trace)
    assert (result.code, result.stderr) == (0, "")
    document = json.loads(result.stdout, parse_constant=no_constant)
    assert document["verb"] == "inspect"
    assert document["funnel"] is None
    (source,) = document["tables"]["sources"]["rows"]
    assert (source["format"], source["num_events"]) == ("kineto", 12)
    assert "4 pieces of device work, 4 API calls" in document["answer"][0]
    text = tokenpath("inspect", trace)
    assert (text.code, text.stderr) == (0, "")
    assert "ProfilerStep#0" in text.stdout


def test_convert_then_explain(trace: Path, tmp_path: Path) -> None:
    result = tokenpath("convert", trace, "--to", tmp_path / "capture")
    assert (result.code, result.stderr) == (0, "")
    assert "tables written to" in result.stdout
    one = tokenpath("explain", "--json", trace).stdout
    assert tokenpath("explain", "--json", tmp_path / "capture").stdout == one


def test_a_folder_of_ranks(tmp_path: Path) -> None:
    for rank in (0, 1):
        trace = Trace(rank=rank, world_size=2).launched(GEMM, launch_us=0, start_us=10, dur_us=5)
        trace.write(tmp_path / f"rank{rank}.json.gz")
    (tmp_path / "notes.txt").write_text("not a trace")
    for path in (tmp_path, f"{tmp_path}/*.gz"):
        document = json.loads(tokenpath("explain", "--json", path).stdout)
        assert [device["rank"] for device in document["facts"]["devices"]] == [0, 1]


def test_about_prints_the_page_of_a_finding() -> None:
    result = tokenpath("explain", "--about", "launch-bound")
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout.startswith("# launch-bound\n")


def test_without_a_command_help_and_code_2() -> None:
    result = tokenpath()
    assert result.code == 2
    assert "usage: tokenpath" in result.stdout
    for arguments in (("--help",), ("explain", "--help"), ("--version",)):
        found = tokenpath(*arguments)
        assert (found.code, found.stderr) == (0, "")
