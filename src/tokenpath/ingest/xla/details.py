"""The texts in which XLA packs facts about a kernel, a copy or an array.

Forms: `ToXStat(KernelDetails)` and `ToXStat(MemcpyDetails)` of openxla/xla
(xla/backends/profiler/gpu/cupti_buffer_events.h, rocm_collector.cc), and the shapes of HLO text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_INT32_MAX = 2**31 - 1
_FIELD = re.compile(r"([a-z_]+):([0-9,.]+)", re.ASCII)
_SHAPE = re.compile(r"([a-z]+[0-9]*[a-z0-9]*)\[([0-9,]{0,200})\]", re.ASCII)
_BITS = re.compile(r"[a-z]+([0-9]+)", re.ASCII)
_MAX_SHAPES = 64


@dataclass(frozen=True)
class KernelDetails:
    """What `kernel_details` says; None for what it does not."""

    grid: tuple[int, int, int] | None = None
    """Blocks."""
    block: tuple[int, int, int] | None = None
    """Threads of a block."""
    registers: int | None = None
    """Registers of a thread."""
    shared_bytes: int | None = None
    """Shared memory of a block: static and dynamic, LDS on AMD."""
    occupancy_percent: float | None = None
    """Theoretical occupancy; 0 stands for not computed, as no kernel runs with none."""


def read_kernel_details(text: str) -> KernelDetails:
    """`regs:38 static_shared:0 dynamic_shared:0 grid:160,1,1 block:1024,1,1 occ_pct:50` and older forms."""
    found = dict(_FIELD.findall(text))
    sizes = [
        _whole(found.get(key)) for key in ("static_shared", "dynamic_shared", "shm", "group_mem")
    ]
    known = [size for size in sizes if size is not None]
    try:
        occupancy = float(found.get("occ_pct", "0"))
    except ValueError:
        occupancy = 0.0
    return KernelDetails(
        _triple(found.get("grid")),
        _triple(found.get("block")),
        _whole(found.get("regs")),
        min(sum(known), _INT32_MAX) if known else None,
        occupancy if 0 < occupancy <= 100 else None,
    )


def read_copied_bytes(text: str) -> int | None:
    """Bytes of `kind_src:pageable kind_dst:device size:4 dest:0 async:1` or `num_bytes:4 ...`.

    A size of 0 is what ROCm's collector writes for copies that it knows nothing of.
    """
    found = dict(_FIELD.findall(text))
    size = found.get("size") or found.get("num_bytes")
    if size is None or not size.isdigit() or len(size) > 18:
        return None
    return int(size) or None


@dataclass(frozen=True)
class ArrayShape:
    """The arrays of an HLO shape."""

    dtype: str
    """Element type of the first one: `f32`, `bf16`."""
    num_bytes: int
    """Bytes of all of them."""


def read_shape(text: str) -> ArrayShape | None:
    """`f32[5,1024]{1,0:T(8,128)}` or a tuple of such; None for what has no arrays of known element size."""
    total, first = 0, ""
    for dtype, dims in _SHAPE.findall(text)[:_MAX_SHAPES]:
        bits = 8 if dtype == "pred" else _bits(dtype)
        if bits is None:
            return None
        size = 1
        for dim in dims.split(","):
            size *= int(dim[:12]) if dim else 1
        total += (size * bits + 7) // 8
        first = first or dtype
    return ArrayShape(first, total) if first and total < 2**63 else None


def _bits(dtype: str) -> int | None:
    match = _BITS.match(dtype)
    bits = int(match[1]) if match and len(match[1]) < 4 else 0
    return bits or None


def _whole(text: str | None) -> int | None:
    if text is None or not text.isdigit() or len(text) > 10:
        return None
    return min(int(text), _INT32_MAX)


def _triple(text: str | None) -> tuple[int, int, int] | None:
    sizes = [_whole(part) for part in (text or "").split(",")]
    if len(sizes) != 3 or None in sizes:
        return None
    return (sizes[0] or 0, sizes[1] or 0, sizes[2] or 0)
