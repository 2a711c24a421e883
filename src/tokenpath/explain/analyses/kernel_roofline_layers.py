"""Work of kernels without operators, as in graph replays, from the same layers where they ran with shapes.

Two inferences, each only where the capture itself shows what they rest on:

- a kernel that reads and writes each element once moves bytes in proportion to its blocks. Where launches of the
  same kernel with the same block have known bytes, and bytes a block agree among them, others follow;
- the products of a model repeat layer by layer. Where a step with shapes shows the (k, n) of one period, a step of
  the same device without shapes, whose products are whole periods, has the same ones, with its own tokens as m.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.core.costs import Cost, matmul
from tokenpath.explain.analyses.kernel_roofline_costs import Costs
from tokenpath.explain.analyses.kernel_roofline_rows import infer_rows
from tokenpath.explain.analyses.kernel_roofline_shapes import MATMUL, STREAMING, OpCost

Int64s = NDArray[np.int64]

MAX_SPREAD = 0.1
"""Bytes a block may differ by so much among launches of one kernel."""
MIN_LAYERS = 2
"""Periods of one pattern of products that make it a pattern."""
MAX_PERIOD = 64
"""Products of one layer, at most."""


def infer_costs(capture: Capture, costs: Costs, grid: Int64s, block: Int64s) -> None:
    """Add costs to kernels that have none, where something in the capture tells them."""
    if (costs.index >= 0).any() and (costs.index < 0).any():
        _by_blocks(capture, costs, grid, block)
        if capture.num_rows("step"):
            _by_layers(capture, costs)
    if (costs.index < 0).any():
        infer_rows(capture, costs, grid, block)


def _by_blocks(capture: Capture, costs: Costs, grid: Int64s, block: Int64s) -> None:
    name, _ = capture.codes("kernel", "name")
    family, families = capture.codes("kernel", "family")
    streaming = np.array([f in STREAMING for f in families] or [False])[family]
    blocks = np.where(grid[:, 0] > 0, grid.prod(axis=1), 0)
    usable = streaming & (blocks > 0)
    exact = np.array([cost.is_exact for cost in costs.known])
    known = np.flatnonzero(usable & (costs.index >= 0))
    known = known[exact[costs.index[known]]]
    unknown = np.flatnonzero(usable & (costs.index < 0))
    if len(known) == 0 or len(unknown) == 0:
        return
    threads = block.prod(axis=1)
    key = name.astype(np.int64) * 2048 + threads
    moved = np.array([cost.cost.bytes_total for cost in costs.known])[costs.index[known]]
    rate = moved * costs.share[known] / blocks[known]
    order = np.argsort(key[known], kind="stable")
    keys, first = np.unique(key[known][order], return_index=True)
    low = np.minimum.reduceat(rate[order], first)
    high = np.maximum.reduceat(rate[order], first)
    agreed = high <= (1 + MAX_SPREAD) * low
    at = np.minimum(np.searchsorted(keys, key[unknown]), len(keys) - 1)
    fits = (keys[at] == key[unknown]) & agreed[at]
    rows, place = unknown[fits], at[fits]
    kinds, inverse = np.unique(np.column_stack((place, blocks[rows])), axis=0, return_inverse=True)
    costs.index[rows] = inverse.reshape(-1) + len(costs.known)
    costs.share[rows] = 1.0
    costs.known += [
        OpCost(Cost(0.0, float(low[which]) * number, 0.0), None, STREAMING)
        for which, number in kinds.tolist()
    ]


def _by_layers(capture: Capture, costs: Costs) -> None:
    step, device = capture.ids("kernel", "step_id"), capture.ids("kernel", "device_id")
    family, families = capture.codes("kernel", "family")
    product = np.array([f in MATMUL for f in families] or [False])[family]
    chosen = np.flatnonzero(product & (step != NO_ID))
    if len(chosen) == 0:
        return
    start = capture.int64("kernel", "start_ns")
    chosen = chosen[np.lexsort((start[chosen], step[chosen], device[chosen]))]
    group = device[chosen].astype(np.int64) * (int(step.max()) + 1) + step[chosen]
    bounds = [*np.flatnonzero(np.diff(group, prepend=-1)).tolist(), len(chosen)]
    runs = [chosen[low:high] for low, high in pairwise(bounds)]
    layer: dict[int, list[tuple[int, int, str]]] = {}
    for rows in runs:
        if int(device[rows[0]]) not in layer and (costs.index[rows] >= 0).mean() > 0.9:
            found = _period(_products(costs, rows))
            if found is not None:
                layer[int(device[rows[0]])] = found
    if not layer:
        return
    tokens = step_tokens(capture)
    memo: dict[tuple[int, int, int, str], int] = {}
    for rows in runs:
        pattern = layer.get(int(device[rows[0]]))
        rows = rows[costs.index[rows] < 0]
        if pattern is None or len(rows) < MIN_LAYERS * len(pattern) or len(rows) % len(pattern):
            continue
        m = int(tokens[step[rows[0]]])
        if m <= 0:
            continue
        for place, (k, n, dtype) in enumerate(pattern):
            kind = (m, n, k, dtype)
            if kind not in memo:
                memo[kind] = len(costs.known)
                cost = OpCost(matmul(m, n, k, dtype), dtype, MATMUL, (1, m, n, k))
                costs.known.append(cost)
            costs.index[rows[place :: len(pattern)]] = memo[kind]
            costs.share[rows[place :: len(pattern)]] = 1.0


def _products(costs: Costs, rows: Int64s) -> list[tuple[int, int, str]]:
    """(k, n, type) of the plain products among these kernels, in order."""
    found = []
    for index in costs.index[rows].tolist():
        cost = costs.known[index] if index >= 0 else None
        if cost is not None and cost.tiles is not None and cost.tiles[0] == 1:
            found.append((cost.tiles[3], cost.tiles[2], cost.dtype or "bf16"))
    return found


def _period(products: list[tuple[int, int, str]]) -> list[tuple[int, int, str]] | None:
    """The shortest sequence that repeats from the first product on to all but the last few (the output head)."""
    for length in range(1, min(MAX_PERIOD, len(products) // MIN_LAYERS) + 1):
        whole = len(products) // length * length
        repeats = all(products[at] == products[at % length] for at in range(whole))
        if repeats and len(products) - whole <= 1:
            return products[:length]
    return None


def step_tokens(capture: Capture) -> Int64s:
    """Tokens that each step computed; 0 where its label does not tell."""
    total = np.zeros(capture.num_rows("step"), np.int64)
    for column in ("num_prefill_tokens", "num_decode_tokens"):
        total += np.maximum(capture.int64("step", column, 0), 0)
    return total
