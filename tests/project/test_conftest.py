"""The promises of tests/conftest.py, checked by running pytest on small test files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"
VARIABLE = "TOKENPATH_REFERENCE_DATA"

DATA_TESTS = """
import os
import pytest

def test_uses(reference_data):
    assert (reference_data / "x").read_text() == "here"

def test_skips_itself(reference_data):
    pytest.skip("no such trace")

@pytest.mark.skipif(True, reason="not today")
def test_skipped_by_mark(reference_data):
    pass

@pytest.fixture
def trace(reference_data):
    pytest.skip("trace missing")

def test_through_a_fixture(trace):
    pass

def test_by_hand():
    pytest.skip("TOKENPATH_REFERENCE_DATA is unset")

def test_unrelated_skip():
    pytest.skip("needs a browser")
"""

GUARD_TESTS = """
import os
import socket
import pytest

def attempt(action):
    try:
        action()
    except Exception:
        pass

def test_connects_out():
    attempt(lambda: socket.socket().connect(("192.0.2.1", 80)))

def test_sends_out():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        attempt(lambda: s.sendto(b"x", ("192.0.2.1", 9)))

def test_looks_up():
    attempt(lambda: socket.create_connection(("trace.example", 80), timeout=1))

def test_loopback_is_fine():
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname(), timeout=5):
            pass

def test_leaks_a_variable():
    os.environ["LEFT_BEHIND"] = "1"

def test_leaks_the_folder(tmp_path):
    os.chdir(tmp_path)

def test_patched_variable_is_fine(monkeypatch, tmp_path):
    monkeypatch.setenv("LEFT_BEHIND", "2")
    monkeypatch.chdir(tmp_path)
"""


def run_pytest(folder: Path, text: str, data: Path | None) -> tuple[str, dict[str, str]]:
    """The output, and the outcome of each test by name."""
    shutil.copy(CONFTEST, folder / "conftest.py")
    (folder / "test_it.py").write_text(text)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", VARIABLE))}
    if data is not None:
        environment[VARIABLE] = str(data)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-vv", "--tb=short", "."]
    # An ini file of its own keeps this run from reading the project's.
    (folder / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    outcomes: dict[str, str] = {}
    for name, outcome in re.findall(r"::(\w+) (PASSED|FAILED|SKIPPED|ERROR)", done.stdout):
        outcomes[name] = outcome
    return done.stdout, outcomes


def test_unset_variable_skips_with_the_reason(tmp_path: Path) -> None:
    output, outcomes = run_pytest(tmp_path, DATA_TESTS, data=None)
    assert set(outcomes.values()) == {"SKIPPED"}
    assert VARIABLE in output


def test_set_variable_forbids_every_skip_of_a_data_test(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_text("here")
    output, outcomes = run_pytest(tmp_path, DATA_TESTS, data)
    assert outcomes.pop("test_uses") == "PASSED"
    assert outcomes.pop("test_unrelated_skip") == "SKIPPED"
    assert len(outcomes) == 4
    assert set(outcomes.values()) <= {"FAILED", "ERROR"}
    assert "Its reason was: no such trace" in re.sub(r"\s+", " ", output)


def test_set_variable_to_nothing_that_exists_fails(tmp_path: Path) -> None:
    text = "def test_uses(reference_data): pass\n"
    output, outcomes = run_pytest(tmp_path, text, tmp_path / "absent")
    assert outcomes["test_uses"] in ("FAILED", "ERROR")
    assert "not a folder" in output


def test_a_skipped_module_fails_too(tmp_path: Path) -> None:
    text = f"import pytest\npytest.skip('{VARIABLE} is unset', allow_module_level=True)\n"
    output, _ = run_pytest(tmp_path, text, tmp_path)
    assert re.search(r"1 error", output)


def test_network_and_leaks_are_caught(tmp_path: Path) -> None:
    output, outcomes = run_pytest(tmp_path, GUARD_TESTS, data=None)
    assert outcomes["test_loopback_is_fine"] == "PASSED"
    for name in ("test_connects_out", "test_sends_out", "test_looks_up"):
        assert outcomes[name] == "FAILED", name
    for name in ("test_leaks_a_variable", "test_leaks_the_folder"):
        assert outcomes[name] == "ERROR", name
    assert outcomes["test_patched_variable_is_fine"] == "PASSED"
    assert output.count("network access") >= 3


@pytest.mark.parametrize("option", ["--strict-markers", "--strict-config"])
def test_the_project_is_strict(option: str, pytestconfig: pytest.Config) -> None:
    assert option in pytestconfig.getini("addopts")
    assert pytestconfig.getini("filterwarnings")[0] == "error"
