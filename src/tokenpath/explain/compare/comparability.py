"""Whether two sides did the same work: a difference between different work is no gain and no loss."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tokenpath.capture.capture import Capture
from tokenpath.core.report import Note, Severity
from tokenpath.core.units import format_percent
from tokenpath.explain.compare.nodes import Node
from tokenpath.explain.compare.noise import MIN_SAMPLES
from tokenpath.explain.compare.sides import Pooled

SAME_WORK = 0.95
"""From this overlap of kernel counts (or tokens) on two sides did the same work."""


def overlap(first: Pooled, second: Pooled) -> float | None:
    """Kernels per unit that both sides have in each family, over those that either has; None without any."""
    sides = []
    for side in (first, second):
        count: dict[str, float] = defaultdict(float)
        for (part, _), number in side.counts().items():
            count[part] += number / side.num_units
        sides.append(count)
    keys = {*sides[0], *sides[1]}
    either = sum(max(sides[0][key], sides[1][key]) for key in keys)
    return sum(min(sides[0][key], sides[1][key]) for key in keys) / either if either else None


def device_notes(first: Pooled, second: Pooled, unit: str) -> list[Note]:
    """What makes the device times of two sides hard to compare."""
    notes = []
    shared = overlap(first, second)
    if shared is not None and shared < SAME_WORK:
        counts = [sum(side.counts().values()) / side.num_units for side in (first, second)]
        notes.append(
            Note(
                "different-work",
                Severity.WARNING,
                f"a {unit} has {counts[0]:,.0f} pieces of device work in A and {counts[1]:,.0f} in B; by family "
                f"they share {format_percent(shared, 1)}: part of the difference is other work",
                {"shared": shared, "per_unit": counts},
            )
        )
    return notes


def request_notes(first: Sequence[Capture], second: Sequence[Capture]) -> list[Note]:
    """Whether the requests of two sides are alike in number and tokens."""
    told = []
    for column, what in (("prompt_tokens", "prompt"), ("output_tokens", "output")):
        means = [_mean_tokens(side, column) for side in (first, second)]
        one, two = means
        if one and two and min(one, two) / max(one, two) < SAME_WORK:
            told.append(f"{one:,.1f} {what} tokens in A, {two:,.1f} in B")
    if not told:
        return []
    return [
        Note(
            "different-work",
            Severity.WARNING,
            f"a request has {' and '.join(told)}: part of the difference is other work",
        )
    ]


def _mean_tokens(side: Sequence[Capture], column: str) -> float | None:
    total = count = 0
    for capture in side:
        values = capture.int64("request", column, -1)
        known = values[values >= 0]
        total, count = total + int(known.sum()), count + len(known)
    return total / count if count else None


def noise_notes(roots: Sequence[Node], num_runs: tuple[int, int]) -> list[Note]:
    """What the intervals hold, or why there are none."""
    if any(root.interval is None for root in roots):
        return [
            Note(
                "noise-unknown",
                Severity.WARNING,
                f"fewer than {MIN_SAMPLES} steps, requests or runs on a side: whether chance alone makes such a "
                "difference cannot be told",
            )
        ]
    if min(num_runs) < MIN_SAMPLES:
        return [
            Note(
                "noise-unknown",
                Severity.INFO,
                f"{num_runs[0]} and {num_runs[1]} runs: the intervals hold the noise within runs, not that from "
                "run to run",
            )
        ]
    return []
