"""The model catalogue: every shape against the publisher's count, every name once, and what is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokenpath.core.errors import InputError
from tokenpath.core.model_catalogue import find_model, load_models
from tokenpath.core.quantisation import FORMATS, find_scheme

MODELS = {model.name: model for model in load_models().values()}


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_those_the_publisher_prints(name: str) -> None:
    model = MODELS[name]
    assert model.published_params is not None
    assert model.shape.total_params == pytest.approx(model.published_params, rel=0.015)


def test_names_of_people_and_of_the_hub() -> None:
    assert find_model("llama-3.1-8b") is find_model("meta-llama/Llama-3.1-8B-Instruct")
    assert find_model("deepseek-ai/DeepSeek-R1").shape.is_mla


def test_unknown_name_is_told_its_neighbours() -> None:
    with pytest.raises(InputError, match="qwen3-32b"):
        find_model("qwen3-33b")


def test_a_config_of_ones_own(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 100,
        "torch_dtype": "float32",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = find_model(str(tmp_path))
    assert model.weight_bytes() == 4 * model.shape.total_params


def test_bytes_of_quantised_weights() -> None:
    # Published checkpoints: gpt-oss-120b 65.2 GB, DeepSeek-V3 688 GB with its MTP layer (671 without).
    assert find_model("gpt-oss-120b").weight_bytes() == pytest.approx(65.2e9, rel=0.01)
    assert find_model("deepseek-v3").weight_bytes() == pytest.approx(673e9, rel=0.01)
    model = find_model("qwen3-32b")
    sizes = [model.quantised(s).weight_bytes() for s in ("bf16", "fp8", "nvfp4", "int4")]
    assert sizes == sorted(sizes, reverse=True)


def test_linear_layers_have_no_cache() -> None:
    shape = find_model("qwen3.5-397b-a17b").shape
    assert shape.num_cache_layers == 15
    assert shape.kv_bytes_per_token("bf16") == 15 * 2 * (256 + 256) * 2


def test_schemes_by_other_words() -> None:
    assert find_scheme("AWQ").linear is FORMATS["int4"]
    with pytest.raises(InputError, match="nvfp4"):
        find_scheme("int3")
