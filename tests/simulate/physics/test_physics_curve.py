"""Physics of a step: what more work, faster parts and other layouts must do to its latency."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpath.core.costs import mlp, roofline_ns
from tokenpath.core.errors import InputError
from tokenpath.core.hardware import load_catalogue
from tokenpath.core.model_catalogue import find_model
from tokenpath.simulate.physics.classes import class_of, engine_release, keys_of
from tokenpath.simulate.physics.curve import build_curve
from tokenpath.simulate.physics.deployment import Deployment
from tokenpath.simulate.physics.efficiency import (
    PRIORS,
    SCALES,
    SHARE_MOST,
    Efficiency,
    bent,
    parameter_names,
    prior,
    resolve,
)
from tokenpath.simulate.physics.model import efficiency_of, load_fitted, physics_model, read_fitted
from tokenpath.simulate.physics.page import render_page
from tokenpath.simulate.physics.terms import KNOTS, terms_of
from tokenpath.simulate.step_model import NUM_FEATURES

HARDWARE = load_catalogue()
H100 = HARDWARE["h100-sxm5-80gb"]


def deploy(model: str = "llama-3.1-8b", gpu: str = "h100-sxm5-80gb", **layout: Any) -> Deployment:
    return Deployment(find_model(model), HARDWARE[gpu], **layout)


def decode_ns(at: Deployment, num: int = 16, context: int = 1000) -> float:
    step = np.array([[0, 0, 0, 0, num, num, num * context]], dtype=float)
    return float(physics_model(at).curve.step_ns(step)[0])


def prefill_ns(at: Deployment, tokens: int = 4096) -> float:
    pairs = tokens * (tokens + 1) // 2
    step = np.array([[1, tokens, 0, pairs, 0, 0, 0]], dtype=float)
    return float(physics_model(at).curve.step_ns(step)[0])


def test_no_step_beats_the_roofline() -> None:
    for model, gpu, tp in (
        ("llama-3.1-8b", "h100-sxm5-80gb", 1),
        ("llama-3.1-70b", "h200-sxm-141gb", 4),
        ("qwen3-14b", "a100-sxm4-80gb", 1),
        ("mixtral-8x7b", "h100-sxm5-80gb", 2),
    ):
        at = deploy(model, gpu, tp=tp)
        shape = at.model.shape
        bound = at.model.weight_bytes() - 2 * shape.vocab_size * shape.hidden_size
        least = bound / tp / at.hardware.memory_bytes_per_s * 1e9
        assert decode_ns(at, 256, 1) > least
        flops = shape.flops_prefill(4096) / tp
        assert prefill_ns(at) > flops / at.hardware.peak_flops["bf16"] * 1e9


def test_terms_agree_with_the_costs_of_core() -> None:
    at = deploy()
    terms, shape = terms_of(at), at.model.shape
    whole = shape.flops_per_token("prefill", 0) - 2 * 2 * shape.num_heads * shape.head_dim * 32
    assert terms.linear_flops[0] == pytest.approx(whole, rel=0.001)
    one = mlp(1, shape.hidden_size, shape.intermediate_size)
    assert one.flops * shape.num_layers < terms.linear_flops[0]
    assert roofline_ns(one, H100, "bf16") is not None
    assert terms.decode_kv_bytes == shape.kv_bytes_per_token()


@given(
    num=st.integers(1, 500),
    context=st.integers(1, 8000),
    more=st.integers(1, 300),
    model=st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-120b"]),
)
@settings(max_examples=60, deadline=None)
def test_more_work_never_takes_less(num: int, context: int, more: int, model: str) -> None:
    at = deploy(model)
    assert decode_ns(at, num + more, context) >= decode_ns(at, num, context)
    assert decode_ns(at, num, context + more) >= decode_ns(at, num, context)
    assert prefill_ns(at, num + more) >= prefill_ns(at, num)


def test_faster_parts_and_fewer_bits_are_faster() -> None:
    assert (
        decode_ns(deploy(gpu="h200-sxm-141gb"))
        < decode_ns(deploy())
        < decode_ns(deploy(gpu="l40s"))
    )
    plain = deploy("qwen3-32b")
    narrow = replace(plain, model=plain.model.quantised("fp8"))
    assert decode_ns(narrow) < decode_ns(plain)
    assert decode_ns(replace(plain, kv_dtype="fp8"), 64, 4000) < decode_ns(plain, 64, 4000)


def test_tensor_parallel_is_faster_but_not_in_proportion() -> None:
    one, two = decode_ns(deploy("qwen3-32b")), decode_ns(deploy("qwen3-32b", tp=2))
    assert one / 2 < two < one


def test_imbalance_of_experts_is_what_was_measured() -> None:
    even = deploy("deepseek-v3", dp=8, ep=8, expert_imbalance=1.0)
    skewed = replace(even, expert_imbalance=2.0)
    assert decode_ns(skewed, 64) > decode_ns(even, 64)
    alone = deploy("qwen3-30b-a3b", expert_imbalance=2.0)
    assert decode_ns(alone) == decode_ns(replace(alone, expert_imbalance=None))


def test_a_pass_through_pipeline_stages_is_the_whole_model_and_its_hops() -> None:
    one, two = deploy("llama-3.1-70b", tp=4), deploy("llama-3.1-70b", tp=4, pp=2)
    assert terms_of(two).linear_flops[-1] == terms_of(one).linear_flops[-1]
    assert terms_of(two).num_hops == 1
    assert decode_ns(one) < decode_ns(two) < 1.02 * decode_ns(one)


def test_impossible_layouts_name_the_nearest_that_works() -> None:
    with pytest.raises(InputError, match="tp = 4"):
        deploy(tp=5)
    with pytest.raises(InputError, match="ep = 2"):
        deploy("qwen3-30b-a3b", tp=4, ep=3)
    with pytest.raises(InputError, match="pp = 32"):
        deploy(pp=33)
    with pytest.raises(InputError, match="at least 1"):
        deploy(tp=0)


def test_one_deployment_and_many_give_the_same_numbers() -> None:
    at = deploy("mixtral-8x7b", tp=2)
    eff = resolve({}, "vllm", None)
    alone = build_curve(terms_of(at), eff)
    assert alone.decode_ns.shape == KNOTS.shape
    assert alone.device_coefficients.shape == (NUM_FEATURES,)
    doubled = build_curve(terms_of(at), replace(eff, decode_scale=2.0))
    assert doubled.decode_ns[0] == pytest.approx(2 * alone.decode_ns[0])


def test_a_class_scales_what_its_names_say() -> None:
    at = deploy("gpt-oss-120b", "h200-sxm-141gb", engine_version="0.18.0")
    assert keys_of(at) == (class_of(at), f"{class_of(at)}/0.18")
    text = (
        '{"format": 1, "version": "t", "fitted_on": [], "families": [], "logs": {}, "classes": '
        f'{{"{class_of(at)}": [0.1, 0, 0, 0], "{class_of(at)}/0.18": [0.2, 0, 0, 0]}}}}'
    )
    eff, is_measured = efficiency_of(at, read_fitted(text))
    assert is_measured
    assert eff.decode_scale == pytest.approx(np.exp(0.3))
    assert not efficiency_of(deploy(), read_fitted(text))[1]
    with pytest.raises(InputError, match="format 0"):
        read_fitted('{"format": 0}')


def test_the_shipped_fit_is_whole_and_says_its_error() -> None:
    fitted = load_fitted()
    assert set(fitted.logs) <= set(parameter_names())
    assert all(len(scales) == len(SCALES) for scales in fitted.classes.values())
    assert fitted.fitted_on
    for error in (fitted.measured_error, fitted.unmeasured_error):
        assert error is not None
        assert error.num_steps > 20
        assert error.quantiles[0.05] < error.quantiles[0.5] < error.quantiles[0.95]


def test_fitted_shares_of_peaks_stay_below_the_peak() -> None:
    fitted = load_fitted()
    for engine in ("vllm", "sglang", "trtllm"):
        for generation in (None, "ampere", "ada", "blackwell"):
            eff = resolve(fitted.logs, engine, generation)
            for name in ("linear_memory", "expert_memory", "kv_memory", "linear_compute", "link"):
                assert 0 < getattr(eff, name) <= 1, (engine, generation, name)


def test_a_release_that_was_not_measured_is_the_nearest_that_was() -> None:
    def release(engine: Any, version: str | None) -> str | None:
        return engine_release(deploy(engine=engine, engine_version=version))

    assert release("vllm", None) == "vllm-0.19"
    assert release("vllm", "0.14.1") == "vllm-0.15"
    assert release("vllm", "0.16.0") == "vllm-0.16"
    assert release("vllm", "v0.23.0") == "vllm-0.19"
    assert release("vllm", "nightly") is None
    assert release("sglang", None) is None
    assert release("sglang", "0.5.9") == "sglang-0.5"


def test_shares_are_bent_without_a_corner() -> None:
    raw = np.linspace(0.05, 3.0, 400)
    shares = bent(raw)
    assert (np.diff(shares) > 0).all()
    assert (shares < SHARE_MOST).all()
    assert bent(0.6) == pytest.approx(0.6, rel=0.001)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_a_short_prompt_takes_what_eager_launches_take(engine: Any) -> None:
    # 128 tokens are no work for four H100: weights of 4 GB a rank (1.2 ms), 32 layers launched one by one.
    alone = prefill_ns(deploy(tp=4, engine=engine), 128)
    assert 4e6 < alone < 12e6
    four = np.array([[4, 512, 0, 4 * 128 * 129 / 2, 0, 0, 0]], dtype=float)
    together = float(physics_model(deploy(tp=4, engine=engine)).curve.step_ns(four)[0])
    assert together < 2.5 * alone


def test_routed_layers_launch_more_in_a_step_with_prefill() -> None:
    moe, dense = terms_of(deploy("qwen3-30b-a3b")), terms_of(deploy())
    eff = resolve({}, "vllm", None)
    slow = replace(eff, mixed_moe_layer_ns=eff.mixed_moe_layer_ns + 1e3)
    assert (build_curve(dense, slow).mixed_ns == build_curve(dense, eff).mixed_ns).all()
    added = build_curve(moe, slow).mixed_ns - build_curve(moe, eff).mixed_ns
    # Up to 512 tokens vLLM replays captured pieces; SGLang captures steps of decode alone.
    assert added == pytest.approx(np.where(KNOTS > 512, 48e3, 0.0))
    other = terms_of(deploy("qwen3-30b-a3b", engine="sglang"))
    added = build_curve(other, slow).mixed_ns - build_curve(other, eff).mixed_ns
    assert added == pytest.approx(48e3)
    assert (build_curve(moe, slow).decode_ns == build_curve(moe, eff).decode_ns).all()


def test_weights_that_are_widened_multiply_no_faster() -> None:
    plain = deploy("qwen3-14b", "a100-sxm4-80gb")
    narrow = replace(plain, model=plain.model.quantised("fp8"))
    assert decode_ns(narrow, 4) < decode_ns(plain, 4)
    assert prefill_ns(narrow, 8192) > prefill_ns(plain, 8192)


def test_priors_cover_every_number() -> None:
    assert set(PRIORS) <= set(Efficiency.__dataclass_fields__)
    assert all(prior(name)[1] > 0 for name in parameter_names())


def test_a_curve_takes_less_than_50_ms() -> None:
    at = deploy("deepseek-v3", "h200-sxm-141gb", tp=8)
    physics_model(at)
    began = time.process_time()
    for _ in range(5):
        physics_model(at)
    assert (time.process_time() - began) / 5 < 0.05


def test_the_page_is_what_the_fit_says() -> None:
    page = Path(__file__).parents[3] / "docs" / "physics.md"
    assert page.read_text("utf-8") == render_page(load_fitted())
