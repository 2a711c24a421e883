"""The wheel holds all that the package needs at run time, the licence, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def members(wheel: zipfile.ZipFile, part: str) -> list[str]:
    return [name for name in wheel.namelist() if part in name]


def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = members(wheel, ".dist-info/METADATA")
    return message_from_string(wheel.read(name).decode("utf-8"))


def test_every_file_of_the_package_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    written = {".pyc", ".nbi", ".nbc"}
    sources = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "tokenpath").rglob("*")
        if path.is_file() and path.suffix not in written
    }
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == sources
    assert "tokenpath/py.typed" in sources


@pytest.mark.parametrize("suffix", [".toml", ".html", ".md", ".yaml"])
def test_package_data_is_in_the_wheel(wheel: zipfile.ZipFile, suffix: str) -> None:
    # Hardware and kernel names are .toml, the metrics' mapping .yaml, the report's template .html, the finding pages .md.
    data = [name for name in members(wheel, "tokenpath/") if name.endswith(suffix)]
    assert data
    for name in data:
        assert wheel.read(name) == (ROOT / "src" / name).read_bytes()


def test_the_licence_is_in_the_wheel_and_named(wheel: zipfile.ZipFile) -> None:
    (name,) = members(wheel, ".dist-info/licenses/LICENSE")
    text = wheel.read(name).decode("utf-8")
    assert text == (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert metadata(wheel)["License-Expression"] == "Apache-2.0"


def test_the_metadata_says_what_it_needs(wheel: zipfile.ZipFile) -> None:
    found = metadata(wheel)
    assert set(found["Requires-Python"].split(",")) == {">=3.11", "<3.14"}
    # What stands behind the semicolon says for which extra.
    needed = [r.split(";")[0] for r in found.get_all("Requires-Dist", [])]
    assert not [r for r in needed if "==" in r], "exact pins clash"
    (entry,) = members(wheel, ".dist-info/entry_points.txt")
    assert "tokenpath = tokenpath.cli.main:main" in wheel.read(entry).decode("utf-8")
    assert found.get_payload(), 'no README in the metadata: pyproject needs readme = "README.md"'


def test_the_version_is_written_once(wheel: zipfile.ZipFile) -> None:
    import tokenpath

    assert metadata(wheel)["Version"] == tokenpath.__version__
