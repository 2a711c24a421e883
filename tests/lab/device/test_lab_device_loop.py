"""The event loop on programs small enough to follow by hand, in plain Python and compiled."""

from __future__ import annotations

import pytest

from tokenpath.lab.machine import loop as at
from tokenpath.lab.machine import plan
from tokenpath.lab.machine.plan import Conditions, Run, Step
from tokenpath.lab.machine.script import DeviceLabel, Labels, Script, Work

KERNEL = DeviceLabel("kernel", "k", '"grid": [1, 1, 1]')


def work(ns: float, kind: int = at.KERNEL) -> Work:
    return Work(KERNEL, ns, "any", kind)


@pytest.fixture(params=[0, plan.ALWAYS_COMPILED], ids=["python", "compiled"])
def _path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "ALWAYS_COMPILED", request.param)


def play(*ranks: Script, conditions: Conditions | None = None, transfer: float = 0.0) -> Run:
    steps = [[Step((script.template(),), transfers=(transfer,))] for script in ranks]
    return plan.play(ranks[0].labels, steps, conditions or Conditions(), 1, [False], 8, 1)


def lengths(run: Run) -> list[int]:
    return [int(end - start) for _, start, end in run.times]


@pytest.mark.usefixtures("_path")
def test_a_blocking_copy_returns_when_the_bytes_are_there() -> None:
    script = Script(Labels())
    script.launch(work(1_000_000, at.COPY), blocking=True)
    run = play(script)
    assert run.calls[0, 1] >= run.times[0, 2]


@pytest.mark.usefixtures("_path")
def test_a_stream_waits_for_the_event_of_another() -> None:
    script = Script(Labels())
    script.launch(work(2_000_000))
    script.record("done", 0)
    script.wait("done", 1)
    script.launch(work(1_000), 1)
    script.launch(work(1_000), 2)
    run = play(script)
    assert run.times[3, 1] >= run.times[0, 2]
    assert run.times[4, 2] < run.times[0, 2]


@pytest.mark.usefixtures("_path")
def test_a_collective_moves_its_bytes_when_the_last_rank_has_come() -> None:
    labels = Labels()
    early, late = Script(labels), Script(labels)
    early.launch(work(0, at.COLLECTIVE))
    late.spend(3_000_000)
    late.launch(work(0, at.COLLECTIVE))
    run = play(early, late, transfer=500_000)
    ends = run.times[:, 2]
    assert abs(int(ends[0] - ends[1])) < 1_000
    assert 400_000 < ends[1] - run.times[1, 1] < 600_000
    assert lengths(run)[0] > 2_500_000


@pytest.mark.usefixtures("_path")
def test_a_lower_clock_and_another_process_lengthen_the_run() -> None:
    def run(conditions: Conditions) -> Run:
        script = Script(Labels())
        for _ in range(10):
            script.launch(work(1_000_000))
        return play(script, conditions=conditions)

    plain = run(Conditions())
    slower = run(Conditions(speed=(((-1, 1.5),),)))
    shared = run(Conditions(taken=(((0, 5_000_000),),)))
    assert sum(lengths(slower)) == pytest.approx(1.5 * sum(lengths(plain)), rel=1e-4)
    assert lengths(shared) == lengths(plain)
    assert shared.times[0, 1] == 5_000_000


@pytest.mark.usefixtures("_path")
def test_compute_beside_communication_is_slower_for_as_long_as_both_run() -> None:
    def run(slow: tuple[float, float]) -> Run:
        script = Script(Labels())
        script.launch(work(4_000_000))
        script.launch(work(0, at.COLLECTIVE), 1)
        return play(script, conditions=Conditions(slow=slow), transfer=1_000_000)

    plain, side = run((1.0, 1.0)), run((1.5, 2.0))
    moved = lengths(plain)[1]
    assert lengths(side)[1] == pytest.approx(2.0 * moved, rel=0.01)
    # For 2 x moved the kernel does only 1/1.5 of its work.
    assert lengths(side)[0] == pytest.approx(lengths(plain)[0] + 2 * moved / 3, rel=0.01)


@pytest.mark.usefixtures("_path")
def test_a_thread_that_never_wakes_is_named() -> None:
    script = Script(Labels())
    script.wait_signal(3)
    with pytest.raises(RuntimeError, match="thread 0 of rank 0 never ends"):
        play(script)
