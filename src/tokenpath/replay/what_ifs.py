"""Ready-made what-ifs: kernels by family or name, communication, launches, waits, another device, fusion, ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.capture.intervals import Int64s
from tokenpath.core.hardware import Hardware
from tokenpath.replay.change import HostChange, KernelChange, Rows, WhatIf
from tokenpath.replay.edges import EdgeKind
from tokenpath.replay.graph import Graph

Bools = NDArray[np.bool_]

COMPUTE_FAMILIES = frozenset(
    {"gemm", "convolution", "attention_prefill", "attention", "moe", "ssm"}
)
"""Families whose kernels arithmetic limits when they have many tokens; all others move bytes."""
_LONG_HOST_NS, _LONG_HOST_TIMES = 500_000, 20
"""Host time between two launches beyond both of these (a time, and so many medians) is no launching."""


def kernels_where(capture: Capture, column: str, matches: Callable[[str], bool]) -> Int64s:
    """Rows of `kernel` whose text in a column (`family`, `kind`, `name`) matches."""
    codes, names = capture.codes("kernel", column)
    return np.flatnonzero(_matching(codes, names, matches))


def _matching(
    codes: NDArray[np.int32], names: Sequence[str], matches: Callable[[str], bool]
) -> Bools:
    found = np.array([matches(name) for name in names] or [False], np.bool_)
    result: Bools = found[np.maximum(codes, 0)] & (codes >= 0)
    return result


def scale_kernels(label: str, rows: Rows, factor: float) -> WhatIf:
    """These kernels taking `factor` times as long; 0 removes them with their launches."""
    return WhatIf(label, kernels=[KernelChange(rows, factor, with_launch=factor == 0.0)])


def hide_kernels(label: str, capture: Capture, kind: str) -> WhatIf:
    """Communication or copies beside compute: nothing waits for them, they still run in their own order."""
    return WhatIf(label, hidden=[kernels_where(capture, "kind", lambda name: name == kind)])


def without_waits(graph: Graph, label: str = "no synchronise") -> WhatIf:
    """No call that is there to wait for the device does so: an upper bound, for a result must be there to be used."""
    calls = graph.measured.calls
    return WhatIf(label, not_waiting=[calls.row[(graph.own_ns >= 0) & calls.waits]])


def without_blocking_copies(graph: Graph, label: str = "no blocking copy") -> WhatIf:
    """Copies and allocations no longer make the host wait."""
    calls = graph.measured.calls
    return WhatIf(label, not_waiting=[calls.row[(graph.own_ns >= 0) & ~calls.waits]])


def host_time_where(
    capture: Capture, table: str, label: str, matches: Callable[[str], bool]
) -> WhatIf:
    """The host time inside frames, operators or API calls of these names gone; waits for the device stay."""
    codes, names = capture.codes(table, "name")
    rows = np.flatnonzero(_matching(codes, names, matches))
    return WhatIf(
        label,
        host=[
            HostChange(
                capture.ids(table, "thread_id")[rows],
                capture.int64(table, "start_ns")[rows],
                capture.int64(table, "end_ns")[rows],
            )
        ],
    )


def device_graphs(capture: Capture, graph: Graph, label: str = "device graphs") -> WhatIf:
    """Each stretch of launches between two waits, within one step, made by one call.

    The host time from the first to the last launch of a stretch goes. Host time that is far longer than a launch
    (a pause, a scheduler) stays: a graph would not hold it.
    """
    calls, work = graph.measured.calls, graph.measured.work
    launches = np.zeros(len(calls), np.bool_)
    launches[work.call[work.call >= 0]] = True
    waits = np.zeros(graph.num_points, np.bool_)
    waits[graph.target[graph.edges_of(EdgeKind.RETURN)]] = True
    is_wait = waits[graph.call_end] | waits[graph.call_start]
    step_of_call = np.full(len(calls), NO_ID, np.int64)
    step = capture.ids("kernel", "step_id")[work.row]
    known = (work.call >= 0) & (step != NO_ID)
    step_of_call[work.call[known]] = step[known]
    at = np.flatnonzero(launches)
    if len(at) < 2:
        return WhatIf(label)
    # A wait between two launches parts them; so do threads and steps.
    num_waits = np.cumsum(is_wait)
    first, second = at[:-1], at[1:]
    together = (calls.thread[first] == calls.thread[second]) & (
        num_waits[first] == num_waits[second]
    )
    together &= step_of_call[first] == step_of_call[second]
    start, end = calls.end[first], calls.end[second]
    length = end - start
    usual = int(np.median(length[together])) if together.any() else 0
    together &= length <= max(_LONG_HOST_NS, _LONG_HOST_TIMES * usual)
    first, start, end = first[together], start[together], end[together]
    shift = graph.measured.origin_ns + graph.measured.shift_ns[calls.source[first]]
    return WhatIf(label, host=[HostChange(calls.thread[first], start + shift, end + shift)])


def fuse_elementwise(capture: Capture, graph: Graph, label: str = "fused elementwise") -> WhatIf:
    """Each chain of elementwise kernels that follow each other on a stream becomes one kernel.

    It takes as long as the longest of them: such kernels read and write memory, and what lies between them
    need not be written. The others go, with their launches.
    """
    work = graph.measured.work
    codes, names = capture.codes("kernel", "family")
    kind, kinds = capture.codes("kernel", "kind")
    is_chain = _matching(codes, names, lambda name: name == "elementwise")
    is_chain &= _matching(kind, kinds, lambda name: name == "compute")
    order = np.lexsort((work.start, work.stream))
    mine = is_chain[work.row[order]]
    stream = work.stream[order]
    follows = np.zeros(len(order), np.bool_)
    follows[1:] = mine[1:] & mine[:-1] & (stream[1:] == stream[:-1])
    chain = np.cumsum(~follows)
    length = (work.end - work.start)[order]
    # The longest of each chain stays; of equals the first.
    by_length = np.lexsort((np.arange(len(order)), -length, chain))
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = chain[by_length][1:] != chain[by_length][:-1]
    going = by_length[~is_first]
    rows = work.row[order[going[mine[going]]]]
    return WhatIf(label, kernels=[KernelChange(rows, 0.0, with_launch=True)])


def balanced_ranks(label: str = "balanced ranks") -> WhatIf:
    """No rank takes longer than the mean of all ranks between two matched collectives."""
    return WhatIf(label, is_balanced=True)


def faster_gpu(
    capture: Capture, label: str, measured: Hardware, other: Hardware, bound: str = "likely"
) -> WhatIf:
    """The run on another device, each kernel scaled by the peak that limits its kind.

    Arithmetic limits `COMPUTE_FAMILIES` outside of decode steps, memory everything else; `bound` = `compute` or
    `memory` takes one for all compute kernels, and the truth lies between the two. Communication is scaled by the
    link where both parts have one; copies to and from the host are not.
    """
    memory = measured.memory_bytes_per_s / other.memory_bytes_per_s
    arithmetic = _flops_ratio(measured, other)
    family, families = capture.codes("kernel", "family")
    kind, kinds = capture.codes("kernel", "kind")
    is_compute = _matching(kind, kinds, lambda name: name == "compute")
    if bound == "likely":
        by_arithmetic = _matching(family, families, lambda name: name in COMPUTE_FAMILIES)
        by_arithmetic &= ~_in_decode(capture)
    else:
        by_arithmetic = np.full(len(family), bound == "compute")
    factor = np.where(is_compute, np.where(by_arithmetic, arithmetic, memory), 1.0)
    factor[_matching(kind, kinds, lambda name: name == "memset")] = memory
    if measured.scale_up_bytes_per_s and other.scale_up_bytes_per_s:
        link = measured.scale_up_bytes_per_s / other.scale_up_bytes_per_s
        factor[_matching(kind, kinds, lambda name: name == "communication")] = link
    return WhatIf(label, kernels=[KernelChange(np.arange(len(factor)), factor)])


def _flops_ratio(measured: Hardware, other: Hardware) -> float:
    """Peak of the measured part over the other's, for the widest type of deep learning that both state."""
    for dtype in ("bf16", "fp16", "tf32", "fp32"):
        if dtype in measured.peak_flops and dtype in other.peak_flops:
            return measured.peak_flops[dtype] / other.peak_flops[dtype]
    return measured.memory_bytes_per_s / other.memory_bytes_per_s


def _in_decode(capture: Capture) -> Bools:
    step = capture.ids("kernel", "step_id")
    if capture.num_rows("step") == 0:
        return np.zeros(len(step), np.bool_)
    phase, phases = capture.codes("step", "phase")
    is_decode = _matching(phase, phases, lambda name: name == "decode")
    result: Bools = is_decode[np.maximum(step, 0)] & (step >= 0)
    return result


def name_matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a name holds a regular expression, whatever the case; re.error for one that is none."""
    compiled = re.compile(pattern, re.IGNORECASE)
    return lambda name: compiled.search(name) is not None
