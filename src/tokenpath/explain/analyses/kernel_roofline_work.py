"""The compute kernels of the windows in groups of equal work: same name, launch shape and operator shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.capture.intervals import Intervals, covered, overlap_count
from tokenpath.core.hardware import Hardware, load_catalogue
from tokenpath.explain.analyses.kernel_roofline_costs import Costs, combine, kernel_costs
from tokenpath.explain.analyses.kernel_roofline_layers import infer_costs
from tokenpath.explain.analyses.kernel_roofline_shapes import OpCost
from tokenpath.explain.analysis import Analysis
from tokenpath.explain.kernel_table import group
from tokenpath.explain.work import COMPUTE, DeviceWork

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]


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


def kernel_groups(analysis: Analysis) -> list[Group]:
    """All compute kernels that touch the windows, grouped; empty without device work."""
    if not analysis.devices:
        return []
    capture = analysis.capture
    costs = kernel_costs(capture)
    infer_costs(capture, costs, dims(capture, "grid"), dims(capture, "block"))
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
    return combine(codes[rows], launch.code[rows], shape, batch)


def _device_groups(
    capture: Capture, number: int, work: DeviceWork, costs: Costs, launch: _Launch
) -> list[Group]:
    chosen = np.flatnonzero(work.in_window() & (work.kind == COMPUTE))
    if len(chosen) == 0:
        return []
    rows = work.row[chosen].astype(np.int64)
    duration = work.end[chosen] - work.start[chosen]
    alone = _alone(work, chosen)
    codes, names = capture.codes("kernel", "name")
    key = combine(codes[rows], costs.index[rows], launch.code[rows])
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
