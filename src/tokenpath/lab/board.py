"""The board: judgements of many scenarios, summed up. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tokenpath.lab.judge import Judgement

Z_95 = 1.959964
"""Normal quantile of a two-sided 95 % interval."""


@dataclass(frozen=True)
class Rate:
    """A share of scenarios with its 95 % interval (Wilson 1927, score interval)."""

    num_right: int
    """How many."""
    num_all: int
    """Of how many."""

    @property
    def share(self) -> float | None:
        """`num_right / num_all`; None of nothing."""
        return self.num_right / self.num_all if self.num_all else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's interval; None of nothing."""
        if not self.num_all:
            return None
        n, p = self.num_all, self.num_right / self.num_all
        middle = (p + Z_95**2 / (2 * n)) / (1 + Z_95**2 / n)
        half = Z_95 / (1 + Z_95**2 / n) * math.sqrt(p * (1 - p) / n + Z_95**2 / (4 * n * n))
        return max(0.0, middle - half), min(1.0, middle + half)

    def __str__(self) -> str:
        if self.share is None or self.interval is None:
            return "n/a"
        low, high = self.interval
        return f"{100 * self.share:.1f} % ({100 * low:.1f} to {100 * high:.1f}, n={self.num_all})"

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "share": self.share,
            "interval": None if self.interval is None else list(self.interval),
            "num_right": self.num_right,
            "num_all": self.num_all,
        }


def rate(judgements: Iterable[Judgement], value: Callable[[Judgement], bool | None]) -> Rate:
    """How often a judgement is true, over those where it is asked."""
    answers = [answer for one in judgements if (answer := value(one)) is not None]
    return Rate(sum(answers), len(answers))


@dataclass(frozen=True)
class Board:
    """Figures over scenarios; faults below the counted loss are in the tables by magnitude only."""

    top1: Rate
    """The right cause is ranked first."""
    top3: Rate
    """Every injected cause is among the first three."""
    place: Rate
    """The right finding names the right place."""
    median_loss_error: float | None
    """Median of |claimed - lost| / lost."""
    no_false_alarm: Rate
    """Scenarios without a fault in which no cost is above 2 % of the wall."""
    decoy_first: Rate
    """Scenarios with a decoy in which it is ranked first."""
    num_scenarios: int
    """All scenarios, those not counted included."""


def summarise(judgements: Sequence[Judgement]) -> Board:
    """Sum judgements up."""
    counted = [one for one in judgements if one.is_counted]
    errors = [one.loss_error for one in counted if one.loss_error is not None]
    return Board(
        top1=rate(counted, lambda one: one.top1),
        top3=rate(counted, lambda one: one.top3),
        place=rate(counted, lambda one: one.place),
        median_loss_error=statistics.median(errors) if errors else None,
        no_false_alarm=rate(
            counted, lambda one: None if one.false_alarm is None else not one.false_alarm
        ),
        decoy_first=rate(counted, lambda one: one.decoy_first),
        num_scenarios=len(judgements),
    )


def to_json(judgements: Sequence[Judgement]) -> dict[str, object]:
    """The board with its tables by fault and by magnitude, and the confusion of first codes."""
    single = [one for one in judgements if len(one.kinds) == 1]
    kinds = sorted({one.kinds[0] for one in single})
    return {
        **_figures(judgements),
        "faults": {
            kind: _figures([one for one in single if one.kinds[0] == kind]) for kind in kinds
        },
        "magnitudes": {
            kind: {
                str(level): _level([one for one in of_kind if one.levels[0] == level])
                for level in sorted({one.levels[0] for one in of_kind})
            }
            for kind in kinds
            for of_kind in [[one for one in single if one.kinds[0] == kind]]
        },
        "confusion": confusion(judgements),
    }


def _figures(judgements: Sequence[Judgement]) -> dict[str, object]:
    board = summarise(judgements)
    return {
        "num_scenarios": board.num_scenarios,
        "top1": board.top1.to_json(),
        "top3": board.top3.to_json(),
        "place": board.place.to_json(),
        "loss_error": board.median_loss_error,
        "no_false_alarm": board.no_false_alarm.to_json(),
        "decoy_first": board.decoy_first.to_json(),
    }


def _level(judgements: Sequence[Judgement]) -> dict[str, object]:
    """One magnitude, whatever it costs: the smallest detectable fault is read off here."""
    errors = [one.loss_error for one in judgements if one.loss_error is not None]
    return {
        "median_lost_share": statistics.median(one.lost_share for one in judgements),
        "top1": rate(judgements, lambda one: one.top1).to_json(),
        "top3": rate(judgements, lambda one: one.top3).to_json(),
        "loss_error": statistics.median(errors) if errors else None,
    }


def confusion(judgements: Sequence[Judgement]) -> dict[str, dict[str, int]]:
    """First code by injected kind, counted faults only; `none` and `nothing` where there is none."""
    table: dict[str, Counter[str]] = {}
    for one in judgements:
        if one.is_counted and len(one.kinds) <= 1:
            kind = one.kinds[0] if one.kinds else "none"
            first = one.first_codes[0] if one.first_codes else "nothing"
            table.setdefault(kind, Counter())[first] += 1
    return {kind: dict(codes.most_common()) for kind, codes in sorted(table.items())}
