"""Model shapes: published parameter counts, KV bytes, FLOPs, and what a broken config says."""

from __future__ import annotations

import contextlib
import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpath.core import costs
from tokenpath.core.errors import InputError
from tokenpath.core.llm_config import read_model_shape

if TYPE_CHECKING:
    from pathlib import Path

    from tokenpath.core.llm import ModelShape

LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32}
LLAMA |= {"num_hidden_layers": 32, "intermediate_size": 14336}
LLAMA3_8B = LLAMA | {"num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16"}
LLAMA2_7B = LLAMA | {"intermediate_size": 11008, "num_key_value_heads": 32, "vocab_size": 32000}
LLAMA32_1B = LLAMA3_8B | {"hidden_size": 2048, "num_hidden_layers": 16, "head_dim": 64}
LLAMA32_1B |= {"intermediate_size": 8192, "tie_word_embeddings": True}
MISTRAL_7B = LLAMA | {"model_type": "mistral", "num_key_value_heads": 8, "vocab_size": 32000}
MISTRAL_7B |= {"sliding_window": 4096}
MIXTRAL = MISTRAL_7B | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
MIXTRAL |= {"sliding_window": None}
QWEN25_7B = {"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944}
QWEN25_7B |= {"num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4}
QWEN25_7B |= {"vocab_size": 152064, "sliding_window": 131072, "use_sliding_window": False}
QWEN15_MOE = {"model_type": "qwen2_moe", "hidden_size": 2048, "intermediate_size": 5632}
QWEN15_MOE |= {"moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632}
QWEN15_MOE |= {"num_attention_heads": 16, "num_key_value_heads": 16, "num_hidden_layers": 24}
QWEN15_MOE |= {"vocab_size": 151936, "num_experts": 60, "num_experts_per_tok": 4}
QWEN3_8B = {"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288}
QWEN3_8B |= {"num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8}
QWEN3_8B |= {"head_dim": 128, "vocab_size": 151936, "attention_bias": False}
QWEN3_30B = {"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144}
QWEN3_30B |= {"num_attention_heads": 32, "num_hidden_layers": 48, "num_key_value_heads": 4}
QWEN3_30B |= {"head_dim": 128, "vocab_size": 151936, "moe_intermediate_size": 768}
QWEN3_30B |= {"num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1}
MLA = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
DEEPSEEK_V3 = {"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432}
DEEPSEEK_V3 |= {"moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8}
DEEPSEEK_V3 |= {"n_shared_experts": 1, "first_k_dense_replace": 3, "num_hidden_layers": 61}
DEEPSEEK_V3 |= {"num_attention_heads": 128, "vocab_size": 129280, "q_lora_rank": 1536, **MLA}
DEEPSEEK_V2_LITE = {"model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944}
DEEPSEEK_V2_LITE |= {"moe_intermediate_size": 1408, "n_routed_experts": 64}
DEEPSEEK_V2_LITE |= {"num_experts_per_tok": 6, "n_shared_experts": 2, "first_k_dense_replace": 1}
DEEPSEEK_V2_LITE |= {"num_hidden_layers": 27, "num_attention_heads": 16, "vocab_size": 102400}
DEEPSEEK_V2_LITE |= {"q_lora_rank": None, **MLA}
GEMMA2_9B = {"model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336}
GEMMA2_9B |= {"num_attention_heads": 16, "num_hidden_layers": 42, "num_key_value_heads": 8}
GEMMA2_9B |= {"head_dim": 256, "vocab_size": 256000, "sliding_window": 4096}
GEMMA3_TEXT = {"model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504}
GEMMA3_TEXT |= {"num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16}
GEMMA3_TEXT |= {"head_dim": 128, "vocab_size": 262208, "sliding_window": 1024}
GEMMA3_27B = {"model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": GEMMA3_TEXT}
GPT_OSS_20B = {"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880}
GPT_OSS_20B |= {"num_attention_heads": 64, "num_hidden_layers": 24, "num_key_value_heads": 8}
GPT_OSS_20B |= {"head_dim": 64, "vocab_size": 201088, "num_local_experts": 32}
GPT_OSS_20B |= {"num_experts_per_tok": 4, "attention_bias": True, "sliding_window": 128}
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024}
GPT2 |= {"vocab_size": 50257, "n_inner": None}
OPT_125M = {"model_type": "opt", "hidden_size": 768, "num_attention_heads": 12, "ffn_dim": 3072}
OPT_125M |= {"num_hidden_layers": 12, "max_position_embeddings": 2048, "vocab_size": 50272}
PYTHIA_7B = {"model_type": "gpt_neox", "hidden_size": 4096, "num_attention_heads": 32}
PYTHIA_7B |= {"num_hidden_layers": 32, "intermediate_size": 16384, "vocab_size": 50432}

# Counts from the model cards and papers; exact where the number of a checkpoint's tensors is known.
PUBLISHED = [
    ("Llama-3-8B", LLAMA3_8B, 8_030_261_248, 0.0),
    ("Llama-2-7B", LLAMA2_7B, 6_738_415_616, 0.0),
    ("Llama-3.2-1B", LLAMA32_1B, 1_235_814_400, 0.0),
    ("Mistral-7B", MISTRAL_7B, 7_241_732_096, 0.0),
    ("Qwen2.5-7B", QWEN25_7B, 7_615_616_512, 0.0),
    ("Mixtral-8x7B", MIXTRAL, 46_702_792_704, 0.0),
    ("GPT-2", GPT2, 124_439_808, 0.0),
    ("OPT-125M", OPT_125M, 125_239_296, 0.0),
    ("Pythia-6.9B", PYTHIA_7B, 6_857_302_016, 0.0),
    ("Qwen3-8B", QWEN3_8B, 8_190_735_360, 0.0),
    ("Qwen3-30B-A3B", QWEN3_30B, 30_532_122_624, 0.0),
    ("Qwen1.5-MoE-A2.7B", QWEN15_MOE, 14_315_784_192, 0.0),
    ("DeepSeek-V3", DEEPSEEK_V3, 671e9, 0.01),
    ("DeepSeek-V2-Lite", DEEPSEEK_V2_LITE, 15_706_484_224, 0.0),
    ("Gemma-2-9B", GEMMA2_9B, 9_241_705_984, 0.0),
    ("Gemma-3-27B text", GEMMA3_27B, 27.0e9, 0.01),
    ("gpt-oss-20b", GPT_OSS_20B, 20_914_757_184, 0.0),
]


@pytest.mark.parametrize(("name", "config", "total", "rel"), PUBLISHED, ids=lambda v: str(v)[:20])
def test_total_parameters_are_the_published_ones(
    name: str, config: dict[str, Any], total: float, rel: float
) -> None:
    shape = read_model_shape(config)
    assert shape.total_params == (pytest.approx(total, rel=rel) if rel else total), name


@pytest.mark.parametrize(
    ("config", "active", "with_embedding"),
    [
        (MIXTRAL, 12.9e9, True),
        (QWEN3_30B, 3.35e9, True),
        (QWEN15_MOE, 2.7e9, True),
        # README_WEIGHTS.md of DeepSeek-V3: 36.7 billion, reproduced only without the look-up.
        (DEEPSEEK_V3, 36.7e9, False),
        (LLAMA3_8B, 8.03e9, True),
    ],
)
def test_active_parameters_are_the_published_ones(
    config: dict[str, Any], active: float, with_embedding: bool
) -> None:
    shape = read_model_shape(config)
    left_out = 0 if with_embedding else shape.parameters()["embedding"]
    assert shape.active_params - left_out == pytest.approx(active, rel=0.01)


@pytest.mark.parametrize(
    ("config", "tp", "expected"),
    [
        (LLAMA3_8B, 1, 131_072),  # 2 x 32 layers x 8 heads x 128 x 2 bytes
        (LLAMA3_8B, 4, 32_768),
        (LLAMA3_8B, 16, 16_384),  # two ranks share each head
        (LLAMA2_7B, 1, 524_288),
        (QWEN3_8B, 1, 147_456),
        (DEEPSEEK_V3, 1, 70_272),  # 61 x (512 + 64) x 2: 70 kB, DeepSeek-V3 insights paper
        (DEEPSEEK_V3, 8, 70_272),  # the latent is whole on every rank
    ],
)
def test_kv_bytes_per_token(config: dict[str, Any], tp: int, expected: int) -> None:
    shape = read_model_shape(config)
    assert shape.kv_bytes_per_token("bf16", tp) == expected
    assert shape.kv_bytes_per_token("fp8", tp) == expected / 2


def test_kv_bytes_stop_growing_in_local_layers() -> None:
    shape = read_model_shape(GEMMA3_27B)
    assert (shape.num_sliding_layers, shape.sliding_window) == (52, 1024)
    assert shape.kv_bytes(1000) == 1000 * shape.kv_bytes_per_token()
    grown = shape.kv_bytes(3000) - shape.kv_bytes(2000)
    assert grown == pytest.approx(1000 * shape.kv_bytes_per_token() * 10 / 62)


def test_weight_bytes() -> None:
    shape = read_model_shape(LLAMA3_8B)
    assert shape.weight_bytes() == shape.weight_bytes("bf16") == 2 * shape.total_params
    assert shape.weight_bytes("int4") == shape.total_params / 2
    with pytest.raises(InputError, match="torch_dtype"):
        read_model_shape(QWEN3_8B).weight_bytes()


def test_a_qwen_window_that_is_switched_off_does_not_count() -> None:
    assert read_model_shape(QWEN25_7B).sliding_window is None


def test_named_layer_types_decide_over_the_pattern() -> None:
    named = ["sliding_attention"] * 5 + ["full_attention"] * 57
    assert read_model_shape(GEMMA3_TEXT | {"layer_types": named}).num_sliding_layers == 5


def test_a_path_a_folder_and_an_object_give_the_same_shape(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN3_30B))
    assert read_model_shape(path) == read_model_shape(str(tmp_path)) == read_model_shape(QWEN3_30B)
    shape = read_model_shape(path)
    assert pickle.loads(pickle.dumps(shape)) == shape


@pytest.mark.parametrize(
    ("config", "field"),
    [(LLAMA3_8B, f) for f in ("hidden_size", "num_hidden_layers", "vocab_size", "model_type")]
    + [(LLAMA3_8B, f) for f in ("num_attention_heads", "intermediate_size")]
    + [(DEEPSEEK_V3, f) for f in (*MLA, "n_routed_experts", "moe_intermediate_size")]
    + [(QWEN3_30B, f) for f in ("num_experts", "num_experts_per_tok")],
)
def test_a_missing_field_is_named(config: dict[str, Any], field: str) -> None:
    broken = {key: value for key, value in config.items() if key != field}
    expected = "n_routed_experts" if field == "num_experts" else field
    with pytest.raises(InputError) as caught:
        read_model_shape(broken)
    assert expected in caught.value.what
    assert caught.value.allowed
    assert caught.value.next_step


@pytest.mark.parametrize("value", [0, -1, 2.5, "4096", True, [4096]])
def test_a_wrong_value_is_named(value: object) -> None:
    with pytest.raises(InputError, match="hidden_size"):
        read_model_shape(LLAMA3_8B | {"hidden_size": value})


def test_unknown_types_and_bad_files_say_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'mamba' is not known") as caught:
        read_model_shape(LLAMA3_8B | {"model_type": "mamba"})
    assert "llama" in str(caught.value.allowed)
    assert read_model_shape(LLAMA3_8B | {"model_type": "mine"}, model_type="llama").num_layers == 32
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "list.json").write_text("[1]")
    for name in ("bad.json", "list.json", "absent.json"):
        with pytest.raises(InputError, match=name):
            read_model_shape(tmp_path / name)
    with pytest.raises(InputError, match="KV heads"):
        read_model_shape(LLAMA3_8B).kv_bytes_per_token(tp=3)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
FIELDS = sorted(
    {*LLAMA3_8B, *DEEPSEEK_V3, *QWEN3_30B, *GEMMA2_9B, "mlp_only_layers", "text_config"}
)


@given(st.sampled_from(PUBLISHED), st.sampled_from(FIELDS), JSON)
def test_any_damage_gives_a_shape_or_an_input_error(
    base: tuple[str, dict[str, Any], float, float], field: str, value: object
) -> None:
    with contextlib.suppress(InputError):
        shape = read_model_shape(base[1] | {field: value})
        assert shape.total_params >= shape.active_params > 0


SHAPES = [read_model_shape(c) for c in (LLAMA3_8B, MIXTRAL, DEEPSEEK_V3, GEMMA3_27B, GPT2)]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.model_type)


@each_shape
def test_flops_of_a_token_are_two_per_active_weight(shape: ModelShape) -> None:
    parts = shape.parameters()
    head = shape.vocab_size * shape.hidden_size
    weights = shape.active_params - parts["embedding"] - parts["lm_head"] + head
    no_attention = shape.flops_per_token("decode", 0)
    assert no_attention == pytest.approx(2 * weights, rel=0.01)


@each_shape
@given(data=st.data())
def test_chunks_and_tokens_sum_to_the_whole_prefill(shape: ModelShape, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 3000))
    cut = data.draw(st.integers(0, n))
    whole = shape.flops_prefill(n)
    chunked = shape.flops_prefill(cut, 0, num_logits=0) + shape.flops_prefill(n - cut, cut)
    assert chunked == pytest.approx(whole, rel=1e-12)
    last = shape.flops_prefill(1, n - 1, num_logits=0)
    assert last == pytest.approx(shape.flops_per_token("prefill", n - 1), rel=1e-12)


def test_prefill_agrees_with_the_operations_it_is_made_of() -> None:
    shape, n, context = read_model_shape(LLAMA3_8B), 512, 1024
    layer = (
        costs.matmul(n, (32 + 2 * 8) * 128, 4096)
        + costs.attention_prefill(
            n, num_heads=32, num_kv_heads=8, head_dim=128, num_context=context
        )
        + costs.matmul(n, 4096, 32 * 128)
        + costs.mlp(n, 4096, 14336)
    )
    expected = 32 * layer + costs.matmul(1, 128256, 4096)
    assert shape.flops_prefill(n, context) == pytest.approx(expected.flops, rel=1e-12)


def test_mla_decode_works_on_the_latent() -> None:
    shape = read_model_shape(DEEPSEEK_V3)
    grown = shape.flops_per_token("decode", 1000) - shape.flops_per_token("decode", 0)
    per_key = costs.attention_decode_mla(1, num_heads=128, kv_lora_rank=512, rope_head_dim=64)
    assert grown == pytest.approx(61 * 1000 * per_key.flops)
