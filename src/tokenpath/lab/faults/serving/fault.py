"""What a fault is to the serving world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tokenpath.lab.serving.plan import Plan
from tokenpath.lab.serving.service import Expected, Service, Wish


@dataclass(frozen=True)
class Injected:
    """A plan with a fault in it."""

    plan: Plan
    """The plan."""
    magnitude: float
    """Size in the unit of faults.toml."""
    place: Mapping[str, str | int] = field(default_factory=dict)
    """Where it sits."""


Inject = Callable[[Plan, Expected, int], Injected]
"""Puts the fault, at a level from 0 to 3, into a plan of a service that is expected to do so much."""


@dataclass(frozen=True)
class Fault:
    """A kind of fault."""

    kind: str
    """Key of faults.toml."""
    inject: Inject
    """How it comes into a plan."""
    wish: Wish = field(default_factory=Wish)
    """The service that it needs."""
    prepare: Callable[[Service], Service] | None = None
    """What the service has beyond the wish, with the fault and without it."""
    without: Callable[[Plan], Plan] | None = None
    """What taking the fault out means, where it is more than not putting it in."""
