"""What comes from outside the program: clocks, other processes, cores, contention."""

from __future__ import annotations

import numpy as np

from tokenpath.lab.machine.plan import Conditions
from tokenpath.lab.programs.knobs import Knobs
from tokenpath.lab.programs.setup import Setup

HEALTHY_CONTENTION = 1.03
"""Kernels beside collectives are a little slower in any run: they share memory and multiprocessors."""


def conditions_of(setup: Setup, knobs: Knobs, healthy_ns: int) -> Conditions:
    """Turn the knobs into moments and intervals of a run that is healthy in `healthy_ns`."""
    speed = []
    for rank in range(setup.ranks):
        own: list[tuple[int, float]] = []
        base = knobs.slow_rank_factor if rank == knobs.slow_rank else 1.0
        if base != 1.0:
            own.append((-1, base))
        if knobs.throttle != 1.0:
            start = knobs.throttle_at * healthy_ns
            # A clock falls in steps.
            middle = base * (1 + 0.6 * (knobs.throttle - 1))
            own.append((int(start), middle))
            own.append((int(start + 0.02 * healthy_ns), base * knobs.throttle))
        speed.append(tuple(own))
    contention = max(HEALTHY_CONTENTION, knobs.contention)
    training = setup.program in ("ddp", "fsdp")
    return Conditions(
        speed=tuple(speed),
        taken=_taken(setup, knobs, healthy_ns),
        slow=(contention, contention) if training else (1.0, 1.0),
        off_cpu=_off_cpu(setup, knobs, healthy_ns),
    )


def _taken(setup: Setup, knobs: Knobs, healthy_ns: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Time slices of another process: about two milliseconds each, as the driver gives them."""
    if knobs.other_share <= 0.0:
        return ()
    found = []
    for rank in range(setup.ranks):
        rng = np.random.Generator(np.random.SFC64([setup.seed, 41, rank]))
        share, own = knobs.other_share, []
        now, end = 0.0, 2.0 * healthy_ns / (1 - share)
        while now < end:
            now += float(rng.exponential(2e6 * (1 - share) / share)) + 20_000
            length = float(rng.normal(2e6, 1e5))
            own.append((int(now), int(now + length)))
            now += length
        found.append(tuple(own))
    return tuple(found)


def _off_cpu(
    setup: Setup, knobs: Knobs, healthy_ns: int
) -> dict[tuple[int, int], tuple[tuple[int, int], ...]]:
    """A thread that shares its core loses it for some milliseconds, at random moments of its own work."""
    found = {}
    for rank in range(setup.ranks):
        rng = np.random.Generator(np.random.SFC64([setup.seed, 43, rank]))
        own = []
        share, now = knobs.off_cpu_share, 0.0
        # Any host: an interrupt now and then.
        while now < 3 * healthy_ns:
            now += float(rng.exponential(60e6))
            own.append((int(now), int(rng.exponential(60_000)) + 5_000))
        if share > 0.0:
            luck = np.random.Generator(np.random.SFC64([setup.seed, 47, rank]))
            now, end = 0.0, 3.0 * healthy_ns / (1 - share)
            while now < end:
                length = float(luck.uniform(2e6, 6e6))
                now += float(luck.exponential(4e6 * (1 - share) / share))
                own.append((int(now), int(length)))
                now += length
        found[rank, 0] = tuple(sorted(own))
    return found
