"""FLOPs and compulsory bytes of a framework operator, from its recorded input shapes.

An operator that is not known here, or whose shapes do not tell (a convolution's stride is not recorded), has no
cost: unknown is not zero. Conventions are those of `core.costs`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenpath.core.costs import Cost

Shape = tuple[int, ...]

MAX_ELEMENTS = 1 << 50
"""More elements than any memory holds: such a shape is damage and not looked at."""
MAX_RANK = 16
"""Sizes of a tensor, at most."""

MATMUL = frozenset({"gemm", "moe"})
ATTENTION = frozenset({"attention", "attention_prefill", "attention_decode"})
CONVOLUTION = frozenset({"convolution", "gemm"})
STREAMING = frozenset(
    {"elementwise", "norm", "copy", "softmax", "reduce", "quantize", "random", "index", "pooling"}
)
"""Families whose kernels read and write each element about once."""
MATRIX = MATMUL | ATTENTION | CONVOLUTION
"""Families that do the matrix work of a model."""

_TYPES = {
    "float": ("fp32", 4), "c10::bfloat16": ("bf16", 2), "c10::half": ("fp16", 2), "double": ("fp64", 8),
    "c10::float8_e4m3fn": ("fp8", 1), "c10::float8_e5m2": ("fp8", 1), "c10::float8_e4m3fnuz": ("fp8", 1),
    "signed char": ("int8", 1), "unsigned char": ("int8", 1), "bool": (None, 1), "int": (None, 4),
    "long int": (None, 8), "long": (None, 8), "short": (None, 2),
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """One tensor among an operator's inputs."""

    shape: Shape
    """Sizes."""
    dtype: str | None
    """Catalogue name of the number type; None for integers, truth values and unknown types."""
    size: int | None
    """Bytes of an element; None when the type is unknown."""

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the whole tensor; an unknown type counts as two bytes an element."""
        return self.elements * (2 if self.size is None else self.size)


@dataclass(frozen=True)
class OpCost:
    """What one call of an operator has to do."""

    cost: Cost
    """FLOPs and bytes."""
    dtype: str | None
    """Number type of the arithmetic; None when not recorded."""
    families: frozenset[str]
    """Families of the kernels that do this work; others of the same operator are its helpers."""
    tiles: Shape | None = None
    """(batch, m, n, k) of a matrix product; None for everything else."""
    is_exact: bool = True
    """False where masks make `cost` an upper bound, or a list of tensors hides their type."""


def op_cost(name: str, shapes: str, dtypes: str | None) -> OpCost | None:
    """The cost of an operator from the JSON texts of its input shapes and types; None when unknown."""
    rule = _RULES.get(name)
    if rule is None:
        if not name.startswith(_TRITON) and not any(word in name.lower() for word in _NORM_WORDS):
            return None
        rule = _arguments
    tensors = read_tensors(shapes, dtypes)
    return None if not tensors else rule(tensors)


def read_tensors(shapes: str, dtypes: str | None) -> list[Tensor]:
    """The tensors among the inputs, in order; lists of tensors are laid flat, scalars left out."""
    try:
        dims = json.loads(shapes)
        types = json.loads(dtypes) if dtypes else []
    except ValueError:
        return []
    if not isinstance(dims, list) or not isinstance(types, list):
        return []
    found: list[Tensor] = []
    for at, entry in enumerate(dims):
        kind = types[at] if at < len(types) and isinstance(types[at], str) else ""
        _collect(entry, kind, found)
    return found


def _collect(entry: object, kind: str, found: list[Tensor]) -> None:
    if not isinstance(entry, list) or not entry:
        return
    if all(isinstance(size, int) and 0 <= size <= MAX_ELEMENTS for size in entry):
        dtype, size = _TYPES.get(kind.lower(), (None, None))
        tensor = Tensor(tuple(entry), dtype, size)
        if len(entry) <= MAX_RANK and tensor.elements <= MAX_ELEMENTS:
            found.append(tensor)
        return
    for inner in entry:
        # Of a TensorList the element type is not recorded.
        _collect(inner, "", found)


def _product(a: Tensor, b: Tensor, extra_bytes: int = 0) -> OpCost | None:
    """`[..., m, k] x [..., k, n]`."""
    if len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
        return None
    batch = math.prod(a.shape[:-2]) if len(b.shape) > 2 else 1
    m = a.shape[-2] if len(b.shape) > 2 else math.prod(a.shape[:-1])
    k, n = a.shape[-1], b.shape[-1]
    out_size = 2 if a.size == 1 or a.size is None else a.size
    return OpCost(
        Cost(2.0 * batch * m * n * k, a.bytes + b.bytes + extra_bytes, batch * m * n * out_size),
        a.dtype,
        MATMUL,
        (batch, m, n, k),
    )


def _mm(tensors: Sequence[Tensor]) -> OpCost | None:
    return _product(tensors[0], tensors[1]) if len(tensors) >= 2 else None


def _addmm(tensors: Sequence[Tensor]) -> OpCost | None:
    if len(tensors) < 3:
        return None
    return _product(tensors[1], tensors[2], tensors[0].bytes)


def _linear(tensors: Sequence[Tensor]) -> OpCost | None:
    if len(tensors) < 2 or len(tensors[1].shape) != 2:
        return None
    x, weight = tensors[0], tensors[1]
    turned = Tensor((weight.shape[1], weight.shape[0]), weight.dtype, weight.size)
    return _product(x, turned, tensors[2].bytes if len(tensors) > 2 else 0)


def _scaled_mm_with_out(tensors: Sequence[Tensor]) -> OpCost | None:
    """Custom operators that take the output first: (out, a, b, scales ...)."""
    return _product(tensors[1], tensors[2]) if len(tensors) >= 3 else None


def _attention(tensors: Sequence[Tensor], *, heads_first: bool) -> OpCost | None:
    """Fused attention; whether a causal mask halves the pairs is not recorded, so FLOPs are an upper bound."""
    if len(tensors) < 3 or any(len(tensor.shape) != 4 for tensor in tensors[:3]):
        return None
    if not all(tensor.elements for tensor in tensors[:3]):
        return None
    q, k, v = tensors[:3]
    order = (0, 2, 1, 3) if heads_first else (0, 1, 2, 3)
    batch, num_q, heads, dim = (q.shape[at] for at in order)
    num_k = k.shape[order[1]]
    flops = 2.0 * batch * heads * num_q * num_k * (dim + v.shape[-1])
    cost = Cost(flops, q.bytes + k.bytes + v.bytes, q.elements // dim * v.shape[-1] * (q.size or 2))
    return OpCost(cost, q.dtype, ATTENTION, None, is_exact=num_q == 1)


def _attention_by_tokens(tensors: Sequence[Tensor]) -> OpCost | None:
    return _attention(tensors, heads_first=False)


def _attention_by_heads(tensors: Sequence[Tensor]) -> OpCost | None:
    return _attention(tensors, heads_first=True)


def _broadcast(tensors: Sequence[Tensor]) -> int:
    """Elements of the result of a pointwise operator."""
    rank = max(len(tensor.shape) for tensor in tensors)
    padded = [(1,) * (rank - len(tensor.shape)) + tensor.shape for tensor in tensors]
    return math.prod(max(sizes) for sizes in zip(*padded, strict=True))


def _pointwise(tensors: Sequence[Tensor]) -> OpCost:
    """Reads every input once, writes one output of the widest type."""
    elements = _broadcast(tensors)
    widest = max((t.size for t in tensors if t.size is not None), default=2)
    dtype = next((t.dtype for t in tensors if t.dtype), None)
    read = sum(tensor.bytes for tensor in tensors)
    return OpCost(Cost(0.0, read, elements * widest), dtype, STREAMING)


def _copy(tensors: Sequence[Tensor]) -> OpCost | None:
    """`copy_(self, source)`: the first is written, the second read."""
    if len(tensors) < 2:
        return None
    to, source = tensors[0], tensors[1]
    read = min(source.elements, to.elements) * (source.size or 2)
    return OpCost(Cost(0.0, read, to.bytes), to.dtype, STREAMING)


def _write(tensors: Sequence[Tensor]) -> OpCost:
    return OpCost(Cost(0.0, 0.0, tensors[0].bytes), tensors[0].dtype, STREAMING)


def _read(tensors: Sequence[Tensor]) -> OpCost:
    return OpCost(Cost(0.0, tensors[0].bytes, 0.0), tensors[0].dtype, STREAMING)


def _through(tensors: Sequence[Tensor]) -> OpCost:
    """The first input is read and something of its size written: norms, softmax."""
    x = tensors[0]
    return OpCost(Cost(0.0, x.bytes, x.bytes), x.dtype, STREAMING)


def _through_two(tensors: Sequence[Tensor]) -> OpCost | None:
    """Backward of a norm or of softmax: two inputs are read, one gradient written."""
    if len(tensors) < 2:
        return None
    x, y = tensors[0], tensors[1]
    return OpCost(Cost(0.0, x.bytes + y.bytes, x.bytes), x.dtype, STREAMING)


def _batch_norm(tensors: Sequence[Tensor]) -> OpCost:
    """Statistics of a whole channel come before any output, so the input is read twice."""
    x = tensors[0]
    return OpCost(Cost(0.0, 2.0 * x.bytes, x.bytes), x.dtype, STREAMING)


def _batch_norm_backward(tensors: Sequence[Tensor]) -> OpCost | None:
    """The same for the gradient: both inputs are read twice."""
    if len(tensors) < 2:
        return None
    x, y = tensors[0], tensors[1]
    return OpCost(Cost(0.0, 2.0 * (x.bytes + y.bytes), x.bytes), x.dtype, STREAMING)


def _cat(tensors: Sequence[Tensor]) -> OpCost | None:
    total = sum(tensor.bytes for tensor in tensors)
    return OpCost(Cost(0.0, total, total), None, STREAMING, is_exact=False)


def _embedding(tensors: Sequence[Tensor]) -> OpCost | None:
    if len(tensors) < 2 or len(tensors[0].shape) != 2:
        return None
    table, ids = tensors[0], tensors[1]
    size = ids.elements * table.shape[1] * (table.size or 2)
    return OpCost(Cost(0.0, size + ids.bytes, size), table.dtype, STREAMING)


def _arguments(tensors: Sequence[Tensor]) -> OpCost | None:
    """Kernels whose arguments are all they touch, outputs included: each once."""
    total = sum(tensor.bytes for tensor in tensors)
    dtype = next((t.dtype for t in tensors if t.dtype), None)
    return OpCost(Cost(0.0, float(total), 0.0), dtype, STREAMING)


_TRITON = ("triton_poi_", "triton_red_", "triton_per_")
_POINTWISE = (
    "add", "sub", "mul", "div", "pow", "rsqrt", "sqrt", "neg", "exp", "log", "abs", "silu", "gelu", "relu",
    "sigmoid", "tanh", "cos", "sin", "clamp", "clamp_min", "where", "maximum", "minimum", "threshold_backward",
    "silu_backward", "gelu_backward", "addcmul", "addcdiv", "lerp", "eq", "ne", "lt", "gt", "le", "ge",
    "bitwise_and", "bitwise_not", "logical_and", "logical_not", "masked_fill", "reciprocal", "square", "floor",
)  # fmt: skip
_NORM_WORDS = ("rms_norm", "rmsnorm", "silu_and_mul", "gelu_and_mul")
_Rule = Callable[[Sequence[Tensor]], OpCost | None]


def _rules() -> dict[str, _Rule]:
    rules: dict[str, _Rule] = {
        "aten::mm": _mm, "aten::bmm": _mm, "aten::addmm": _addmm, "aten::baddbmm": _addmm,
        "aten::linear": _linear, "aten::_scaled_mm": _mm, "aten::_int_mm": _mm, "aten::matmul": _mm,
        "aten::_addmm_activation": _addmm, "_C::cutlass_scaled_mm": _scaled_mm_with_out,
        "sgl_kernel::fp8_scaled_mm": _mm,
        "aten::_flash_attention_forward": _attention_by_tokens,
        "aten::_efficient_attention_forward": _attention_by_tokens,
        "flash_attn::_flash_attn_forward": _attention_by_tokens,
        "aten::_scaled_dot_product_flash_attention": _attention_by_heads,
        "aten::_scaled_dot_product_efficient_attention": _attention_by_heads,
        "aten::_scaled_dot_product_cudnn_attention": _attention_by_heads,
        "aten::_scaled_dot_product_attention_math": _attention_by_heads,
        "aten::scaled_dot_product_attention": _attention_by_heads,
        "aten::copy_": _copy, "aten::cat": _cat, "aten::embedding": _embedding,
        "aten::fill_": _write, "aten::zero_": _write,
        "aten::sum": _read, "aten::mean": _read, "aten::max": _read, "aten::amax": _read,
        "aten::native_layer_norm": _through, "aten::_softmax": _through, "aten::_log_softmax": _through,
        "aten::cudnn_batch_norm": _batch_norm, "aten::native_batch_norm": _batch_norm, "aten::_fused_rms_norm": _through,
        "aten::native_layer_norm_backward": _through_two, "aten::_softmax_backward_data": _through_two,
        "aten::cudnn_batch_norm_backward": _batch_norm_backward, "aten::_fused_rms_norm_backward": _through_two,
    }  # fmt: skip
    for word in _POINTWISE:
        rules[f"aten::{word}"] = rules[f"aten::{word}_"] = _pointwise
    return rules


_RULES = _rules()
