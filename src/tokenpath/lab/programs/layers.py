"""The kernels of a decoder, in order, as compiled serving engines run them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tokenpath.core.costs import expected_experts
from tokenpath.lab.kernels import names
from tokenpath.lab.kernels.catalogue import Kernels
from tokenpath.lab.machine.script import Work
from tokenpath.lab.programs.comm import Collectives
from tokenpath.lab.programs.knobs import Knobs
from tokenpath.lab.programs.setup import Setup


@dataclass(frozen=True)
class Item:
    """One kernel of a forward pass."""

    work: Work
    """The kernel."""
    op: str
    """Operator that launches it where there is no graph."""
    dims: str
    """Its `Input Dims` and `Input type`, as JSON text; empty: not noted."""
    collective: int = 0
    """Number of the collective, for communication."""


@dataclass(frozen=True)
class Shapes:
    """What one step computes."""

    batch: int
    """Requests that decode, padding included."""
    context: int
    """Their mean number of tokens in the cache."""
    real_batch: int
    """Requests that decode, without padding."""
    chunk: int = 0
    """Prefill tokens of one more request."""
    longest: float = 1.0
    """Length of one request over that of the others."""

    @property
    def tokens(self) -> int:
        """Rows of the matrix products."""
        return self.batch + self.chunk


def _dims(*shapes: tuple[int, ...]) -> str:
    dims = ", ".join(str(list(shape)) for shape in shapes)
    types = ", ".join('"c10::BFloat16"' for _ in shapes)
    return f'"Input type": [{types}], "Input Dims": [{dims}]'


def forward(
    setup: Setup, kernels: Kernels, knobs: Knobs, shapes: Shapes, comm: Collectives, *, graph: bool
) -> Iterator[Item]:
    """All kernels of one forward pass, from the embedding to the logits."""
    model, ranks, tokens = setup.model, setup.ranks, shapes.tokens
    tensor = ranks if setup.program in ("vllm", "sglang") else 1
    heads, kv_heads = model.heads // tensor, max(1, model.kv_heads // tensor)
    hidden, dim = model.hidden, model.head_dim
    width = model.intermediate // tensor
    qkv = (heads + 2 * kv_heads) * dim
    yield Item(
        kernels.pointwise(names.INDEX, "embedding", tokens * hidden, family="index"),
        "aten::embedding",
        _dims((model.vocab // tensor, hidden), (tokens,)),
    )
    messages = knobs.messages
    for layer in range(model.layers):
        number = 0 if layer == 0 else 2
        yield Item(kernels.norm(tokens, hidden, number), f"triton_red_fused_{number}", "")
        yield Item(
            kernels.gemm(tokens, qkv, hidden, "qkv"),
            "aten::mm",
            _dims((tokens, hidden), (hidden, qkv)),
        )
        yield Item(kernels.rotary(tokens, (heads + kv_heads) * dim), "triton_poi_fused_cat_3", "")
        yield from _layout(kernels, knobs, tokens, hidden, 0)
        yield Item(
            kernels.cache(shapes.real_batch + shapes.chunk, 2 * kv_heads * dim),
            "_C_cache_ops::reshape_and_cache_flash",
            "",
        )
        yield from _attention(kernels, knobs, shapes, heads, kv_heads, dim, split=setup.split_kv)
        yield Item(
            kernels.gemm(tokens, hidden, heads * dim, "o_proj"),
            "aten::mm",
            _dims((tokens, heads * dim), (heads * dim, hidden)),
        )
        yield from _layout(kernels, knobs, tokens, hidden, 1)
        if tensor > 1:
            yield from _reduce(comm, tokens * hidden * 2.0, messages, graph)
        yield Item(kernels.norm(tokens, hidden, 0), "triton_red_fused_0", "")
        if model.experts:
            yield from _experts(setup, kernels, shapes, comm, graph, messages)
        else:
            yield Item(
                kernels.gemm(tokens, 2 * width, hidden, "gate_up"),
                "aten::mm",
                _dims((tokens, hidden), (hidden, 2 * width)),
            )
            if knobs.chain:
                for at in range(knobs.chain):
                    name = names.CHAIN[at % len(names.CHAIN)]
                    work = kernels.pointwise(name, "chain", tokens * width, inputs=2.0)
                    yield Item(work, "aten::mul", _dims((tokens, width), (tokens, width)))
            else:
                yield Item(kernels.activation(tokens, width), "triton_poi_fused_mul_silu_1", "")
            yield Item(
                kernels.gemm(tokens, hidden, width, "down"),
                "aten::mm",
                _dims((tokens, width), (width, hidden)),
            )
        if tensor > 1:
            yield from _reduce(comm, tokens * hidden * 2.0, messages, graph)
    yield Item(kernels.norm(tokens, hidden, 2), "triton_red_fused_2", "")


def _layout(kernels: Kernels, knobs: Knobs, tokens: int, hidden: int, side: int) -> Iterator[Item]:
    for at in range(side, knobs.layout_copies, 2):
        name = (names.STRIDED_COPY, names.CAST, names.CAST_BACK)[at % 3]
        work = kernels.pointwise(name, "layout", tokens * hidden, width=4.0)
        yield Item(work, "aten::copy_", _dims((tokens, hidden), (tokens, hidden)))


def _attention(
    kernels: Kernels,
    knobs: Knobs,
    shapes: Shapes,
    heads: int,
    kv_heads: int,
    dim: int,
    *,
    split: bool,
) -> Iterator[Item]:
    if shapes.batch:
        longest = int(shapes.context * max(1.25, shapes.longest))
        dims = _dims(
            (shapes.tokens, heads, dim),
            (4096, 16, kv_heads, dim),
            (shapes.batch, max(1, longest // 16)),
        )
        if knobs.unsplit is not None or not split:
            # A block a request and head: the longest request ends last.
            factor = (knobs.unsplit or 1.0) * shapes.longest
            work = kernels.attention_unsplit(
                shapes.batch, shapes.context, heads, kv_heads, dim, factor
            )
            yield Item(work, "_vllm_fa3_C::fwd", dims)
        else:
            work = kernels.attention_decode(shapes.real_batch, shapes.context, heads, kv_heads, dim)
            yield Item(work, "_vllm_fa3_C::fwd", dims)
            yield Item(
                kernels.attention_combine(shapes.batch, heads, dim), "_vllm_fa3_C::combine", ""
            )
    if shapes.chunk:
        work = kernels.attention_prefill(shapes.chunk, 0, heads, kv_heads, dim)
        yield Item(
            work, "_vllm_fa3_C::fwd", _dims((shapes.chunk, heads, dim), (4096, 16, kv_heads, dim))
        )


def _reduce(comm: Collectives, payload: float, messages: int, graph: bool) -> Iterator[Item]:
    for _ in range(messages):
        work, number = comm.add("all_reduce", payload / messages, in_graph=graph, parts=messages)
        yield Item(work, "vllm::all_reduce", "", number)


def _experts(
    setup: Setup,
    kernels: Kernels,
    shapes: Shapes,
    comm: Collectives,
    graph: bool,
    messages: int,
) -> Iterator[Item]:
    """Routed experts, spread over the ranks: dispatch, two grouped products, combine."""
    model, ranks, tokens = setup.model, setup.ranks, shapes.tokens
    hidden, width = model.hidden, model.intermediate
    yield Item(
        kernels.gemm(tokens, model.experts, hidden, "router"),
        "aten::mm",
        _dims((tokens, hidden), (hidden, model.experts)),
    )
    routing = "void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, int>(float const*, bool const*, float*, int, int*)"
    yield Item(
        kernels.fixed(routing, "routing", 2_600 + tokens * 1.2, 8), "_moe_C::topk_softmax", ""
    )
    assignments = tokens * model.experts_per_token
    payload = assignments * hidden * 2.0
    for _ in range(messages):
        work, number = comm.add("all_to_all", payload / messages, in_graph=graph)
        yield Item(work, "vllm::moe_dispatch", "", number)
    # Every rank sends as much as it gets; its experts see the tokens of all ranks.
    own = model.experts // ranks
    touched = expected_experts(tokens * ranks, model.experts, model.experts_per_token) / ranks
    for role, n, k in (("experts_up", 2 * width, hidden), ("experts_down", hidden, width)):
        work = kernels.grouped_gemm(assignments, touched, n, k, own, role)
        yield Item(work, "vllm::fused_experts", _dims((tokens, hidden), (own, n, k)))
        if role == "experts_up":
            name = "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, true>(int)"
            yield Item(
                kernels.pointwise(name, "activation", assignments * width, inputs=2.0),
                "_C::silu_and_mul",
                "",
            )
    for _ in range(messages):
        work, number = comm.add("all_to_all", payload / messages, in_graph=graph)
        yield Item(work, "vllm::moe_combine", "", number)
    name = "void vllm::moe::moe_sum_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16 const*, int)"
    yield Item(
        kernels.pointwise(
            name, "expert_sum", tokens * hidden, inputs=float(model.experts_per_token)
        ),
        "_moe_C::moe_sum",
        "",
    )
