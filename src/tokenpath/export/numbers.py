"""Numbers of a column or line, written so that they line up and never look like zero when they are not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tokenpath.core.report import Cell, Unit
from tokenpath.core.units import NS_PER_MS, NS_PER_US
from tokenpath.export.escape import visible

UNKNOWN = "-"
"""How a cell without a value is shown."""

_SCALES = {
    Unit.NS: ((NS_PER_MS, "ms", 2), (NS_PER_US, "us", 1), (1, "ns", 0)),
    Unit.BYTES: ((2**30, "GiB", 2), (2**20, "MiB", 2), (2**10, "KiB", 1), (1, "B", 0)),
}
"""Largest first: divisor, unit, digits after the point."""


@dataclass(frozen=True)
class Scale:
    """How the values of one column are written."""

    divisor: float
    """A value is divided by this."""
    unit: str
    """What stands in the heading, empty for none."""
    decimals: int
    """Digits after the point."""

    def write(self, value: Cell) -> str:
        """The value; `<0.01` for one that would look like zero and is not."""
        if value is None:
            return UNKNOWN
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, str):
            return visible(value)
        if not math.isfinite(value):
            return UNKNOWN
        text = f"{value / self.divisor:,.{self.decimals}f}"
        if value and not text.strip("-0."):
            return f"{'<' if value > 0 else '>-'}{10.0**-self.decimals:.{self.decimals}f}"
        return text


def scale_of(unit: Unit, values: Sequence[Cell]) -> Scale:
    """One scale for a whole column: the largest value decides, so that the column lines up."""
    numbers = [
        v
        for v in values
        if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)
    ]
    largest = max((abs(v) for v in numbers), default=0)
    match unit:
        case Unit.NS | Unit.BYTES:
            # Ten of a unit, so that the column's smaller values keep digits too.
            return _pick(unit, largest / 10)
        case Unit.SHARE:
            return Scale(0.01, "%", 1)
        case Unit.PERCENT:
            return Scale(1, "%", 1)
        case Unit.PER_S:
            return Scale(1, "/s", 0 if largest >= 1000 else 1)
        case Unit.NUMBER:
            whole = all(isinstance(v, int) or v.is_integer() for v in numbers)
            return Scale(1, "", 0 if whole else 2)
        case _:
            return Scale(1, "", 0)


def duration_scale(wall_ns: int) -> Scale:
    """Milliseconds, the unit of every report; a wall below one takes the unit that shows it."""
    return Scale(NS_PER_MS, "ms", 2) if wall_ns == 0 else _pick(Unit.NS, wall_ns)


def _pick(unit: Unit, largest: float) -> Scale:
    scales = _SCALES[unit]
    return Scale(*next((scale for scale in scales if largest >= scale[0]), scales[-1]))
