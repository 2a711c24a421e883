"""One module a format: each names in SAMPLES small inputs of its reader for the contract tests."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Sample:
    """An input of one reader, and what must come of it."""

    name: str
    """Unique name for the test's id."""
    reader: str
    """`Reader.name` of the one reader that must take it."""
    build: Callable[[Path], Path]
    """Write the input into an empty folder; its path (a file, or a folder that is one input)."""
    expect: Mapping[tuple[str, ...], list[Any]]
    """(table, column, ...) -> its rows: values for one column, else tuples. Times in integer ns."""
    skipped: Mapping[str, int]
    """Events by reason in `skip`, all of them: what the sample holds that no table can."""
    planted: Callable[[Path, str], Path] | None = None
    """Write an input with this text in every place where a text can stand."""
    many: Callable[[Path, int], Path] | None = None
    """Write an input of about so many events, for the bound on memory; None for formats that are small."""
    bytes_an_event: int = 600
    """Bound on the growth of the peak of Python's memory with an event, columns included."""


def all_samples() -> list[Sample]:
    """Those of every module of this package."""
    found: list[Sample] = []
    for module in pkgutil.iter_modules(__path__):
        found += importlib.import_module(f"{__name__}.{module.name}").SAMPLES
    return found
