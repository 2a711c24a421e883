"""The compute kernels of the windows in groups of equal work: same name, launch shape and operator shapes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.capture.intervals import Intervals, covered, overlap_count
from tokenpath.core.costs import Cost
from tokenpath.core.hardware import Hardware, load_catalogue
from tokenpath.explain.analyses.kernel_roofline_shapes import (
    ATTENTION,
    OpCost,
    op_cost,
    read_tensors,
)
from tokenpath.explain.analysis import Analysis
from tokenpath.explain.kernel_table import group
from tokenpath.explain.work import COMPUTE, DeviceWork

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

MAX_HOPS = 4
"""Enclosing operators that are asked for shapes."""
_SUMS = re.compile(r"_(context|generation)_(\d+)\(sq(\d+)sk(\d+)sqsq(\d+)sqsk(\d+)\)", re.ASCII)
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
class Group:
    """Kernels of one device that do the same work."""

    device: int
    """Position in `analysis.devices`."""
    name: str
    """Kernel name."""
    family: str
    """Kernel family."""
    count: int
    """Kernels."""
    total_ns: int
    """Their summed time."""
    quiet_ns: int
    """Lower quartile of their durations: what the kernel takes when nothing disturbs it."""
    rows: Int64s
    """Rows of `kernel`, longest first."""
    duration_ns: Int64s
    """Their durations."""
    grid: tuple[int, int, int] | None
    """Blocks of one of them."""
    block: tuple[int, int, int] | None
    """Threads of one of them."""
    registers: int | None
    """Registers a thread."""
    shared_bytes: int | None
    """Shared memory of a block."""
    op: OpCost | None
    """Operator's cost, of one call; None where shapes are unknown."""
    flops: float | None
    """FLOPs of one kernel (mean); None where unknown."""
    bytes: float | None
    """Compulsory bytes of one kernel (mean); None where unknown."""
    alone: float
    """Share of its time in which no other stream of the device runs."""
    hardware: Hardware | None
    """The part it ran on."""
    num_sms: int | None
    """Multiprocessors of that device."""

    @property
    def num_blocks(self) -> int | None:
        """Blocks of the grid."""
        return None if self.grid is None else int(np.prod(self.grid))


@dataclass
class _Costs:
    """Cost of every kernel row that has one."""

    index: NDArray[np.int32]
    """Into `known`; -1 without."""
    share: Floats
    """The kernel's share of its operator's work."""
    known: list[OpCost] = field(default_factory=list)


def kernel_groups(analysis: Analysis) -> list[Group]:
    """All compute kernels that touch the windows, grouped; empty without device work."""
    if not analysis.devices:
        return []
    capture = analysis.capture
    costs = _kernel_costs(capture)
    launch = _launch_shapes(capture)
    found: list[Group] = []
    for number, device in enumerate(analysis.devices):
        found += _device_groups(capture, number, device.work, costs, launch)
    return found


def same_launch(capture: Capture, rows: NDArray[np.int32]) -> Int64s:
    """A number for each of these kernels that those of one name, launch shape and work share.

    Work is the operator's shapes; where those are unknown, as in graph replays, the batch of the kernel's step:
    its prompt tokens, and its decode requests to a power of two.
    """
    codes, _ = capture.codes("kernel", "name")
    launch = _launch_shapes(capture)
    shape = np.full(len(rows), NO_ID, np.int32)
    if capture.num_rows("op"):
        op = capture.ids("kernel", "op_id")[rows]
        shapes, _ = capture.codes("op", "input_shapes")
        shape = np.where(op >= 0, shapes[np.maximum(op, 0)], NO_ID).astype(np.int32)
    batch = np.full(len(rows), NO_ID, np.int32)
    if capture.num_rows("step"):
        step = capture.ids("kernel", "step_id")[rows]
        prompt = capture.int64("step", "num_prefill_tokens", 0)
        requests = capture.int64("step", "num_decode_requests", 0)
        size = np.ceil(np.log2(np.maximum(requests, 1))).astype(np.int64)
        _, of_step = np.unique(prompt * 64 + size, return_inverse=True)
        of_step = of_step.reshape(-1).astype(np.int32)
        batch = np.where((step >= 0) & (shape < 0), of_step[np.maximum(step, 0)], NO_ID).astype(
            np.int32
        )
    return _combine(codes[rows], launch.code[rows], shape, batch)


def _device_groups(
    capture: Capture, number: int, work: DeviceWork, costs: _Costs, launch: _Launch
) -> list[Group]:
    chosen = np.flatnonzero(work.in_window() & (work.kind == COMPUTE))
    if len(chosen) == 0:
        return []
    rows = work.row[chosen].astype(np.int64)
    duration = work.end[chosen] - work.start[chosen]
    alone = _alone(work, chosen)
    codes, names = capture.codes("kernel", "name")
    key = _combine(codes[rows], costs.index[rows], launch.code[rows])
    groups = group(key, duration)
    own = capture["device"].slice(work.device_id, 1).to_pylist()[0]
    hardware = load_catalogue().get(own["hardware"]) if own["hardware"] else None
    sms = own["num_sms"] or (
        hardware.num_cores
        if hardware is not None and hardware.vendor in ("NVIDIA", "AMD")
        else None
    )
    total, quiet = groups.total(), groups.nearest_rank(0.25)
    found = []
    for at in range(len(groups.key)):
        members = groups.order[groups.first[at] : groups.first[at] + groups.count[at]]
        row = int(rows[members[-1]])
        index = int(costs.index[row])
        op = costs.known[index] if index >= 0 else None
        share = float(costs.share[rows[members]].mean()) if op else 0.0
        time = int(total[at])
        shape = launch.shapes[launch.code[row]]
        found.append(
            Group(
                device=number,
                name=names[codes[row]],
                family=work.families[work.family[chosen[members[-1]]]],
                count=int(groups.count[at]),
                total_ns=time,
                quiet_ns=int(quiet[at]),
                rows=rows[members[::-1]],
                duration_ns=duration[members[::-1]],
                grid=shape.grid,
                block=shape.block,
                registers=shape.registers,
                shared_bytes=shape.shared_bytes,
                op=op,
                flops=op.cost.flops * share if op else None,
                bytes=op.cost.bytes_total * share if op else None,
                alone=float(alone[members].sum() / time) if time else 1.0,
                hardware=hardware,
                num_sms=sms,
            )
        )
    return found


def _alone(work: DeviceWork, chosen: Int64s) -> Int64s:
    """How much of each kernel runs while nothing else does on its device."""
    at, count = overlap_count(work.start, work.end)
    single = np.flatnonzero(count == 1)
    # The last count is 0, so every stretch has an end.
    return covered(work.start[chosen], work.end[chosen], Intervals(at[single], at[single + 1]))


def _combine(*columns: NDArray[np.int32]) -> Int64s:
    """One number for each distinct row of small integers."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        key = key * (int(column.max(initial=0)) + 2) + column + 1
    return key


@dataclass(frozen=True)
class LaunchShape:
    """How a kernel was launched."""

    grid: tuple[int, int, int] | None
    """Blocks."""
    block: tuple[int, int, int] | None
    """Threads."""
    registers: int | None
    """Registers a thread."""
    shared_bytes: int | None
    """Shared memory of a block."""


@dataclass(frozen=True)
class _Launch:
    code: NDArray[np.int32]
    """Into `shapes`, one a kernel row."""
    shapes: Sequence[LaunchShape]


def _launch_shapes(capture: Capture) -> _Launch:
    grid, block = dims(capture, "grid"), dims(capture, "block")
    registers = capture.int64("kernel", "registers_per_thread", NO_ID)
    shared = capture.int64("kernel", "shared_memory_bytes", NO_ID)
    columns = np.column_stack((grid, block, registers, shared))
    weights = np.array([1, 1_000_003, 999_983, 7_919, 104_729, 1_299_709, 15_485_863, 31], np.int64)
    _, first, code = np.unique(columns @ weights, return_index=True, return_inverse=True)
    shapes = [
        LaunchShape(
            None if row[0] < 0 else (int(row[0]), int(row[1]), int(row[2])),
            None if row[3] < 0 else (int(row[3]), int(row[4]), int(row[5])),
            None if row[6] < 0 else int(row[6]),
            None if row[7] < 0 else int(row[7]),
        )
        for row in columns[first]
    ]
    return _Launch(code.reshape(-1).astype(np.int32), shapes)


def dims(capture: Capture, name: str) -> Int64s:
    """A dim3 column as three columns of numbers, -1 for NULL."""
    result = np.full((capture.num_rows("kernel"), 3), -1, np.int64)
    at = 0
    for chunk in capture["kernel"][name].chunks:
        valid = np.ones(len(chunk), bool)
        if chunk.null_count:
            valid = chunk.is_valid().to_numpy(zero_copy_only=False)
        # `flatten` leaves the values of NULL rows out.
        values = chunk.flatten().to_numpy(zero_copy_only=False)
        result[at : at + len(chunk)][valid] = values.reshape(-1, 3)
        at += len(chunk)
    return result


def _kernel_costs(capture: Capture) -> _Costs:
    """For each kernel the cost of the nearest enclosing operator that explains a kernel of its family."""
    num = capture.num_rows("kernel")
    costs = _Costs(np.full(num, -1, np.int32), np.ones(num))
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
            key = _combine(name[ops], shape[ops], kind[ops], of_step, family[waiting])
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


def _share_out(capture: Capture, costs: _Costs, op_of: NDArray[np.int32]) -> None:
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
    if len(tensors) < 2 or len(tensors[0].shape) != 3:
        return None
    q, k = tensors[0], tensors[1]
    heads, dim = q.shape[1:]
    kv_heads = next(
        (size for size in k.shape[-2:-4:-1] if heads % size == 0 and size <= heads), heads
    )
    size = q.size or 2
    pairs = sum(part.causal_pairs for part in sums)
    keys, queries = sum(part.keys for part in sums), sum(part.queries for part in sums)
    row = heads * dim * size
    cost = Cost(
        4.0 * heads * dim * pairs, queries * row + keys * kv_heads * dim * 2 * size, queries * row
    )
    return OpCost(cost, q.dtype, ATTENTION)
