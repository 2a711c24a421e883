"""What a program hands over: steps of each rank, and how its threads are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tokenpath.lab.machine.plan import Step
from tokenpath.lab.machine.script import Labels, Template


@dataclass(frozen=True)
class Thread:
    """A host thread of each rank."""

    name: str
    """Name of the thread, as the operating system shows it."""
    frames: Sequence[str] = ()
    """Python frames that are open during the whole trace, outermost first."""
    is_daemon: bool = False
    """Whether it is cut off when the others have ended."""


@dataclass
class Program:
    """Everything that the machine needs, and what the writer must know."""

    labels: Labels
    """Numbers of the labels."""
    threads: Sequence[Thread]
    """Threads of a rank; 0 launches."""
    steps: list[list[Step]] = field(default_factory=list)
    """For each rank its steps."""
    num_events: int = 1
    """Event numbers of a step."""
    num_collectives: int = 1
    """Collective numbers of a step."""
    process: str = "python3"
    """Name of the process."""
    header: Mapping[str, object] = field(default_factory=dict)
    """Further entries of the trace's header."""

    def close(self) -> Program:
        """Count events and collectives, once all steps are there."""
        self.num_collectives = max(1, *(len(step.transfers) for own in self.steps for step in own))
        events = [
            int(template.works[template.works[:, 1] >= 3, 5].max(initial=0))
            for own in self.steps
            for step in own
            for template in step.templates
            if template is not None
        ]
        self.num_events = 8 + max(events)
        return self


def host_ns(template: Template) -> float:
    """Time of a template on the host, waits excluded."""
    return float(template.code[:, 3].sum())


def device_ns(template: Template) -> float:
    """Time of a template's kernels one after another, with the gaps between them."""
    return float(template.works[:, 2].sum() + 450 * len(template.works))
