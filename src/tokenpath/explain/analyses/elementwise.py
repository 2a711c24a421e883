"""Pointwise kernels that one kernel could replace, and copies that only change layout or type."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.core.finding import Evidence, Finding, Kind
from tokenpath.core.units import format_duration
from tokenpath.explain.analyses.contract import Context, Proposal, Result
from tokenpath.explain.analyses.kernel_roofline_claims import function_of
from tokenpath.explain.analyses.kernel_roofline_shapes import read_tensors
from tokenpath.explain.work import COMPUTE, DeviceWork
from tokenpath.replay.change import KernelChange, WhatIf

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

MIN_CHAIN = 3
"""Pointwise kernels in a row from which on a chain is named; two in a row are in every model."""
MIN_REPEATS = 4
"""A copy that does not recur at least so often is no pattern."""
MIN_SHARE = 0.01
"""Gain over the window from which on a finding is made."""
START_NS = 2_000
"""Start and end of a kernel: what it takes with next to no data."""
MAX_BREAK_NS = 200_000
"""Kernels further apart than this are no chain."""

_POINTWISE = re.compile(
    r"vectorized_elementwise_kernel|unrolled_elementwise_kernel|[^_]elementwise_kernel|"
    r"elementwise_kernel_manual_unroll|triton_poi_fused",
)
_NOT_FUSABLE = re.compile(r"FillFunctor|multi_tensor_apply|random|distribution")
_POINTERS = re.compile(r"array<char\s*\*\s*,\s*(?:\(unsigned long\))?(\d+)")
_BINARY = re.compile(r"add|mul|sub|div|binary|lerp|where|threshold", re.IGNORECASE)
_LAYOUT = re.compile(
    r"direct_copy|bfloat16_copy|bfloat16tofloat|float16_copy|transpose|permute|nchw|nhwc|to_copy|"
    r"convert|cast|contiguous|SubTensorOpWithCast|clone|load_with_cast",
    re.IGNORECASE,
)
_NO_LAYOUT = re.compile(r"CatArray|cache|_cat_|copyBuffer", re.IGNORECASE)


@dataclass(frozen=True)
class Chain:
    """Pointwise kernels in a row on one stream over the same number of elements."""

    rows: Int64s
    """Rows of `kernel`, in order."""
    first_ns: int
    """Time of the first of them."""
    total_ns: int
    """Their summed time."""
    fused_ns: int
    """What one kernel with the same inputs and the last output would take."""


def analyse(context: Context) -> Result:
    """Findings `unfused-elementwise` and `layout-copies`."""
    capture = context.analysis.capture
    codes, names = capture.codes("kernel", "name")
    kinds = _Names(names)
    elements = _elements(capture)
    chains: list[Chain] = []
    copies: list[Int64s] = []
    for device in context.analysis.devices:
        work = device.work
        chosen = np.flatnonzero(work.in_window() & (work.kind == COMPUTE))
        chosen = chosen[np.argsort(work.stream[chosen], kind="stable")]
        code = codes[work.row[chosen]]
        chains += _chains(work, chosen, kinds, code, elements)
        copies.append(chosen[kinds.is_copy[code] & _family_is(work, chosen, "copy")])
    proposals = [*_unfused(context, chains), *_layout(context, copies, codes, names)]
    return Result([proposal.finding for proposal in proposals], proposals=proposals)


class _Names:
    """What each kernel name says, once a name."""

    def __init__(self, names: Sequence[str]) -> None:
        self.is_pointwise = np.array(
            [bool(_POINTWISE.search(n)) and not _NOT_FUSABLE.search(n) for n in names] or [False]
        )
        self.is_copy = np.array(
            [bool(_LAYOUT.search(n)) and not _NO_LAYOUT.search(n) for n in names] or [False]
        )
        self.operands = np.array([_operands(n) for n in names] or [2])


def _operands(name: str) -> int:
    """Tensors that a pointwise kernel reads and writes, by its name: at least two."""
    if match := _POINTERS.search(name):
        return max(2, int(match[1]))
    return 3 if _BINARY.search(name) else 2


def _family_is(work: DeviceWork, chosen: Int64s, family: str) -> NDArray[np.bool_]:
    wanted = [at for at, name in enumerate(work.families) if name == family]
    result: NDArray[np.bool_] = np.isin(work.family[chosen], wanted)
    return result


def _elements(capture: Capture) -> Int64s:
    """Elements of a kernel's output by its operator's shapes, else minus a number of its grid; 0 unknown."""
    result = _grids(capture)
    if capture.num_rows("op") == 0:
        return result
    op = capture.ids("kernel", "op_id")
    shape, shapes = capture.codes("op", "input_shapes")
    largest = np.zeros(len(shapes) + 1, np.int64)
    used = np.unique(shape[op[op >= 0]])
    for code in used[used >= 0].tolist():
        sizes = [tensor.elements for tensor in read_tensors(shapes[code], None)]
        largest[code] = max(sizes, default=0)
    known = np.where(op >= 0, largest[shape[np.maximum(op, 0)]], 0)
    known[(op < 0) | (shape[np.maximum(op, 0)] == NO_ID)] = 0
    return np.where(known > 1, known, result)


def _grids(capture: Capture) -> Int64s:
    """Minus blocks x threads: kernels of one launch shape cover the same number of elements."""
    threads = np.ones(capture.num_rows("kernel"), np.int64)
    at = 0
    for column in ("grid", "block"):
        at = 0
        for chunk in capture["kernel"][column].chunks:
            valid = chunk.is_valid().to_numpy(zero_copy_only=False)
            values = chunk.flatten().to_numpy(zero_copy_only=False).reshape(-1, 3)
            part = threads[at : at + len(chunk)]
            part[valid] *= values.prod(axis=1)
            part[~valid] = 0
            at += len(chunk)
    return -threads


def _chains(
    work: DeviceWork,
    chosen: Int64s,
    kinds: _Names,
    code: NDArray[np.int32],
    elements: Int64s,
) -> list[Chain]:
    """Chains of one device; `chosen` is sorted by stream, then start."""
    if len(chosen) == 0:
        return []
    row = work.row[chosen]
    size = elements[row]
    fits = kinds.is_pointwise[code] & _family_is(work, chosen, "elementwise") & (size != 0)
    stream, start, end = work.stream[chosen], work.start[chosen], work.end[chosen]
    joined = np.zeros(len(chosen), bool)
    joined[1:] = (
        fits[1:]
        & fits[:-1]
        & (size[1:] == size[:-1])
        & (stream[1:] == stream[:-1])
        & (start[1:] - end[:-1] < MAX_BREAK_NS)
    )
    first = np.flatnonzero(~joined)
    length = np.diff(np.append(first, len(chosen)))
    duration, operands = end - start, kinds.operands[code]
    found = []
    for begin, count in zip(first[length >= MIN_CHAIN], length[length >= MIN_CHAIN], strict=True):
        part = slice(int(begin), int(begin + count))
        total = int(duration[part].sum())
        fused = _fused_ns(duration[part], operands[part])
        found.append(
            Chain(row[part].astype(np.int64), int(duration[part][0]), total, min(total, fused))
        )
    return found


def _fused_ns(duration: Int64s, operands: Int64s) -> int:
    """Time of one kernel for a chain: every intermediate is neither written nor read back."""
    start = min(START_NS, int(duration.min()))
    moved = int(operands.sum())
    left = moved - 2 * (len(operands) - 1)
    return start + int((duration - start).sum() * left / moved)


def _unfused(context: Context, chains: Sequence[Chain]) -> list[Proposal]:
    gain = sum(chain.total_ns - chain.fused_ns for chain in chains)
    wall = context.analysis.wall_ns
    if not chains or gain < MIN_SHARE * wall:
        return []
    chains = sorted(chains, key=lambda chain: chain.fused_ns - chain.total_ns)
    count = sum(len(chain.rows) for chain in chains)
    total = sum(chain.total_ns for chain in chains)
    finding = Finding(
        code="unfused-elementwise",
        sentence=f"{count:,} pointwise kernels in {len(chains):,} chains over the same elements "
        f"take {format_duration(total)}; one kernel a chain would take "
        f"{format_duration(total - gain)}",
        kind=Kind.COST,
        value=gain / wall,
        unit="share of the window",
        duration_ns=gain,
        share=gain / wall,
        gain_ns=gain,
        gain_method="estimated",
        status=context.status,
        evidence=(
            Evidence("kernel", tuple(int(row) for row in chains[0].rows[:5]), count, "worst chain"),
        ),
        falsifier="the kernels of a chain do not read each other's results",
        fix="compile the module (torch.compile) or write one fused kernel for the chain",
        details={
            "num_chains": len(chains),
            "longest_chain": max(len(chain.rows) for chain in chains),
            "total_ns": total,
        },
        place={"family": "elementwise"} | _op_of(context.analysis.capture, int(chains[0].rows[0])),
        confidence=0.75,
        effort="code",
    )
    return [Proposal(finding, partial(_fuse, chains))]


def _fuse(chains: Sequence[Chain]) -> WhatIf:
    """The first kernel of a chain takes the fused time, the others go with their launches."""
    first = np.array([chain.rows[0] for chain in chains], np.int64)
    others = np.concatenate([chain.rows[1:] for chain in chains])
    return WhatIf(
        "one kernel a chain",
        kernels=[KernelChange(others, 0.0, with_launch=True), *_grown(first, chains)],
    )


def _grown(first: Int64s, chains: Sequence[Chain]) -> list[KernelChange]:
    own = np.array([chain.first_ns for chain in chains], float)
    fused = np.array([chain.fused_ns for chain in chains], float)
    return [KernelChange(first, fused / np.maximum(own, 1.0))]


def _op_of(capture: Capture, row: int) -> dict[str, str]:
    """The operator that launched a kernel, where recorded."""
    op = int(capture.ids("kernel", "op_id")[row])
    if op < 0:
        return {}
    codes, names = capture.codes("op", "name")
    return {"op": names[codes[op]]}


def _layout(
    context: Context, copies: Sequence[Int64s], codes: NDArray[np.int32], names: Sequence[str]
) -> list[Proposal]:
    wall = context.analysis.wall_ns
    by_kind: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for device, chosen in zip(context.analysis.devices, copies, strict=True):
        work = device.work
        duration = work.end[chosen] - work.start[chosen]
        for row, length in zip(work.row[chosen].tolist(), duration.tolist(), strict=True):
            by_kind[names[codes[row]]].append((length, row))
    kept = {name: found for name, found in by_kind.items() if len(found) >= MIN_REPEATS}
    total = sum(length for found in kept.values() for length, _ in found)
    if not kept or total < MIN_SHARE * wall:
        return []
    by_time = sorted(kept, key=lambda name: (-sum(length for length, _ in kept[name]), name))
    count = sum(len(found) for found in kept.values())
    worst = sorted(kept[by_time[0]], reverse=True)[:5]
    rows = np.array([row for found in kept.values() for _, row in found], np.int64)
    capture = context.analysis.capture
    finding = Finding(
        code="layout-copies",
        sentence=f"{count:,} kernels ({format_duration(total)}) only copy activations to another "
        f"layout or number type",
        kind=Kind.COST,
        value=total / wall,
        unit="share of the window",
        duration_ns=total,
        share=total / wall,
        gain_ns=total,
        gain_method="ceiling",
        status=context.status,
        evidence=(
            Evidence("kernel", tuple(row for _, row in worst), count, "longest of the worst"),
        ),
        falsifier="the operators around the copies cannot take the other layout or type",
        fix="keep one layout and type through the layer: channels_last, no .contiguous() or .float() "
        "between operators, or let the neighbour read the other layout",
        details={
            "kernels": [
                {
                    "kernel": name,
                    "count": len(kept[name]),
                    "total_ns": sum(t for t, _ in kept[name]),
                }
                for name in by_time[:5]
            ]
        },
        place={"family": "copy", "kernel": function_of(by_time[0])} | _op_of(capture, worst[0][1]),
        confidence=0.7,
        effort="code",
    )
    what_if = partial(WhatIf, "no copies", [KernelChange(rows, 0.0, with_launch=True)])
    return [Proposal(finding, what_if)]
