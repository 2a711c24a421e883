"""Faults of the KV cache."""

from __future__ import annotations

from dataclasses import replace

from tokenpath.lab.faults.serving.fault import Injected
from tokenpath.lab.serving.plan import Plan
from tokenpath.lab.serving.service import Expected

_LONGEST = 5
"""A request may be this many times the mean."""


def preemption(plan: Plan, expected: Expected, level: int) -> Injected:
    """Fewer blocks than the running requests need."""
    ratio = (1.6, 0.85, 0.65, 0.5)[level]
    block = plan.engine.block_size
    each = (expected.prompt + expected.output * 0.6) / block
    blocks = max(expected.running * each * ratio, _LONGEST * each) + 1
    return _with_blocks(plan, blocks, ratio)


def prefix_miss(plan: Plan, expected: Expected, level: int) -> Injected:
    """Something unique stands before every prefix, so none is ever found; the level says how much is shared."""
    del level  # the service's share of shared tokens is drawn with it
    shared = plan.load.prefix_tokens / expected.prompt
    return Injected(replace(plan, load=replace(plan.load, is_salted=True)), shared)


def prefix_evicted(plan: Plan, expected: Expected, level: int) -> Injected:
    """Blocks for the running requests, and for a part of the prefixes only."""
    kept = (1.3, 0.8, 0.6, 0.4)[level]
    block = plan.engine.block_size
    own = expected.prompt - plan.load.prefix_tokens + expected.output
    # Blocks that a request fills are findable, too, and push prefixes out once it has ended.
    running = expected.running * own * 3 / block
    working_set = plan.load.num_groups * plan.load.prefix_tokens / block
    # Prefixes in use must fit, or requests would wait for blocks: another fault.
    in_use = expected.running * 1.6 * plan.load.prefix_tokens / block
    blocks = max(working_set * kept, in_use)
    return _with_blocks(plan, running + blocks, blocks / working_set)


def slow_tier(plan: Plan, expected: Expected, level: int) -> Injected:
    """The link to the tier is busy for a share of the time, in the end more than all of it."""
    tier, load = plan.tier, plan.load
    if tier is None:
        raise ValueError("the service has no second tier")
    demand = expected.rate_per_s * load.tier_share * load.tier_tokens * tier.bytes_per_token
    bandwidth = min(demand / (0.12, 0.6, 0.9, 1.2)[level], tier.bytes_per_s)
    return Injected(replace(plan, tier=replace(tier, bytes_per_s=bandwidth)), bandwidth / 1e9)


def _with_blocks(plan: Plan, blocks: float, magnitude: float) -> Injected:
    return Injected(
        replace(plan, engine=replace(plan.engine, num_blocks=int(blocks) + 1)), magnitude
    )
