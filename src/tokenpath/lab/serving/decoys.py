"""Loud things that cost nothing: what they are, and which diagnoses would be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tokenpath.lab.serving.loop import simulate
from tokenpath.lab.serving.plan import Plan
from tokenpath.lab.serving.service import Expected

_ROOM = 1.1
"""Blocks of a full cache over its busiest moment."""


@dataclass(frozen=True)
class DecoyKind:
    """A way to be loud."""

    kind: str
    """Its name in the truth."""
    codes: tuple[str, ...]
    """Codes that would be wrong."""
    apply: Callable[[Plan, Expected, np.random.Generator], Plan]
    """Puts it into a plan."""


def _failed(plan: Plan, _expected: Expected, luck: np.random.Generator) -> Plan:
    return replace(plan, load=replace(plan.load, num_failed=int(luck.integers(2, 5))))


def _old_preemptions(plan: Plan, _expected: Expected, luck: np.random.Generator) -> Plan:
    counters = plan.long_lived | {"preemptions": int(luck.integers(200, 9000))}
    return replace(plan, long_lived=counters)


def _warm_up(plan: Plan, expected: Expected, luck: np.random.Generator) -> Plan:
    many = int(min(plan.engine.max_num_seqs * 1.5, expected.running * 3, 150))
    return replace(plan, load=replace(plan.load, num_warm_up=max(12, many + int(luck.integers(8)))))


def _unique_prompts(plan: Plan, _expected: Expected, _luck: np.random.Generator) -> Plan:
    """Many tokens asked of the prefix cache, hardly one found, since nothing is shared."""
    return plan


def _full_cache(plan: Plan, _expected: Expected, _luck: np.random.Generator) -> Plan:
    """Blocks for the busiest moment and hardly more: high usage, and nobody is preempted."""
    steps = [step for replica in simulate(plan).steps for step in replica]
    free = min(step.num_free_blocks for step in steps)
    peak = plan.engine.num_usable_blocks - free
    longest = plan.engine.max_model_len // plan.engine.block_size
    blocks = max(int(peak * _ROOM), longest // 2) + 1
    return replace(plan, engine=replace(plan.engine, num_blocks=blocks))


DECOYS = (
    DecoyKind("failed-requests", ("overload", "batch-limit"), _failed),
    DecoyKind("old-preemptions", ("preemption-storm",), _old_preemptions),
    DecoyKind("warm-up-queue", ("overload", "batch-limit", "warm-up-included"), _warm_up),
    DecoyKind("full-cache", ("preemption-storm", "overload"), _full_cache),
    DecoyKind("unique-prompts", ("prefix-miss", "prefix-evicted"), _unique_prompts),
)
"""All of them."""


def choose(plan: Plan, kinds: tuple[str, ...], luck: np.random.Generator) -> DecoyKind:
    """A decoy that says nothing true of the plan and its faults."""
    possible = [decoy for decoy in DECOYS if _is_decoy(decoy, plan, kinds)]
    return possible[int(luck.integers(len(possible)))]


def _is_decoy(decoy: DecoyKind, plan: Plan, kinds: tuple[str, ...]) -> bool:
    shares = plan.load.num_groups or plan.load.num_turns > 1
    if decoy.kind == "full-cache":
        return not shares and not kinds and not plan.tier
    if decoy.kind == "unique-prompts":
        return not shares and plan.engine.enable_prefix_caching
    if decoy.kind == "warm-up-queue":
        # Their content would be in the prefix cache, their queue in that of the fault.
        return not kinds or not kinds[0].startswith(("scheduler-", "kv-"))
    return decoy.kind != "old-preemptions" or "kv-preemption" not in kinds
