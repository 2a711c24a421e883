"""The device world: from a `Spec` to traces of torch.profiler, one a rank, and the truth apart from them.

`make` plays the scenario as it is, and again without each of its faults; losses are differences of walls of
the same seed. Start with `programs/serving.py` for what is run and `machine/loop.py` for how.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tokenpath.core.errors import InputError
from tokenpath.core.kernel_names import classify
from tokenpath.lab.device import faults_host, faults_kernel, faults_system
from tokenpath.lab.device.conditions import conditions_of
from tokenpath.lab.device.fault import Fault, Needs
from tokenpath.lab.draw import Spec
from tokenpath.lab.kineto.file import Clock
from tokenpath.lab.kineto.rows import Ids
from tokenpath.lab.kineto.write import write_rank
from tokenpath.lab.machine.plan import Run, play
from tokenpath.lab.programs.knobs import Knobs
from tokenpath.lab.programs.plan import Program
from tokenpath.lab.programs.serving import Serving
from tokenpath.lab.programs.setup import Setup, draw_setup
from tokenpath.lab.programs.training import Training
from tokenpath.lab.truth import Decoy, InjectedFault, Truth, write_truth

FAULTS: dict[str, Fault] = {
    **faults_kernel.FAULTS,
    **faults_host.FAULTS,
    **faults_system.FAULTS,
}
"""All kinds of this world."""
DRAWN = ("vllm", "sglang", "vllm-moe", "hf", "ddp", "fsdp")
"""Programs of scenarios without a fault."""
DECOYS = {
    "gc-hidden": ("gc-pause",),
    "side-stream": ("slow-kernel",),
    "hidden-copy": ("slow-copy", "blocking-copy"),
    "busy-thread": ("gil-contention",),
}
"""Loud but harmless things, and the codes that they tempt to."""


@dataclass(frozen=True)
class Scenario:
    """A scenario that was played but not written."""

    spec: Spec
    """What was asked for."""
    setup: Setup
    """What was drawn."""
    program: Program
    """The program with its faults."""
    run: Run
    """What happened."""
    truth: Truth
    """The answer."""


@dataclass(frozen=True)
class _Injected:
    kind: str
    level: int
    magnitude: float
    seed: int


def make(spec: Spec) -> Scenario:
    """Draw, play with and without the faults, and say what was lost. InputError on a fault of another world."""
    unknown = [kind for kind in spec.kinds if kind not in FAULTS]
    if unknown:
        raise InputError(
            f"the device world has no fault {unknown[0]}",
            allowed=", ".join(FAULTS),
            next_step="choose one of these kinds",
        )
    kinds = list(zip(spec.kinds, spec.levels, strict=True))
    needs = _joined([FAULTS[kind].needs for kind, _ in kinds])
    if needs is None:
        # No program can have both: the first stays.
        kinds = kinds[:1]
        needs = FAULTS[kinds[0][0]].needs
    setup = _setup(spec.seed, needs)
    injected = [
        _Injected(kind, level, FAULTS[kind].levels[level], spec.seed + 101 * number)
        for number, (kind, level) in enumerate(kinds)
    ]
    rng = np.random.Generator(np.random.PCG64([spec.seed, 23]))
    is_serving = setup.program not in ("ddp", "fsdp")
    wished = spec.has_decoy and is_serving and not set(spec.kinds) & {"host-gc", "host-gil"}
    names = [str(rng.choice(list(DECOYS)))] if wished else []
    if "busy-thread" in names and not setup.with_stack:
        names = ["side-stream"]
    healthy = _play(setup, [], frozenset())
    program, run, places = _whole(setup, injected, frozenset(names), healthy.wall_ns)
    faults = []
    for one in injected:
        rest = [other for other in injected if other is not one]
        without = (
            healthy
            if not rest and not names
            else _whole(setup, rest, frozenset(names), healthy.wall_ns)[1]
        )
        place = _resolve(places[one.kind], run, setup)
        faults.append(
            InjectedFault(one.kind, one.level, one.magnitude, place, run.wall_ns - without.wall_ns)
        )
    faults.sort(key=lambda fault: -fault.lost_ns)
    decoys = []
    for name in names:
        without = (
            healthy if not injected else _whole(setup, injected, frozenset(), healthy.wall_ns)[1]
        )
        decoys.append(Decoy(name, DECOYS[name], run.wall_ns - without.wall_ns))
    truth = Truth(
        id=f"d{spec.seed:015d}",
        seed=spec.seed,
        world="device",
        faults=tuple(faults),
        decoys=tuple(decoys),
        wall_ns=run.wall_ns,
        healthy_wall_ns=healthy.wall_ns,
        config=_config(setup),
    )
    return Scenario(spec, setup, program, run, truth)


def write(scenario: Scenario, to: Path, truth_to: Path) -> Truth:
    """Write `to/ID/rankN.json.gz` and `truth_to/ID.json`; a scenario that is there is replaced."""
    folder = to / scenario.truth.id
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    setup = scenario.setup
    rng = np.random.Generator(np.random.PCG64([setup.seed, 29]))
    base = 1_760_000_000_000_000_000 + int(rng.integers(10_000_000)) * 1_000_000_000
    origin = int(rng.integers(10**12, 9 * 10**15))
    trace_id = "".join(f"{int(part):08X}" for part in rng.integers(1 << 32, size=4))
    two_hosts = setup.ranks > 1 and rng.random() < 0.25
    skew, drift = int(rng.integers(-300_000, 300_000)), float(rng.uniform(-8e-6, 8e-6))
    for rank in range(setup.ranks):
        other = two_hosts and rank >= setup.ranks // 2
        clock = Clock(base, origin + (skew if other else 0), drift if other else 0.0)
        write_rank(
            folder / f"rank{rank}.json.gz", scenario.run, scenario.program, setup, rank, clock,
            _ids(setup, rank, trace_id),
        )  # fmt: skip
    write_truth(scenario.truth, truth_to)
    return scenario.truth


def _ids(setup: Setup, rank: int, trace_id: str) -> Ids:
    rng = np.random.Generator(np.random.PCG64([setup.seed, 31, rank]))
    pid = int(rng.integers(900, 60_000)) * 8 + rank
    return Ids(
        pid=pid,
        tids=(pid, pid + int(rng.integers(20, 400)), pid + int(rng.integers(400, 800))),
        external=int(rng.integers(1, 4_000)),
        correlation=int(rng.integers(1_000, 900_000)),
        trace_id=trace_id,
        seed=setup.seed,
    )


def _setup(seed: int, needs: Needs | None) -> Setup:
    """A draw that fulfils the needs: other seeds are tried in order until one does."""
    wanted = needs or Needs(DRAWN)
    for attempt in range(200):
        setup = draw_setup(
            seed + attempt * 1_000_003,
            wanted.programs,
            min_ranks=wanted.min_ranks,
            stack=wanted.stack,
            small_batch=wanted.small_batch,
        )
        if setup.ranks <= wanted.max_ranks:
            break
    changed = replace(setup, seed=seed)
    if wanted.inputs:
        changed = replace(changed, input_bytes=8 << 20)
    if wanted.memory:
        changed = replace(changed, with_memory=True)
    if wanted.short:
        changed = replace(changed, context=min(changed.context, 1_200))
    if not wanted.split:
        changed = replace(changed, split_kv=False, prefill_every=5)
    if wanted.light:
        changed = replace(changed, batch=8 + 8 * (seed % 2), prefill_every=0)
    return changed


def _joined(needs: Sequence[Needs]) -> Needs | None:
    """What fulfils all of them; None when nothing does."""
    if not needs:
        return Needs(DRAWN)
    programs = tuple(p for p in DRAWN if all(p in need.programs for need in needs))
    stacks = {need.stack for need in needs if need.stack is not None}
    joined = Needs(
        programs,
        min_ranks=max(need.min_ranks for need in needs),
        max_ranks=min(need.max_ranks for need in needs),
        stack=next(iter(stacks), None),
        small_batch=any(need.small_batch for need in needs),
        inputs=any(need.inputs for need in needs),
        memory=any(need.memory or False for need in needs) or None,
        short=any(need.short for need in needs),
        light=any(need.light for need in needs),
        split=all(need.split for need in needs),
    )
    impossible = not programs or joined.min_ranks > joined.max_ranks or len(stacks) > 1
    return (
        None
        if impossible or (joined.small_batch and (joined.short or not joined.split))
        else joined
    )


def _whole(
    setup: Setup, injected: Sequence[_Injected], decoys: frozenset[str], healthy_ns: int
) -> tuple[Program, Run, dict[str, dict[str, str | int]]]:
    knobs = Knobs(decoys=decoys)
    places = {}
    for one in injected:
        rng = np.random.Generator(np.random.PCG64([one.seed, 37]))
        places[one.kind] = dict(FAULTS[one.kind].apply(knobs, setup, one.magnitude, rng))
    program = _program(setup, knobs)
    knobs.conditions = conditions_of(setup, knobs, healthy_ns)
    return program, _run(setup, program, knobs), places


def _play(setup: Setup, injected: Sequence[_Injected], decoys: frozenset[str]) -> Run:
    return _whole(setup, injected, decoys, 1)[1]


def _program(setup: Setup, knobs: Knobs) -> Program:
    if setup.program in ("ddp", "fsdp"):
        return Training(setup, knobs).plan()
    return Serving(setup, knobs).plan()


def _run(setup: Setup, program: Program, knobs: Knobs) -> Run:
    return play(
        program.labels,
        program.steps,
        knobs.conditions,
        setup.seed,
        [thread.is_daemon for thread in program.threads],
        program.num_events,
        program.num_collectives,
    )


def _resolve(place: dict[str, str | int], run: Run, setup: Setup) -> dict[str, str | int]:
    """Roles become the family of their kernels, threads their numbers."""
    found = dict(place)
    role = found.pop("role", None)
    if role is not None:
        known = {number: label for label, number in run.labels.device.items()}
        numbers = run.work_label[run.role == run.labels.of_role(str(role))]
        values, counts = np.unique(numbers, return_counts=True)
        found["family"] = classify(known[int(values[np.argmax(counts)])].name).family.value
    rank = found.pop("of_rank", None)
    if rank is not None:
        ids = _ids(setup, int(rank), "")
        found["thread"] = f"{ids.pid}/{ids.tids[int(found['thread'])]}"
    return found


def _config(setup: Setup) -> dict[str, object]:
    return {
        "program": setup.program,
        "gpu": setup.gpu.name,
        "ranks": setup.ranks,
        "model": setup.model.name,
        "layers": setup.model.layers,
        "steps": setup.steps,
        "batch": setup.batch,
        "context": setup.context,
        "with_stack": setup.with_stack,
    }
