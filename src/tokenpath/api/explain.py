"""Explain: where the time of a capture went, and what each fix would bring at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenpath.api.load import Progress, load
from tokenpath.capture.capture import Capture
from tokenpath.core.report import Report
from tokenpath.explain.analysis import Analysis
from tokenpath.explain.report import explain as explain_capture
from tokenpath.explain.window import WindowRequest


@dataclass(frozen=True)
class Explained:
    """The report, and what it was made of."""

    report: Report
    """For people and programs: render it with `tokenpath.export`."""
    analysis: Analysis
    """The numbers behind it."""
    capture: Capture
    """The linked capture."""


def explain(
    source: Capture | Sequence[str | Path],
    *,
    window: WindowRequest | None = None,
    keep_hosts: bool = False,
    progress: Progress | None = None,
) -> Explained:
    """Explain a linked capture, or the files that `load` reads.

    Raises InputError for input that cannot be read and UsageError for a window that does not exist.
    """
    if isinstance(source, Capture):
        capture = source
    else:
        capture = load(source, keep_hosts=keep_hosts, progress=progress)
    report, analysis = explain_capture(capture, window)
    return Explained(report, analysis, capture)
