"""The examples of docs/python.md run, in the order of the page, and each command has its row."""

from __future__ import annotations

import argparse
import ast
import re
from pathlib import Path

import pytest

from ingest.traces import Trace
from tokenpath import api
from tokenpath.cli.main import build_parser

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


def small_trace(rank: int | None = None) -> Trace:
    """Twenty launches, the device waits for each."""
    trace = Trace(rank=rank, world_size=None if rank is None else 2)
    for number in range(20):
        at = 30 * number
        trace.launched(
            f"gemm_{number % 3}", launch_us=at, start_us=at + 9, dur_us=12, op="aten::mm"
        )
    return trace


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    small_trace().write(tmp_path / "trace.json.gz")
    (tmp_path / "run").mkdir()
    for rank in (0, 1):
        small_trace(rank).write(tmp_path / "run" / f"rank{rank}.json.gz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_examples_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"docs/python.md, example {number + 1}", "exec"), names)
    printed = capsys.readouterr().out
    assert "# launch-bound" in printed
    assert "no such file" in printed
    assert (folder / "report.html").stat().st_size > 1_000
    assert (folder / "annotated.json.gz").stat().st_size > 100


def commands() -> dict[str, argparse.ArgumentParser]:
    (choices,) = [a.choices for a in build_parser()._actions if isinstance(a.choices, dict)]
    return choices


def test_every_command_and_option_has_a_row() -> None:
    table = "\n".join(line for line in PAGE.splitlines() if line.startswith("|"))
    for name, parser in commands().items():
        assert f"`tokenpath {name} " in table
        for action in parser._actions:
            for option in action.option_strings:
                if option.startswith("--") and option != "--help":
                    assert option in table, f"{option} of {name}"


def test_every_command_is_a_function_of_the_api() -> None:
    for name in commands():
        assert callable(getattr(api, name))
        source = (ROOT / "src" / "tokenpath" / "cli" / f"{name}.py").read_text(encoding="utf-8")
        called = {
            alias.name
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.ImportFrom) and node.module == "tokenpath.api"
            for alias in node.names
        }
        assert name in called


def test_what_the_page_calls_exists() -> None:
    for name in re.findall(r"\bapi\.(\w+)", PAGE):
        assert name == "annotate" or name in api.__all__, name
