"""How many blocks of a kernel fit on a multiprocessor, and how full its last wave is.

Limits: CUDA C++ Programming Guide 12.9, table `Technical Specifications per Compute Capability`; rounding of
registers (256 a warp) and the kilobyte of shared memory that each block reserves from 8.0 on: CUDA occupancy
calculator. AMD parts have no limits here: their traces carry neither registers nor shared memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

REGISTERS_PER_SM = 65_536
"""Of every NVIDIA part since 3.5."""


@dataclass(frozen=True)
class Limits:
    """What one multiprocessor holds."""

    warps: int
    """Resident warps."""
    blocks: int
    """Resident blocks."""
    shared_bytes: int
    """Shared memory."""
    reserved_bytes: int
    """Shared memory that the driver keeps for each block."""


_BY_CAPABILITY = {
    70: Limits(64, 32, 96 << 10, 0),
    75: Limits(32, 16, 64 << 10, 0),
    80: Limits(64, 32, 164 << 10, 1024),
    86: Limits(48, 16, 100 << 10, 1024),
    89: Limits(48, 24, 100 << 10, 1024),
    90: Limits(64, 32, 228 << 10, 1024),
    100: Limits(64, 32, 228 << 10, 1024),
    120: Limits(48, 24, 100 << 10, 1024),
}
_CAPABILITY = {
    "v100": 70, "t4": 75, "a100": 80, "a10": 86, "a10g": 86, "l4": 89, "l40": 89, "l40s": 89,
    "h100": 90, "h200": 90, "h800": 90, "h20": 90, "gh200": 90, "b200": 100, "gb200": 100, "b300": 100,
    "gb300": 100, "rtx-4090": 89, "rtx-pro": 120,
}  # fmt: skip


def limits_of(hardware_key: str | None) -> Limits | None:
    """The limits of a part of the hardware catalogue; None for one without."""
    if hardware_key is None:
        return None
    for name, capability in _CAPABILITY.items():
        if f"{hardware_key}-".startswith(f"{name}-"):
            return _BY_CAPABILITY[capability]
    return None


@dataclass(frozen=True)
class Residency:
    """What of one kernel is on a multiprocessor at a time."""

    blocks: int
    """Blocks that fit."""
    occupancy: float
    """Resident warps over the most that the multiprocessor holds, 0 to 1."""
    limited_by: str
    """`registers`, `shared memory`, `warps` or `blocks`."""


def residency(
    limits: Limits, threads: int, registers: int | None, shared_bytes: int | None
) -> Residency | None:
    """How many blocks fit by registers, shared memory and warps; None when not even one does."""
    warps = math.ceil(threads / 32)
    if warps <= 0:
        return None
    fits = {"warps": limits.warps // warps, "blocks": limits.blocks}
    if registers:
        per_warp = math.ceil(registers * 32 / 256) * 256
        fits["registers"] = REGISTERS_PER_SM // per_warp // warps
    if shared_bytes:
        fits["shared memory"] = limits.shared_bytes // (shared_bytes + limits.reserved_bytes)
    least = min(fits, key=lambda what: fits[what])
    blocks = fits[least]
    return Residency(blocks, blocks * warps / limits.warps, least) if blocks > 0 else None


@dataclass(frozen=True)
class Waves:
    """A grid cut into rounds of blocks that run together."""

    waves: float
    """Blocks over what the device holds at once."""
    last_fill: float
    """Share of the last round that has a block, 0 (exclusive) to 1."""

    @property
    def efficiency(self) -> float:
        """Time of perfectly even rounds over that of whole ones."""
        return self.waves / math.ceil(self.waves)


def waves(num_blocks: int, num_sms: int, blocks_per_sm: int) -> Waves:
    """The rounds of a grid of `num_blocks` >= 1."""
    slots = num_sms * blocks_per_sm
    count = num_blocks / slots
    return Waves(count, (num_blocks - (math.ceil(count) - 1) * slots) / slots)
