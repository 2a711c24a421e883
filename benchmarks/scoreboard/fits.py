"""Which fit predicts a run: the shipped one (column A), or one that never saw its model family (column B)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenpath.simulate.physics.model import Fitted, load_fitted, read_fitted


@dataclass(frozen=True)
class Columns:
    """Fits by column."""

    shipped: Fitted
    """Fitted without the evaluation runs."""
    without: Mapping[str, Fitted]
    """By family: fitted without its runs as well."""

    def of(self, family: str) -> Iterator[tuple[str, Fitted]]:
        """Columns that a run of this family is scored in; a family in no training run has A as its B."""
        yield "A", self.shipped
        if family not in self.shipped.families:
            yield "B", self.shipped
        elif family in self.without:
            yield "B", self.without[family]


def load_columns(folder: Path | None) -> Columns:
    """The shipped fit, and `without-FAMILY.json` of a folder."""
    without = {}
    for path in sorted(folder.glob("without-*.json")) if folder else ():
        name = path.stem.removeprefix("without-")
        without[name] = read_fitted(path.read_text("utf-8"))
    return Columns(load_fitted(), without)
