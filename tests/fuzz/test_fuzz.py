"""A thousand damaged traces in every run; `make fuzz` takes a hundred thousand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run import run

CASES = 1000
PARTS = 4


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_traces(part: int, tmp_path: Path) -> None:
    each = CASES // PARTS
    outcomes = run(range(1 + part * each, 1 + (part + 1) * each), None, tmp_path)
    assert sum(outcomes.values()) == each
    assert outcomes["damaged"] > each // 3
    assert outcomes["whole"] > each // 5


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_damaged_real_traces(reference_data: Path, tmp_path: Path) -> None:
    outcomes = run(range(100_001, 100_101), reference_data, tmp_path)
    assert sum(outcomes.values()) == 100
