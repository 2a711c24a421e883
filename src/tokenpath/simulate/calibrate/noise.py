"""How much single steps differ from what a curve says of them, and a seeded draw of it for a run.

A step's residual has heavy tails (a page fault, a garbage collection), and neighbours in time are alike (a
neighbour on the machine, a clock that changes): so residuals are kept in the order of time, and a draw takes
blocks of them, as they came (the block bootstrap: Kuensch, Annals of Statistics 17 (1989)).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.simulate.step_model import Float64s

NUM_FACTORS = 4096
"""Factors of each kind of step in a draw; a longer run goes round."""
_BLOCK = 32
"""Steps in a row that are drawn together."""
_MAX_KEPT = 2048
"""Residuals that are kept of each kind, in blocks spread evenly over the runs."""
_MIN_KEPT = 20
"""Fewer steps of a kind than this are no distribution: then it has no noise of its own."""


@dataclass(frozen=True, slots=True)
class StepNoise:
    """log(measured / predicted) of steps in order of time, the speed of whole runs taken out."""

    decode: tuple[float, ...]
    """Of steps of decode only; () where there were too few."""
    mixed: tuple[float, ...]
    """Of steps with prefill, likewise."""

    def draw(self, seed: int) -> Float64s:
        """Factors on step latencies, [2, NUM_FACTORS]: decode only, with prefill. Their means are those kept."""
        random = np.random.default_rng(seed)
        return np.stack([_draw(np.array(one), random) for one in (self.decode, self.mixed)])


def noise_of(
    cost_ns: Float64s, predicted_ns: Float64s, is_mixed: NDArray[np.bool_], run: NDArray[np.int64]
) -> StepNoise | None:
    """The noise of steps in order of time, `run` by `run`; None where nothing differs from the curve.

    Factors are scaled so that a kind of step takes as long in sum as it did, stalls included.
    """
    speed = np.bincount(run, cost_ns) / np.bincount(run, predicted_ns)
    ratio = cost_ns / (predicted_ns * speed[run])
    total = cost_ns.sum() / predicted_ns.sum()
    kinds: list[tuple[float, ...]] = []
    for mask in (~is_mixed, is_mixed):
        if mask.sum() < _MIN_KEPT:
            kinds.append(())
            continue
        mean = cost_ns[mask].sum() / (predicted_ns[mask] * speed[run[mask]]).sum() * total
        kept = _spread_out(ratio[mask])
        logs = np.log(kept * (mean / kept.mean()))
        kinds.append(tuple(np.round(logs, 4).tolist()))
    decode, mixed = kinds
    if not any(np.ptp(kind) > 0 for kind in kinds if kind):
        return None
    return StepNoise(decode, mixed)


def _spread_out(values: Float64s) -> Float64s:
    """At most _MAX_KEPT of them, in blocks at equal distances."""
    if len(values) <= _MAX_KEPT:
        return values
    num_blocks = _MAX_KEPT // _BLOCK
    starts = np.linspace(0, len(values) - _BLOCK, num_blocks).astype(np.int64)
    found: Float64s = values[(starts[:, None] + np.arange(_BLOCK)).ravel()]
    return found


def _draw(logs: Float64s, random: np.random.Generator) -> Float64s:
    if not len(logs):
        return np.ones(NUM_FACTORS)
    starts = random.integers(0, len(logs), NUM_FACTORS // _BLOCK)
    factors = np.exp(logs)[(starts[:, None] + np.arange(_BLOCK)).ravel() % len(logs)]
    # What blocks were drawn must not make the whole run faster: that is what `RunSpeed` says.
    result: Float64s = factors * (np.exp(logs).mean() / factors.mean())
    return result
