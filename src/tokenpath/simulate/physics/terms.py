"""The work of one step on one rank, by number of tokens: FLOPs, bytes, messages. No time, nothing fitted.

Every array runs over `KNOTS`, tokens that one rank's scheduler computes in a step. Work that does not
depend on the token count alone (attention over a context) is a coefficient per unit of
`step_model.FEATURES`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenpath.core.costs import expected_experts
from tokenpath.core.hardware import Hardware
from tokenpath.core.llm import ModelShape
from tokenpath.core.quantisation import WeightFormat
from tokenpath.simulate.physics.deployment import Deployment
from tokenpath.simulate.step_model import Float64s

KNOTS: Float64s = np.array(
    [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384], dtype=np.float64
)
_ACTIVATION_BYTES = 2.0
_GRAPH_TOKENS = {"vllm": 512.0}
"""vLLM captures graphs of the pieces between attentions up to this (docs, design/cuda_graphs.md; config/compilation.py);
SGLang and TensorRT-LLM capture decode alone unless told more."""
_INDEX_BYTES = 132.0
"""Key of the sparse-attention indexer, one token and layer: 128 bytes and a scale (arXiv 2512.02556)."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Work per rank and step; arrays over `KNOTS` unless said."""

    linear_flops: Float64s
    """Projections, dense and shared MLPs, router."""
    linear_bytes: float
    """Their weights."""
    linear_peak: float
    """Peak FLOP/s of their type on this part."""
    expert_flops: Float64s
    """Routed experts of this rank, mean over ranks."""
    expert_bytes: Float64s
    """Weights of the experts that the step touches."""
    expert_peak: float
    """Peak FLOP/s of their type."""
    experts_touched: Float64s
    """Experts of this rank that the step touches, all layers together."""
    num_narrow_moe_layers: float
    """Layers whose routed experts are quantised."""
    num_quantised_layers: float
    """Layers whose inputs are quantised in a kernel of their own."""
    is_widened: float
    """1 where the part lacks the type and the kernel widens weights to 16 bits, else 0."""
    is_linear_widened: float
    """The same of projections and dense MLPs."""
    head_bytes: float
    """Output head."""
    head_flops_per_request: float
    """Its FLOPs for one sampled token."""
    stream_bytes: Float64s
    """Residual stream read and written between kernels: once per norm and projection group."""
    memory_rate: float
    """Peak bytes/s of device memory."""
    attention_peak: float
    """Peak FLOP/s of attention (16 bit)."""
    is_narrow_kv: float
    """1 for a cache of 8 bits or fewer, else 0."""
    kv_group_log2: float
    """log2 of the query heads that share a KV head; 0 with MLA, whose kernels are others."""
    decode_kv_bytes: float
    """Per token of context of a decode request: cache that is read."""
    decode_kv_flops: float
    """Per token of context of a decode request."""
    decode_request_bytes: float
    """Per decode request: windows, sparse selections, linear states."""
    prefill_pair_flops: float
    """Per query-key pair."""
    prefill_token_flops: float
    """Per prefill token: windows, sparse selections, linear states."""
    prefill_kv_bytes: float
    """Per token computed before: cache that is read again."""
    num_layers: float
    """All of them: a step passes every stage."""
    num_moe_layers: float
    """Layers with routed experts."""
    graph_tokens: float
    """Most tokens of a step with prefill whose layers are replayed, attention apart; 0: launched one by one."""
    num_all_reduces: float
    """All-reduces of the tensor-parallel group in a step."""
    all_reduce_bytes: Float64s
    """Bytes that a rank sends in them together (ring)."""
    all_reduce_log2: float
    """log2 of the group, what their latency grows with, times three over PCIe."""
    num_exchanges: float
    """Dispatches and combines between data-parallel ranks."""
    exchange_bytes: Float64s
    """Bytes that a rank sends in them together."""
    is_expert_parallel: float
    """1 where ranks hold different experts, so that the busiest decides; else 0."""
    link_rate: float
    """Bytes/s that one rank sends to its peers."""
    num_hops: float
    """Messages between pipeline stages."""
    hop_bytes: Float64s
    """Bytes of one of them, together."""


def terms_of(at: Deployment) -> Terms:
    """The work of a deployment."""
    shape, hw, scheme = at.model.shape, at.hardware, at.model.scheme
    # A step passes all stages one after the other; that they hold several steps at a time is the replica's.
    tokens = KNOTS
    hidden, tp, dp = shape.hidden_size, at.tp, at.dp
    parts = shape.parameters()
    rest = parts["attention"] + parts["mlp"] + parts["shared_experts"] + parts["router"]
    linear_type = scheme.linear.compute_dtype(hw)
    expert_type = scheme.experts.compute_dtype(hw)
    experts = _experts(at, tokens)
    kv = _Attention.of(at)
    payload = tokens * hidden * _ACTIVATION_BYTES
    num_reduces = 2.0 * shape.num_layers if tp > 1 else 0.0
    num_moe = float(shape.moe.num_layers) if shape.moe else 0.0
    exchanges = 2.0 * num_moe if dp > 1 else 0.0
    return Terms(
        linear_flops=2.0 * rest / tp * tokens,
        linear_bytes=rest / tp * scheme.linear.bits_per_param / 8,
        linear_peak=_peak(hw, linear_type),
        expert_flops=experts[0],
        expert_bytes=experts[1],
        expert_peak=_peak(hw, expert_type),
        experts_touched=experts[2],
        num_narrow_moe_layers=num_moe if scheme.experts.bits_per_param < 16 else 0.0,
        num_quantised_layers=_quantised_layers(at),
        is_widened=_is_widened(scheme.experts, hw) if shape.moe else 0.0,
        is_linear_widened=_is_widened(scheme.linear, hw),
        head_bytes=shape.vocab_size * hidden / tp * scheme.head.bits_per_param / 8,
        head_flops_per_request=2.0 * shape.vocab_size * hidden / tp,
        # Ten passes of the residual width a layer: two norms, residuals, inputs and outputs of products.
        stream_bytes=10.0 * payload * shape.num_layers,
        memory_rate=hw.memory_bytes_per_s,
        attention_peak=_peak(hw, "bf16"),
        is_narrow_kv=1.0 if at.kv_element_bytes <= 1 else 0.0,
        kv_group_log2=0.0 if shape.is_mla else float(np.log2(shape.num_heads / shape.num_kv_heads)),
        decode_kv_bytes=kv.kv_bytes,
        decode_kv_flops=kv.decode_flops,
        decode_request_bytes=kv.request_bytes,
        prefill_pair_flops=kv.pair_flops,
        prefill_token_flops=kv.token_flops,
        prefill_kv_bytes=kv.kv_bytes,
        num_layers=float(shape.num_layers),
        num_moe_layers=num_moe,
        graph_tokens=_GRAPH_TOKENS.get(at.engine, 0.0),
        num_all_reduces=num_reduces,
        all_reduce_bytes=num_reduces * payload * 2.0 * (tp - 1) / tp,
        all_reduce_log2=_latency_weight(hw) * float(np.log2(tp)),
        num_exchanges=exchanges,
        exchange_bytes=exchanges * payload * (dp - 1),
        is_expert_parallel=1.0 if at.ep > 1 else 0.0,
        link_rate=_link_rate(hw),
        num_hops=float(at.pp - 1),
        hop_bytes=(at.pp - 1) * payload,
    )


def _is_widened(weights: WeightFormat, hw: Hardware) -> float:
    """1 where a kernel has to turn stored weights into 16 bits before it multiplies."""
    narrow = weights.bits_per_param < 16
    return 1.0 if narrow and weights.compute_dtype(hw) in ("bf16", "fp16") else 0.0


def _quantised_layers(at: Deployment) -> float:
    """Inputs are quantised where the product itself runs in few bits."""
    shape, hw = at.model.shape, at.hardware
    narrow = ("fp8", "int8", "fp4")
    scheme = at.model.scheme
    if scheme.linear.compute_dtype(hw) in narrow:
        return float(shape.num_layers)
    if shape.moe and scheme.experts.compute_dtype(hw) in narrow:
        return float(shape.moe.num_layers)
    return 0.0


def _experts(at: Deployment, tokens: Float64s) -> tuple[Float64s, Float64s, Float64s]:
    """FLOPs and weight bytes of the routed experts of one rank, and how many it touches."""
    shape = at.model.shape
    moe = shape.moe
    if moe is None:
        nothing = np.zeros(len(tokens))
        return nothing, nothing, nothing
    matrices = 3.0 if shape.family.gated else 2.0
    weights = matrices * shape.hidden_size * moe.intermediate_size / at.expert_tp
    everyone = tokens * at.dp
    touched = np.array(
        [
            expected_experts(max(1, round(n)), moe.num_experts, moe.experts_per_token)
            for n in everyone
        ]
    )
    flops = 2.0 * everyone * moe.experts_per_token / at.ep * weights * moe.num_layers
    bits = at.model.scheme.experts.bits_per_param
    mine = touched / at.ep * moe.num_layers
    return flops, mine * weights * bits / 8, mine


@dataclass(frozen=True, slots=True)
class _Attention:
    """Attention of all layers on one rank."""

    kv_bytes: float
    decode_flops: float
    request_bytes: float
    pair_flops: float
    token_flops: float

    @staticmethod
    def of(at: Deployment) -> _Attention:
        shape = at.model.shape
        heads = shape.num_heads / at.tp
        layers = float(shape.num_cache_layers)
        size = at.kv_element_bytes
        kv_layer, decode_width = _widths(shape, at.tp)
        pair_width = float(shape.head_dim + shape.v_head_dim)
        full = layers - shape.num_sliding_layers
        kv_bytes, request_bytes = full * kv_layer * size, 0.0
        decode_flops = 2.0 * heads * decode_width * full
        pair_flops, token_flops = 2.0 * heads * pair_width * full, 0.0
        if shape.sliding_window is not None:
            window = float(shape.sliding_window)
            request_bytes += shape.num_sliding_layers * kv_layer * size * window
            token_flops += 2.0 * heads * pair_width * shape.num_sliding_layers * window
        if at.model.sparse_topk is not None:
            request_bytes += kv_bytes * at.model.sparse_topk
            kv_bytes = layers * _INDEX_BYTES
            decode_flops = 0.0
        if shape.linear is not None:
            state = shape.linear.state_elements() / at.tp * shape.linear.num_layers
            request_bytes += 2.0 * state * 4.0  # read and written in 32 bits
            token_flops += 4.0 * state
        return _Attention(kv_bytes, decode_flops, request_bytes, pair_flops, token_flops)


def _widths(shape: ModelShape, tp: int) -> tuple[float, float]:
    """Elements of the cache of one token and layer on a rank; widths that a decode query works on."""
    if shape.kv_lora_rank is not None and shape.rope_head_dim is not None:
        latent = float(shape.kv_lora_rank + shape.rope_head_dim)
        return latent, latent + shape.kv_lora_rank
    width = float(shape.head_dim + shape.v_head_dim)
    return max(1.0, shape.num_kv_heads / tp) * width, width


def _peak(hw: Hardware, dtype: str) -> float:
    peak = hw.peak(dtype) or hw.peak("bf16") or hw.peak("fp16") or hw.peak("fp32")
    if peak is None:
        raise ValueError(f"{hw.key} has no peak for {dtype}, fp16 or fp32")
    return peak


_PCIE_BYTES_PER_S = 26e9
"""What a PCIe 4 x16 slot delivers peer to peer, one direction, of 31.5e9 nominal."""


_PCIE_LATENCY = 3.0
"""Small all-reduces over PCIe take about three times those over NVLink (no multicast, no direct writes)."""


def _latency_weight(hw: Hardware) -> float:
    return 1.0 if hw.scale_up_bytes_per_s else _PCIE_LATENCY


def _link_rate(hw: Hardware) -> float:
    return hw.scale_up_bytes_per_s or _PCIE_BYTES_PER_S
