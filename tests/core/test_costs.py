"""Costs: laws that the formulas obey, hand-counted cases, and the definitions of nccl-tests."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpath.core import costs
from tokenpath.core.costs import COLLECTIVE_OPS, CollectiveOp, Cost
from tokenpath.core.errors import InputError
from tokenpath.core.hardware import load_catalogue

GQA: Any = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
tokens = st.integers(1, 4000)
ranks = st.integers(2, 512)


@st.composite
def cost_values(draw: st.DrawFn) -> Cost:
    part = st.integers(0, 2**40).map(float)
    return Cost(draw(part), draw(part), draw(part))


@given(cost_values(), cost_values(), cost_values())
def test_costs_add_like_numbers(a: Cost, b: Cost, c: Cost) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + Cost() == a
    assert 3 * a == a * 3 == a + a + a
    assert (a + b).bytes_total == a.bytes_total + b.bytes_total


def test_matmul_by_hand() -> None:
    cost = costs.matmul(2, 3, 5, "bf16", out_dtype="fp32")
    assert cost == Cost(60.0, (10 + 15) * 2, 6 * 4)
    assert costs.matmul(2, 3, 5, "int4").bytes_read == 12.5
    assert Cost(flops=4.0).flops_per_byte is None


@given(tokens, tokens, tokens, tokens)
def test_matmul_splits_along_every_dimension(m: int, n: int, k: int, cut: int) -> None:
    whole = costs.matmul(m + cut, n, k).flops
    assert costs.matmul(m, n, k).flops + costs.matmul(cut, n, k).flops == whole
    assert costs.matmul(n, m, k).flops + costs.matmul(n, cut, k).flops == whole
    assert costs.matmul(n, k, m).flops + costs.matmul(n, k, cut).flops == whole


@given(st.integers(0, 60), st.integers(0, 60), st.none() | st.integers(1, 70))
def test_causal_pairs_count_what_a_mask_shows(new: int, context: int, window: int | None) -> None:
    slow = sum(
        1
        for query in range(context, context + new)
        for key in range(context + new)
        if key <= query and (window is None or query - key < window)
    )
    assert costs.causal_pairs(new, context, window) == slow


@given(st.lists(tokens, min_size=1, max_size=6), st.none() | st.integers(1, 5000))
def test_chunks_sum_to_the_whole_prefill(chunks: list[int], window: int | None) -> None:
    done, flops = 0, 0.0
    for chunk in chunks:
        flops += costs.attention_prefill(chunk, num_context=done, window=window, **GQA).flops
        done += chunk
    assert flops == costs.attention_prefill(done, window=window, **GQA).flops


@given(st.integers(1, 300), st.integers(0, 300))
def test_decode_of_n_tokens_sums_to_their_causal_prefill(n: int, context: int) -> None:
    steps = sum((costs.attention_decode(context + i + 1, **GQA) for i in range(n)), Cost())
    prefill = costs.attention_prefill(n, num_context=context, **GQA)
    assert steps.flops == prefill.flops
    # The same queries and outputs, but the cache is read again at every step.
    assert steps.bytes_written == prefill.bytes_written
    assert steps.bytes_read >= prefill.bytes_read


@given(tokens)
def test_grouped_queries_read_less_and_compute_the_same(num_keys: int) -> None:
    full = costs.attention_decode(num_keys, num_heads=32, num_kv_heads=32, head_dim=128)
    grouped = costs.attention_decode(num_keys, **GQA)
    assert grouped.flops == full.flops
    query = 32 * 128 * 2
    assert full.bytes_read - query == 4 * (grouped.bytes_read - query)


def test_decode_attention_is_bound_by_memory_and_prefill_by_compute() -> None:
    h100 = load_catalogue()["h100-sxm5-80gb"]
    decode, prefill = costs.attention_decode(8192, **GQA), costs.attention_prefill(8192, **GQA)
    assert costs.roofline_ns(decode, h100, "bf16") == pytest.approx(decode.bytes_total / 3352)
    assert costs.roofline_ns(prefill, h100, "bf16") == pytest.approx(prefill.flops / 989_400)


def test_a_windowed_chunk_reads_the_keys_that_any_query_sees() -> None:
    # Queries at 100..103 with a window of 10 see keys 91..103.
    cost = costs.attention_prefill(4, num_context=100, window=10, **GQA)
    assert cost.bytes_read == 4 * 32 * 128 * 2 + 13 * 8 * 256 * 2
    assert cost.flops == 2 * 32 * 256 * 40


def test_mla_reads_its_latent_once_for_all_heads() -> None:
    cost = costs.attention_decode_mla(1000, num_heads=128, kv_lora_rank=512, rope_head_dim=64)
    assert cost.flops == 2 * 128 * (576 + 512) * 1000
    assert cost.bytes_read == 128 * 576 * 2 + 1000 * 576 * 2
    halved = costs.attention_decode_mla(
        1000, num_heads=128, kv_lora_rank=512, rope_head_dim=64, kv_dtype="fp8"
    )
    assert cost.bytes_read - halved.bytes_read == 1000 * 576


@given(st.integers(0, 2000), st.integers(1, 256), st.data())
def test_expected_experts(n: int, num_experts: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, num_experts))
    touched = costs.expected_experts(n, num_experts, k)
    more = costs.expected_experts(n + 1, num_experts, k)
    assert 0 <= touched <= more <= num_experts
    assert touched <= n * k * (1 + 1e-9)
    assert costs.expected_experts(1, num_experts, k) == pytest.approx(k)


def test_expected_experts_agrees_with_every_possible_routing() -> None:
    from itertools import combinations, product

    choices = list(combinations(range(5), 2))
    routings = list(product(choices, repeat=3))
    mean = sum(len({e for pick in r for e in pick}) for r in routings) / len(routings)
    assert costs.expected_experts(3, 5, 2) == pytest.approx(mean)
    with pytest.raises(InputError, match="experts per token"):
        costs.expected_experts(1, 4, 5)


def test_moe_with_one_expert_is_an_mlp_and_a_router() -> None:
    routed = costs.moe(64, 512, 2048, num_experts=1, experts_per_token=1)
    dense = costs.mlp(64, 512, 2048) + costs.matmul(64, 1, 512)
    assert routed == dense
    measured = costs.moe(64, 512, 2048, num_experts=8, experts_per_token=2, num_experts_touched=3)
    expected = costs.moe(64, 512, 2048, num_experts=8, experts_per_token=2)
    assert measured.flops == expected.flops
    assert measured.bytes_read < expected.bytes_read


def test_small_operations_by_hand() -> None:
    assert costs.mlp(1, 8, 16, gated=False).flops == 2 * 2 * 8 * 16
    assert costs.norm(10, 64) == Cost(4 * 640, (640 + 64) * 2, 640 * 2)
    assert costs.norm(10, 64, kind="layer").bytes_read == (640 + 128) * 2
    assert costs.embedding(10, 64) == Cost(0, 640 * 2 + 80, 640 * 2)
    assert costs.elementwise(100, num_inputs=2, dtype="fp32") == Cost(100, 800, 400)


@given(cost_values(), cost_values())
def test_fusing_is_never_slower_on_the_roofline(a: Cost, b: Cost) -> None:
    part = load_catalogue()["mi300x"]
    together = costs.roofline_ns(a + b, part, "fp8")
    first, second = costs.roofline_ns(a, part, "fp8"), costs.roofline_ns(b, part, "fp8")
    assert together is not None
    assert first is not None
    assert second is not None
    assert together <= (first + second) * (1 + 1e-12)


def test_roofline_without_a_peak_is_none() -> None:
    a100 = load_catalogue()["a100-sxm4-80gb"]
    assert costs.roofline_ns(costs.matmul(8, 8, 8, "fp8"), a100, "fp8") is None
    assert costs.roofline_ns(Cost(0, 2039), a100, "fp8") == pytest.approx(1.0)
    assert costs.roofline_ns(Cost(312_000), a100, "torch.bfloat16") == pytest.approx(1.0)


# nccl-tests, doc/PERFORMANCE.md: bus over algorithm bandwidth for 8 ranks.
@pytest.mark.parametrize(
    ("op", "factor"),
    [
        ("all_reduce", 2 * 7 / 8),
        ("all_gather", 7 / 8),
        ("reduce_scatter", 7 / 8),
        ("all_to_all", 7 / 8),
        ("broadcast", 1),
        ("p2p", 1),
    ],
)
def test_bus_bandwidth(op: CollectiveOp, factor: float) -> None:
    assert costs.bus_factor(op, 8) == factor
    # 1 GB in 5 ms is 200 GB/s of algorithm bandwidth.
    assert costs.bus_bytes_per_s(op, 1e9, 8, 5_000_000) == pytest.approx(200e9 * factor)
    with pytest.raises(InputError, match="no bandwidth"):
        costs.bus_bytes_per_s(op, 1e9, 8, 0)


@given(st.sampled_from(COLLECTIVE_OPS), st.integers(1, 2**33), ranks)
def test_a_ring_at_link_rate_has_the_link_as_bus_bandwidth(
    op: CollectiveOp, payload: int, n: int
) -> None:
    rate = 400e9
    duration = costs.collective_ns(op, payload, n, latency_ns=0, bytes_per_s=rate)
    assert payload / duration * 1e9 * costs.bus_factor(op, n) == pytest.approx(rate)


@given(st.integers(1, 2**33), ranks)
def test_all_reduce_is_a_reduce_scatter_and_an_all_gather(payload: int, n: int) -> None:
    link: Any = {"latency_ns": 1500.0, "bytes_per_s": 50e9}
    parts = [costs.collective_ns(op, payload, n, **link) for op in ("reduce_scatter", "all_gather")]
    assert costs.collective_ns("all_reduce", payload, n, **link) == pytest.approx(sum(parts))


@given(ranks)
def test_a_tree_wins_when_small_and_a_ring_when_large(n: int) -> None:
    link: Any = {"latency_ns": 1500.0, "bytes_per_s": 50e9}
    assert costs.num_hops("all_reduce", n, "tree") == 2 * math.ceil(math.log2(n))
    assert costs.num_hops("all_reduce", n, "tree") <= costs.num_hops("all_reduce", n)
    small = [costs.collective_ns("all_reduce", 8, n, algorithm=a, **link) for a in ("ring", "tree")]
    large = [
        costs.collective_ns("all_reduce", 2**40, n, algorithm=a, **link) for a in ("ring", "tree")
    ]
    assert small[1] <= small[0] * 1.001
    assert large[0] <= large[1]


@pytest.mark.parametrize(("n", "payloads"), [(2, 1.0), (3, 1.5), (4, 2.0), (64, 2.0)])
def test_busiest_rank_of_a_double_tree(n: int, payloads: float) -> None:
    assert costs.wire_bytes("all_reduce", 100, n, "tree") == 100 * payloads
    assert costs.wire_bytes("broadcast", 100, n, "tree") == 100
    assert 2 * costs.num_hops("broadcast", n, "tree") == costs.num_hops("all_reduce", n, "tree")


@pytest.mark.parametrize("op", COLLECTIVE_OPS)
def test_one_rank_sends_nothing(op: CollectiveOp) -> None:
    assert costs.wire_bytes(op, 1e9, 1) == 0
    assert costs.num_hops(op, 1) == 0


def test_what_makes_no_sense_is_an_input_error() -> None:
    with pytest.raises(InputError, match="no tree form"):
        costs.wire_bytes("all_gather", 8, 4, "tree")
    with pytest.raises(InputError, match="unknown collective"):
        costs.bus_factor("gossip", 4)
    with pytest.raises(InputError, match="0 ranks"):
        costs.num_hops("all_reduce", 0)
    with pytest.raises(InputError, match="unknown number type 'fp7'"):
        costs.bytes_per_element("fp7")


@pytest.mark.parametrize(
    ("name", "size"), [("torch.bfloat16", 2), ("float8_e4m3fn", 1), ("Half", 2), ("mxfp4", 0.5)]
)
def test_names_of_types(name: str, size: float) -> None:
    assert costs.bytes_per_element(name) == size
