"""What an analysis is handed and what it hands back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from tokenpath.capture.capture import Capture
from tokenpath.core.finding import Finding, Status
from tokenpath.core.report import Note, ShownTable
from tokenpath.explain.analysis import Analysis
from tokenpath.replay.change import WhatIf

if TYPE_CHECKING:
    from tokenpath.replay.replay import Replay


@dataclass(frozen=True)
class Options:
    """What the user said beside the capture."""

    usd_per_gpu_hour: float | None = None
    """Price of one device for an hour; None leaves money out."""
    what_ifs: Sequence[str] = ()
    """Changes to replay, as `--what-if` takes them (docs/replay.md)."""


@dataclass(frozen=True)
class Context:
    """What every analysis may look at."""

    capture: Capture
    """The linked capture, scheduler steps included."""
    analysis: Analysis
    """The device side, measured; `devices` is empty without device work, and idle time may be withheld."""
    status: Status
    """How the numbers of the capture came to be."""
    options: Options = field(default_factory=Options)
    """What the user said."""

    @cached_property
    def replay(self) -> Replay:
        """The measured run, to be timed again; costs nothing until its graph is asked for."""
        from tokenpath.explain.replaying import replay_of

        return replay_of(self.analysis)


@dataclass(frozen=True)
class Proposal:
    """What fixing one finding would change, so that its gain can be replayed."""

    finding: Finding
    """The finding as it stands in the result; matched by its code, scope and place."""
    what_if: Callable[[], WhatIf]
    """Makes the change; called only when the finding is worth a replay."""


@dataclass(frozen=True)
class Result:
    """What an analysis found."""

    findings: Sequence[Finding] = ()
    """Claims, in any order; `part_of_ns` where a claim explains another's time more closely."""
    tables: Sequence[ShownTable] = ()
    """Tables for the report; the first rows are the important ones."""
    notes: Sequence[Note] = ()
    """What was assumed or could not be told."""
    proposals: Sequence[Proposal] = ()
    """What fixing a finding would change; without one, codes of `explain.gains` have a change of their own."""


class Analyse(Protocol):
    """The function `analyse` of an analysis module."""

    def __call__(self, context: Context) -> Result:
        """Look at a capture; nothing to say is an empty result, never an error."""
        ...
