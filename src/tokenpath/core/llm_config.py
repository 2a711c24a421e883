"""Reads a `ModelShape` from a Hugging Face config.json.

A size that decides a number is never guessed: a missing field is an InputError that names it. What a
model type fixes in code and its config does not carry is the table `FAMILIES`, taken from
`transformers`, models/<model_type>/{configuration,modeling}_*.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenpath.core.errors import InputError
from tokenpath.core.llm import Family, LinearShape, ModelShape, MoeShape

if TYPE_CHECKING:
    from collections.abc import Mapping

_FROM_CONFIG = Family(qkv_bias=None, out_bias=None)
_BIASED = Family(gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, norm_bias=True)

FAMILIES: Mapping[str, Family] = {
    "llama": replace(_FROM_CONFIG, mlp_bias=None),
    "mistral": Family(),
    "phi3": Family(),
    "mixtral": Family(),
    "qwen2": Family(qkv_bias=True),
    "qwen2_moe": Family(qkv_bias=True),
    "qwen3": replace(_FROM_CONFIG, qk_norm=True),
    "qwen3_moe": replace(_FROM_CONFIG, qk_norm=True),
    "gemma": replace(_FROM_CONFIG, tied=True),
    "gemma2": replace(_FROM_CONFIG, norms_per_layer=4, tied=True, local=(2, 1)),
    "gemma3_text": replace(_FROM_CONFIG, qk_norm=True, norms_per_layer=4, tied=True, local=(6, 5)),
    "deepseek_v2": _FROM_CONFIG,
    "deepseek_v3": _FROM_CONFIG,
    "kimi_k2": _FROM_CONFIG,
    "gpt_oss": replace(_FROM_CONFIG, mlp_bias=True, sinks=True, local=(2, 1)),
    "gpt2": replace(_BIASED, position_offset=0, tied=True),
    "opt": replace(_BIASED, position_offset=2, tied=True),
    "gpt_neox": _BIASED,
    "starcoder2": replace(_BIASED, tied=True),
    "nemotron": replace(_FROM_CONFIG, gated=False, norm_bias=True),
    "llama4_text": _FROM_CONFIG,
    "minimax_m2": replace(_FROM_CONFIG, qk_norm=True),
    "glm4_moe": replace(_FROM_CONFIG, qk_norm=True, out_bias=False),
    "glm_moe_dsa": _FROM_CONFIG,
    "qwen3_next": replace(_FROM_CONFIG, qk_norm=True),
    "qwen3_5_text": replace(_FROM_CONFIG, qk_norm=True),
    "qwen3_5_moe_text": replace(_FROM_CONFIG, qk_norm=True),
}
"""Model types that can be read. A None in a family is filled from the config."""

_MLA_TYPES = frozenset({"deepseek_v2", "deepseek_v3", "kimi_k2", "glm_moe_dsa"})
_LINEAR_TYPES = frozenset({"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"})
_FIRST_DENSE_TYPES = frozenset({"glm4_moe", *_MLA_TYPES})
_SHARED_GATE_TYPES = frozenset({"qwen2_moe", "qwen3_next", "qwen3_5_moe_text"})
# The plain width is the expert's.
_PLAIN_WIDTH_TYPES = frozenset({"mixtral", "gpt_oss", "minimax_m2", "llama4_text"})
_MOE_TYPES = frozenset({"qwen3_moe", *_PLAIN_WIDTH_TYPES, *_SHARED_GATE_TYPES, *_FIRST_DENSE_TYPES})
_ROUTER_BIAS_TYPES = frozenset(
    {"deepseek_v3", "kimi_k2", "gpt_oss", "glm4_moe", "glm_moe_dsa", "minimax_m2"}
)
_WINDOW_IF_USED = frozenset({"qwen2", "qwen2_moe", "qwen3", "qwen3_moe"})
_MAX_CONFIG_BYTES = 4 << 20


def read_model_shape(
    config: Mapping[str, Any] | str | PathLike[str], *, model_type: str | None = None
) -> ModelShape:
    """The shape behind a config.json, given as a path, its folder, or the parsed object.

    A nested `text_config` (multimodal models) is used where there is one. `model_type` overrides the
    config's, for a fine-tune under a new name with the layers of a known family. Raises InputError for
    a missing or unusable field and for an unknown model type.
    """
    raw, where = _load(config)
    fields = _Fields(raw, where)
    kind = model_type or fields.text("model_type")
    nested = raw.get("text_config")
    if isinstance(nested, dict):
        fields = _Fields({"torch_dtype": raw.get("torch_dtype"), **nested}, f"{where}: text_config")
        kind = model_type or fields.text("model_type")
    family = FAMILIES.get(kind)
    if family is None:
        raise InputError(
            f"model type {kind!r} is not known",
            where=f"{where}: model_type",
            allowed=", ".join(sorted(FAMILIES)),
            next_step="pass model_type= of the family that has the same layers",
        )
    return _read_shape(fields, kind, family)


@dataclass(frozen=True, slots=True)
class _Fields:
    """Typed access to the fields of a config; every failure names the field."""

    values: Mapping[str, Any]
    where: str

    def count(
        self, *names: str, default: int | None = None, least: int = 1, most: int = 2**32
    ) -> int:
        """The first of `names` that has a value, as an integer of `least` to `most`."""
        allowed = f"an integer of {least:,} to {most:,}"
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise self.error(name, f"is {value!r:.40}", allowed)
            return value
        if default is None:
            alternatives = f" (or {', '.join(names[1:])})" if names[1:] else ""
            raise self.error(names[0] + alternatives, "is missing", allowed)
        return default

    def flag(self, name: str, default: bool) -> bool:
        """A boolean field; `default` when absent or null."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(name, f"is {value!r}", "true or false")
        return value

    def text(self, name: str) -> str:
        """A string field that must be there."""
        value = self.values.get(name)
        if not isinstance(value, str) or not value:
            what = "is missing" if value is None else f"is {value!r}"
            raise self.error(name, what, "a non-empty string")
        return value

    def error(self, name: str, what: str, allowed: str) -> InputError:
        return InputError(
            f"field {name} {what}",
            where=self.where,
            allowed=allowed,
            next_step="use the complete config.json of the model; add the field if the model's class "
            "supplies it as a default",
        )


def _load(config: Mapping[str, Any] | str | PathLike[str]) -> tuple[Mapping[str, Any], str]:
    if not isinstance(config, (str, PathLike)):
        return config, "config"
    path = Path(config)
    if path.is_dir():
        path = path / "config.json"
    advice = "give the config.json of the model, or the folder that holds it"
    try:
        if path.stat().st_size > _MAX_CONFIG_BYTES:
            raise InputError(
                "file is too large for a model config",
                where=str(path),
                allowed=f"at most {_MAX_CONFIG_BYTES >> 20} MiB",
                next_step=advice,
            )
        raw = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(
            f"cannot be read ({error.strerror})",
            where=str(path),
            allowed="a readable file",
            next_step=advice,
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            "is not JSON", where=str(path), allowed="a JSON object", next_step=advice
        ) from error
    if not isinstance(raw, dict):
        raise InputError(
            "does not hold a JSON object",
            where=str(path),
            allowed="a JSON object",
            next_step=advice,
        )
    return raw, str(path)


def _read_shape(fields: _Fields, kind: str, family: Family) -> ModelShape:
    hidden = fields.count("hidden_size", "n_embd")
    heads = fields.count("num_attention_heads", "n_head")
    layers = fields.count("num_hidden_layers", "n_layer", most=10_000)
    mla = kind in _MLA_TYPES
    rope = fields.count("qk_rope_head_dim") if mla else None
    if rope is not None:
        head_dim = fields.count("qk_nope_head_dim") + rope
        v_head_dim, kv_heads = fields.count("v_head_dim"), heads
    else:
        head_dim = v_head_dim = _head_dim(fields, hidden, heads)
        kv_heads = fields.count("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise fields.error(
            "num_key_value_heads", f"is {kv_heads}", f"a divisor of the {heads} attention heads"
        )
    # GPT-2 leaves the width null and its class takes four times the hidden size.
    default_width = 4 * hidden if kind == "gpt2" else None
    if kind == "qwen3_5_moe_text":
        # Every layer is routed and no config of this family states a dense width.
        default_width = fields.count("moe_intermediate_size")
    names = ("intermediate_size", "n_inner", "ffn_dim")
    if kind == "llama4_text":
        names = ("intermediate_size_mlp", "intermediate_size", "ffn_dim")
    width = fields.count(*names, default=default_width)
    window, num_sliding = _read_window(fields, kind, family, layers)
    positions = 0
    if family.position_offset is not None:
        positions = fields.count("max_position_embeddings", "n_positions") + family.position_offset
    biased = fields.flag("attention_bias", False)
    dtype = fields.values.get("torch_dtype") or fields.values.get("dtype")
    return ModelShape(
        model_type=kind,
        num_layers=layers,
        hidden_size=hidden,
        vocab_size=fields.count("vocab_size"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=v_head_dim,
        intermediate_size=width,
        kv_lora_rank=fields.count("kv_lora_rank") if mla else None,
        # Present and null in the small DeepSeek-V2: queries are projected directly.
        q_lora_rank=(fields.count("q_lora_rank", default=0, least=0) or None) if mla else None,
        rope_head_dim=rope,
        moe=_read_moe(fields, kind, layers) if kind in _MOE_TYPES else None,
        tied_embeddings=fields.flag("tie_word_embeddings", family.tied),
        num_positions=positions,
        sliding_window=window,
        num_sliding_layers=num_sliding,
        family=replace(
            family,
            qkv_bias=biased if family.qkv_bias is None else family.qkv_bias,
            out_bias=biased if family.out_bias is None else family.out_bias,
            mlp_bias=fields.flag("mlp_bias", False) if family.mlp_bias is None else family.mlp_bias,
        ),
        dtype=dtype if isinstance(dtype, str) else None,
        linear=_read_linear(fields, layers) if kind in _LINEAR_TYPES else None,
    )


def _read_linear(fields: _Fields, layers: int) -> LinearShape:
    every = fields.count("full_attention_interval")
    return LinearShape(
        num_layers=layers - layers // every,
        num_key_heads=fields.count("linear_num_key_heads"),
        num_value_heads=fields.count("linear_num_value_heads"),
        key_head_dim=fields.count("linear_key_head_dim"),
        value_head_dim=fields.count("linear_value_head_dim"),
    )


def _head_dim(fields: _Fields, hidden: int, heads: int) -> int:
    explicit = fields.count("head_dim", default=0, least=0)
    if explicit:
        return explicit
    if hidden % heads:
        raise fields.error(
            "head_dim", "is missing", f"an integer; {hidden} is no multiple of {heads} heads"
        )
    return hidden // heads


def _read_moe(fields: _Fields, kind: str, layers: int) -> MoeShape:
    own = "intermediate_size" if kind in _PLAIN_WIDTH_TYPES else "moe_intermediate_size"
    width = fields.count(own)
    shared = 0
    num_layers = layers
    if kind in _FIRST_DENSE_TYPES:
        first = fields.count("first_k_dense_replace", default=0, least=0)
        every = fields.count("moe_layer_freq", default=1)
        num_layers = sum(1 for i in range(layers) if i >= first and i % every == 0)
        shared = width * fields.count("n_shared_experts", default=0, least=0)
    elif kind == "llama4_text":
        num_layers = layers // fields.count("interleave_moe_layer_step", default=1)
        shared = width
    elif kind in ("qwen3_moe", *_SHARED_GATE_TYPES):
        every = fields.count("decoder_sparse_step", default=1)
        dense = fields.values.get("mlp_only_layers") or []
        if not isinstance(dense, list | tuple):
            raise fields.error("mlp_only_layers", f"is {dense!r:.40}", "a list of layer numbers")
        num_layers = sum(1 for i in range(layers) if i not in dense and (i + 1) % every == 0)
        if kind in _SHARED_GATE_TYPES:
            shared = fields.count("shared_expert_intermediate_size", least=0)
    experts = fields.count("n_routed_experts", "num_experts", "num_local_experts")
    active = fields.count("num_experts_per_tok", "experts_per_token")
    if active > experts:
        raise fields.error("num_experts_per_tok", f"is {active}", f"at most {experts} experts")
    return MoeShape(
        num_layers=num_layers,
        num_experts=experts,
        experts_per_token=active,
        intermediate_size=width,
        shared_intermediate_size=shared,
        shared_gate=kind in _SHARED_GATE_TYPES,
        router_bias=kind in _ROUTER_BIAS_TYPES,
    )


def _read_window(fields: _Fields, kind: str, family: Family, layers: int) -> tuple[int | None, int]:
    """Sliding window and number of layers that have it."""
    window = fields.count("sliding_window", default=0, least=0)
    # Qwen configs state a window that `use_sliding_window: false` switches off.
    if not window or (kind in _WINDOW_IF_USED and not fields.flag("use_sliding_window", False)):
        return None, 0
    named = fields.values.get("layer_types")
    if isinstance(named, list):
        num = sum(1 for name in named if name == "sliding_attention")
    elif kind in _WINDOW_IF_USED:
        num = max(0, layers - fields.count("max_window_layers", default=layers, least=0))
    elif family.local is None:
        num = layers
    else:
        period = fields.count("sliding_window_pattern", default=family.local[0])
        local = family.local[1] if period == family.local[0] else period - 1
        num = sum(1 for i in range(layers) if i % period < local)
    return (window, num) if num else (None, 0)
