"""Bytes of streaming kernels without operators, as in graph replays: at most so many, from their grids.

A kernel that is slow by an upper bound is slow.

- Inductor gives a warp of a pointwise kernel 256 elements (`triton_config` of its heuristics), and a kernel of k
  fused operators reads and writes at most k + 2 tensors, nearly always 16-bit ones in a model that serves;
- norms and the writing of keys and values take a block a token: no more than four rows of the hidden width move (a
  fused add reads two and writes two; keys and values are narrower). The width is the k of the output head, the
  product with the most columns whose shapes are known.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.core.costs import Cost
from tokenpath.explain.analyses.kernel_roofline_costs import Costs
from tokenpath.explain.analyses.kernel_roofline_shapes import STREAMING, OpCost

Int64s = NDArray[np.int64]

ELEMENTS_A_THREAD = 8
"""Of a pointwise kernel of Inductor: 256 a warp."""
ELEMENT_BYTES = 2
"""Of a tensor in a 16-bit model."""
ROWS_MOVED = 4
"""Rows of the hidden width that a token moves at most."""
MIN_VOCABULARY = 16_000
"""Columns from which on a product is the output head, or its part of one."""

_POINTWISE = re.compile(r"^triton_poi_fused_(\w+?)_\d+$")
_ONE_BLOCK_A_TOKEN = frozenset({"norm", "kv_cache"})


def infer_rows(capture: Capture, costs: Costs, grid: Int64s, block: Int64s) -> None:
    """Add costs to pointwise kernels of Inductor, norms and cache writes that have none."""
    family, families = capture.codes("kernel", "family")
    name, names = capture.codes("kernel", "name")
    blocks = np.where(grid[:, 0] > 0, grid.prod(axis=1), 0)
    unknown = (costs.index < 0) & (blocks > 0)
    operands = np.array([_operands(text) for text in names] or [0])[name]
    pointwise = unknown & (operands > 0)
    pointwise &= np.array([text == "elementwise" for text in families] or [False])[family]
    moved = blocks * block.prod(axis=1) * ELEMENTS_A_THREAD * ELEMENT_BYTES * operands
    _add(costs, np.flatnonzero(pointwise), moved)
    width, step = _hidden(costs), capture.ids("kernel", "step_id")
    if width is None or capture.num_rows("step") == 0:
        return
    a_token = unknown & (step != NO_ID) & (grid[:, 1:] == 1).all(axis=1)
    a_token &= np.array([text in _ONE_BLOCK_A_TOKEN for text in families] or [False])[family]
    rows = np.flatnonzero(a_token)
    tokens = np.zeros(capture.num_rows("step"), np.int64)
    for column in ("num_prefill_tokens", "num_decode_tokens"):
        tokens += np.maximum(capture.int64("step", column, 0), 0)
    of_step = tokens[step[rows]]
    rows = rows[(of_step > 0) & (blocks[rows] >= of_step)]
    _add(costs, rows, blocks * width * ELEMENT_BYTES * ROWS_MOVED)


def _operands(name: str) -> int:
    """Tensors that a pointwise kernel of Inductor moves at most, by its name; 0 for other kernels."""
    match = _POINTWISE.match(name)
    return 0 if match is None else match[1].count("_") + 3


def _hidden(costs: Costs) -> int | None:
    heads = [
        (cost.tiles[2], cost.tiles[3])
        for cost in costs.known
        if cost.tiles is not None and cost.tiles[0] == 1 and cost.tiles[2] >= MIN_VOCABULARY
    ]
    return max(heads)[1] if heads else None


def _add(costs: Costs, rows: Int64s, moved: Int64s) -> None:
    if len(rows) == 0:
        return
    sizes, inverse = np.unique(moved[rows], return_inverse=True)
    costs.index[rows] = inverse.reshape(-1) + len(costs.known)
    costs.share[rows] = 1.0
    costs.known += [OpCost(Cost(0.0, float(size), 0.0), None, STREAMING) for size in sizes.tolist()]
