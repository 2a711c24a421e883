"""One driver for the schedulers of all engines, with the laws that every one of them keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tokenpath.engine.scheduler import Decision, EngineRequest, Kind, Outcome, Scheduler


@dataclass
class Run:
    """What came of a run to its end, one step a unit of time."""

    steps: list[tuple[Decision, Outcome]] = field(default_factory=list)
    emitted: dict[int, int] = field(default_factory=dict)
    finished: list[int] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)

    @property
    def shape(self) -> list[list[tuple[int, int, int]]]:
        """Request, tokens computed before, tokens: an entry each, by step."""
        return [
            list(
                zip(
                    *(a.tolist() for a in (d.request, d.num_computed_before, d.num_tokens)),
                    strict=True,
                )
            )
            for d, _ in self.steps
        ]


def _drive(scheduler: Scheduler, requests: list[EngineRequest], max_steps: int = 20_000) -> Run:
    run = Run()
    coming = sorted(requests, key=lambda r: (r.arrival_ns, r.index))
    by_index = {r.index: r for r in requests}
    computed: dict[int, int] = {}
    added, now = 0, 0
    while len(run.finished) < len(requests):
        while added < len(coming) and coming[added].arrival_ns <= now:
            scheduler.add(coming[added])
            added += 1
        decision = scheduler.schedule(now)
        assert 0 <= scheduler.num_free_blocks <= scheduler.num_usable_blocks
        if not len(decision.request):
            wake_ns = getattr(scheduler, "wake_ns", None)  # of one that lets time pass on purpose
            times = [coming[added].arrival_ns] if added < len(coming) else []
            times += [wake_ns] if wake_ns is not None else []
            assert times, f"nothing can run, {added - len(run.finished)} wait"
            now = max(now + 1, min(times))
            continue
        now += 1
        outcome = scheduler.complete(decision, now)
        _check_step(decision, outcome, by_index, run, computed)
        run.steps.append((decision, outcome))
        run.finished.extend(outcome.finished.tolist())
        run.preempted.extend(decision.preempted.tolist())
        assert scheduler.num_waiting + scheduler.num_running == added - len(run.finished)
        assert len(run.steps) < max_steps
    assert len(set(run.finished)) == len(run.finished), "nobody ends twice"
    assert {i: r.output_tokens for i, r in by_index.items()} == run.emitted, "every token comes out"
    assert scheduler.num_waiting == scheduler.num_running == 0
    assert scheduler.num_free_blocks == scheduler.num_usable_blocks
    return run


def _check_step(
    decision: Decision,
    outcome: Outcome,
    requests: dict[int, EngineRequest],
    run: Run,
    computed: dict[int, int],
) -> None:
    entries = decision.request.tolist()
    assert len(set(entries)) == len(entries), "nobody is twice in a step"
    assert (decision.num_tokens >= 1).all()
    for i, index in enumerate(entries):
        before, tokens = int(decision.num_computed_before[i]), int(decision.num_tokens[i])
        emitted, cached = int(outcome.num_emitted[i]), int(decision.num_cached[i])
        known = requests[index].prompt_tokens + run.emitted.get(index, 0)
        if decision.kind[i] == Kind.RUN:
            assert cached == 0
            assert before == computed[index], "nothing is skipped, nothing computed twice"
        else:
            assert before == cached < known
            assert (decision.kind[i] == Kind.NEW) == (index not in computed)
        if emitted:
            assert before + tokens >= known, "no token before the whole prefill"
        computed[index] = before + tokens
        run.emitted[index] = run.emitted.get(index, 0) + emitted
    for index in decision.preempted.tolist():
        assert index in computed


@pytest.fixture
def drive() -> Callable[..., Run]:
    """Runs requests through a scheduler to the end and checks the laws on the way."""
    return _drive
