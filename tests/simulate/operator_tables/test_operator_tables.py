"""Operator tables: a curve meets the steps it was made from, and says what is missing."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from tokenpath.core.errors import InputError
from tokenpath.core.hardware import load_catalogue
from tokenpath.core.model_catalogue import find_model
from tokenpath.simulate.operator_tables.curve import curve_of, table_model
from tokenpath.simulate.physics.deployment import Deployment

HARDWARE = load_catalogue()
HAS_EXTRA = importlib.util.find_spec("aiconfigurator_core") is not None


class Invented:
    """Tables of a machine that is linear in everything, so that the curve can be exact."""

    def decode_step_latency(self, gen_tokens: int, isl: int, osl: int) -> float:
        del osl
        return 5.0 + 0.01 * gen_tokens + 2e-6 * gen_tokens * isl

    def mixed_step_latency(
        self, ctx_tokens: int, gen_tokens: int, isl: int, osl: int, prefix: int = 0
    ) -> float:
        assert isl == ctx_tokens + prefix
        del gen_tokens, osl
        pairs = ctx_tokens * prefix + ctx_tokens * (ctx_tokens + 1) / 2
        return 6.0 + 0.02 * ctx_tokens + 1e-7 * pairs


def test_the_curve_meets_the_tables_steps() -> None:
    curve = curve_of(Invented(), host_ns=1e6, request_ns=0.0)
    decode = np.array([[0, 0, 0, 0, 48, 48, 48 * 1000]], dtype=float)
    assert curve.step_ns(decode)[0] == pytest.approx((1 + 5 + 0.48 + 2e-6 * 48e3) * 1e6)
    tokens, before = 3000, 500
    pairs = tokens * before + tokens * (tokens + 1) // 2
    prefill = np.array([[1, tokens, before, pairs, 0, 0, 0]], dtype=float)
    assert curve.step_ns(prefill)[0] == pytest.approx((1 + 6 + 60 + 1e-7 * pairs) * 1e6)
    assert (np.diff(curve.decode_ns) >= 0).all()


def test_a_part_without_tables_is_said() -> None:
    at = Deployment(find_model("llama-3.1-8b"), HARDWARE["mi300x"])
    with pytest.raises(InputError, match="h100-sxm5-80gb"):
        table_model(at)


@pytest.mark.skipif(HAS_EXTRA, reason="aiconfigurator-core is installed")
def test_the_missing_extra_is_named() -> None:
    at = Deployment(find_model("llama-3.1-8b"), HARDWARE["h100-sxm5-80gb"])
    with pytest.raises(InputError, match=r"tokenpath\[operator-tables\]"):
        table_model(at)


@pytest.mark.skipif(not HAS_EXTRA, reason="aiconfigurator-core is not installed")
def test_tables_and_physics_tell_the_same_story() -> None:
    from tokenpath.simulate.physics.model import physics_model

    at = Deployment(find_model("qwen3-32b"), HARDWARE["h100-sxm5-80gb"], "vllm", tp=2)
    step = np.array([[0, 0, 0, 0, 32, 32, 32 * 1000]], dtype=float)
    ratio = table_model(at).curve.step_ns(step)[0] / physics_model(at).curve.step_ns(step)[0]
    assert 0.5 < ratio < 2
