"""Which scenario stands at which place of a board: drawn from the board's seed and the place alone.

So any place can be computed again by itself, on any machine, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenpath.core.errors import UsageError
from tokenpath.lab.truth import World, load_fault_kinds

NUM_LEVELS = 4
"""Magnitudes of every kind: 0 is meant to be undetectable, 3 is gross."""
NONE_SHARE, TWO_SHARE, DECOY_SHARE = 0.12, 0.08, 0.25
"""Shares of the scenarios: without a fault, with two faults, with a decoy beside whatever else there is."""
WORLDS: tuple[World, ...] = ("device", "serving")


@dataclass(frozen=True)
class Spec:
    """What a scenario is to hold."""

    seed: int
    """Seed of everything else that is drawn."""
    world: World
    """Which world makes it."""
    kinds: tuple[str, ...]
    """No, one or two kinds of faults."""
    levels: tuple[int, ...]
    """Their magnitudes, 0 to 3."""
    has_decoy: bool
    """Something loud and harmless beside them."""


def draw(
    board_seed: int,
    place: int,
    worlds: Sequence[World] = WORLDS,
    kind: str | None = None,
) -> Spec:
    """The scenario at a place; `kind` fixes the fault, else kinds take turns. UsageError on an unknown kind."""
    known = load_fault_kinds()
    if kind is not None and kind not in known:
        raise UsageError(
            f"no fault is called {kind!r}",
            where="--kind",
            allowed=", ".join(known),
            next_step="tokenpath lab list",
        )
    dice = np.random.default_rng((abs(board_seed), place))
    kinds = [kind] if kind else [key for key, entry in known.items() if entry.world in worlds]
    first = kinds[place % len(kinds)]
    world = known[first].world
    chosen = [first]
    what = dice.random()
    if kind is None and what < NONE_SHARE:
        chosen = []
    elif kind is None and what < NONE_SHARE + TWO_SHARE:
        others = [key for key in kinds if known[key].world == world and key != first]
        chosen.append(others[dice.integers(len(others))])
    return Spec(
        seed=int(dice.integers(1 << 48)),
        world=world,
        kinds=tuple(chosen),
        levels=tuple(int(dice.integers(NUM_LEVELS)) for _ in chosen),
        has_decoy=bool(dice.random() < DECOY_SHARE),
    )
