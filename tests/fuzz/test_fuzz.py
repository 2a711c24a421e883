"""A thousand damaged traces in CI, fewer by hand; `make fuzz` takes a hundred thousand."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from formats import run_case
from run import run

from ingest.samples import all_samples

CASES = 1000 if os.environ.get("CI") else 200
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


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_inputs_of_every_format(part: int) -> None:
    samples, each = all_samples(), CASES // PARTS
    outcomes = [run_case(seed, samples) for seed in range(1 + part * each, 1 + (part + 1) * each)]
    assert outcomes.count("damaged") > each // 3
    assert outcomes.count("refused") > each // 20
