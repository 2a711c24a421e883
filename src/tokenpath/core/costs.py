"""FLOPs and bytes of the operations of a language model, and the time they cannot beat.

Conventions, as in the roofline model (Williams, Waterman, Patterson 2009, CACM 52-4):
a multiply-add is two FLOPs; bytes are the compulsory device-memory traffic, each operand once (no
cache misses, no spills), so time from `roofline_ns` is a lower bound. Softmax, rotary embedding and
masking are left out of attention FLOPs: they are not matrix work and below a few per cent.

Collectives: wire bytes are what one rank SENDS. Ring and tree are the algorithms of NCCL; bus bandwidth
is that of nccl-tests, doc/PERFORMANCE.md: payload / time x a factor, so that it can be compared with
the link's rate in one direction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tokenpath.core.errors import InputError

if TYPE_CHECKING:
    from tokenpath.core.hardware import Hardware

CollectiveOp = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "p2p"
]
Algorithm = Literal["ring", "tree"]

COLLECTIVE_OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "p2p")

_BITS = {
    "fp64": 64,
    "fp32": 32,
    "tf32": 32,  # stored as fp32
    "bf16": 16,
    "fp16": 16,
    "fp8": 8,
    "int8": 8,
    "fp4": 4,
    "int4": 4,
}
_ALIASES = {
    "float64": "fp64",
    "float32": "fp32",
    "float": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e4m3": "fp8",
    "float8_e5m2": "fp8",
    "e4m3": "fp8",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Work of an operation; costs add and scale."""

    flops: float = 0.0
    """Floating-point (or integer) operations; a multiply-add is two."""
    bytes_read: float = 0.0
    """Bytes read from device memory."""
    bytes_written: float = 0.0
    """Bytes written to device memory."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.flops + other.flops,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
        )

    def __mul__(self, times: float) -> Cost:
        return Cost(self.flops * times, self.bytes_read * times, self.bytes_written * times)

    __rmul__ = __mul__

    @property
    def bytes_total(self) -> float:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    @property
    def flops_per_byte(self) -> float | None:
        """Arithmetic intensity; None without traffic."""
        return self.flops / self.bytes_total if self.bytes_total else None


def canonical_dtype(dtype: str) -> str:
    """The catalogue's name of a type: `bfloat16` -> `bf16`. Raises InputError for an unknown one."""
    name = dtype.lower().removeprefix("torch.")
    name = _ALIASES.get(name, name)
    if name not in _BITS:
        raise InputError(
            f"unknown number type {dtype!r}",
            allowed=", ".join([*_BITS, *_ALIASES]),
            next_step="name the type that the tensor is stored in",
        )
    return name


def bytes_per_element(dtype: str) -> float:
    """Storage of one element in bytes: 2 for bf16, 0.5 for int4 (scales of a block not included)."""
    return _BITS[canonical_dtype(dtype)] / 8


def matmul(m: int, n: int, k: int, dtype: str = "bf16", *, out_dtype: str | None = None) -> Cost:
    """`[m, k] x [k, n]`: 2 m n k FLOPs; both operands read once, the product written once."""
    size = bytes_per_element(dtype)
    return Cost(
        2.0 * m * n * k, (m * k + k * n) * size, m * n * bytes_per_element(out_dtype or dtype)
    )


def causal_pairs(num_new: int, num_context: int = 0, window: int | None = None) -> int:
    """Query-key pairs of `num_new` causal tokens after `num_context`: the triangle, exactly.

    A query at position p (from 0) sees p + 1 keys, at most `window` of them when there is one.
    """
    first, last = num_context + 1, num_context + num_new
    if window is None or last <= window:
        return num_new * num_context + num_new * (num_new + 1) // 2
    short = max(0, min(last, window) - first + 1)
    return short * first + short * (short - 1) // 2 + (num_new - short) * window


def attention_prefill(
    num_new: int,
    *,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    v_head_dim: int | None = None,
    num_context: int = 0,
    window: int | None = None,
    dtype: str = "bf16",
    kv_dtype: str | None = None,
) -> Cost:
    """Causal attention of one request's chunk: `num_new` queries after `num_context` cached tokens.

    QK^T and PV cost 2 head_dim and 2 v_head_dim FLOPs per head and query-key pair. Fused
    (FlashAttention, arXiv 2205.14135): scores never reach memory. Keys and values are read once;
    the projections that made them are counted elsewhere.
    """
    v_dim = head_dim if v_head_dim is None else v_head_dim
    size, kv_size = bytes_per_element(dtype), bytes_per_element(kv_dtype or dtype)
    num_keys = num_context + num_new
    if window is not None:
        num_keys = min(num_keys, window + num_new - 1)
    return Cost(
        2.0 * num_heads * (head_dim + v_dim) * causal_pairs(num_new, num_context, window),
        num_new * num_heads * head_dim * size
        + num_keys * num_kv_heads * (head_dim + v_dim) * kv_size,
        num_new * num_heads * v_dim * size,
    )


def attention_decode(
    num_keys: int,
    *,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    v_head_dim: int | None = None,
    dtype: str = "bf16",
    kv_dtype: str | None = None,
) -> Cost:
    """One request's single query against `num_keys` keys, its own included. Add over the batch.

    With GQA the cache is read once per KV head, whatever the number of query heads
    (arXiv 2305.13245), so intensity grows with num_heads / num_kv_heads.
    """
    v_dim = head_dim if v_head_dim is None else v_head_dim
    size, kv_size = bytes_per_element(dtype), bytes_per_element(kv_dtype or dtype)
    return Cost(
        2.0 * num_heads * (head_dim + v_dim) * num_keys,
        num_heads * head_dim * size + num_keys * num_kv_heads * (head_dim + v_dim) * kv_size,
        num_heads * v_dim * size,
    )


def attention_decode_mla(
    num_keys: int,
    *,
    num_heads: int,
    kv_lora_rank: int,
    rope_head_dim: int,
    dtype: str = "bf16",
    kv_dtype: str | None = None,
) -> Cost:
    """Decode of multi-head latent attention with absorbed projections (DeepSeek-V2, arXiv 2405.04434).

    Every head scores against the shared latent and rope key (rank + rope) and sums latents (rank). The
    cache holds one vector of rank + rope per token, which serves as key and as value: read once.
    """
    width = kv_lora_rank + rope_head_dim
    size, kv_size = bytes_per_element(dtype), bytes_per_element(kv_dtype or dtype)
    return Cost(
        2.0 * num_heads * (width + kv_lora_rank) * num_keys,
        num_heads * width * size + num_keys * width * kv_size,
        num_heads * kv_lora_rank * size,
    )


def expected_experts(num_tokens: int, num_experts: int, experts_per_token: int) -> float:
    """Expected number of distinct experts that `num_tokens` touch under uniform independent routing.

    E (1 - (1 - k/E)^n): an expert is missed by one token with probability 1 - k/E (occupancy;
    Feller, An Introduction to Probability Theory I, IV.2). Skewed routing touches fewer.
    """
    if not 0 < experts_per_token <= num_experts:
        raise InputError(
            f"{experts_per_token} experts per token of {num_experts}",
            allowed="at least 1 and at most the number of experts",
            next_step="check num_experts and num_experts_per_tok of the model's config.json",
        )
    return num_experts * (1.0 - (1.0 - experts_per_token / num_experts) ** num_tokens)


def mlp(
    num_tokens: int, hidden: int, intermediate: int, *, gated: bool = True, dtype: str = "bf16"
) -> Cost:
    """Feed-forward layer: up (and gate) and down projection; the inner activation stays on chip."""
    weights = (3 if gated else 2) * hidden * intermediate
    size = bytes_per_element(dtype)
    return Cost(
        2.0 * num_tokens * weights,
        (weights + num_tokens * hidden) * size,
        num_tokens * hidden * size,
    )


def moe(
    num_tokens: int,
    hidden: int,
    intermediate: int,
    *,
    num_experts: int,
    experts_per_token: int,
    gated: bool = True,
    dtype: str = "bf16",
    num_experts_touched: float | None = None,
) -> Cost:
    """Routed experts and router of one layer; shared experts are an `mlp` of their own.

    `num_experts_touched` is the measured number of distinct experts; None takes `expected_experts`.
    Every assignment (token x expert) reads its input row and adds to its output row.
    """
    touched = num_experts_touched
    if touched is None:
        touched = expected_experts(num_tokens, num_experts, experts_per_token)
    weights = (3 if gated else 2) * hidden * intermediate
    assignments, size = num_tokens * experts_per_token, bytes_per_element(dtype)
    experts = Cost(
        2.0 * assignments * weights,
        (touched * weights + assignments * hidden) * size,
        num_tokens * hidden * size,
    )
    return experts + matmul(num_tokens, num_experts, hidden, dtype)


def norm(
    num_tokens: int, hidden: int, dtype: str = "bf16", *, kind: Literal["rms", "layer"] = "rms"
) -> Cost:
    """RMS norm (4 FLOPs an element: square, sum, scale, weight) or layer norm (7: mean and shift too)."""
    per_element = {"rms": 4.0, "layer": 7.0}[kind]
    size, elements = bytes_per_element(dtype), num_tokens * hidden
    weights = hidden * (1 if kind == "rms" else 2)
    return Cost(per_element * elements, (elements + weights) * size, elements * size)


def embedding(num_tokens: int, hidden: int, dtype: str = "bf16") -> Cost:
    """Look-up of one row per token (8-byte ids): no FLOPs."""
    size = num_tokens * hidden * bytes_per_element(dtype)
    return Cost(0.0, size + 8.0 * num_tokens, size)


def elementwise(
    num_elements: int, *, num_inputs: int = 1, flops_per_element: float = 1.0, dtype: str = "bf16"
) -> Cost:
    """A pointwise kernel: every input read once, one output written."""
    size = num_elements * bytes_per_element(dtype)
    return Cost(flops_per_element * num_elements, num_inputs * size, size)


def roofline_ns(cost: Cost, hardware: Hardware, dtype: str) -> float | None:
    """Least time in ns: the larger of FLOPs at the dense peak and bytes at the memory's peak rate.

    None when the work has FLOPs and the part has no stated peak for `dtype`.
    """
    memory_ns = cost.bytes_total / hardware.memory_bytes_per_s * 1e9
    if not cost.flops:
        return memory_ns
    peak = hardware.peak(canonical_dtype(dtype))
    return None if peak is None else max(cost.flops / peak * 1e9, memory_ns)


def bus_factor(op: CollectiveOp, num_ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md).

    all-reduce 2(n-1)/n; all-gather, reduce-scatter, all-to-all (n-1)/n; broadcast and p2p 1.
    """
    _check(op, num_ranks)
    if op in ("broadcast", "p2p"):
        return 1.0
    return (2.0 if op == "all_reduce" else 1.0) * (num_ranks - 1) / num_ranks


def bus_bytes_per_s(
    op: CollectiveOp, payload_bytes: float, num_ranks: int, duration_ns: int
) -> float:
    """Bus bandwidth of a measured collective; payload as in `wire_bytes`."""
    if duration_ns <= 0:
        raise InputError(
            f"a collective of {duration_ns} ns has no bandwidth",
            allowed="a duration above 0 ns",
            next_step="leave events without a duration out",
        )
    return payload_bytes / duration_ns * 1e9 * bus_factor(op, num_ranks)


def wire_bytes(
    op: CollectiveOp, payload_bytes: float, num_ranks: int, algorithm: Algorithm = "ring"
) -> float:
    """Bytes that the busiest rank sends.

    `payload_bytes` is the size nccl-tests reports: the whole buffer of a rank, that is the output of an
    all-gather, the input of a reduce-scatter, of an all-to-all and of everything else.

    Ring: all-reduce 2(n-1)/n, all-gather, reduce-scatter and all-to-all (n-1)/n of the payload; broadcast
    passes the whole once per rank. Tree (NCCL 2.4: two binary trees, each with half of the data; a rank
    is inner node of one and leaf of the other): all-reduce sends half up in both and half to each of two
    children in one: 2 payloads, 1.5 with three ranks, 1 with two; broadcast: 1.
    """
    _check(op, num_ranks)
    if num_ranks == 1:
        return 0.0
    if algorithm == "ring" or op in ("all_to_all", "p2p"):
        return payload_bytes * bus_factor(op, num_ranks)
    if op == "all_reduce":
        return min(2.0, num_ranks / 2) * payload_bytes
    if op == "broadcast":
        return float(payload_bytes)
    raise InputError(
        f"{op} has no tree form",
        allowed="tree: all_reduce, broadcast; ring: every collective",
        next_step="use algorithm='ring'",
    )


def num_hops(op: CollectiveOp, num_ranks: int, algorithm: Algorithm = "ring") -> int:
    """Sequential message latencies: 2(n-1) or n-1 in a ring, 2 or 1 times ceil(log2 n) in a tree."""
    _check(op, num_ranks)
    if op == "p2p":
        return min(1, num_ranks - 1)
    if algorithm == "tree" and op in ("all_reduce", "broadcast"):
        depth = math.ceil(math.log2(num_ranks))
        return 2 * depth if op == "all_reduce" else depth
    return (2 if op == "all_reduce" else 1) * (num_ranks - 1)


def collective_ns(
    op: CollectiveOp,
    payload_bytes: float,
    num_ranks: int,
    *,
    latency_ns: float,
    bytes_per_s: float,
    algorithm: Algorithm = "ring",
) -> float:
    """Alpha-beta time (Hockney 1994; Thakur, Rabenseifner, Gropp 2005): hops x latency + bytes / rate.

    `bytes_per_s` is the rate at which one rank sends, in one direction.
    """
    sent = wire_bytes(op, payload_bytes, num_ranks, algorithm)
    return num_hops(op, num_ranks, algorithm) * latency_ns + sent / bytes_per_s * 1e9


def _check(op: str, num_ranks: int) -> None:
    if op not in COLLECTIVE_OPS:
        raise InputError(
            f"unknown collective {op!r}",
            allowed=", ".join(COLLECTIVE_OPS),
            next_step="name the collective in one of these words",
        )
    if num_ranks < 1:
        raise InputError(
            f"a group of {num_ranks} ranks",
            allowed="at least 1",
            next_step="give the size of the process group",
        )
