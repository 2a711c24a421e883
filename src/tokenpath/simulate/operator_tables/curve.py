"""A step curve from operator tables: what the tables say of a grid of steps, in the curve's terms.

`aiconfigurator-core` adds operator times, interpolated between measured shapes, to the time of a step with
given tokens and lengths. A dozen such steps give the two tables of a `StepCurve`; differences at equal
tokens give its coefficients. Tables know no host: scheduling and sampling come from the physics fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from tokenpath.core.errors import InputError
from tokenpath.simulate.physics.deployment import Deployment
from tokenpath.simulate.physics.model import efficiency_of, load_fitted
from tokenpath.simulate.physics.terms import KNOTS
from tokenpath.simulate.step_model import NUM_FEATURES, Float64s, StepCurve, StepError

SYSTEMS = {
    "a100-sxm4-80gb": "a100_sxm",
    "h100-sxm5-80gb": "h100_sxm",
    "h200-sxm-141gb": "h200_sxm",
    "b200-180gb": "b200_sxm",
    "b300-288gb": "b300_sxm",
    "gb200-186gb": "gb200",
    "gb300-288gb": "gb300",
    "l40s": "l40s",
    "rtx-pro-6000-server": "rtx_pro_6000_server",
}
"""Parts that have tables, by key of `core.hardware`."""
_MODES = {
    "bf16": "bfloat16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "nvfp4",
    "int4": "int4_wo",
}
_OTHER_NAMES = {
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B-Instruct": "meta-llama/Meta-Llama-3.1-70B",
    "meta-llama/Llama-3.1-405B-Instruct": "meta-llama/Meta-Llama-3.1-405B",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B",
    "Qwen/Qwen3.5-397B-A17B-FP8": "Qwen/Qwen3.5-397B-A17B",
}
"""What the package calls a model of the catalogue, where it is not the same."""
_KV_MODES = {"bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8", "int8": "int8"}
_SHORT, _LONG = 64, 4096
_PREFIX = 8192
_SLOPE_TOKENS = (8, 64)
_MOST_DECODES = 1024
_NS_PER_MS = 1e6


class Steps(Protocol):
    """What is asked of the tables; `EngineHandle` of aiconfigurator-core is one."""

    def decode_step_latency(self, gen_tokens: int, isl: int, osl: int) -> float:
        """Milliseconds of a step of so many decode requests with contexts of isl to isl + osl."""

    def mixed_step_latency(
        self, ctx_tokens: int, gen_tokens: int, isl: int, osl: int, prefix: int = 0
    ) -> float:
        """Milliseconds of a step of ctx_tokens prefill and gen_tokens decode tokens."""


@dataclass(frozen=True, slots=True)
class TableModel:
    """Step latency of a deployment from operator tables."""

    curve: StepCurve
    """The latency."""
    error: StepError | None
    """None: the tables' own error on whole steps has not been measured here."""
    origin: str
    """Package, system, engine and version of the tables."""


def table_model(at: Deployment, *, model_path: str | None = None) -> TableModel:
    """The model of a deployment; InputError without the extra, or where the tables have no such thing.

    Loading tables takes seconds, once for a part and engine.

    `model_path` is the package's name of the model, if it is not that of the catalogue.
    """
    if at.hardware.key not in SYSTEMS:
        raise InputError(
            f"no operator tables for {at.hardware.name}",
            allowed=", ".join(SYSTEMS),
            next_step="use physics, or calibrate from a capture",
        )
    eff, _ = efficiency_of(at, load_fitted())
    name = model_path or _OTHER_NAMES.get(at.model.name, at.model.name)
    compile_engine = _extra(name)
    try:
        steps = _compile(at, name, compile_engine)
        curve = curve_of(steps, host_ns=eff.step_ns, request_ns=eff.request_ns)
    # Shapes outside the tables end in the package's own errors, all of these types.
    except (RuntimeError, ValueError, KeyError) as error:
        raise InputError(
            f"the operator tables cannot serve {name} on {at.hardware.name} with {at.engine}",
            where=str(error)[:200],
            allowed="a model, layout and version that aiconfigurator-core has measured",
            next_step="leave the engine version out, or use physics",
        ) from error
    version = at.engine_version or "current"
    return TableModel(
        curve=curve,
        error=None,
        origin=f"operator tables of aiconfigurator-core: {SYSTEMS[at.hardware.key]}, "
        f"{at.engine} {version}; host time of the physics fit",
    )


def curve_of(steps: Steps, *, host_ns: float, request_ns: float) -> StepCurve:
    """The curve that meets the tables' steps on a grid."""
    kv_ns = _kv_slope_ns(steps)
    decodes = np.minimum(KNOTS, _MOST_DECODES)
    decode = np.array([_decode_ns(steps, int(n), _SHORT) for n in decodes])
    decode -= kv_ns * decodes * _SHORT
    # Beyond the largest batch of the tables a decode step grows as its last two knots do.
    last = int(np.argmax(KNOTS >= _MOST_DECODES))
    slope = (decode[last] - decode[last - 1]) / (KNOTS[last] - KNOTS[last - 1])
    decode[last:] = decode[last] + slope * (KNOTS[last:] - KNOTS[last])
    pair_ns = _pair_ns(steps)
    mixed = np.array(
        [_prefill_ns(steps, int(n)) - pair_ns * n * (n + 1) / 2 for n in KNOTS], dtype=np.float64
    )
    device = np.zeros(NUM_FEATURES)
    device[3] = pair_ns
    device[6] = kv_ns
    host = np.zeros(NUM_FEATURES)
    host[0] = host[4] = request_ns
    return StepCurve(
        knots=KNOTS.copy(),
        mixed_ns=_ascending(mixed),
        decode_ns=_ascending(decode),
        device_coefficients=device,
        host_ns=host_ns,
        host_coefficients=host,
        is_overlapped=False,
    )


def _decode_ns(steps: Steps, num: int, context: int) -> float:
    return steps.decode_step_latency(num, context, 2) * _NS_PER_MS


def _prefill_ns(steps: Steps, tokens: int, prefix: int = 0) -> float:
    return steps.mixed_step_latency(tokens, 0, tokens + prefix, 2, prefix) * _NS_PER_MS


def _kv_slope_ns(steps: Steps) -> float:
    """Time of one token of context of a decode request, least squares over two batches."""
    span = _LONG - _SHORT
    rises = [
        (n * span, _decode_ns(steps, n, _LONG) - _decode_ns(steps, n, _SHORT))
        for n in _SLOPE_TOKENS
    ]
    top = sum(x * y for x, y in rises)
    return max(0.0, top / sum(x * x for x, _ in rises))


def _pair_ns(steps: Steps) -> float:
    """Time of a query-key pair: the same tokens after a long prefix and after none."""
    more = _prefill_ns(steps, _LONG, _PREFIX) - _prefill_ns(steps, _LONG)
    return max(0.0, more / (_LONG * _PREFIX))


def _ascending(values: Float64s) -> Float64s:
    """Interpolated tables dip where kernels change; more tokens are never modelled as less time."""
    rising: Float64s = np.maximum.accumulate(np.maximum(values, 0.0))
    return rising


def _compile(at: Deployment, name: str, compile_engine: Callable[..., Any]) -> Steps:
    scheme, is_moe = at.model.scheme, at.model.shape.moe is not None
    kv = _KV_MODES.get(at.kv_dtype)
    steps: Steps = compile_engine(
        name,
        SYSTEMS[at.hardware.key],
        at.engine,
        backend_version=at.engine_version,
        tp_size=at.tp,
        pp_size=at.pp,
        attention_dp_size=at.dp,
        moe_tp_size=at.expert_tp if is_moe else 1,
        moe_ep_size=at.ep,
        gemm_quant_mode=_MODES.get(scheme.linear.name),
        # None: what the checkpoint says, as for MXFP4.
        moe_quant_mode=_MODES.get(scheme.experts.name) if is_moe else None,
        kvcache_quant_mode=kv,
        fmha_quant_mode="bfloat16" if kv == "bfloat16" else None,
    )
    return steps


def _extra(name: str) -> Callable[..., Any]:
    """`EngineHandle.compile` of the optional package, which must carry the model: it would download it."""
    try:
        sdk = import_module("aiconfigurator_core.sdk")
    except ImportError as error:
        raise InputError(
            "operator tables need the package aiconfigurator-core",
            allowed="Linux x86-64 with Python 3.11 to 3.13",
            next_step="pip install 'tokenpath[operator-tables]'",
        ) from error
    known = import_module("aiconfigurator_core.sdk.common").get_default_models()
    if name not in known:
        raise InputError(
            f"the operator tables do not know model {name}",
            allowed=", ".join(get_close_matches(name, sorted(known), n=3, cutoff=0.3)),
            next_step="name the nearest with model_path=, or use physics",
        )
    compile_engine: Callable[..., Any] = sdk.EngineHandle.compile
    return compile_engine
