"""Scenarios of the serving world: `make` draws and runs one, `write` writes what its observers saw, the truth apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpath.lab.draw import Spec
from tokenpath.lab.faults.serving.catalogue import FAULTS, FREE, goes_together, leading, wish_for
from tokenpath.lab.faults.serving.fault import Injected
from tokenpath.lab.serving import decoys
from tokenpath.lab.serving.loop import simulate
from tokenpath.lab.serving.observers import draw_names
from tokenpath.lab.serving.plan import Plan
from tokenpath.lab.serving.records import Run
from tokenpath.lab.serving.service import Expected, Wish, draw_service
from tokenpath.lab.serving.write_bench import write_bench
from tokenpath.lab.serving.write_load import write_load
from tokenpath.lab.serving.write_metrics import write_metrics
from tokenpath.lab.serving.write_spans import write_spans
from tokenpath.lab.serving.write_steps import write_steps
from tokenpath.lab.truth import Decoy, InjectedFault, Truth, write_truth

LATENCY = "mean time from send to end at the client"
"""What losses compare, over the requests of the measured run that were answered in both runs."""
VICTIMS = f"{LATENCY}, of the requests that are not long themselves"


@dataclass(frozen=True)
class Scenario:
    """A run as it happened, and the answer."""

    run: Run
    """What happened."""
    truth: Truth
    """What was wrong."""


def make(spec: Spec) -> Scenario:
    """The scenario of a spec. Of two kinds that cannot be in one service, the second gives way to one that can."""
    kinds = _possible(spec)
    wish = wish_for(kinds, spec.levels) if kinds else _healthy_wish(spec.seed)
    if "host-step-overhead" in kinds:
        # Where steps are decided ahead, host time hides behind the device.
        wish = replace(wish, is_synchronous=True)
    service = draw_service(spec.seed, wish)
    prepare = FAULTS[leading(kinds)].prepare if kinds else None
    if prepare is not None:
        service = prepare(service)
    plan, expected = service.plan, service.expected
    clean, decoy = plan, None
    if spec.has_decoy:
        luck = np.random.default_rng((spec.seed, 31))
        decoy = decoys.choose(plan, kinds, luck)
        plan = decoy.apply(plan, expected, luck)
    levels = dict(zip(kinds, spec.levels, strict=True))
    faulty, injected = _inject(plan, expected, kinds, levels)
    run = simulate(faulty)
    others = {
        kind: simulate(_without(plan, expected, tuple(k for k in kinds if k != kind), levels, (kind,)))
        for kind in kinds
    }  # fmt: skip
    healthy = run
    if len(kinds) == 1:
        healthy = others[kinds[0]]
    elif kinds:
        healthy = simulate(_without(plan, expected, (), levels, kinds))
    faults = [
        InjectedFault(
            kind, levels[kind], injected[kind].magnitude, injected[kind].place, _lost_ns(run, others[kind])
        )
        for kind in kinds
    ]  # fmt: skip
    found: tuple[Decoy, ...] = ()
    if decoy is not None:
        quiet, _ = _inject(clean, expected, kinds, levels)
        cost = 0 if quiet == faulty else _decoy_cost_ns(decoy.kind, run, quiet)
        found = (Decoy(decoy.kind, decoy.codes, cost),)
    has_long = "scheduler-prefill-interference" in kinds
    truth = Truth(
        id=f"s{spec.seed:012x}",
        seed=spec.seed,
        world="serving",
        faults=tuple(sorted(faults, key=lambda fault: -fault.lost_ns)),
        decoys=found,
        wall_ns=_mean_ns(run, run),
        healthy_wall_ns=_mean_ns(healthy, run),
        config=_config(faulty, expected) | {"latency": VICTIMS if has_long else LATENCY},
    )
    return Scenario(run, truth)


def write(scenario: Scenario, to: Path, truth_to: Path) -> Truth:
    """Write the scenario's folder below `to`, and its truth below `truth_to`."""
    folder = to / scenario.truth.id
    folder.mkdir(parents=True, exist_ok=True)
    names = draw_names(scenario.run)
    write_steps(scenario.run, names, folder)
    write_spans(scenario.run, names, folder)
    client = write_load if names.has_tables else write_bench
    client(scenario.run, names, folder)
    write_metrics(scenario.run, names, folder)
    write_truth(scenario.truth, truth_to)
    return scenario.truth


def _possible(spec: Spec) -> tuple[str, ...]:
    if len(spec.kinds) < 2 or goes_together(*spec.kinds):
        return spec.kinds
    free = [kind for kind in FREE if kind != spec.kinds[0]]
    return spec.kinds[0], free[spec.seed % len(free)]


def _healthy_wish(seed: int) -> Wish:
    """Well-run services differ as those with faults do: some speculate, batch statically, or have a second tier."""
    luck = np.random.default_rng((seed, 32))
    # Batches of equal lengths are rare in practice: static ones come with the fault of padding only.
    kind = str(luck.choice([name for name in FAULTS if name != "scheduler-padding"]))
    if luck.random() < 0.4:
        return Wish()
    levels = (int(luck.integers(4)),)
    return wish_for((kind,), levels)


def _inject(
    plan: Plan, expected: Expected, kinds: Sequence[str], levels: Mapping[str, int]
) -> tuple[Plan, dict[str, Injected]]:
    injected = {}
    for kind in kinds:
        injected[kind] = FAULTS[kind].inject(plan, expected, levels[kind])
        plan = injected[kind].plan
    return plan, injected


def _without(
    plan: Plan, expected: Expected, kept: Sequence[str], levels: Mapping[str, int], gone: Sequence[str]
) -> Plan:  # fmt: skip
    """The plan with some faults in it and others taken out."""
    plan, _ = _inject(plan, expected, kept, levels)
    for kind in gone:
        take_out = FAULTS[kind].without
        plan = plan if take_out is None else take_out(plan)
    return plan


def _counted(run: Run, other: Run) -> NDArray[np.bool_]:
    """Requests over which two runs are compared."""
    is_short = ~run.load.is_long & ~other.load.is_long
    counted: NDArray[np.bool_] = run.measured() & other.measured() & is_short
    return counted


def _mean_ns(run: Run, other: Run) -> int:
    return int(run.latency_ns[_counted(run, other)].mean())


def _lost_ns(run: Run, other: Run) -> int:
    """What a fault costs a mean request: the run with it minus the run without."""
    return _mean_ns(run, other) - _mean_ns(other, run)


def _decoy_cost_ns(kind: str, run: Run, quiet: Plan) -> int:
    other = simulate(quiet)
    if kind != "warm-up-queue":
        return _lost_ns(run, other)
    n = run.load.num_warm_up
    return int(run.latency_ns[n:].mean() - other.latency_ns.mean())


def _config(plan: Plan, expected: Expected) -> dict[str, Any]:
    engine, load = plan.engine, plan.load
    return {
        "model": plan.model, "replicas": plan.num_replicas, "async_scheduling": plan.is_async,
        "static": plan.is_static, "max_num_seqs": engine.max_num_seqs, "num_blocks": engine.num_blocks,
        "block_size": engine.block_size, "max_num_batched_tokens": engine.max_num_batched_tokens,
        "num_requests": load.num_requests, "rate_per_s": round(load.rate_per_s, 3),
        "clients": load.num_clients, "turns": load.num_turns, "groups": load.num_groups,
        "prompt_tokens": round(expected.prompt), "output_tokens": round(expected.output),
        "expected_running": round(expected.running, 1), "expected_step_ns": round(expected.step_ns),
        "utilisation": round(1 - expected.base_ns / expected.step_ns, 3),
    }  # fmt: skip


__all__ = ["LATENCY", "VICTIMS", "Scenario", "make", "write"]
