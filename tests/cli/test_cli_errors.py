"""Whatever is wrong with the input or the arguments: one message that says where and what next, code 2."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from running import Ran, process, small, tokenpath


def assert_one_clear_error(result: Ran, *words: str, code: int = 2) -> None:
    """The exit code, an error on stderr with these words, nothing on stdout, and no traceback."""
    told = f"stdout: {result.stdout[:500]}\nstderr: {result.stderr[:2000]}"
    assert result.code == code, told
    assert "Traceback" not in result.stderr, told
    assert result.stdout == "", told
    assert result.stderr.count("error:") == 1, told
    for word in words:
        assert word in result.stderr, told


def file_of(content: bytes, name: str = "trace.json") -> Callable[[Path], Path]:
    """Makes a file with this content."""

    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content)
        return path

    return make


def missing(folder: Path) -> Path:
    """A path without a file."""
    return folder / "no-such-file.json"


def empty_folder(folder: Path) -> Path:
    """A folder without traces."""
    (folder / "run").mkdir()
    return folder / "run"


def half(folder: Path) -> Path:
    """The first third of a packed trace."""
    data = small(60).write(folder / "whole.json.gz").read_bytes()
    return file_of(data[:40], "cut.json.gz")(folder)


INPUTS: dict[str, tuple[Callable[[Path], Path], tuple[str, ...]]] = {
    "missing": (missing, ("no-such-file.json", "no such file", "next:")),
    "empty folder": (empty_folder, ("run", "holds no trace files", "allowed:")),
    "empty file": (file_of(b""), ("trace.json", "empty")),
    "white space": (file_of(b" \n\t "), ("trace.json",)),
    "text": (file_of(b"hello, this is no trace\n"), ("trace.json",)),
    "other json": (file_of(b'{"results": [1, 2, 3]}'), ("trace.json",)),
    "a number": (file_of(b"42"), ("trace.json",)),
    "null": (file_of(b"null"), ("trace.json",)),
    "binary": (file_of(bytes(range(256)) * 40), ("trace.json",)),
    "zeros": (file_of(bytes(5000)), ("trace.json",)),
    "nsys-rep": (
        file_of(b"NVIDIA Nsight Systems Report\x00\x01\x02" + bytes(500), "run.nsys-rep"),
        ("run.nsys-rep", "nsys export"),
    ),
    "sqlite": (file_of(b"SQLite format 3\x00" + bytes(500), "run.sqlite"), ("run.sqlite",)),
    "gzip of text": (file_of(gzip.compress(b"hello"), "a.json.gz"), ("a.json.gz",)),
    "gzip cut in its head": (half, ("cut.json.gz",)),
    "not gzip": (file_of(b"no gzip at all", "b.json.gz"), ("b.json.gz",)),
    "not zip": (file_of(b"PK\x03\x04 no zip at all", "c.zip"), ("c.zip",)),
}


@pytest.mark.parametrize("name", INPUTS)
def test_input_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    make, words = INPUTS[name]
    assert_one_clear_error(tokenpath("explain", make(tmp_path)), *words)


@pytest.mark.parametrize("name", ["missing", "binary", "nsys-rep"])
def test_the_same_in_a_process_of_its_own(name: str, tmp_path: Path) -> None:
    make, words = INPUTS[name]
    assert_one_clear_error(process("explain", make(tmp_path)), *words)


@pytest.mark.parametrize("command", [("inspect",), ("convert", "--to", "out")])
def test_the_other_commands_refuse_alike(command: tuple[str, ...], tmp_path: Path) -> None:
    result = tokenpath(*command, missing(tmp_path), cwd=tmp_path)
    assert_one_clear_error(result, "no-such-file.json")
    assert not (tmp_path / "out").exists()


ARGUMENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "steps of letters": (("--steps", "a:b"), ("--steps", "10:20")),
    "steps backwards": (("--steps", "3:1"), ("--steps",)),
    "steps that are not there": (("--steps", "2:9"), ("0:4",)),
    "from without unit": (("--from", "soon"), ("--from", "20ms")),
    "to before from": (("--from", "200us", "--to", "100us"), ("allowed:",)),
    "after the end": (("--from", "5s"), ("370.00 us",)),
    "steps and times": (("--steps", "0:2", "--from", "1us"), ("--steps", "--from")),
    "check without limit": (("--fail-on", "launch-bound"), ("--fail-on", "CODE>5%")),
    "check of nothing": (("--fail-on", "no-such-code>5%"), ("launch-bound",)),
    "check of too much": (("--fail-on", "idle>500%"), ("between 0% and 100%",)),
    "check of nonsense": (("--fail-on", "idle>often"), ("--fail-on",)),
    "html into no folder": (("--html", "no/such/folder/a.html"), ("cannot write", "a.html")),
    "html onto a folder": (("--html", "."), ("cannot write",)),
    "perfetto into no folder": (
        ("--perfetto", "no/such/a.json.gz"),
        ("cannot be written", "a.json.gz", "next:"),
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_that_cannot_be_used(name: str, tmp_path: Path) -> None:
    arguments, words = ARGUMENTS[name]
    small().write(tmp_path / "a.json")
    result = tokenpath("explain", "a.json", *arguments, cwd=tmp_path)
    assert_one_clear_error(result, *words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json"]


def test_a_finding_that_does_not_exist() -> None:
    result = tokenpath("explain", "--about", "launch-bond")
    assert_one_clear_error(result, "launch-bond", "launch-bound", "did you mean")


def test_no_file_named() -> None:
    assert_one_clear_error(tokenpath("explain"), "no file named", "next:")


def test_an_unknown_option_or_command() -> None:
    for arguments in (("explain", "--no-such-option"), ("explian", "a.json")):
        result = tokenpath(*arguments)
        assert_one_clear_error(result)
        assert "usage:" in result.stderr


def test_convert_into_a_folder_that_holds_something(tmp_path: Path) -> None:
    small().write(tmp_path / "a.json")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    result = tokenpath("convert", "a.json", "--to", "out", cwd=tmp_path)
    assert_one_clear_error(result, "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = small().write(tmp_path / "a.json")
    path.chmod(0)
    assert_one_clear_error(tokenpath("explain", path), "a.json")


def test_a_reader_that_goes_away_ends_quietly(tmp_path: Path) -> None:
    """As in `tokenpath explain --json FILE | head -1`, with more output than a pipe holds."""
    trace = small(400)
    for number in range(400):
        trace.kernel(f"kernel_of_a_long_name_{'x' * 200}_{number}", 50_000 + number, 1)
    path = trace.write(tmp_path / "a.json")
    command = [sys.executable, "-m", "tokenpath", "explain", "--json", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"{\n"
        process.stdout.close()
        told = process.stderr.read().decode()
        code = process.wait(timeout=50)
    assert told == ""
    assert code == 0
