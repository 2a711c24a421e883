"""Faults of what the scheduler may do, and of what is asked of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tokenpath.lab.faults.serving.fault import Injected
from tokenpath.lab.serving.plan import Plan, Speculation
from tokenpath.lab.serving.service import Expected

LONG_OVER_SHORT = 14
"""A long prompt, in mean prompts."""


def prefill_interference(plan: Plan, expected: Expected, level: int) -> Injected:
    """Long prompts that take this much of the capacity beside all others."""
    added = (0.005, 0.06, 0.14, 0.25)[level]
    tokens = int(min(expected.prompt * LONG_OVER_SHORT, 7000))
    work = plan.step.prefill_token_ns * tokens + plan.step.pair_ns * tokens**2 / 2
    share = added / (expected.rate_per_s / plan.num_replicas * work / 1e9)
    share = max(share, 1.01 / plan.load.num_requests)
    load = replace(plan.load, long_share=share, long_tokens=tokens)
    return Injected(replace(plan, load=load), share)


def batch_limit(plan: Plan, expected: Expected, level: int) -> Injected:
    """Fewer requests may run than the load needs."""
    limit = max(2, round(expected.running * (1.3, 0.75, 0.6, 0.45)[level]))
    return Injected(replace(plan, engine=replace(plan.engine, max_num_seqs=limit)), limit)


def overload(plan: Plan, expected: Expected, level: int) -> Injected:
    """More arrives than the engine computes, however many run at once."""
    utilisation = 1 - expected.base_ns / expected.step_ns
    over = (utilisation + 0.02, 1.1, 1.5, 2.2)[level]
    rate = plan.load.rate_per_s * over / utilisation
    return Injected(replace(plan, load=replace(plan.load, rate_per_s=rate)), over)


def token_budget(plan: Plan, expected: Expected, level: int) -> Injected:
    """A budget in which the arriving prompts take this share of the steps, each with its fixed cost.

    With arrivals of t tokens of prompts a second, r running and a base b a step, a budget of x tokens is used to a
    share q where (x - r) q = t (b + a x), a the time of a token.
    """
    tokens_per_ns = expected.rate_per_s / plan.num_replicas * expected.computed / 1e9
    used = expected.prefill_share + (1 - expected.prefill_share) * (0.25, 0.45, 0.75, 1.05)[level]
    decode_ns = expected.step_ns * (1 - expected.prefill_share)
    budget = (used * expected.running + tokens_per_ns * decode_ns) / (
        used - tokens_per_ns * plan.step.prefill_token_ns
    )
    value = max(round(budget / 16) * 16, 32, plan.engine.max_num_seqs)
    return Injected(replace(plan, engine=replace(plan.engine, max_num_batched_tokens=value)), value)


def padding(plan: Plan, expected: Expected, level: int) -> Injected:
    """Lengths that differ, in batches that pad to the longest."""
    del expected  # the spread is what it is
    sigma = (0.005, 0.08, 0.2, 0.45)[level]
    load = replace(plan.load, prompt_sigma=sigma, output_sigma=sigma)
    return Injected(replace(plan, load=load), sigma)


def speculation(plan: Plan, expected: Expected, level: int) -> Injected:
    """Drafts that are wrong more often than pays, at the least as often as just does not."""
    if plan.speculation is None:
        raise ValueError("the service has no speculation")
    acceptance = _break_even(plan, plan.speculation, expected) * (1.15, 0.8, 0.45, 0.05)[level]
    return Injected(
        replace(plan, speculation=replace(plan.speculation, acceptance=acceptance)), acceptance
    )


def _break_even(plan: Plan, drafting: Speculation, expected: Expected) -> float:
    """Acceptance at which steps bring as many times more tokens as they are longer, k drafts each.

    Tokens of a step: (1 - a^(k+1)) / (1 - a) for acceptance a (Leviathan, Kalman, Matias, ICML 2023, equation 1).
    """
    k = drafting.num_drafts
    # More run, and steps are longer, where drafts are wrong.
    rows = max(2 * expected.running, 1.0)
    longer = k * (plan.step.draft_ns + rows * plan.step.decode_request_ns)
    plain = plan.step.base_ns + rows * (
        plan.step.decode_request_ns
        + plan.step.kv_token_ns * (expected.prompt + expected.output / 2)
    )
    grid = np.linspace(0.01, 0.95, 95)
    tokens = (1 - grid ** (k + 1)) / (1 - grid)
    return float(grid[int(np.argmin(np.abs(tokens - 1 - longer / plain)))])


def dp_imbalance(plan: Plan, expected: Expected, level: int) -> Injected:
    """One replica gets more than its share."""
    del expected  # shares do not depend on the load
    fair = 1 / plan.num_replicas
    share = fair + (0.97 - fair) * (0.02, 0.3, 0.6, 0.9)[level]
    busiest = int(np.random.default_rng((plan.seed, 21)).integers(plan.num_replicas))
    return Injected(replace(plan, busiest=busiest, busiest_share=share), share, {"engine": busiest})
