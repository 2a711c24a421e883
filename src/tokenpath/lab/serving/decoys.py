"""Loud things that cost nothing: what they are, and which diagnoses would be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tokenpath.lab.serving.plan import Plan
from tokenpath.lab.serving.service import Expected


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
    return replace(plan, load=replace(plan.load, num_failed=int(luck.integers(3, 9))))


def _old_preemptions(plan: Plan, _expected: Expected, luck: np.random.Generator) -> Plan:
    counters = plan.long_lived | {"preemptions": int(luck.integers(200, 9000))}
    return replace(plan, long_lived=counters)


def _warm_up(plan: Plan, expected: Expected, luck: np.random.Generator) -> Plan:
    many = int(min(plan.engine.max_num_seqs * 1.5, expected.running * 3, 150))
    return replace(plan, load=replace(plan.load, num_warm_up=max(12, many + int(luck.integers(8)))))


def _unique_prompts(plan: Plan, _expected: Expected, _luck: np.random.Generator) -> Plan:
    """Many tokens asked of the prefix cache, hardly one found, since nothing is shared."""
    return plan


DECOYS = (
    DecoyKind("failed-requests", ("overload", "batch-limit"), _failed),
    DecoyKind("old-preemptions", ("preemption-storm",), _old_preemptions),
    DecoyKind("warm-up-queue", ("overload", "batch-limit", "warm-up-included"), _warm_up),
    DecoyKind("unique-prompts", ("prefix-miss", "prefix-evicted"), _unique_prompts),
)
"""All of them."""


def choose(plan: Plan, kinds: tuple[str, ...], luck: np.random.Generator) -> DecoyKind:
    """A decoy that says nothing true of the plan and its faults."""
    possible = [decoy for decoy in DECOYS if _is_decoy(decoy, plan, kinds)]
    return possible[int(luck.integers(len(possible)))]


def _is_decoy(decoy: DecoyKind, plan: Plan, kinds: tuple[str, ...]) -> bool:
    shares = plan.load.num_groups or plan.load.num_turns > 1
    if decoy.kind == "unique-prompts":
        return not shares and plan.engine.enable_prefix_caching
    if decoy.kind == "warm-up-queue":
        # Their content would be in the prefix cache, their queue in that of the fault.
        return not kinds or not kinds[0].startswith(("scheduler-", "kv-"))
    return decoy.kind != "old-preemptions" or "kv-preemption" not in kinds
