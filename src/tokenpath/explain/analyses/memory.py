"""Device memory: what it is made of, and what an out-of-memory was made of."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tokenpath.capture.capture import Capture
from tokenpath.core.finding import Evidence, Finding, Kind
from tokenpath.core.report import ShownTable, TableColumn, Unit
from tokenpath.core.units import format_percent
from tokenpath.explain.analyses.contract import Context, Result
from tokenpath.explain.analyses.memory_uses import use_of

MIN_FRAGMENTED = 0.1
"""Share of the reserved memory that lies free in pieces from which on fragmentation is named."""
_GIB = 2**30
_COLUMNS = (
    TableColumn("use", "use", Unit.TEXT),
    TableColumn("num_blocks", "blocks", Unit.COUNT),
    TableColumn("bytes", "bytes", Unit.BYTES),
    TableColumn("share", "of reserved", Unit.SHARE),
)


def analyse(context: Context) -> Result:
    """A table of uses from a snapshot, and findings from it."""
    table, findings = _snapshot(context)
    return Result(findings=findings, tables=[table])


def _snapshot(context: Context) -> tuple[ShownTable, list[Finding]]:
    capture = context.capture
    states, names = capture.codes("memory_block", "state")
    size = capture.int64("memory_block", "bytes")
    stacks, texts = capture.codes("memory_block", "call_stack")
    pools, pool_names = capture.codes("memory_block", "pool")
    by_stack = [use_of(text) for text in texts]
    is_free = np.array([name == "free" for name in names] or [False])[states]
    num: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for row in range(len(size)):
        pool = pool_names[pools[row]] if pools[row] >= 0 else ""
        if is_free[row]:
            use = "free"
        elif pool not in ("", "large", "small"):
            use = "graphs"
        else:
            use = by_stack[stacks[row]] if stacks[row] >= 0 else "unknown"
        num[use] += 1
        total[use] += int(size[row])
    reserved = sum(total.values())
    rows = [(use, num[use], value, value / max(reserved, 1)) for use, value in total.most_common()]
    table = ShownTable(
        "memory_use", "Device memory by use", _COLUMNS, rows, len(rows),
        "By the innermost Python frames of each allocation; `unknown` was allocated before recording began.",
    )  # fmt: skip
    largest = int(size[is_free].max(initial=0))
    findings = (
        _out_of_memory(context, total, reserved, largest),
        _fragmented(context, total["free"], reserved, largest, int(is_free.sum())),
    )
    return table, [finding for finding in findings if finding is not None]


def _out_of_memory(
    context: Context, total: Counter[str], reserved: int, largest_free: int
) -> Finding | None:
    rows = _failed(context.capture)
    if len(rows) == 0:
        return None
    asked = int(context.capture.int64("memory_event", "bytes")[rows[-1]])
    used = [(use, value) for use, value in total.most_common() if use != "free"]
    made = ", ".join(f"{use} {value / _GIB:.1f}" for use, value in used[:4])
    return Finding(
        code="out-of-memory",
        sentence=f"{asked / _GIB:.1f} GiB were asked for and refused; of {reserved / _GIB:.1f} GiB reserved there are, in "
        f"GiB: {made}, free {total['free'] / _GIB:.1f} in pieces of at most {largest_free / _GIB:.1f}",
        kind=Kind.QUALITY,
        value=float(asked),
        unit="bytes",
        duration_ns=None,
        share=None,
        gain_ns=None,
        gain_method=None,
        status=context.status,
        evidence=(Evidence("memory_event", tuple(rows[-5:].tolist()), len(rows), "action = oom"),),
        falsifier="after the largest use has been halved the same request is refused",
        fix=_fix(used[0][0] if used else "unknown", asked <= total["free"]),
        details={"requested_bytes": asked, "reserved_bytes": reserved, "bytes_by_use": dict(total)},
        effort="setting",
    )


def _fix(use: str, is_in_pieces: bool) -> str:
    if is_in_pieces:
        return "expandable_segments:True: enough is free, but in pieces"
    return {
        "activations": "activation checkpointing, smaller batches or sequences, a fused or chunked loss",
        "KV cache": "a lower gpu_memory_utilization, FP8 KV",
        "weights": "quantised weights, or shard them over more devices",
        "optimizer": "shard the optimizer's state, or an optimizer with a smaller one",
        "gradients": "shard gradients, accumulate in BF16",
    }.get(use, "record from the start of the program to see what the largest use is")


def _fragmented(
    context: Context, free: int, reserved: int, largest: int, num: int
) -> Finding | None:
    if reserved == 0 or free < MIN_FRAGMENTED * reserved or 2 * largest > free:
        return None
    return Finding(
        code="memory-fragmentation",
        sentence=f"{free / _GIB:.1f} of {reserved / _GIB:.1f} GiB reserved ({format_percent(free, reserved)}) lie free in "
        f"{num:,} pieces, the largest of {largest / _GIB:.2f} GiB",
        kind=Kind.QUALITY,
        value=free / reserved,
        unit="share of reserved memory",
        duration_ns=None,
        share=None,
        gain_ns=None,
        gain_method=None,
        status=context.status,
        evidence=(Evidence("memory_block", (), num, "state = free"),),
        falsifier="a request of half the free memory succeeds without the driver",
        fix="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or roundup_power2_divisions",
        details={"free_bytes": free, "reserved_bytes": reserved, "largest_free_bytes": largest},
        effort="setting",
    )


def _failed(capture: Capture) -> np.ndarray:
    actions, names = capture.codes("memory_event", "action")
    return (
        np.flatnonzero(actions == names.index("oom")) if "oom" in names else np.empty(0, np.int64)
    )
