"""What a kernel of these FLOPs and bytes takes when it is well made: a fraction of peak, not peak.

Sources of the fractions: FlashAttention-3 (arXiv 2407.08608): FlashAttention-2 uses 35 % of an H100, 3 up to
75 %; SemiAnalysis, MI300X against H100 training (2024-12): large BF16 products reach 0.73 of peak on H100 and
0.47 on MI300X, FP8 0.65 and 0.38; BabelStream (Deakin and others) reaches 0.8 to 0.9 of the memory rate with
contiguous vector access, which strided copies, gathers and row reductions do not have. A kernel in a model is
smaller and less even than those benchmarks: about 0.85 of their figure is taken as attainable.
"""

from __future__ import annotations

import math

from tokenpath.explain.analyses.kernel_roofline_shapes import ATTENTION, MATRIX
from tokenpath.explain.analyses.kernel_roofline_work import Group

COMPUTE = {"gemm": 0.62, "moe": 0.45, "convolution": 0.45, "attention": 0.25}
"""Attainable share of the dense peak of the type; attention under a mask counts as if unmasked."""
ATTENTION_EXACT = 0.35
"""Of attention whose query-key pairs are known, on NVIDIA parts."""
COMPUTE_AMD = {"gemm": 0.40, "moe": 0.30, "convolution": 0.30, "attention": 0.15}
"""The same on AMD parts."""
MEMORY = {
    "gemm": 0.60, "moe": 0.45, "convolution": 0.50, "attention": 0.55,
    "elementwise": 0.65, "norm": 0.50, "softmax": 0.50, "quantize": 0.50,
    "reduce": 0.45, "copy": 0.45, "index": 0.40, "pooling": 0.40, "random": 0.40,
    "kv_cache": 0.40,
}  # fmt: skip
"""Attainable share of the memory rate."""
SLOW_RATIO = 1.6
"""A kernel this many times longer than attainable is slow: well made ones reach 0.4 of the peak FLOP/s or 0.5
of the memory rate, and more."""
FLOOR_NS = {"NVIDIA": 3_000, "AMD": 6_000}
"""Time of a kernel whose work is next to nothing: start, one round trip to memory, end."""
TILE = 128
"""Rows and columns of an output tile of a large product."""
SPLIT_K = 512
"""A product is split along k into parts of at least this many."""
STREAM_SMS = 0.5
"""From this share of the multiprocessors on, memory and not their number is the limit."""


def family_key(family: str) -> str:
    """The family under which the tables above know a kernel family."""
    return "attention" if family in ATTENTION else family


def bounds_ns(group: Group, dtype: str | None = None) -> tuple[float, float] | None:
    """(compute, memory) time at the attainable rates, the floor left out; None where it cannot be told.

    `dtype` computes it for another number type, with the bytes that this type would have.
    """
    hardware, key = group.hardware, family_key(group.family)
    if hardware is None or group.flops is None or group.bytes is None or key not in MEMORY:
        return None
    own = None if group.op is None else group.op.dtype
    used = dtype or own or "bf16"
    if used == "fp32" and key != "attention" and group.op is not None and "tf32" in group.name:
        used = "tf32"
    peak = hardware.peak(used)
    table = COMPUTE_AMD if hardware.vendor == "AMD" else COMPUTE
    compute = 0.0
    fill, stream = _fill(group)
    if group.flops and key in table:
        if peak is None:
            return None
        padded = group.flops * _padding(group)
        share = table[key]
        if key == "attention" and hardware.vendor != "AMD" and group.op is not None:
            share = ATTENTION_EXACT if group.op.is_exact else share
        compute = padded / (peak * share * fill) * 1e9
    smaller = 0.5 if dtype in ("bf16", "fp16") and own in ("fp32", "tf32") else 1.0
    rate = hardware.memory_bytes_per_s * MEMORY[key] * (0.8 if hardware.vendor == "AMD" else 1.0)
    return compute, group.bytes * smaller / (rate * stream) * 1e9


def expected_ns(group: Group, dtype: str | None = None) -> float | None:
    """Time of one kernel of the group at the attainable rates; None where it cannot be told."""
    bounds = bounds_ns(group, dtype)
    if bounds is None or group.hardware is None:
        return None
    floor = FLOOR_NS.get(group.hardware.vendor, 0)
    starts = 3 if group.family in ATTENTION else 2 if group.family in MATRIX else 1
    return floor * starts + max(bounds)


def is_slow(group: Group, attainable: float) -> bool:
    """Whether a group takes `SLOW_RATIO` times what is attainable, by the tables and by the capture's other kernels.

    That others are better than the tables makes the loss larger, and alone makes no kernel slow.
    """
    return group.quiet_ns >= SLOW_RATIO * max(attainable, expected_ns(group) or 0.0)


def _padding(group: Group) -> float:
    """Work of whole tiles over the work asked for, for a matrix product; at most 2."""
    if group.op is None or group.op.tiles is None:
        return 1.0
    _, m, n, _ = group.op.tiles
    step = 16 if m <= TILE else TILE
    whole = math.ceil(m / step) * step * math.ceil(n / TILE) * TILE
    return min(2.0, whole / (m * n)) if m * n else 1.0


def _fill(group: Group) -> tuple[float, float]:
    """(share of the arithmetic, share of the memory rate) that the work's own parallelism can use."""
    if group.op is None or group.op.tiles is None or not group.num_sms:
        return 1.0, 1.0
    batch, m, n, k = group.op.tiles
    parts = batch * math.ceil(m / TILE) * math.ceil(n / TILE) * max(1, k // SPLIT_K)
    active = min(1.0, parts / group.num_sms)
    return max(active, 1 / group.num_sms), max(min(1.0, active / STREAM_SMS), 1 / group.num_sms)


def limiter(group: Group) -> str | None:
    """`compute`, `memory` or `latency`: what holds a well made kernel of this work; None if unknown."""
    bounds = bounds_ns(group)
    if bounds is None or group.hardware is None:
        return None
    floor = FLOOR_NS.get(group.hardware.vendor, 0)
    if max(bounds) < floor:
        return "latency"
    return "compute" if bounds[0] >= bounds[1] else "memory"
