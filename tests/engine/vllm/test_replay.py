"""Two recorded runs with 77 preemptions, decided as vLLM did; and every rule that they prove, broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.vllm.mutations import ON_RECORDED_RUNS
from engine.vllm.recorded_run import RecordedRun, load_run, wrong_steps
from tokenpath.engine.vllm import VllmScheduler

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module", params=["p40", "s25"])
def run(request: pytest.FixtureRequest) -> RecordedRun:
    return load_run(DATA, request.param)


@pytest.mark.timeout(300)  # a new machine compiles first, for 10 to 40 s
@pytest.mark.parametrize("is_compiled", [True, False])
def test_every_decision_and_free_block_count_is_reproduced(run: RecordedRun, is_compiled: bool):
    assert run.num_steps in (2332, 2894)
    assert list(wrong_steps(run, VllmScheduler(run.config, is_compiled=is_compiled))) == []


@pytest.mark.parametrize("rule", ON_RECORDED_RUNS)
def test_a_broken_rule_is_noticed(monkeypatch: pytest.MonkeyPatch, rule: str):
    name, break_rule = ON_RECORDED_RUNS[rule]
    run = load_run(DATA, name)
    scheduler = VllmScheduler(run.config, is_compiled=False)
    break_rule(monkeypatch, scheduler)
    assert next(wrong_steps(run, scheduler), None) is not None
