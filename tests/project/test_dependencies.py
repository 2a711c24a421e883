"""Locks and docs/dependencies.md agree with pyproject.toml; nothing heavy loads before it is used."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RUNTIME = PYPROJECT["project"]["dependencies"]
DEV = PYPROJECT["dependency-groups"]["dev"]


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~ ;\[]", requirement)[0] for requirement in requirements}


def locked(name: str) -> dict[str, tuple[str, int]]:
    """Version and number of hashes of each package of a lock file."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8").replace("\\\n", " ")
    packages = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(
            r"([a-z0-9-]+)==(\S+)( ; [^-]*?)?((?: +--hash=sha256:[0-9a-f]{64})+) *", line
        )
        assert match, f"not pinned and hashed: {line[:80]}"
        packages[match[1]] = (match[2], match[4].count("--hash="))
    return packages


def test_the_locks_hold_every_direct_dependency() -> None:
    runtime, dev = locked("lock.txt"), locked("dev-lock.txt")
    assert names_of(RUNTIME) <= set(runtime)
    assert names_of(RUNTIME + DEV) <= set(dev)
    assert runtime.items() <= dev.items(), "the two locks disagree on a version"
    assert not names_of(DEV) & set(runtime), "a development tool in the runtime lock"


@pytest.mark.parametrize("package", ["isal", "llvmlite", "numba", "numpy", "pyarrow", "zstandard"])
def test_compiled_packages_are_hashed_for_every_platform(package: str) -> None:
    # Three Pythons on Linux x86_64, Linux aarch64 and macOS arm64: nine wheels at the least.
    assert locked("lock.txt")[package][1] >= 9


def test_the_locks_name_no_index() -> None:
    for lock in (ROOT / "requirements").iterdir():
        assert not re.search(r"://|--(extra-)?index|--find-links", lock.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("heading", "requirements"), [("At run time", RUNTIME), ("For development", DEV)]
)
def test_each_dependency_is_explained(heading: str, requirements: list[str]) -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    section = re.split(r"^## ", page.split(f"## {heading}\n")[1], flags=re.MULTILINE)[0]
    rows = [row for row in section.splitlines() if row.startswith("| `")]
    assert {row.split("`")[1] for row in rows} == names_of(requirements)
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 6, row
        assert all(cells), row


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["explain", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    """What keeps `tokenpath --help` under 0.4 s; benchmarks measure the time itself."""
    program = """
import sys
from tokenpath.cli.main import main
sys.argv = ["tokenpath", *sys.argv[1:]]
try:
    code = main()
except SystemExit as stop:
    code = stop.code
heavy = {"numpy", "pyarrow", "numba", "llvmlite", "rich"} & set(sys.modules)
print("\\nheavy:", sorted(heavy), "exit:", code or 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["heavy: [] exit: 0"], done.stdout + done.stderr
