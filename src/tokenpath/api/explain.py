"""Explain: where the time of a capture went, and what each fix would bring at most."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenpath.api.load import Progress, load
from tokenpath.capture.capture import Capture

if TYPE_CHECKING:
    from tokenpath.core.report import Report
    from tokenpath.explain.analyses.contract import Options
    from tokenpath.explain.analysis import Analysis
    from tokenpath.explain.request import WindowRequest


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
    columns: Mapping[str, str] | None = None,
    options: Options | None = None,
) -> Explained:
    """Explain a linked capture, or the files that `load` reads.

    `options` hold what no capture says, such as the price of a device.
    Raises InputError for input that cannot be read and UsageError for a window that does not exist.
    """
    # The compiled scanner runs without the GIL: time enough to import the analyses.
    with ThreadPoolExecutor(1, "tokenpath-import") as pool:
        imported = pool.submit(importlib.import_module, "tokenpath.explain.report")
        if isinstance(source, Capture):
            capture = source
        else:
            capture = load(source, keep_hosts=keep_hosts, progress=progress, columns=columns)
        report, analysis = imported.result().explain(capture, window, options)
    return Explained(report, analysis, capture)
