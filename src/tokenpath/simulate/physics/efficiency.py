"""The few numbers that physics does not give: how much of each peak is reached, and fixed times.

Every number is a base times factors for the engine and for the generation of the part. All are fitted
together to measured runs with priors (benchmarks/scoreboard/fit.py) and shipped in `fitted.json`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenpath.core.hardware import Hardware

PRIORS: Mapping[str, tuple[float, float]] = {
    "linear_memory": (0.80, 0.15),
    "expert_memory": (0.60, 0.30),
    "kv_memory": (0.80, 0.12),
    "kv_narrow": (0.75, 0.20),
    "kv_grouping": (1.05, 0.10),
    "stream_memory": (0.60, 0.40),
    "linear_compute": (0.60, 0.25),
    "linear_compute_narrow": (0.50, 0.30),
    "expert_compute": (0.40, 0.40),
    "attention_compute": (0.40, 0.40),
    "widening": (0.80, 0.40),
    "linear_widening": (0.85, 0.15),
    "layer_ns": (15e3, 0.50),
    "mixed_layer_ns": (15e3, 0.70),
    "mixed_moe_layer_ns": (60e3, 0.70),
    "moe_layer_ns": (10e3, 0.50),
    "narrow_moe_layer_ns": (30e3, 0.80),
    "expert_ns": (100.0, 0.80),
    "quantise_ns": (4e3, 0.60),
    "all_reduce_ns": (6e3, 0.50),
    "exchange_ns": (20e3, 0.60),
    "link": (0.50, 0.50),
    "imbalance": (1.15, 0.15),
    "step_ns": (0.8e6, 0.70),
    "request_ns": (8e3, 0.70),
    "prefill_request_ns": (1.0e6, 0.40),
    "frontend_ns": (6e6, 0.60),
    "frontend_token_ns": (1.5e3, 0.70),
}
"""Base value and spread (standard deviation of its logarithm) before any measurement.

`*_memory`, `*_compute`, `link`: reached share of the peak. `linear_compute_narrow`: the same in 8 and 4
bits. `kv_grouping`: what a doubling of the query heads of a KV head costs in `kv_memory`; `kv_narrow`: factor on it for a cache of 8 bits.
`widening`: factor on expert rates where weights are widened to 16 bits, `linear_widening` on the compute rate of the
other products (MARLIN, arXiv 2408.11743: as fast as a plain product at best, once compute bound). `layer_ns`: kernels of a
layer beside their work; `mixed_layer_ns`: more of it without a replayed graph, `mixed_moe_layer_ns` where the layer
routes (a dozen kernels launched one by one); `moe_layer_ns`,
`narrow_moe_layer_ns`, `expert_ns`: routing of a layer, more of it where experts are quantised, and each
expert it touches; `quantise_ns`: kernels that quantise the inputs of a layer;
`all_reduce_ns` per doubling of the group. `step_ns`, `request_ns`: scheduling and sampling of a step, per request; `prefill_request_ns`:
a new request in a step. `frontend_ns`, `frontend_token_ns`: server and client beside the engine until the
first token, and their tokenising of each token of the prompt.
"""
BY_ENGINE = (
    "linear_memory",
    "expert_memory",
    "kv_memory",
    "layer_ns",
    "mixed_layer_ns",
    "mixed_moe_layer_ns",
    "moe_layer_ns",
    "narrow_moe_layer_ns",
    "all_reduce_ns",
    "exchange_ns",
    "step_ns",
    "request_ns",
    "prefill_request_ns",
    "frontend_ns",
    "linear_compute",
    "expert_compute",
)
"""Numbers that have a factor per engine."""
BY_GENERATION = (
    "linear_memory",
    "expert_memory",
    "kv_memory",
    "linear_compute",
    "linear_compute_narrow",
    "expert_compute",
    "attention_compute",
    "layer_ns",
    "narrow_moe_layer_ns",
    "all_reduce_ns",
)
"""Numbers that have a factor for generations other than Hopper."""
BY_RELEASE = (
    "linear_memory",
    "kv_memory",
    "layer_ns",
    "mixed_layer_ns",
    "all_reduce_ns",
    "step_ns",
    "request_ns",
    "prefill_request_ns",
    "frontend_ns",
)
"""Numbers that have a factor for a release that was measured on many models."""
RELEASES = ("vllm-0.15",)
"""Those releases: engine, major and minor version."""
ENGINE_SPREAD = 0.35
RELEASE_SPREAD = 0.35
GENERATION_SPREAD = 0.25
SCALES = ("decode_scale", "growth_scale", "prefill_scale", "launch_scale")
SCALE_SPREADS = (0.25, 0.35, 0.5, 0.9)
"""Spread of the logarithms of a class's own corrections."""
SHARES = (
    "linear_memory",
    "expert_memory",
    "kv_memory",
    "stream_memory",
    "linear_compute",
    "linear_compute_narrow",
    "expert_compute",
    "attention_compute",
    "link",
)
"""Numbers that are shares of a peak."""
SHARE_MOST = 0.95
"""None is believed above this, whatever a fit would like: values near it are bent below it."""
_BEND = 12.0
"""How sharply: half-way values hardly change, and the slope never is nothing, so that a fit can end."""
GENERATIONS = ("ampere", "ada", "blackwell")


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The numbers of one deployment, resolved."""

    linear_memory: float
    expert_memory: float
    kv_memory: float
    kv_narrow: float
    kv_grouping: float
    stream_memory: float
    linear_compute: float
    linear_compute_narrow: float
    expert_compute: float
    attention_compute: float
    widening: float
    linear_widening: float
    layer_ns: float
    mixed_layer_ns: float
    mixed_moe_layer_ns: float
    moe_layer_ns: float
    narrow_moe_layer_ns: float
    expert_ns: float
    quantise_ns: float
    all_reduce_ns: float
    exchange_ns: float
    link: float
    imbalance: float
    step_ns: float
    request_ns: float
    prefill_request_ns: float
    frontend_ns: float
    frontend_token_ns: float
    decode_scale: float = 1.0
    """Measured over predicted time, shrunk, for this class of deployment: of a decode step of one token."""
    growth_scale: float = 1.0
    """... of what more requests and longer contexts add to it."""
    prefill_scale: float = 1.0
    """... of what prefill tokens add."""
    launch_scale: float = 1.0
    """... of what a prefill adds whatever its size."""


def parameter_names() -> list[str]:
    """Names of the fitted logarithms, in order: bases, then `name|engine`, then `name|generation`."""
    names = list(PRIORS)
    names += [f"{name}|{engine}" for name in BY_ENGINE for engine in ("vllm", "sglang", "trtllm")]
    names += [f"{name}|{gen}" for name in BY_GENERATION for gen in GENERATIONS]
    names += [f"{name}|{release}" for name in BY_RELEASE for release in RELEASES]
    return names


def prior(name: str) -> tuple[float, float]:
    """Mean and standard deviation of a fitted logarithm."""
    base, _, group = name.partition("|")
    if not group:
        mean, spread = PRIORS[base]
        return math.log(mean), spread
    if group in RELEASES:
        return 0.0, RELEASE_SPREAD
    return 0.0, GENERATION_SPREAD if group in GENERATIONS else ENGINE_SPREAD


def generation(hw: Hardware) -> str | None:
    """Generation of a part; None: Hopper, what the bases stand for, or none that was measured."""
    name = hw.key
    for prefix, gen in (
        (("a100", "a10", "a30"), "ampere"),
        (("l4", "l40", "rtx-4090"), "ada"),
        (("b200", "b300", "gb200", "gb300", "rtx-pro"), "blackwell"),
    ):
        if name.startswith(prefix):
            return gen
    return None


def bent(share: Any) -> Any:
    """A share, or an array of them, kept below `SHARE_MOST` without a corner."""
    return share / (1.0 + (share / SHARE_MOST) ** _BEND) ** (1.0 / _BEND)


def resolve(
    logs: Mapping[str, float],
    engine: str,
    gen: str | None,
    release: str | None = None,
    cell: Sequence[float] = (0.0, 0.0, 0.0, 0.0),
) -> Efficiency:
    """The numbers of an engine on a generation; `release`: one of `RELEASES`; `cell`: logarithms of `SCALES`."""
    values = {}
    for name in PRIORS:
        total = logs.get(name, prior(name)[0])
        total += logs.get(f"{name}|{engine}", 0.0)
        if gen is not None:
            total += logs.get(f"{name}|{gen}", 0.0)
        if release in RELEASES:
            total += logs.get(f"{name}|{release}", 0.0)
        value = math.exp(total)
        values[name] = bent(value) if name in SHARES else value
    scales = {name: math.exp(value) for name, value in zip(SCALES, cell, strict=True)}
    return Efficiency(**values, **scales)
