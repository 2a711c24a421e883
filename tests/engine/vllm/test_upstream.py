"""180 runs of vLLM's own scheduler on random workloads, decided the same; and every rule, broken."""

from __future__ import annotations

import pytest

from engine.vllm.mutations import ON_UPSTREAM_RUNS
from engine.vllm.upstream_runs import differences, upstream_runs
from tokenpath.engine.vllm import VllmScheduler


@pytest.mark.timeout(300)  # a new machine compiles first, for 10 to 40 s
def test_every_call_has_upstreams_result():
    assert len(upstream_runs()) == 180
    for run in upstream_runs():
        assert list(differences(run, VllmScheduler(run.config, is_compiled=True))) == []


@pytest.mark.parametrize("rule", ON_UPSTREAM_RUNS)
def test_a_broken_rule_is_noticed(monkeypatch: pytest.MonkeyPatch, rule: str):
    for run in upstream_runs():
        scheduler = VllmScheduler(run.config, is_compiled=False)
        with monkeypatch.context() as patch:
            ON_UPSTREAM_RUNS[rule](patch, scheduler)
            if next(differences(run, scheduler), None) is not None:
                return
    pytest.fail(f"no recorded run shows that {rule} is broken")
