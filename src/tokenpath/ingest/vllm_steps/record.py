"""What is kept of the lines of a step log, as columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.units import INT64_MIN

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]

NULL = INT64_MIN
"""Stands for an absent number."""
STEP_FIELDS = (
    *("step", "t_us", "sched_us", "exec_t_us", "exec_us", "out_t_us", "update_us"),
    *("running", "waiting", "free_blocks"),
)
"""Numbers of a step line, by their names in the file."""
KINDS = ("new", "run", "resumed")
"""How a request comes into a step, by their names in the file."""
NEW, RUN, RESUMED = range(len(KINDS))
MAX_EMITTED = 64
"""Tokens that one request may emit in one step: speculation drafts fewer. A damaged file could ask for
any number of rows otherwise."""


@dataclass
class Ids:
    """Request ids as numbers, in the order in which they are first seen."""

    numbers: dict[str, int] = field(default_factory=dict)
    """Number by id."""

    def number(self, text: str) -> int:
        """The number of an id."""
        return self.numbers.setdefault(text, len(self.numbers))

    def array(self, texts: list[str]) -> Int32s:
        """The numbers of ids."""
        numbers = self.numbers
        return np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int32)


@dataclass
class Adds:
    """Requests as they enter the scheduler."""

    line: list[int] = field(default_factory=list)
    """Line of the file, from 0."""
    request: list[int] = field(default_factory=list)
    """Number of the id."""
    at_us: list[int] = field(default_factory=list)
    """Time, NULL if absent."""
    prompt: list[int] = field(default_factory=list)
    """Prompt tokens, NULL if absent."""


@dataclass
class Marks:
    """Requests named by a step beside its shares: finished or preempted ones."""

    line: list[int] = field(default_factory=list)
    """Line of the step."""
    request: list[int] = field(default_factory=list)
    """Number of the id."""
    reason: list[str | None] = field(default_factory=list)
    """Why it finished; None for a preemption."""


@dataclass
class Rows:
    """All that one block of lines holds."""

    steps: dict[str, Int64s]
    """STEP_FIELDS of each step, NULL if absent."""
    step_line: Int64s
    """Line of each step."""
    num_shares: Int64s
    """Shares of each step."""
    share_request: Int32s
    """Number of the id of each share."""
    share_kind: Int32s
    """Position in KINDS."""
    share_before: Int64s
    """Tokens computed before."""
    share_tokens: Int64s
    """Tokens scheduled."""
    share_emitted: Int64s
    """Tokens emitted."""
    adds: Adds = field(default_factory=Adds)
    """Requests added."""
    finished: Marks = field(default_factory=Marks)
    """Requests finished."""
    preempted: Marks = field(default_factory=Marks)
    """Requests preempted."""
