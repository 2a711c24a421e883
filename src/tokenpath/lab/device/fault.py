"""What a fault of the device world is: what it needs, its magnitudes, and what it turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tokenpath.lab.programs.knobs import Knobs
from tokenpath.lab.programs.setup import Setup

Place = Mapping[str, str | int]
Apply = Callable[[Knobs, Setup, float, np.random.Generator], Place]

SERVING = ("vllm", "sglang", "vllm-moe")
DENSE = ("vllm", "sglang")
EAGER = ("hf",)
TRAINING = ("ddp", "fsdp")


@dataclass(frozen=True)
class Needs:
    """What a scenario must have for the fault to be possible."""

    programs: tuple[str, ...] = SERVING
    """Programs."""
    min_ranks: int = 1
    """Least number of ranks."""
    max_ranks: int = 8
    """Largest number of ranks."""
    stack: bool | None = None
    """Whether Python frames must (not) be recorded; None: either."""
    small_batch: bool = False
    """Few long requests."""
    inputs: bool = False
    """Each step copies further inputs from pinned memory."""
    memory: bool | None = None
    """Whether the allocator's events are recorded."""
    split: bool = True
    """Whether decode attention splits keys; else prompts join often, so that shapes of attention are seen."""
    light: bool = False
    """Few requests: steps are short."""
    short: bool = False
    """The context is short: products weigh more than attention."""


@dataclass(frozen=True)
class Fault:
    """One kind."""

    levels: tuple[float, float, float, float]
    """Magnitudes from undetectable to gross, in the unit of faults.toml."""
    apply: Apply
    """Turns the knobs; the place comes back. `{"role": ...}` stands for the family of that role's kernels."""
    needs: Needs = field(default_factory=Needs)
    """What it needs."""
