"""A well-run service: a plan without a fault, sized from the load that it shall carry."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tokenpath.engine.config import EngineConfig
from tokenpath.lab.serving.latency import measured
from tokenpath.lab.serving.plan import (
    Client,
    FrontEnd,
    HostCost,
    LoadSpec,
    Plan,
    Speculation,
    StepCost,
    Tier,
)

MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-14B",
    "mistralai/Mistral-7B-Instruct-v0.3", "Qwen/Qwen2.5-32B-Instruct", "google/gemma-2-9b-it",
)  # fmt: skip
_SEQS = (16, 32, 64, 128, 256, 512, 1024)
_BUDGETS = (1024, 2048, 4096, 8192, 16384)
_MAX_SHARES = 24_000
"""Shares of steps in a run, about: what a scenario may cost to make and to read."""


@dataclass(frozen=True)
class Wish:
    """What a kind of fault asks of the service it shall be in; None and False: whatever is drawn."""

    utilisation: tuple[float, float] = (0.4, 0.7)
    """Load over capacity of one replica."""
    prompt: tuple[float, float] = (200, 800)
    """Mean length of the own part of a prompt."""
    output: tuple[float, float] = (60, 140)
    """Mean length of an answer."""
    sigma: tuple[float, float] = (0.3, 0.6)
    """Spread of both."""
    replicas: tuple[int, ...] = (1, 1, 1, 2)
    """Numbers of replicas to choose from."""
    sharing: tuple[str, ...] = ("none", "none", "groups", "turns")
    """What prompts have in common, to choose from."""
    groups: tuple[int, int] = (3, 8)
    """Groups with a prefix."""
    prefix: tuple[float, float] = (200, 700)
    """Length of a group's prefix."""
    is_static: bool = False
    """Static batches."""
    is_speculating: bool = False
    """With a draft that is mostly right."""
    has_tier: bool = False
    """With a second tier of KV."""
    seqs_over_need: float = 4.0
    """Limit of running requests over the expected number."""
    budget_over_need: float = 3.5
    """Token budget over the expected tokens of a step."""
    is_synchronous: bool = False
    """Steps are decided when the one before has ended."""
    is_open: bool = False
    """Clients that do not wait for answers."""


@dataclass(frozen=True)
class Expected:
    """What a healthy service does on average, by arithmetic; magnitudes are sized by it."""

    rate_per_s: float
    """Arrivals a second, all replicas."""
    running: float
    """Requests running on a replica."""
    step_ns: float
    """A step."""
    base_ns: float
    """Of it, what does not depend on the load."""
    prompt: float
    """Tokens of a prompt, shared part included."""
    computed: float
    """Of them, computed where the shared part is found."""
    output: float
    """Tokens of an answer."""
    prefill_share: float
    """Share of the capacity that prefill takes."""


@dataclass(frozen=True)
class Service:
    """A healthy plan and what it is expected to do."""

    plan: Plan
    """The plan."""
    expected: Expected
    """Its averages."""


def draw_service(seed: int, wish: Wish) -> Service:
    """A healthy service for a wish."""
    luck = np.random.default_rng((seed, 0))
    scale = float(np.exp(luck.uniform(np.log(0.6), np.log(2.2))))
    step = StepCost(
        base_ns=luck.uniform(5e6, 10e6) * scale,
        prefill_token_ns=luck.uniform(15e3, 30e3) * scale,
        decode_request_ns=luck.uniform(20e3, 45e3) * scale,
        kv_token_ns=luck.uniform(30, 80) * scale,
        pair_ns=luck.uniform(0.5, 1.8) * scale,
        draft_ns=luck.uniform(0.03, 0.06) * 7e6 * scale,
    )
    host = _host(luck.uniform(0.3, 0.7))
    is_async = bool(luck.random() < 0.5) and not (
        wish.is_static or wish.is_speculating or wish.has_tier or wish.is_synchronous
    )
    own, output = luck.uniform(*wish.prompt), luck.uniform(*wish.output)
    sigma = luck.uniform(*wish.sigma)
    sharing = str(luck.choice(wish.sharing))
    prefix = luck.uniform(*wish.prefix)
    num_groups = int(luck.integers(wish.groups[0], wish.groups[1] + 1))
    turns = int(luck.integers(3, 6))
    replicas = int(luck.choice(wish.replicas))
    utilisation = luck.uniform(*wish.utilisation)
    block_size = int(luck.choice((16, 16, 32)))
    load = LoadSpec(
        num_requests=0, rate_per_s=0.0, burstiness=luck.uniform(0.6, 1.2),
        prompt_tokens=own, prompt_sigma=sigma, output_tokens=output, output_sigma=sigma,
    )  # fmt: skip
    prompt = own
    if sharing == "groups":
        load = replace(
            load, num_groups=num_groups, prefix_tokens=int(prefix) // block_size * block_size
        )
        prompt = own + load.prefix_tokens
    elif sharing == "turns":
        load = replace(
            load, num_turns=turns, think_s=luck.uniform(0.2, 0.8), prompt_tokens=own * 0.6
        )
        own *= 0.6
        prompt = own + (own + output) * (turns - 1) / 2
    tier = None
    if wish.has_tier:
        tokens = int(luck.uniform(800, 2000))
        tier = Tier(
            int(luck.choice((65536, 98304, 131072))),
            luck.uniform(20e9, 40e9),
            luck.uniform(0.5e6, 2e6),
        )
        load = replace(
            load, tier_share=luck.uniform(0.4, 0.7), tier_tokens=tokens, prompt_tokens=own + tokens
        )
        prompt = own + tokens
        own += tokens * (1 - load.tier_share)
    speculation = None
    if wish.is_speculating:
        speculation = Speculation(int(luck.integers(3, 6)), luck.uniform(0.7, 0.85))
    expected = _expect(
        step, host, is_async, utilisation, prompt, own, output, replicas, speculation
    )
    if wish.is_static:
        expected = _expect_static(step, host, utilisation, prompt, output)
    num = 120 if wish.is_static else int(np.clip(_MAX_SHARES / output, 200, 400))
    is_closed = sharing != "turns" and not wish.is_open and bool(luck.random() < 0.25)
    clients = max(2, round(expected.running * replicas * 1.05)) if is_closed else 0
    load = replace(load, num_requests=num, rate_per_s=expected.rate_per_s, num_clients=clients)
    plan = Plan(
        seed=seed, model=str(luck.choice(MODELS)), load=load,
        engine=_engine(wish, load, expected, block_size, is_async, luck), step=step, host=host,
        front=FrontEnd(luck.uniform(0.1e6, 0.4e6), luck.uniform(0.5e3, 2e3), luck.uniform(4e3, 12e3), luck.uniform(0.1e6, 0.5e6)),
        client=Client(luck.uniform(30e3, 90e3), luck.uniform(3e3, 10e3)),
        num_replicas=replicas, is_static=wish.is_static, speculation=speculation, tier=tier,
        long_lived={"request_success": int(luck.integers(0, 4000)), "preemptions": 0},
    )  # fmt: skip
    return Service(plan, expected)


def _host(speed: float) -> HostCost:
    us = {name: value * 1e3 * speed for name, value in measured()["host_us"].items()}
    return HostCost(
        schedule_ns=us["schedule"], schedule_request_ns=us["schedule_request"] * 0.5,
        hand_over_ns=us["hand_over"], hand_back_ns=us["hand_back"],
        update_ns=us["update"], update_request_ns=us["update_request"] * 0.5, gap_ns=us["gap"],
    )  # fmt: skip


def _expect(
    step: StepCost, host: HostCost, is_async: bool, utilisation: float,
    prompt: float, computed: float, output: float, replicas: int, speculation: Speculation | None,
) -> Expected:  # fmt: skip
    """A step lasts T = base + (work of the arrivals in T).

    Of n requests a second on one replica, each with prefill work w and decode work d, T = base / (1 - n (w + d)), and
    n o T requests run, o steps each.
    """
    fixed = host.schedule_ns + host.hand_over_ns + host.hand_back_ns + host.update_ns + host.gap_ns
    each = host.schedule_request_ns + host.update_request_ns
    base, rows, steps = step.base_ns, 1.0, output
    if speculation is not None:
        a, k = speculation.acceptance, speculation.num_drafts
        steps = output * (1 - a) / (1 - a ** (k + 1))
        rows, base = 1.0 + k, base + k * step.draft_ns
    decode = steps * (step.decode_request_ns * rows + step.kv_token_ns * (prompt + output / 2))
    prefill = step.prefill_token_ns * computed + step.pair_ns * computed * (prompt - computed / 2)
    if not is_async:
        base, decode = base + fixed, decode + steps * each
    rate = utilisation / (prefill + decode)
    step_ns = base / (1 - utilisation)
    return Expected(
        rate * 1e9 * replicas, rate * steps * step_ns, step_ns, base, prompt, computed, output,
        rate * prefill,
    )  # fmt: skip


def _expect_static(
    step: StepCost, host: HostCost, utilisation: float, prompt: float, output: float
) -> Expected:
    """A batch of b: prefill of all rows, then steps of all rows to the end."""
    fixed = host.schedule_ns + host.hand_over_ns + host.hand_back_ns + host.update_ns + host.gap_ns
    rows = 16
    row = step.decode_request_ns + step.kv_token_ns * (prompt + output / 2)
    one = step.base_ns + fixed + rows * row
    batch = rows * (step.prefill_token_ns * prompt + step.pair_ns * prompt**2 / 2) + output * one
    rate = utilisation * rows / batch * 1e9
    return Expected(rate, rows, one, step.base_ns + fixed, prompt, prompt, output, 0.0)


def _engine(
    wish: Wish, load: LoadSpec, expected: Expected, block_size: int, is_async: bool, luck: np.random.Generator
) -> EngineConfig:  # fmt: skip
    seqs = _at_least(_SEQS, expected.running * wish.seqs_over_need)
    if wish.is_static:
        seqs = round(expected.running)
    of_step = expected.rate_per_s * expected.step_ns / 1e9 * expected.computed + expected.running
    budget = _at_least(_BUDGETS, max(of_step * wish.budget_over_need, seqs, 2048))
    need = expected.running * (expected.prompt + expected.output) / block_size
    shared = load.num_groups * load.prefix_tokens / block_size
    if load.num_turns > 1:
        # All conversations under way keep their history between turns.
        chats = load.num_requests / load.num_turns
        shared = chats * (expected.prompt * 2 + expected.output) / block_size
    blocks = need * luck.uniform(2.2, 3.5) + shared * 1.3 + 8192 / block_size
    return EngineConfig(
        num_blocks=int(blocks) + 1, block_size=block_size, max_num_batched_tokens=budget, max_num_seqs=seqs,
        max_model_len=8192, enable_prefix_caching=not wish.is_static, async_scheduling=is_async,
    )  # fmt: skip


def _at_least(sizes: tuple[int, ...], need: float) -> int:
    return next((size for size in sizes if size >= need), sizes[-1])
