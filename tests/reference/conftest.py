"""Fixtures on real captures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from captures import extract_dlrm


@pytest.fixture(scope="session")
def traces(reference_data: Path) -> Path:
    """The folder of traces."""
    return reference_data / "traces"


@pytest.fixture(scope="session")
def dlrm(reference_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Sequence[Path]:
    """The eight ranks of the DLRM run, in order of rank."""
    return extract_dlrm(reference_data, tmp_path_factory.mktemp("dlrm"))
