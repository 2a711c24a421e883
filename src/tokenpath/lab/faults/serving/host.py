"""Faults of the front end, the engine's host thread and the load generator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tokenpath.lab.faults.serving.fault import Injected
from tokenpath.lab.serving.plan import Plan
from tokenpath.lab.serving.service import Expected


def slow_tokeniser(plan: Plan, expected: Expected, level: int) -> Injected:
    """The one tokeniser is busy for a share of the time, in the end more than all of it."""
    busy = (0.05, 0.5, 0.9, 1.25)[level]
    per_token = busy / (expected.rate_per_s * expected.prompt) * 1e9
    return Injected(
        replace(plan, front=replace(plan.front, tokenise_token_ns=per_token)), per_token / 1e3
    )


def slow_detokeniser(plan: Plan, expected: Expected, level: int) -> Injected:
    """The one detokeniser is busy for a share of the time, in the end more than all of it."""
    busy = (0.1, 0.8, 1.1, 1.5)[level]
    per_token = busy / (expected.rate_per_s * expected.output) * 1e9
    return Injected(
        replace(plan, front=replace(plan.front, detokenise_token_ns=per_token)), per_token / 1e3
    )


def step_overhead(plan: Plan, expected: Expected, level: int) -> Injected:
    """Time between forward passes: in deciding, in processing outputs, or after it."""
    extra = (0.01, 0.15, 0.5, 1.2)[level] * expected.base_ns
    host = plan.host
    where = int(np.random.default_rng((plan.seed, 20)).integers(3))
    if where == 0:
        host = replace(host, schedule_ns=host.schedule_ns + extra)
    elif where == 1:
        host = replace(host, update_ns=host.update_ns + extra)
    else:
        host = replace(host, gap_ns=host.gap_ns + extra)
    return Injected(replace(plan, host=host), extra / 1e6)


def client_bound(plan: Plan, expected: Expected, level: int) -> Injected:
    """The client's one thread is busy for a share of the time, in the end more than all of it."""
    busy = (0.1, 0.75, 1.1, 1.6)[level]
    per_token = busy / (expected.rate_per_s * expected.output) * 1e9
    return Injected(replace(plan, client=replace(plan.client, token_ns=per_token)), per_token / 1e3)
