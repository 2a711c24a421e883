"""Decode batches padded to a captured size above them: what the padding costs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.core.finding import Evidence, Finding, Kind
from tokenpath.core.hardware import load_catalogue
from tokenpath.core.units import format_duration
from tokenpath.explain.analyses.attention_stalls import step_lengths
from tokenpath.explain.analyses.contract import Context, Proposal, Result
from tokenpath.explain.analyses.kernel_roofline_shapes import ATTENTION
from tokenpath.explain.analyses.kernel_roofline_work import dims
from tokenpath.explain.work import COMPUTE, DeviceWork
from tokenpath.replay.change import with_kernel_times

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

MIN_PADDING = 1.25
"""Captured over real batch from which on padding is looked at; captured sizes lie about 8 apart."""
MIN_SHARE = 0.01
"""Gain over the window from which on a finding is made."""
STEP_OF_SIZES = 8
"""Distance of the sizes that engines capture by default above the first few: what a real batch could be padded to."""
MIN_KERNELS = 4
"""Kernels of a step that must agree on the padded batch."""
MIN_KERNEL_SHARE = 0.15
"""The same as a share of the step's per-token kernels."""
MAX_PADDING = 64
"""A grid this many times the batch is not the batch."""
MAX_BATCH = 1 << 24
"""A larger number in a label is no batch."""
RIDGE_TOKENS = 256
"""Batch from which on a 16-bit product is limited by arithmetic where the part is not known."""
START_NS = 2_000
"""What a kernel takes whatever its batch."""

_JOINS = re.compile(r"combine|merge_attn", re.IGNORECASE)
"""Kernels that join the parts of split attention: they run for every row, whether or not it has a request."""
_STATED = re.compile(r"bs=(\d{1,9})/(\d{1,9})", re.ASCII)
_PER_TOKEN = frozenset({"norm", "elementwise", "quantize"})
"""Families with a block a token. Cache writes are not among them: beside piecewise graphs they run for the real batch."""


@dataclass(frozen=True)
class Batches:
    """Real and computed decode batch by row of `step`; NaN where unknown."""

    real: Floats
    """Requests (tokens without speculation)."""
    padded: Floats
    """Rows that the kernels compute, at least `real`."""


def decode_batches(capture: Capture) -> Batches:
    """From the step's label (`bs=117/128`), else from grids with one block a token in graph replays."""
    lengths = step_lengths(capture)
    real = np.where(lengths.is_decode, lengths.requests, np.nan)
    padded = real.copy()
    stated = np.zeros(len(real), bool)
    for at, label in enumerate(capture["step"]["name"].to_pylist()):
        match = _STATED.search(label)
        if match is not None and 0 < int(match[1]) < MAX_BATCH and int(match[2]) < MAX_BATCH:
            real[at], padded[at] = float(match[1]), float(match[2])
            stated[at] = True
    for at, size in _by_grid(capture, np.where(stated, np.nan, real)).items():
        padded[at] = size
    return Batches(real, np.maximum(padded, real))


def _by_grid(capture: Capture, real: Floats) -> dict[int, float]:
    """The smallest captured size, at least its batch, that enough one-block-a-token kernels of a step have.

    The smallest, since norms of heads and pointwise kernels have multiples of it; PyTorch's own pointwise kernels
    are left out, whose blocks are elements.
    """
    step = capture.ids("kernel", "step_id")
    family, families = capture.codes("kernel", "family")
    codes, names = capture.codes("kernel", "name")
    per_token = np.array([name in _PER_TOKEN for name in families] or [False])
    own = np.array(["at::native" in name for name in names] or [False])
    chosen = np.flatnonzero((step != NO_ID) & per_token[family] & ~own[codes])
    chosen = chosen[np.isfinite(real[step[chosen]])] if len(chosen) else chosen
    if len(chosen) == 0:
        return {}
    grid = dims(capture, "grid")[chosen]
    of_step, size = step[chosen], grid[:, 0]
    flat = (grid[:, 1:] == 1).all(axis=1) & (size >= real[of_step])
    flat &= (size <= MAX_PADDING * real[of_step]) & ((size % STEP_OF_SIZES == 0) | (size <= 4))
    flat |= size == real[of_step]
    keys, count = np.unique(
        np.column_stack((of_step[flat], size[flat])), axis=0, return_counts=True
    )
    total = np.bincount(of_step)
    found: dict[int, float] = {}
    # Sorted by step, then size: the first that enough kernels have is the smallest.
    for (row, blocks), number in zip(keys.tolist(), count.tolist(), strict=True):
        if number >= max(MIN_KERNELS, MIN_KERNEL_SHARE * total[row]):
            found.setdefault(row, float(blocks))
    return found


def analyse(context: Context) -> Result:
    """Finding `graph-padding`."""
    capture = context.analysis.capture
    batches = decode_batches(capture)
    ratio = batches.padded / batches.real
    if not (ratio >= MIN_PADDING).any():
        return Result()
    rows: list[Int64s] = []
    measured: list[Int64s] = []
    new: list[Int64s] = []
    for device in context.analysis.devices:
        own, before, after = _shrunk(capture, device.work, batches)
        rows.append(own)
        measured.append(before)
        new.append(after)
    row, old, time = np.concatenate(rows), np.concatenate(measured), np.concatenate(new)
    gain, wall = int((old - time).sum()), context.analysis.wall_ns
    if gain < MIN_SHARE * wall or not wall:
        return Result()
    steps = np.flatnonzero(ratio >= MIN_PADDING)
    worst = steps[np.argsort(-ratio[steps], kind="stable")]
    real, padded = float(np.median(batches.real[steps])), float(np.median(batches.padded[steps]))
    finding = Finding(
        code="graph-padding",
        sentence=f"{len(steps):,} decode steps compute {padded:,.0f} rows for {real:,.0f} requests "
        f"(medians): kernels of padding take {format_duration(gain)}",
        kind=Kind.COST,
        value=float(padded / real),
        unit="rows over requests",
        duration_ns=gain,
        share=gain / wall,
        gain_ns=gain,
        gain_method="estimated",
        status=context.status,
        evidence=(Evidence("step", tuple(int(at) for at in worst[:5]), len(steps)),),
        falsifier="steps of the same requests with a smaller captured size take as long",
        fix="capture sizes nearer to the batches served: vLLM cudagraph_capture_sizes, SGLang "
        "--cuda-graph-bs",
        details={
            "median_requests": real,
            "median_rows": padded,
            "max_ratio": float(ratio[worst[0]]),
        },
        place={"step_phase": "decode"},
        confidence=0.8,
        effort="setting",
    )
    return Result([finding], proposals=[
        Proposal(finding, partial(with_kernel_times, "batches less padded", row, old, time))
    ])  # fmt: skip


def _shrunk(capture: Capture, work: DeviceWork, batches: Batches) -> tuple[Int64s, Int64s, Int64s]:
    """(rows, time, time with the next captured size) of the kernels of padded steps in a window.

    Kernels with one block a token take time in proportion to the rows beyond their start. A product does so
    only above the batch at which arithmetic limits it; attention skips rows without a request.
    """
    step = capture.ids("kernel", "step_id")[work.row]
    chosen = np.flatnonzero(work.in_window() & (work.kind == COMPUTE) & (step != NO_ID))
    of_step = step[chosen]
    real, padded = batches.real[of_step], batches.padded[of_step]
    target = np.minimum(
        np.where(real > 4, np.ceil(real / STEP_OF_SIZES) * STEP_OF_SIZES, real), padded
    )
    keep = np.isfinite(real) & (padded >= MIN_PADDING * real) & (target < padded)
    chosen, target, padded = chosen[keep], target[keep], padded[keep]
    duration = (work.end - work.start)[chosen]
    names = np.array(work.families or [""], object)[work.family[chosen]]
    product = np.isin(names, ["gemm", "moe"])
    ridge = _ridge_tokens(capture, work)
    share = np.where(
        product, np.maximum(target, ridge) / np.maximum(padded, ridge), target / padded
    )
    codes, kernels = capture.codes("kernel", "name")
    joins = np.array([_JOINS.search(name) is not None for name in kernels] or [False])
    skips = np.isin(names, sorted(ATTENTION | {"kv_cache"}))
    share[skips & ~joins[codes[work.row[chosen]]]] = 1.0
    fixed = np.minimum(duration, START_NS)
    new = (fixed + (duration - fixed) * share).astype(np.int64)
    return work.row[chosen].astype(np.int64), duration, new


def _ridge_tokens(capture: Capture, work: DeviceWork) -> float:
    """Rows at which a 16-bit product turns from memory to arithmetic: peak / rate, weights of two bytes."""
    key = capture["device"]["hardware"][work.device_id].as_py()
    part = load_catalogue().get(key) if key else None
    peak = None if part is None else part.peak("bf16") or part.peak("fp16")
    return RIDGE_TOKENS if part is None or peak is None else peak / part.memory_bytes_per_s
