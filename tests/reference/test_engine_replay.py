"""The vLLM scheduler decides every step of nine real runs as vLLM did."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.vllm.recorded_run import load_run, wrong_steps
from tokenpath.engine.vllm import VllmScheduler

RUNS = {
    "m20": 2374,
    "m40": 2591,
    "m40b": 2591,
    "m55": 1138,
    "p25": 2719,
    "p25b": 2604,
    "p40": 2332,
    "s25": 2894,
    "o40": 917,
}
"""Steps of each run (MANIFEST.md of data/engine/vllm-cpu)."""


def test_all_steps_are_counted():
    assert sum(RUNS.values()) == 20_160


@pytest.mark.timeout(300)  # a new machine compiles first, for 10 to 40 s
@pytest.mark.parametrize("name", RUNS)
def test_every_decision_and_free_block_count_is_reproduced(reference_data: Path, name: str):
    run = load_run(reference_data / "engine" / "vllm-cpu" / "load", name)
    assert run.num_steps == RUNS[name]
    assert list(wrong_steps(run, VllmScheduler(run.config))) == []
