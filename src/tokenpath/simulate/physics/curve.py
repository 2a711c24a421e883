"""Work and efficiencies to time: the step curve of a deployment.

Formulas hold for arrays too: with a leading axis of deployments in `Terms` and `Efficiency` the same code
computes all their tables at once, which is how they are fitted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenpath.simulate.physics.efficiency import Efficiency
from tokenpath.simulate.physics.terms import KNOTS, Terms
from tokenpath.simulate.step_model import NUM_FEATURES, Float64s, StepCurve

_NORM = 4.0
"""Compute and memory time join as a p-norm: a GEMM near the ridge reaches neither peak."""


def build_curve(terms: Terms, eff: Efficiency) -> StepCurve:
    """The curve of one deployment."""
    mixed, decode, device, host, host_ns = assemble(terms, eff)
    return StepCurve(
        knots=KNOTS.copy(),
        mixed_ns=mixed,
        decode_ns=decode,
        device_coefficients=device,
        host_ns=float(host_ns),
        host_coefficients=host,
        is_overlapped=False,
    )


def assemble(t: Terms, e: Efficiency) -> tuple[Float64s, Float64s, Float64s, Float64s, Any]:
    """Mixed table, decode table, device and host coefficients, host time, all in ns."""
    tokens = KNOTS
    narrow = t.linear_peak > t.attention_peak
    linear_widening = 1.0 + t.is_linear_widened * (e.linear_widening - 1.0)
    linear = _join(
        t.linear_flops
        / (t.linear_peak * linear_widening)
        / np.where(narrow, e.linear_compute_narrow, 1.0)
        / np.where(narrow, 1.0, e.linear_compute),
        t.linear_bytes / t.memory_rate / e.linear_memory,
    )
    # Where weights are widened in the kernel neither rate is that of the plain one.
    widening = 1.0 + t.is_widened * (e.widening - 1.0)
    busiest = 1.0 + t.is_expert_parallel * (e.imbalance - 1.0)
    expert = busiest * _join(
        t.expert_flops / t.expert_peak / (e.expert_compute * widening),
        t.expert_bytes / t.memory_rate / (e.expert_memory * widening),
    )
    head = t.head_bytes / t.memory_rate / e.linear_memory
    head_compute = t.head_flops_per_request / t.attention_peak / e.linear_compute
    stream = t.stream_bytes / t.memory_rate / e.stream_memory
    links = (t.all_reduce_bytes + t.exchange_bytes + t.hop_bytes) / (t.link_rate * e.link)
    fixed = (
        t.num_layers * e.layer_ns
        + t.num_moe_layers * e.moe_layer_ns
        + t.num_narrow_moe_layers * e.narrow_moe_layer_ns
        + t.experts_touched * e.expert_ns
        + t.num_quantised_layers * e.quantise_ns
        + t.num_all_reduces * t.all_reduce_log2 * e.all_reduce_ns
        + t.num_exchanges * e.exchange_ns
        + t.num_hops * e.all_reduce_ns
    )
    work = (linear + expert + stream + links) * 1e9 + fixed
    one = work[..., :1] + head * 1e9
    all_heads = _join(head_compute * tokens, head) * 1e9
    growth = work - work[..., :1]
    decode = e.decode_scale * one + e.growth_scale * (growth + all_heads - head * 1e9)
    # A mixed step is a decode step without its graph, and with the work of more tokens.
    is_eager = np.where(tokens > t.graph_tokens, 1.0, 0.0)
    eager = t.num_moe_layers * e.mixed_moe_layer_ns * is_eager
    launch = e.launch_scale * (t.num_layers * e.mixed_layer_ns + eager)
    mixed = e.decode_scale * one + e.prefill_scale * growth + launch
    zero = np.zeros_like(np.asarray(t.decode_kv_bytes, dtype=np.float64) + np.asarray(e.layer_ns))
    flat = zero[..., 0] if zero.ndim else zero
    narrow_kv = 1.0 + t.is_narrow_kv * (e.kv_narrow - 1.0)
    kv_rate = t.memory_rate * e.kv_memory * narrow_kv / e.kv_grouping**t.kv_group_log2
    kv = np.maximum(
        t.decode_kv_bytes / kv_rate,
        t.decode_kv_flops / t.attention_peak / e.attention_compute,
    )
    device = np.zeros((*np.shape(flat), NUM_FEATURES))
    attention = t.attention_peak * e.attention_compute
    columns = {
        0: e.launch_scale * e.prefill_request_ns,
        1: e.prefill_scale * t.prefill_token_flops / attention * 1e9,
        2: e.prefill_scale * t.prefill_kv_bytes / kv_rate * 1e9,
        3: e.prefill_scale * t.prefill_pair_flops / attention * 1e9,
        4: e.growth_scale * t.decode_request_bytes / kv_rate * 1e9,
        6: e.growth_scale * kv * 1e9,
    }
    for index, value in columns.items():
        spread = value + zero
        device[..., index] = spread[..., 0] if zero.ndim else spread
    host = np.zeros_like(device)
    request = e.request_ns + zero
    host[..., 4] = request[..., 0] if zero.ndim else request
    host[..., 0] = host[..., 4]
    step = e.step_ns + zero
    return mixed, decode, device, host, step[..., 0] if zero.ndim else step


def _join(compute: Any, memory: Any) -> Any:
    return (compute**_NORM + memory**_NORM) ** (1.0 / _NORM)
