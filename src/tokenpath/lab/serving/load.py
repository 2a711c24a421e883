"""The requests of a plan: when, how long, and what they have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.engine.scheduler import NO_HASHES, Int64s
from tokenpath.lab.serving.plan import LoadSpec, Plan

WARM_UP_NS = 5_000_000_000
"""The measured run begins this long after its warm-up."""
_ROOM = 1 << 20
"""Granules that one prefix may have, in numbering content."""


@dataclass(frozen=True)
class Load:
    """All requests, the warm-up first; arrays have one entry each."""

    due_ns: Int64s
    """When it is due: absolute for the first of a chain, else after the answer to `after`."""
    after: Int64s
    """The request whose answer it waits for; -1 for none."""
    prompt: Int64s
    """Tokens of the prompt."""
    output: Int64s
    """Tokens of the answer."""
    group: Int64s
    """Group or conversation; -1 for none."""
    prefix: Int64s
    """Tokens shared with others of the group."""
    tier_tokens: Int64s
    """Tokens that lie in a slower tier."""
    is_long: NDArray[np.bool_]
    """A long prompt beside others."""
    is_failed: NDArray[np.bool_]
    """Refused by the server."""
    hashes: tuple[Int64s, ...]
    """Content by block, for the scheduler."""
    num_warm_up: int
    """How many of them come before the measured run."""


def draw_load(plan: Plan) -> Load:
    """The requests of a plan."""
    spec, block = plan.load, plan.engine.block_size
    n = spec.num_requests
    gaps, sizes, marks = (np.random.default_rng((plan.seed, part)) for part in (1, 2, 3))
    gap = gaps.gamma(spec.burstiness, 1 / spec.burstiness, n) / spec.rate_per_s
    think = gaps.exponential(1.0, n) * spec.think_s
    own = _lengths(spec.prompt_tokens, spec.prompt_sigma, sizes.standard_normal(n))
    output = _lengths(spec.output_tokens, spec.output_sigma, sizes.standard_normal(n))
    chance, group, tier = marks.random(n), marks.integers(1 << 40, size=n), marks.random(n)
    is_long = chance < spec.long_share
    own = np.where(is_long, spec.long_tokens, own)
    after = np.full(n, -1)
    due = np.cumsum(gap)
    prefix = np.zeros(n, np.int64)
    if spec.num_turns > 1:
        group, after, prefix = _conversations(n, spec.num_turns, own, output)
        # Later turns follow by themselves: first ones come in the first part of the run, at a rate that fills it.
        due = np.where(
            after < 0, np.cumsum(gap * (after < 0)) * max(1.0, spec.num_turns * 0.6), think
        )
    elif spec.num_groups:
        group = group % spec.num_groups
        prefix = np.full(n, spec.prefix_tokens)
    else:
        group = np.full(n, -1)
    if spec.num_clients:
        after = np.arange(n) - spec.num_clients
        due, after = np.where(after < 0, due * 0.2, 0.0), np.maximum(after, -1)
    limit = plan.engine.max_model_len
    output = np.minimum(output, limit // 3)
    prompt = np.minimum(prefix + own, limit - output - 1)
    prefix = np.minimum(prefix, prompt - 1)
    tier_tokens = np.where(tier < spec.tier_share, np.minimum(spec.tier_tokens, prompt - 1), 0)
    is_failed = np.zeros(n, bool)
    is_failed[marks.permutation(n)[: spec.num_failed]] = True
    is_failed &= ~np.isin(np.arange(n), after)
    load = Load(
        (due * 1e9).astype(np.int64), after, prompt, output, group, prefix,
        tier_tokens // block * block, is_long, is_failed,
        tuple(_hashes(plan, int(group[k]), int(prefix[k]), int(prompt[k] + output[k])) for k in range(n)),
        0,
    )  # fmt: skip
    return _with_warm_up(load, spec, sizes)


def _lengths(mean: float, sigma: float, normal: NDArray[np.float64]) -> Int64s:
    """Lognormal with this mean; the same luck whatever the sigma."""
    raw = mean * np.exp(sigma * np.clip(normal, -2.5, 2.5) - sigma * sigma / 2)
    return np.maximum(np.rint(raw), 4).astype(np.int64)


def _conversations(
    n: int, turns: int, own: Int64s, output: Int64s
) -> tuple[Int64s, Int64s, Int64s]:
    """Group, request before, and tokens before of each request; turns of one conversation are far apart in number."""
    chains = -(-n // turns)
    group = np.arange(n) % chains
    after = np.where(np.arange(n) >= chains, np.arange(n) - chains, -1)
    prefix = np.zeros(n, np.int64)
    for k in range(chains, n):
        prefix[k] = prefix[k - chains] + own[k - chains] + output[k - chains]
    return group, after, prefix


def _hashes(plan: Plan, group: int, prefix: int, total: int) -> Int64s:
    if group < 0 or plan.load.is_salted:
        return NO_HASHES
    # In a conversation the answer is part of the next turn's prefix; else only the prefix is shared.
    known = total if plan.load.num_turns > 1 else prefix
    return np.arange(known // plan.engine.block_size, dtype=np.int64) + (group + 1) * _ROOM


def _with_warm_up(load: Load, spec: LoadSpec, luck: np.random.Generator) -> Load:
    n = spec.num_warm_up
    if not n:
        return load
    prompt, output = (
        luck.choice(values, n) for values in (load.prompt, np.minimum(load.output, 64))
    )
    minus = np.full(n, -1)
    off = np.zeros(n, bool)
    shift = np.where(load.after < 0, WARM_UP_NS, 0)
    return Load(
        np.concatenate([np.arange(n) * 200_000, load.due_ns + shift]),
        np.concatenate([minus, np.where(load.after < 0, -1, load.after + n)]),
        np.concatenate([prompt, load.prompt]),
        np.concatenate([output, load.output]),
        np.concatenate([minus, load.group]),
        np.concatenate([minus * 0, load.prefix]),
        np.concatenate([minus * 0, load.tier_tokens]),
        np.concatenate([off, load.is_long]),
        np.concatenate([off, load.is_failed]),
        (NO_HASHES,) * n + load.hashes,
        n,
    )
