"""The ratchet sees each pattern, fails when one grows and lowers its own bar."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_ratchet() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ratchet", ROOT / "tools" / "ratchet.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ratchet"] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


ratchet = load_ratchet()

# Each counter with code that must count, and how often; paths decide for some counters.
# The signs are put together here so that this file itself counts as nothing.
MARK = "#"
CASES = [
    ("files_over_400_lines", "tests/test_a.py", "x = 1\n" * 401, 1),
    ("files_over_400_lines", "tests/test_a.py", "x = 1\n" * 400, 0),
    ("type_ignores", "src/tokenpath/a.py", f"x = 1  {MARK} type: ignore[misc]\n", 1),
    ("type_ignores", "src/tokenpath/a.py", "x = '# type: ignore'\n", 0),
    ("noqas", "tools/a.py", f"x = 1  {MARK} noqa: E501\n{MARK} ruff: noqa\n", 2),
    ("broad_excepts", "tests/a.py", "try:\n    f()\nexcept:\n    pass\n", 1),
    ("broad_excepts", "tests/a.py", "try:\n    f()\nexcept (OSError, Exception):\n    pass\n", 1),
    ("broad_excepts", "tests/a.py", "try:\n    f()\nexcept (OSError, KeyError):\n    pass\n", 0),
    (
        "broad_excepts",
        "tests/a.py",
        "try:\n    f()\nexcept BaseException:\n    g()\n    raise\n",
        0,
    ),
    ("any_in_core_and_capture", "src/tokenpath/core/a.py", "x: Any\ny: list[typing.Any]\n", 2),
    ("any_in_core_and_capture", "src/tokenpath/core/a.py", "from typing import Any\n", 0),
    ("any_in_core_and_capture", "src/tokenpath/cli/a.py", "x: Any\n", 0),
    ("todo_comments", "src/tokenpath/a.py", f"{MARK} {'TO'}DO later\n{MARK} method\n", 1),
    ("dangerous_calls", "src/tokenpath/a.py", "import pickle\nfrom marshal import loads\n", 2),
    ("dangerous_calls", "src/tokenpath/a.py", "eval('1')\nrun('ls', shell=True)\n", 2),
    ("dangerous_calls", "src/tokenpath/a.py", "model.eval()\nrun('ls', shell=False)\n", 0),
    ("dangerous_calls", "tests/a.py", "import pickle\n", 0),
    ("network_imports", "src/tokenpath/a.py", "import socket\nfrom urllib import request\n", 2),
    ("network_imports", "src/tokenpath/a.py", "from urllib.parse import quote\n", 0),
    ("network_imports", "src/tokenpath/serve/a.py", "import socket\n", 0),
]


def write_tree(root: Path, path: str, text: str, limit: int = 0) -> None:
    (root / path).parent.mkdir(parents=True)
    (root / path).write_text(text)
    (root / "tools").mkdir(exist_ok=True)
    bars = "".join(f"[{n}]\nlimit = {limit}\nwhy = 'x'\n" for n in ratchet.COUNTERS)
    (root / "tools" / "ratchet.toml").write_text(bars)


@pytest.mark.parametrize(("counter", "path", "text", "count"), CASES)
def test_counts_the_pattern(tmp_path: Path, counter: str, path: str, text: str, count: int) -> None:
    write_tree(tmp_path, path, text)
    hits = ratchet.count_hits(ratchet.read_sources(tmp_path))
    assert len(hits[counter]) == count
    assert ratchet.main(["--root", str(tmp_path)]) == int(any(hits.values()))


def test_every_counter_has_a_case_that_counts() -> None:
    assert {counter for counter, _, _, count in CASES if count} == set(ratchet.COUNTERS)


def test_a_fallen_counter_is_told_and_lowered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tree(tmp_path, "src/tokenpath/a.py", "import socket\n", limit=3)
    assert ratchet.main(["--root", str(tmp_path)]) == 0
    assert "--lower" in capsys.readouterr().out
    assert ratchet.main(["--root", str(tmp_path), "--lower"]) == 0
    bars = tomllib.loads((tmp_path / "tools" / "ratchet.toml").read_text())
    assert {name: bar["limit"] for name, bar in bars.items()} == {
        name: int(name == "network_imports") for name in ratchet.COUNTERS
    }
    assert {bar["why"] for bar in bars.values()} == {"x"}


def test_the_bar_cannot_be_raised_by_lowering() -> None:
    text = "[noqas]\nlimit = 2\nwhy = 'x'\n"
    assert ratchet.lower_limits(text, {"noqas": 9}) == text


def test_a_counter_without_a_bar_fails(tmp_path: Path) -> None:
    write_tree(tmp_path, "src/tokenpath/a.py", "x = 1\n")
    (tmp_path / "tools" / "ratchet.toml").write_text("[noqas]\nlimit = 0\nwhy = 'x'\n")
    assert ratchet.main(["--root", str(tmp_path)]) == 1
