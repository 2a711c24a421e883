"""Every file of the reference traces is imported, or refused for the reason that its manifest states."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ingest.compare import rows
from tokenpath.api import load
from tokenpath.capture.validate import validate
from tokenpath.core.errors import DamagedInput, TokenpathError, UnknownFormat
from tokenpath.ingest import read

pytestmark = pytest.mark.timeout(600)

NOT_YET: dict[str, str] = {}
"""Parts of names of files that no reader takes yet, and why; the test fails when one is read after all."""

FOLDERS = re.compile(r"nsys_jax/[^/]+/proc\d+(?=/)")
"""Folders that are one input: their files say nothing alone."""

NO_TRACE = {
    "execution_details.json": "what a capture of graphs was asked to do: four settings, no event",
}
"""Files beside the traces that hold nothing to import."""


@dataclass(frozen=True)
class Row:
    """A row of the manifest."""

    name: str
    """Path below the folder of traces."""
    what: str
    """What it holds."""

    @property
    def is_expected_values(self) -> bool:
        """Whether it holds what other tools say of a trace beside it."""
        words = ("EXPECTED", "tb_plugin expected output")
        return self.what.startswith(words) and not self.name.startswith("kineto/")

    @property
    def input(self) -> str:
        """What is to be read: the file, or the folder that is one input."""
        folder = FOLDERS.match(self.name)
        return self.name if folder is None else folder[0]

    @property
    def not_yet(self) -> str | None:
        """Why no reader takes it yet."""
        return next((why for part, why in NOT_YET.items() if part in self.name), None)


@pytest.fixture(scope="module")
def manifest(traces: Path) -> list[Row]:
    """The files that MANIFEST.md lists."""
    found = []
    for line in (traces / "MANIFEST.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and (traces / cells[0]).is_file():
            found.append(Row(cells[0], cells[4]))
    assert len(found) > 100
    return found


def members(path: Path, folder: Path) -> Iterator[list[Path]]:
    """The inputs in a file: the file, or the captures in an archive (ranks of one job together)."""
    if not path.name.endswith(".tar.gz"):
        yield [path]
        return
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    assert files
    if "ranks" in path.name:
        yield files
    else:
        yield from ([file] for file in files)


def refusal(path: Path, folder: Path) -> TokenpathError | None:
    """Why a file is not imported; None when it is, and holds something."""
    for files in members(path, folder):
        try:
            capture = read(files)
        except TokenpathError as error:
            return error
        validate(capture)
        (num_events, *_) = rows(capture, "source", "num_events")
        num_rows = sum(capture.num_rows(name) for name in capture if name not in ("source", "skip"))
        assert num_events > 0, path
        assert num_rows > 0, path
    return None


def test_every_file_is_imported_or_refused_for_a_stated_reason(
    traces: Path, manifest: list[Row], tmp_path: Path
) -> None:
    wrong = []
    inputs = {row.input: row for row in manifest}
    for number, (name, row) in enumerate(inputs.items()):
        error = refusal(traces / name, tmp_path / str(number))
        if "CORRUPT" in row.what:
            is_right = isinstance(error, DamagedInput) and "byte" in str(error)
        elif row.is_expected_values or row.name.endswith(tuple(NO_TRACE)) or row.not_yet:
            is_right = isinstance(error, UnknownFormat)
        else:
            is_right = error is None
        if not is_right:
            wrong.append(f"{name}: {'imported' if error is None else error}")
    assert wrong == []


def test_what_is_not_read_yet_is_in_the_data(manifest: list[Row]) -> None:
    """A part of the list that no file has any more is to be taken out."""
    for part in NOT_YET:
        assert any(part in row.name for row in manifest), part


def test_the_next_step_of_a_refusal_is_told(traces: Path, manifest: list[Row]) -> None:
    for row in manifest:
        if row.is_expected_values and row.name.endswith(".csv"):
            with pytest.raises(UnknownFormat) as caught:
                read([traces / row.name])
            assert caught.value.next_step


def rocm_files(traces: Path) -> dict[str, dict[str, Any]]:
    """Every PyTorch trace on ROCm, with the numbers of the independent calculator."""
    numbers = json.loads((traces / "reference_numbers.json").read_text())
    return {name: row for name, row in numbers.items() if "AMD" in str(row.get("device"))}


def test_every_pytorch_trace_on_rocm(traces: Path) -> None:
    files = rocm_files(traces)
    assert len(files) == 9
    for name, numbers in files.items():
        capture = load([traces / name])
        assert rows(capture, "source", "format") == ["kineto"], name
        assert set(rows(capture, "device", "vendor")) == {"amd"}, name
        work = sum(row["gpu_events"] for row in numbers["devices"].values())
        unlinked = sum(row["gpu_events_without_launch"] for row in numbers["devices"].values())
        assert capture.num_rows("kernel") == work, name
        assert rows(capture, "kernel", "api_call_id").count(None) == unlinked, name
        launches = ("hipLaunchKernel", "hipModuleLaunchKernel", "hipExtModuleLaunchKernel")
        assert set(launches) & set(rows(capture, "api_call", "name")), name
        assert "range" in capture or "op" in capture or "gpu_only" in name, name


def test_the_mtia_trace(traces: Path) -> None:
    """Kernels are on one device of Meta's maker, and the host side has its runtime calls."""
    capture = load([traces / "hta/mtia_trace_single_rank/mtia_rank_0.json.gz"])
    assert rows(capture, "source", "format", "rank") == [("kineto", 0)]
    assert rows(capture, "device", "vendor") == ["meta"]
    assert capture.num_rows("kernel") == 25_814
    # Counted in the file by category: cpu_op, mtia_runtime.
    assert (capture.num_rows("op"), capture.num_rows("api_call")) == (108_889, 3_453)
