"""Matrix products in 32 bits inside a 16-bit model."""

from __future__ import annotations

from collections.abc import Sequence

from tokenpath.explain.analyses.kernel_roofline_attainable import expected_ns
from tokenpath.explain.analyses.kernel_roofline_shapes import MATRIX
from tokenpath.explain.analyses.kernel_roofline_work import Group
from tokenpath.explain.analyses.precision_names import dtype_of_name

MIN_HALF_SHARE = 0.1
"""From this share of the other kernels' time in 16 bits on, the model is taken to be a 16-bit one."""
MIN_GAIN_RATIO = 1.3
"""A 32-bit product is worth naming when 16 bits would make it this many times faster."""
_HALF = frozenset({"bf16", "fp16", "fp8"})
_WIDE = frozenset({"fp32", "tf32"})


def dtype_of(group: Group) -> str | None:
    """Number type of a group: of a matrix kernel's name if it tells, else of the operator's inputs."""
    named = dtype_of_name(group.name)
    own = None if group.op is None else group.op.dtype
    if named == "tf32" and own not in (None, "fp32"):
        return own
    return named or own


def wrong_precision(
    groups: Sequence[Group], attainable: Sequence[float | None]
) -> list[tuple[Group, int, str]]:
    """(group, time above a 16-bit product, reason) of each 32-bit product; empty for a 32-bit model."""
    kinds = [dtype_of(group) for group in groups]
    wide = [
        at
        for at, group in enumerate(groups)
        if group.family in ("gemm", "moe", "convolution") and kinds[at] in _WIDE
    ]
    half_ns = sum(g.total_ns for g, kind in zip(groups, kinds, strict=True) if kind in _HALF)
    others_ns = sum(g.total_ns for g in groups) - sum(groups[at].total_ns for at in wide)
    if not wide or half_ns < MIN_HALF_SHARE * max(others_ns, 1):
        return []
    found = []
    for at in wide:
        group = groups[at]
        target = _half_ns(group, attainable[at])
        if target is not None and group.quiet_ns > MIN_GAIN_RATIO * target:
            excess = int((group.quiet_ns - target) * group.count)
            why = f"{kinds[at]} takes {group.quiet_ns / target:.1f} times what 16 bits would"
            found.append((group, excess, why))
    return found


def _half_ns(group: Group, attainable: float | None) -> float | None:
    """Attainable time of the same product in 16 bits.

    With unknown shapes half the time is taken: half the bytes where memory is the limit, more where it is
    arithmetic. Where FP32 itself runs off its attainable time, 16 bits are granted the same distance.
    """
    if group.family not in MATRIX:
        return None
    target = expected_ns(group, "bf16")
    if target is None:
        return group.quiet_ns / 2
    if attainable is not None and attainable > 0:
        target *= max(1.0, min(1.5, group.quiet_ns / attainable))
    return target
