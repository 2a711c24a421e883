"""FLOPs and bytes of every kernel, from the nearest enclosing operator and the sums of its step's label."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.core.costs import Cost
from tokenpath.explain.analyses.kernel_roofline_shapes import (
    ATTENTION,
    OpCost,
    op_cost,
    read_tensors,
)

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

MAX_HOPS = 4
"""Enclosing operators that are asked for shapes."""
_NUMBER = r"(\d{1,15})"
_SUMS = re.compile(
    rf"_(context|generation)_{_NUMBER}\(sq{_NUMBER}sk{_NUMBER}sqsq{_NUMBER}sqsk{_NUMBER}\)",
    re.ASCII,
)
_ATTENDS = ("attention", "attn", "mha", "_fa2_", "_fa3_", "fmha", "mla")


@dataclass(frozen=True)
class StepSums:
    """What the label of a vLLM step says about its requests, one phase."""

    requests: int
    """Requests."""
    queries: int
    """Summed query tokens."""
    keys: int
    """Summed context lengths, the queries included."""
    squares: int
    """Summed squares of query tokens."""
    pairs: int
    """Summed products of query tokens and context lengths."""

    @property
    def causal_pairs(self) -> int:
        """Query-key pairs under a causal mask: sum of q k - q (q - 1) / 2."""
        return self.pairs - (self.squares - self.queries) // 2


def step_sums(label: str) -> tuple[StepSums, StepSums] | None:
    """(prefill, decode) of a step's label; None when it has no sums."""
    found = _SUMS.findall(label)
    if len(found) != 2:
        return None
    prefill, decode = (StepSums(*(int(part) for part in row[1:])) for row in found)
    return prefill, decode


@dataclass
class Costs:
    """Cost of every kernel row that has one."""

    index: NDArray[np.int32]
    """Into `known`; -1 without."""
    share: Floats
    """The kernel's share of its operator's work."""
    known: list[OpCost] = field(default_factory=list)


def combine(*columns: NDArray[np.int32]) -> Int64s:
    """One number for each distinct row of small integers."""
    key, largest = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        width = int(column.max(initial=0)) + 2
        if largest * width >= 1 << 62:
            key = np.unique(key, return_inverse=True)[1].reshape(-1).astype(np.int64)
            largest = int(key.max(initial=0)) + 1
        key = key * width + column + 1
        largest *= width
    return key


def kernel_costs(capture: Capture) -> Costs:
    """For each kernel the cost of the nearest enclosing operator that explains a kernel of its family."""
    num = capture.num_rows("kernel")
    costs = Costs(np.full(num, -1, np.int32), np.ones(num))
    if capture.num_rows("op") == 0:
        return costs
    name, names = capture.codes("op", "name")
    shape, shapes = capture.codes("op", "input_shapes")
    kind, kinds = capture.codes("op", "input_dtypes")
    parent = capture.ids("op", "parent_op_id")
    family, families = capture.codes("kernel", "family")
    what, whats = capture.codes("kernel", "kind")
    current = capture.ids("kernel", "op_id").copy()
    step = capture.ids("kernel", "step_id")
    labels = capture["step"]["name"].to_pylist() if capture.num_rows("step") else []
    is_compute = np.array([w == "compute" for w in whats] or [False])[what]
    memo: dict[tuple[int, int, int, int], int] = {}
    op_of = np.full(num, NO_ID, np.int32)
    sums = {at: found for at, label in enumerate(labels) if (found := step_sums(label))}
    attends = np.array([any(word in n.lower() for word in _ATTENDS) for n in names] or [False])
    for _ in range(MAX_HOPS):
        waiting = np.flatnonzero(is_compute & (current >= 0) & (costs.index < 0))
        waiting = waiting[shape[current[waiting]] >= 0] if len(waiting) else waiting
        if len(waiting):
            ops = current[waiting]
            # Attention's work depends on the step as well: cached keys are in no shape.
            of_step = np.where(attends[name[ops]], step[waiting], NO_ID)
            key = combine(name[ops], shape[ops], kind[ops], of_step, family[waiting])
            _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
            picked = np.full(len(first), -1, np.int32)
            for number, at in enumerate(first.tolist()):
                op = int(ops[at])
                known = (int(name[op]), int(shape[op]), int(kind[op]), int(of_step[at]))
                if known not in memo:
                    cost = _cost_of(
                        names[known[0]],
                        shapes[known[1]],
                        kinds[known[2]] if known[2] >= 0 else None,
                        sums.get(known[3]),
                    )
                    memo[known] = -1
                    if cost is not None:
                        memo[known] = len(costs.known)
                        costs.known.append(cost)
                index = memo[known]
                if index >= 0 and families[family[waiting[at]]] in costs.known[index].families:
                    picked[number] = index
            chosen = picked[inverse.reshape(-1)]
            costs.index[waiting] = chosen
            op_of[waiting[chosen >= 0]] = ops[chosen >= 0]
        live = (current >= 0) & (costs.index < 0)
        current[live] = parent[current[live]]
    _share_out(capture, costs, op_of)
    return costs


def _share_out(capture: Capture, costs: Costs, op_of: NDArray[np.int32]) -> None:
    """Several kernels of one call share its work in proportion to their time."""
    mine = np.flatnonzero(op_of >= 0)
    if len(mine) == 0:
        return
    duration = (capture.int64("kernel", "end_ns") - capture.int64("kernel", "start_ns"))[mine]
    weight = np.maximum(duration, 1).astype(float)
    total = np.bincount(op_of[mine], weights=weight)
    costs.share[mine] = weight / total[op_of[mine]]


def _cost_of(
    name: str, shapes: str, dtypes: str | None, sums: tuple[StepSums, StepSums] | None
) -> OpCost | None:
    cost = op_cost(name, shapes, dtypes)
    if cost is None and sums is not None and any(word in name.lower() for word in _ATTENDS):
        return _paged_attention(shapes, dtypes, sums)
    return cost


def _paged_attention(
    shapes: str, dtypes: str | None, sums: tuple[StepSums, StepSums]
) -> OpCost | None:
    """Attention over a KV cache: queries `[tokens, heads, dim]`, keys with fewer heads, lengths from the step."""
    tensors = [t for t in read_tensors(shapes, dtypes) if len(t.shape) in (3, 4)]
    if len(tensors) < 2 or len(tensors[0].shape) != 3 or not tensors[0].elements:
        return None
    q, k = tensors[0], tensors[1]
    heads, dim = q.shape[1:]
    kv_heads = next(
        (size for size in k.shape[-2:-4:-1] if size and heads % size == 0 and size <= heads), heads
    )
    size = q.size or 2
    pairs = sum(part.causal_pairs for part in sums)
    keys, queries = sum(part.keys for part in sums), sum(part.queries for part in sums)
    row = heads * dim * size
    cost = Cost(
        4.0 * heads * dim * pairs, queries * row + keys * kv_heads * dim * 2 * size, queries * row
    )
    return OpCost(cost, q.dtype, ATTENTION)
