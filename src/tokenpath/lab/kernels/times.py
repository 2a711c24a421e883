"""How long a kernel takes: the roofline of its shape over an efficiency, drawn once a scenario and family.

The ranges were measured on the reference traces of H100 GPUs (vLLM of a 70 B model on four ranks, a Hugging
Face prefill of a 0.5 B model), e.g. the gate and up projection of one token, 8192 x 14336 in BF16, takes
81.9 us: 86 % of the memory's peak; with 1,049 tokens 405 us: 61 % of the peak of the tensor cores. They
are known to the lab alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenpath.core.costs import Cost, canonical_dtype
from tokenpath.core.hardware import Hardware

RANGES: dict[str, tuple[float, float]] = {
    "gemm_memory": (0.74, 0.88),
    "gemm_compute": (0.60, 0.73),
    "attention_memory": (0.62, 0.82),
    "attention_compute": (0.46, 0.64),
    "attention_backward": (0.36, 0.50),
    "moe_memory": (0.58, 0.78),
    "moe_compute": (0.42, 0.58),
    "elementwise": (0.74, 0.90),
    "norm": (0.58, 0.80),
    "index": (0.40, 0.62),
    "optimizer": (0.72, 0.86),
    "sampling": (0.30, 0.50),
}
"""Least and largest share of the roofline's peak by family and limiter."""

FLOOR_NS = 1_250.0
"""Time of a kernel that does nothing, on an H100: what a fill of one block takes in the reference traces."""


@dataclass(frozen=True)
class Efficiencies:
    """Shares of the peak that the libraries of one scenario reach."""

    shares: dict[str, float]
    """By the keys of RANGES."""

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Efficiencies:
        """One draw for each family and limiter."""
        return cls({name: float(rng.uniform(*bounds)) for name, bounds in RANGES.items()})


def kernel_ns(
    cost: Cost, hardware: Hardware, dtype: str, family: str, shares: Efficiencies
) -> float:
    """Expected length in ns of a kernel of this family on an otherwise empty device."""
    memory = cost.bytes_total / hardware.memory_bytes_per_s * 1e9
    peak = hardware.peak(canonical_dtype(dtype)) or hardware.peak("fp32") or 1e12
    compute = cost.flops / peak * 1e9
    known = shares.shares
    by_memory = memory / known.get(f"{family}_memory", known.get(family, 0.7))
    by_compute = compute / known[f"{family}_compute"] if f"{family}_compute" in known else 0.0
    # Near the ridge neither unit runs at its best.
    return FLOOR_NS + float((by_memory**4 + by_compute**4) ** 0.25)
