"""Memory of a rank: the sums, the errors, and blocks that vLLM printed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpath.core.errors import InputError
from tokenpath.core.hardware import load_catalogue
from tokenpath.core.model_catalogue import find_model
from tokenpath.simulate.memory import plan_memory, weight_bytes_per_rank
from tokenpath.simulate.physics.deployment import Deployment

H100 = load_catalogue()["h100-sxm5-80gb"]


@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    utilisation=st.floats(0.5, 1.0),
    block=st.sampled_from([1, 16, 64]),
    tokens=st.integers(512, 16384),
)
@settings(max_examples=40, deadline=None)
def test_a_rank_is_spent_to_the_byte(tp: int, utilisation: float, block: int, tokens: int) -> None:
    at = Deployment(find_model("llama-3.1-8b"), H100, tp=tp)
    plan = plan_memory(at, utilisation=utilisation, block_tokens=block, max_tokens=tokens)
    parts = plan.weight_bytes + plan.activation_bytes + plan.runtime_bytes + plan.kv_bytes
    assert parts == pytest.approx(plan.budget_bytes)
    assert (
        plan.num_blocks * plan.block_bytes
        <= plan.kv_bytes
        < (plan.num_blocks + 1) * plan.block_bytes
    )
    assert plan.num_tokens == plan.num_blocks * block


def test_weights_of_all_ranks_are_the_model() -> None:
    model = find_model("mixtral-8x7b")
    ranks = [weight_bytes_per_rank(Deployment(model, H100, tp=tp)) * tp for tp in (1, 2, 4, 8)]
    assert ranks == pytest.approx([model.weight_bytes()] * 4)
    # Data-parallel attention keeps everything but the experts whole on each rank.
    spread = weight_bytes_per_rank(Deployment(model, H100, dp=8, ep=8))
    assert spread > model.weight_bytes() / 8


def test_what_does_not_fit_names_the_limit_and_the_nearest_size() -> None:
    with pytest.raises(InputError, match=r"tp = 2") as caught:
        plan_memory(Deployment(find_model("llama-3.1-70b"), H100))
    assert "144.2" in caught.value.what
    assert "GB" in caught.value.what
    with pytest.raises(InputError, match="at most 1"):
        plan_memory(Deployment(find_model("llama-3.1-8b"), H100), utilisation=1.5)


def test_a_sequence_that_does_not_fit_names_the_longest_that_does() -> None:
    at = Deployment(find_model("llama-3.1-8b"), H100)
    longest = plan_memory(at).num_tokens
    assert plan_memory(at, max_model_tokens=longest).num_tokens == longest
    with pytest.raises(InputError) as caught:
        plan_memory(at, max_model_tokens=longest + 1)
    assert f"at most {longest:,} tokens fit" in str(caught.value)


def test_kv_in_8_bits_doubles_the_blocks() -> None:
    wide = plan_memory(Deployment(find_model("llama-3.1-8b"), H100))
    narrow = plan_memory(Deployment(find_model("llama-3.1-8b"), H100, kv_dtype="fp8"))
    assert narrow.num_blocks == pytest.approx(2 * wide.num_blocks, abs=2)


def test_sglangs_fraction_is_of_weights_and_cache() -> None:
    at = Deployment(find_model("llama-3.1-8b"), H100, engine="sglang")
    plan = plan_memory(at, utilisation=0.8)
    assert plan.kv_bytes + plan.weight_bytes == pytest.approx(plan.budget_bytes)


def test_blocks_that_vllm_printed() -> None:
    data = os.environ.get("TOKENPATH_REFERENCE_DATA")
    if data is None:
        pytest.skip("TOKENPATH_REFERENCE_DATA names no folder of measured sets")
    specs = json.loads((Path(data) / "serving/blis_trainval_h100/specs.json").read_text("utf-8"))
    checked = 0
    for spec in specs.values():
        if "Scout" in spec["model"]:
            continue  # its image encoder is profiled too, which a text shape does not know
        at = Deployment(find_model(spec["model"]), H100, tp=spec["tp"])
        plan = plan_memory(
            at, max_tokens=spec["max_num_batched_tokens"], max_seqs=spec["max_num_seqs"]
        )
        assert plan.num_blocks == pytest.approx(spec["total_kv_blocks"], rel=0.012), spec["model"]
        checked += 1
    assert checked >= 9
