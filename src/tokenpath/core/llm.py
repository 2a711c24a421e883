"""Shape of a language model to parameters, KV bytes and FLOPs; `llm_config` reads one from config.json.

Parameter counts follow the layer classes of `transformers` (models/<model_type>/modeling_*.py), tensor
by tensor. FLOPs count matrix work only (2 per multiply-add): projections, experts, router, attention
scores and values, output head; norms, rotary embedding and softmax are below a few per cent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tokenpath.core.costs import bytes_per_element, causal_pairs
from tokenpath.core.errors import InputError

Phase = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class Family:
    """What a `model_type` fixes and its config.json does not say."""

    gated: bool = True
    """Whether the MLP has a gate projection (three matrices) or not (two)."""
    qkv_bias: bool | None = False
    """Bias on q, k, v; None: `attention_bias` of the config says."""
    out_bias: bool | None = False
    """Bias on the attention output; None: `attention_bias` of the config says."""
    mlp_bias: bool | None = False
    """Bias in the MLP; None: `mlp_bias` of the config says."""
    qk_norm: bool = False
    """RMS norm on each query and key head."""
    norms_per_layer: int = 2
    """Norms of hidden size in one layer."""
    norm_bias: bool = False
    """Layer norm with weight and bias instead of RMS norm."""
    position_offset: int | None = None
    """Learned positions: rows beyond the maximum length; None: rotary, no parameters."""
    tied: bool = False
    """Whether embedding and output head are one matrix when the config does not say."""
    sinks: bool = False
    """One learned attention sink per head."""
    local: tuple[int, int] | None = None
    """(n, k): of every n layers the first k have the sliding window; None: all layers, if any."""


@dataclass(frozen=True, slots=True)
class MoeShape:
    """The routed feed-forward layers of a mixture-of-experts model."""

    num_layers: int
    """Layers with routed experts; the others are dense."""
    num_experts: int
    """Routed experts of one layer."""
    experts_per_token: int
    """Routed experts that one token passes through."""
    intermediate_size: int
    """Width of one routed expert."""
    shared_intermediate_size: int
    """Width of all shared experts of a layer together; 0: none."""
    shared_gate: bool
    """Whether the shared expert has a scalar gate (Qwen2-MoE)."""
    router_bias: bool
    """Whether the router adds a bias per expert (DeepSeek-V3 correction bias, gpt-oss)."""


@dataclass(frozen=True, slots=True)
class LinearShape:
    """Layers of gated linear attention (Gated DeltaNet, arXiv 2412.06464): a state instead of a cache."""

    num_layers: int
    """Layers of this kind; the others attend to all tokens."""
    num_key_heads: int
    """Query and key heads."""
    num_value_heads: int
    """Value heads, each with one state."""
    key_head_dim: int
    """Width of a query and key head."""
    value_head_dim: int
    """Width of a value head."""

    def matrix(self, hidden: int) -> int:
        """Parameters of the projections of one layer: q, k, v, output gate, two gates, output."""
        keys = 2 * self.num_key_heads * self.key_head_dim
        values = self.num_value_heads * self.value_head_dim
        return hidden * (keys + 3 * values + 2 * self.num_value_heads)

    def state_elements(self) -> int:
        """Elements of the state of one request in one layer."""
        return self.num_value_heads * self.key_head_dim * self.value_head_dim


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder-only language model; read one with `llm_config.read_model_shape`."""

    model_type: str
    """`model_type` of the config (of its text part, if nested)."""
    num_layers: int
    """Decoder layers; multi-token-prediction layers are not counted."""
    hidden_size: int
    """Width of the residual stream."""
    vocab_size: int
    """Rows of the embedding."""
    num_heads: int
    """Query heads."""
    num_kv_heads: int
    """Key and value heads before MLA compression; fewer than `num_heads` is GQA."""
    head_dim: int
    """Width of a query and key head; with MLA the part without rotary plus the rotary part."""
    v_head_dim: int
    """Width of a value head."""
    intermediate_size: int
    """Width of a dense MLP."""
    kv_lora_rank: int | None
    """Width of the MLA latent; None: no MLA."""
    q_lora_rank: int | None
    """Width of the compressed query of MLA; None: queries are projected directly, or no MLA."""
    rope_head_dim: int | None
    """Rotary part of an MLA head, shared by all heads in the cache; None: no MLA."""
    moe: MoeShape | None
    """Routed layers; None: dense."""
    tied_embeddings: bool
    """Whether embedding and output head are one matrix."""
    num_positions: int
    """Rows of a learned position embedding; 0 with rotary positions."""
    sliding_window: int | None
    """Tokens that a local layer sees; None: every layer sees all."""
    num_sliding_layers: int
    """Layers with the sliding window."""
    family: Family
    """Biases, norms and gates of the model type, resolved against the config."""
    dtype: str | None
    """Type that the config states for the weights (`torch_dtype`); None: not stated."""
    linear: LinearShape | None = None
    """Layers of linear attention; None: every layer has a cache."""

    @property
    def num_cache_layers(self) -> int:
        """Layers with a KV cache."""
        return self.num_layers - (self.linear.num_layers if self.linear else 0)

    @property
    def is_mla(self) -> bool:
        """Whether attention is multi-head latent attention."""
        return self.kv_lora_rank is not None

    def parameters(self) -> dict[str, int]:
        """Parameters by part of the model; `experts` are the routed ones, `lm_head` is 0 when tied."""
        h, fam, moe = self.hidden_size, self.family, self.moe
        norm = h * (2 if fam.norm_bias else 1)
        num_moe = moe.num_layers if moe else 0
        parts = {
            "embedding": (self.vocab_size + self.num_positions) * h,
            "attention": self._attention_weights()
            + self.num_cache_layers * self._attention_extra(),
            "mlp": (self.num_layers - num_moe) * self._mlp(self.intermediate_size),
            "experts": 0,
            "shared_experts": 0,
            "router": 0,
            "norms": (self.num_layers * fam.norms_per_layer + 1) * norm,
            "lm_head": 0 if self.tied_embeddings else self.vocab_size * h,
        }
        if moe:
            parts["experts"] = num_moe * moe.num_experts * self._mlp(moe.intermediate_size)
            shared = self._mlp(moe.shared_intermediate_size) + (h if moe.shared_gate else 0)
            parts["shared_experts"] = num_moe * shared if moe.shared_intermediate_size else 0
            parts["router"] = num_moe * moe.num_experts * (h + (1 if moe.router_bias else 0))
        return parts

    @property
    def total_params(self) -> int:
        """All parameters."""
        return sum(self.parameters().values())

    @property
    def active_params(self) -> int:
        """Parameters that one token uses: everything but the routed experts it is not sent to.

        The embedding is in, as in Mixtral's and Qwen's published figures; DeepSeek's leave it out.
        """
        parts = self.parameters()
        if self.moe:
            parts["experts"] = parts["experts"] // self.moe.num_experts * self.moe.experts_per_token
        return sum(parts.values())

    def weight_bytes(self, dtype: str | None = None, *, active: bool = False) -> float:
        """Bytes of the weights, all in `dtype` (None: the config's); block scales are not included."""
        stored = dtype or self.dtype
        if stored is None:
            raise InputError(
                "the weights' number type is not known",
                where="config.json: torch_dtype",
                allowed="a type name such as bfloat16, or the argument dtype",
                next_step="pass dtype='bf16' (or what the checkpoint is stored in)",
            )
        return (self.active_params if active else self.total_params) * bytes_per_element(stored)

    def kv_bytes_per_token(self, dtype: str = "bf16", tp: int = 1) -> float:
        """KV-cache bytes that one token adds on ONE rank of a tensor-parallel group of `tp`.

        GQA heads are split over ranks and copied where ranks outnumber them; the MLA latent is whole on
        every rank (vLLM, SGLang). Local layers stop growing at their window: see `kv_bytes`.
        """
        return self.num_cache_layers * self._kv_bytes_per_layer(dtype, tp)

    def kv_bytes(self, num_tokens: int, dtype: str = "bf16", tp: int = 1) -> float:
        """KV-cache bytes of a request of `num_tokens` on one rank, local layers cut at their window."""
        local = num_tokens if self.sliding_window is None else min(num_tokens, self.sliding_window)
        tokens = (self.num_cache_layers - self.num_sliding_layers) * num_tokens
        return (tokens + self.num_sliding_layers * local) * self._kv_bytes_per_layer(dtype, tp)

    def flops_per_token(self, phase: Phase, num_context_tokens: int) -> float:
        """FLOPs of one token with `num_context_tokens` before it.

        `prefill` leaves the output head out (only a prompt's last token needs it); `decode` has it, and
        with MLA works on the latent (absorbed projections), which costs more per key and reads less.
        """
        flops = self._body_flops() + self._attention_flops(phase, 1, num_context_tokens)
        return flops + (self._head_flops() if phase == "decode" else 0.0)

    def flops_prefill(
        self, num_tokens: int, num_context_tokens: int = 0, num_logits: int = 1
    ) -> float:
        """FLOPs of a prompt or chunk of `num_tokens` after `num_context_tokens` already cached.

        `num_logits` tokens pass the output head: 1 for a prompt's last chunk, 0 for the others, all of
        them for prompt log-probabilities.
        """
        return (
            num_tokens * self._body_flops()
            + self._attention_flops("prefill", num_tokens, num_context_tokens)
            + num_logits * self._head_flops()
        )

    def _attention_weights(self) -> int:
        """Parameters of the projections of attention in all layers."""
        linear = self.linear.num_layers * self.linear.matrix(self.hidden_size) if self.linear else 0
        return self.num_cache_layers * self._attention_matrix() + linear

    def _attention_matrix(self) -> int:
        """Parameters of the attention projections of one layer, without biases and norms."""
        h, heads = self.hidden_size, self.num_heads
        # The families with linear layers gate the output of the others: queries are projected twice.
        out = heads * self.v_head_dim * h * (2 if self.linear else 1)
        if self.kv_lora_rank is None or self.rope_head_dim is None:
            return h * heads * self.head_dim + out + self._kv_width() * h
        q_in = h if self.q_lora_rank is None else self.q_lora_rank
        query = q_in * heads * self.head_dim + (0 if self.q_lora_rank is None else h * q_in)
        up = self.kv_lora_rank * heads * (self.head_dim - self.rope_head_dim + self.v_head_dim)
        return query + h * (self.kv_lora_rank + self.rope_head_dim) + up + out

    def _attention_extra(self) -> int:
        """Biases, sinks and inner norms of the attention of one layer."""
        fam = self.family
        extra = self.hidden_size if fam.out_bias else 0
        if self.kv_lora_rank is not None:
            biased = (self.q_lora_rank or 0) + self.kv_lora_rank + (self.rope_head_dim or 0)
            return (
                extra
                + (biased if fam.qkv_bias else 0)
                + self.kv_lora_rank
                + (self.q_lora_rank or 0)
            )
        if fam.qkv_bias:
            extra += self.num_heads * self.head_dim + self._kv_width()
        if fam.qk_norm:
            extra += 2 * self.head_dim
        return extra + (self.num_heads if fam.sinks else 0)

    def _kv_width(self) -> int:
        return self.num_kv_heads * (self.head_dim + self.v_head_dim)

    def _mlp(self, width: int) -> int:
        matrices = 3 if self.family.gated else 2
        bias = (matrices - 1) * width + self.hidden_size if self.family.mlp_bias else 0
        return matrices * self.hidden_size * width + bias

    def _kv_bytes_per_layer(self, dtype: str, tp: int) -> float:
        size = bytes_per_element(dtype)
        if self.kv_lora_rank is not None and self.rope_head_dim is not None:
            return (self.kv_lora_rank + self.rope_head_dim) * size
        if tp < 1 or (self.num_kv_heads % tp and tp % self.num_kv_heads):
            raise InputError(
                f"{self.num_kv_heads} KV heads cannot be split over {tp} ranks",
                allowed="a tensor-parallel size that divides the KV heads or is a multiple of them",
                next_step="choose another tensor-parallel size",
            )
        return max(1, self.num_kv_heads // tp) * (self.head_dim + self.v_head_dim) * size

    def _body_flops(self) -> float:
        """Matrix FLOPs of one token through all layers, attention scores excluded."""
        h, moe = self.hidden_size, self.moe
        matrices = (3 if self.family.gated else 2) * h
        weights = self._attention_weights()
        weights += (
            (self.num_layers - (moe.num_layers if moe else 0)) * matrices * self.intermediate_size
        )
        if moe:
            width = moe.experts_per_token * moe.intermediate_size + moe.shared_intermediate_size
            gate = h if moe.shared_gate else 0
            weights += moe.num_layers * (matrices * width + h * moe.num_experts + gate)
        return 2.0 * weights

    def _head_flops(self) -> float:
        return 2.0 * self.hidden_size * self.vocab_size

    def _attention_flops(self, phase: Phase, num_new: int, num_context: int) -> float:
        width = self.head_dim + self.v_head_dim
        if phase == "decode" and self.kv_lora_rank is not None:
            width = 2 * self.kv_lora_rank + (self.rope_head_dim or 0)
        pairs = (self.num_cache_layers - self.num_sliding_layers) * causal_pairs(
            num_new, num_context
        )
        local = causal_pairs(num_new, num_context, self.sliding_window)
        return 2.0 * self.num_heads * width * (pairs + self.num_sliding_layers * local)
