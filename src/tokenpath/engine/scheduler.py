"""What every engine's scheduler is to the rest: requests in, one decision a step out.

A scheduler is pure: no clock, no chance, no input or output. Whoever drives it (the simulator, the lab, a
replay of a recorded run) says what time it is and when a step has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

NO_HASHES: Int64s = np.empty(0, np.int64)


class Kind(IntEnum):
    """What a scheduled request was before the step."""

    RUN = 0
    """Running already."""
    NEW = 1
    """Admitted for the first time."""
    RESUMED = 2
    """Admitted again after a preemption."""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A request as the scheduler sees it."""

    index: int
    """Its number, from 0 on, each once; orders requests that arrive together."""
    prompt_tokens: int
    """Tokens of the prompt, at least 1."""
    output_tokens: int
    """Tokens after which it ends, at least 1. The scheduler knows it as `max_tokens`."""
    arrival_ns: int = 0
    """When it was sent to the engine."""
    priority: int = 0
    """Lower is served first, where the policy asks for it."""
    hashes: Int64s = field(default_factory=lambda: NO_HASHES)
    """Content of the prompt (and of the output, where known) by granule: equal ids at a place mean equal
    tokens from the very start up to the end of that granule. Empty: shared with nobody."""
    hash_granule_tokens: int = 1
    """Tokens of one granule."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One step: who computes how many tokens. Arrays have one entry a scheduled request, in order."""

    request: Int64s
    """Index of the request."""
    kind: Int64s
    """A `Kind` each."""
    num_computed_before: Int64s
    """Tokens whose KV it holds before the step, cached ones and those from elsewhere included."""
    num_tokens: Int64s
    """Tokens to compute, at least 1."""
    num_cached: Int64s
    """Tokens taken from the prefix cache by this admission; 0 for `Kind.RUN`."""
    preempted: Int64s
    """Indices of the requests that lost their blocks in this step, in that order."""

    @property
    def num_scheduled_tokens(self) -> int:
        """Tokens of the step; 0 for a step without work."""
        return int(self.num_tokens.sum())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step brought, once it has run; entries as in its decision."""

    num_emitted: Int64s
    """Tokens emitted, an entry each; 0 for a chunk of a prompt that is not its last."""
    finished: Int64s
    """Indices of the requests that ended with this step, in the order in which they gave up their blocks."""


KvElsewhere = Callable[[int, int, bool], int]
"""What KV a request has at its admission: from its index, the tokens found in the prefix cache, and whether it
is admitted for the first time, to the tokens from its start that need no computing; not fewer than cached."""


@runtime_checkable
class AskingScheduler(Protocol):
    """A scheduler that KV can be brought to: from other tiers, or from a prefill instance.

    Tokens that come from elsewhere need blocks, count as computed, and take nothing of the budget of tokens.
    """

    def ask(self, elsewhere: KvElsewhere) -> None:
        """Ask of each request that is to be admitted what KV it has elsewhere; before any is added."""


class Scheduler(Protocol):
    """A scheduler with its block pool."""

    def add(self, request: EngineRequest) -> None:
        """Queue a request. InputError for one that can never run (longer than the model or the pool)."""

    def schedule(self, now_ns: int) -> Decision:
        """Decide the next step. A decision without entries means that nothing can run now."""

    def complete(self, decision: Decision, now_ns: int) -> Outcome:
        """The step of `decision` has run: emit tokens, end requests, free their blocks."""

    @property
    def num_waiting(self) -> int:
        """Requests in the queue, preempted ones included."""

    @property
    def num_running(self) -> int:
        """Requests admitted and not ended."""

    @property
    def num_free_blocks(self) -> int:
        """Blocks that a request could take now, those with cached content included."""

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that exist for requests."""
