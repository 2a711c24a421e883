"""Operators on the host that need not be: pointwise chains, copies to another layout or type, double products."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.capture.intervals import Int64s
from tokenpath.core.finding import Finding
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.analyses.cpu_view import Host, Side, cost
from tokenpath.explain.analyses.kernel_roofline_shapes import read_tensors

MIN_CHAIN = 4
"""Pointwise operators in a row from which on they are a chain: three are in every gated layer."""
MIN_ELEMENTS = 2_048
"""Smaller tensors cost what a call costs, fused or not."""
MIN_REPEATS = 4
"""What does not recur is no pattern."""
MIN_COPIES = 0.03
"""Share of the wall that copies of layout or type may have."""
_POINTWISE = re.compile(
    r"^aten::(?:add|sub|mul|div|neg|exp|log|sqrt|rsqrt|pow|tanh|sigmoid|silu|gelu|relu|abs|sin|cos|erf|clamp|"
    r"clamp_min|where|lerp|addcmul|addcdiv|reciprocal|square|maximum|minimum|tanh_backward|sigmoid_backward|"
    r"threshold_backward|masked_fill|softplus|leaky_relu|hardtanh)_?$"
)
_PASSED_OVER = re.compile(
    r"^aten::(?:empty\w*|zeros|ones|view|_unsafe_view|reshape|t|transpose|permute|as_strided|expand|unsqueeze|squeeze|"
    r"detach|alias|slice|select|resolve_\w+|result_type|to|_to_copy|copy_|item|_local_scalar_dense|is_nonzero|"
    r"lift_fresh|zeros_like|ones_like|fill_|ones_like|zero_)$|^(?!aten::)"
)
_COPY = re.compile(r"^aten::(?:contiguous|clone|to|_to_copy)$")
_AROUND_COPY = re.compile(
    r"^aten::(?:reshape|contiguous|double|float|half|bfloat16|type|flatten)$|^(?!aten::)"
)
_PRODUCT = re.compile(
    r"^aten::(?:mm|addmm|bmm|baddbmm|addmv|mv|mkldnn_convolution|_slow_conv2d_forward|thnn_conv2d)$"
)
_NARROW = ("float", "c10::Half", "c10::BFloat16")


@dataclass(frozen=True)
class _Ops:
    """Operators of a main thread in its window, in order of start."""

    row: Int64s
    """Rows of `op`."""
    length: Int64s
    """Durations."""
    code: NDArray[np.int32]
    """Index into `names`."""
    names: list[str]
    """Names."""
    parent: NDArray[np.int32]
    """Index of the name of the enclosing operator; -1 for none."""
    elements: Int64s
    """Elements of the largest input; 0 when shapes are not recorded."""
    tensors: Int64s
    """Inputs that large."""

    def flags(self, names: re.Pattern[str], of: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Whether each name matches; False for none."""
        found = np.array([bool(names.search(text)) for text in self.names] + [False])
        result: NDArray[np.bool_] = found[of]
        return result


def operators(host: Host) -> Iterator[Finding]:
    """Findings `unfused-elementwise`, `layout-copies` and `wrong-precision`."""
    chains: list[tuple[int, int, int, int]] = []
    copies = np.zeros(2, np.int64)
    rows: list[Int64s] = []
    precision = np.zeros(4, np.float64)
    for side in host.sides:
        ops = _ops(side)
        chains += _chains(ops)
        is_copy = ops.flags(_COPY, ops.code) & ~ops.flags(_COPY, ops.parent)
        is_copy &= (ops.elements >= MIN_ELEMENTS) & (
            (ops.parent < 0) | ops.flags(_AROUND_COPY, ops.parent)
        )
        # A call that finds everything in place copies nothing.
        is_copy &= _has_child(side.capture, ops)
        copies += int(ops.length[is_copy].sum()), int(is_copy.sum())
        rows.append(ops.row[is_copy])
        precision += _products(side.capture, ops)
    yield from _unfused(host, chains)
    total, count = copies.tolist()
    if total >= MIN_COPIES * host.wall_ns and count >= MIN_REPEATS:
        yield cost(
            host, "layout-copies",
            f"{count:,} copies to another layout or number type took {format_duration(total)} "
            f"({format_percent(total, host.wall_ns)} of the window)",
            total, fix="keep one layout and one number type from layer to layer",
            falsifier="without the copies the time stays", confidence=0.8, effort="code", place={},
            evidence=("op", np.concatenate(rows)),
        )  # fmt: skip
    double_ns, double_work, other_ns, other_work = precision.tolist()
    if double_ns and other_work and double_work:
        fast_ns = double_work * other_ns / other_work
        gain = int(max(0.3 * double_ns, min(double_ns - fast_ns, 0.8 * double_ns)))
        yield cost(
            host, "wrong-precision",
            f"matrix products in double took {format_duration(int(double_ns))} "
            f"({format_percent(int(double_ns), host.wall_ns)} of the window), while the others are in float or less",
            gain, duration_ns=int(double_ns), fix="create weights and inputs in the number type of the model; look "
            "for .double(), NumPy arrays and Python floats turned into tensors",
            falsifier="in the type of the other products these take as long", confidence=0.9, effort="code",
            place={"family": "gemm"},
        )  # fmt: skip


def _ops(side: Side) -> _Ops:
    capture = side.capture
    start, end = capture.int64("op", "start_ns"), capture.int64("op", "end_ns")
    mine = np.flatnonzero(
        (capture.ids("op", "thread_id") == side.thread) & (start < side.high) & (end > side.low)
    )
    mine = mine[np.lexsort((-end[mine], start[mine]))]
    code, names = capture.codes("op", "name")
    parent = capture.ids("op", "parent_op_id")[mine]
    shape, shapes = capture.codes("op", "input_shapes")
    most, many = np.zeros(len(shapes) + 1, np.int64), np.zeros(len(shapes) + 1, np.int64)
    for number in np.unique(shape[mine]).tolist():
        if number >= 0:
            sizes = [tensor.elements for tensor in read_tensors(shapes[number], None)]
            most[number] = max(sizes, default=0)
            many[number] = sum(size == most[number] for size in sizes)
    around = np.where(parent == NO_ID, -1, code[np.maximum(parent, 0)]).astype(np.int32)
    return _Ops(
        mine, (end - start)[mine], code[mine], names, around, most[shape[mine]], many[shape[mine]]
    )


def _has_child(capture: Capture, ops: _Ops) -> NDArray[np.bool_]:
    parent = capture.ids("op", "parent_op_id")
    has = np.zeros(capture.num_rows("op") + 1, np.bool_)
    has[parent[parent >= 0]] = True
    result: NDArray[np.bool_] = has[ops.row]
    return result


def _chains(ops: _Ops) -> list[tuple[int, int, int, int]]:
    """Of each chain: its operators, its time, what one operator would take, its first row."""
    pointwise = ops.flags(_POINTWISE, ops.code)
    inner = ops.flags(_POINTWISE, ops.parent)
    passed = ops.flags(_PASSED_OVER, ops.code) | inner | (pointwise & (ops.elements <= 1))
    at = np.flatnonzero(~passed)
    counts = pointwise[at] & (ops.elements[at] >= MIN_ELEMENTS)
    size = np.where(counts, ops.elements[at], -1)
    if len(size) == 0:
        return []
    edges = np.flatnonzero(np.append(True, size[1:] != size[:-1]))
    result = []
    for low, high in zip(edges.tolist(), [*edges[1:].tolist(), len(size)], strict=True):
        if high - low < MIN_CHAIN or size[low] < 0:
            continue
        mine = at[low:high]
        length = ops.length[mine]
        total, moved = int(length.sum()), int((ops.tensors[mine] + 1).sum())
        # One operator reads two tensors, writes one, and takes at least as long as its slowest part.
        fused = max(int(length.max()), total * 3 // max(moved, 3))
        result.append((high - low, total, fused, int(ops.row[mine[0]])))
    return result


def _unfused(host: Host, chains: list[tuple[int, int, int, int]]) -> Iterator[Finding]:
    if len(chains) < MIN_REPEATS:
        return
    total = sum(chain[1] for chain in chains)
    gain = total - sum(chain[2] for chain in chains)
    yield cost(
        host, "unfused-elementwise",
        f"{len(chains):,} chains of {int(np.median([chain[0] for chain in chains]))} pointwise operators (p50) over the "
        f"same tensors took {format_duration(total)} ({format_percent(total, host.wall_ns)} of the window)",
        max(gain, 0), duration_ns=total,
        fix="torch.compile the function, or call the fused operator of the library",
        falsifier="the fused operator takes as long as the chain", confidence=0.8, effort="code", place={},
        evidence=("op", np.array([chain[3] for chain in chains], np.int64)),
    )  # fmt: skip


def _products(capture: Capture, ops: _Ops) -> NDArray[np.float64]:
    """Time and multiplications of products in double, then of the others."""
    result = np.zeros(4, np.float64)
    mine = np.flatnonzero(ops.flags(_PRODUCT, ops.code))
    shape, shapes = capture.codes("op", "input_shapes")
    dtype, dtypes = capture.codes("op", "input_dtypes")
    pairs = np.stack([shape[ops.row[mine]], dtype[ops.row[mine]]], axis=1)
    if not len(mine) or not len(dtypes):
        return result
    for pair in np.unique(pairs, axis=0):
        if pair.min() < 0:
            continue
        length = int(ops.length[mine[(pairs == pair).all(axis=1)]].sum())
        count = int((pairs == pair).all(axis=1).sum())
        sizes = sorted(tensor.elements for tensor in read_tensors(shapes[pair[0]], None))
        is_double = dtypes[pair[1]].count('"double"') >= 2
        if len(sizes) < 2 or not (
            is_double or any(f'"{one}"' in dtypes[pair[1]] for one in _NARROW)
        ):
            continue
        # Work of A x B grows with both: the root of it is right up to the inner size, which similar layers share.
        work = count * float(sizes[-1]) * float(sizes[-2]) ** 0.5
        result[0 if is_double else 2] += length
        result[1 if is_double else 3] += work
    return result
