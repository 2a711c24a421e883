"""The serving world: what a run must obey, what its files say, and that each fault does what it is called."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tokenpath.api.load import load
from tokenpath.lab.draw import NUM_LEVELS, Spec
from tokenpath.lab.faults.serving.catalogue import FAULTS
from tokenpath.lab.serving import world
from tokenpath.lab.serving.loop import simulate
from tokenpath.lab.serving.service import Wish, draw_service
from tokenpath.lab.truth import load_fault_kinds, read_truth

LAST = NUM_LEVELS - 1


def scenario(
    kind: str | None, level: int = LAST, seed: int = 5, decoy: bool = False
) -> world.Scenario:
    kinds, levels = ((kind,), (level,)) if kind else ((), ())
    return world.make(Spec(seed, "serving", kinds, levels, decoy))


def test_every_serving_kind_of_the_map_can_be_injected() -> None:
    kinds = {name for name, entry in load_fault_kinds().items() if entry.world == "serving"}

    assert set(FAULTS) == kinds


@pytest.mark.parametrize("seed", [1])
def test_a_healthy_service_neither_queues_nor_preempts(seed: int) -> None:
    run = simulate(draw_service(seed, Wish()).plan)

    steps = [step for replica in run.steps for step in replica]
    assert np.mean([step.num_waiting for step in steps]) < 0.5
    assert not run.num_preemptions.any()
    assert all(len(tokens) == n for tokens, n in zip(run.tokens_ns, run.load.output, strict=True))


def test_times_of_a_request_are_in_order() -> None:
    run = simulate(draw_service(4, Wish()).plan)

    ordered = (
        run.sent_ns, run.arrived_ns, run.added_ns, run.scheduled_ns, run.first_ns, run.last_ns,
        run.answered_ns, run.ended_ns,
    )  # fmt: skip
    for earlier, later in pairwise(ordered):
        assert (earlier <= later).all()
    for tokens in run.tokens_ns:
        assert tokens == sorted(tokens)


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_a_gross_fault_costs_much(kind: str) -> None:
    truth = scenario(kind).truth

    assert truth.kind == kind
    assert truth.faults[0].lost_ns > 0.05 * truth.wall_ns
    assert truth.wall_ns > truth.healthy_wall_ns


def test_the_same_spec_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        world.write(scenario("kv-preemption"), tmp_path / name, tmp_path / f"truth-{name}")

    first, second = (
        {path.name: path.read_bytes() for path in sorted((tmp_path / name).rglob("*.*"))}
        for name in ("a", "b")
    )
    assert first == second
    assert len(first) in (5, 6)


@pytest.mark.parametrize("kind", [None, "scheduler-padding"])
def test_files_are_read_without_a_loss(kind: str | None, tmp_path: Path) -> None:
    made = scenario(kind, level=1, decoy=True)
    world.write(made, tmp_path / "seen", tmp_path / "truth")
    folder = tmp_path / "seen" / made.truth.id

    capture = load([folder])

    lost = [row for row in capture["skip"].to_pylist() if row["lost"]]
    assert lost == []
    run = made.run
    observers = capture["request"].column("observer").to_pylist()
    num_engine = int((run.added_ns >= 0).sum())
    assert observers.count("engine") == 2 * num_engine
    # What the client wrote has no warm-up; its spans have.
    assert observers.count("client") == 2 * len(run.sent_ns) - run.load.num_warm_up
    assert capture["step"].num_rows == sum(len(steps) for steps in run.steps)
    truth = read_truth(tmp_path / "truth" / f"{made.truth.id}.json")
    assert truth == made.truth


def test_no_name_tells_the_fault(tmp_path: Path) -> None:
    """Files of all kinds are called alike, and none holds a word of the map."""
    words = {word for kind in FAULTS for word in (kind, *FAULTS[kind].kind.split("-")[1:])}
    telling = {"slow", "overload", "preemption", "imbalance", "evicted", "salted", "interference"}
    made = scenario("kv-prefix-miss")
    world.write(made, tmp_path / "seen", tmp_path / "truth")

    for path in (tmp_path / "seen").rglob("*.*"):
        if path.suffix in (".json", ".jsonl"):
            text = path.read_text("utf-8")
            assert not [word for word in words if f'"{word}"' in text]
            assert not [word for word in telling - {"preemption"} if word in text]


def test_two_faults_each_have_their_loss() -> None:
    spec = Spec(9, "serving", ("kv-slow-tier", "scheduler-batch-limit"), (LAST, LAST), False)

    truth = world.make(spec).truth

    assert len(truth.faults) == 2
    assert truth.faults[0].kind == "kv-slow-tier" or truth.faults[1].kind == "kv-slow-tier"
    assert truth.faults[0].lost_ns >= truth.faults[1].lost_ns


@pytest.mark.parametrize("seed", range(2))
def test_a_decoy_costs_next_to_nothing(seed: int) -> None:
    truth = scenario(None, seed=seed, decoy=True).truth

    (decoy,) = truth.decoys
    assert truth.faults == ()
    assert abs(decoy.lost_ns) < 0.02 * truth.wall_ns
