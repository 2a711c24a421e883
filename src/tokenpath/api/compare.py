"""Compare: what differs between two captures, or two sets of them, down to the kernel or the cause of a gap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenpath.api.load import Progress, load
from tokenpath.capture.capture import Capture

if TYPE_CHECKING:
    from tokenpath.core.report import Report
    from tokenpath.explain.compare.report import Compared, Run
    from tokenpath.explain.request import WindowRequest

Source = Capture | str | Path | Sequence[str | Path]
"""One run: a linked capture, a file or folder, or several files of it."""


@dataclass(frozen=True)
class Comparison:
    """The report, and the trees it was made of."""

    report: Report
    """For people and programs: render it with `tokenpath.export`."""
    compared: Compared
    """Where the difference lies; at every place the parts add up exactly."""


def compare(
    first: Source | Sequence[Source],
    second: Source | Sequence[Source],
    *,
    first_window: WindowRequest | None = None,
    second_window: WindowRequest | None = None,
    keep_hosts: bool = False,
    progress: Progress | None = None,
    columns: Mapping[str, str] | None = None,
) -> Comparison:
    """Take the difference second - first apart: request, stage, step, kernel or cause of a gap.

    Each side is one run, or a list of runs of the same kind (captures, or lists of files): with four and
    more on both sides they are the samples of noise. Raises InputError for input that cannot be read and
    UsageError where the sides have nothing in common.
    """
    from tokenpath.explain.compare.report import Run, build_report
    from tokenpath.explain.compare.report import compare as take_apart

    def measured(side: Source | Sequence[Source], window: WindowRequest | None) -> list[Run]:
        from tokenpath.explain.analysis import analyse
        from tokenpath.explain.request import WindowRequest
        from tokenpath.explain.serving import profiled_steps_only

        found = []
        for run in _runs(side):
            if isinstance(run, Capture):
                capture = run
            else:
                paths = [run] if isinstance(run, str | Path) else list(run)
                capture = load(paths, keep_hosts=keep_hosts, progress=progress, columns=columns)
            analysis = analyse(profiled_steps_only(capture), window or WindowRequest())
            found.append(Run(capture, analysis))
        return found

    one, two = measured(first, first_window), measured(second, second_window)
    compared = take_apart(one, two)
    return Comparison(build_report(compared, one, two), compared)


def _runs(side: Source | Sequence[Source]) -> list[Source]:
    """One run, or each of several: a list of paths is the files of one run."""
    if isinstance(side, Capture | str | Path):
        return [side]
    if all(isinstance(item, str | Path) for item in side):
        return [[item for item in side if isinstance(item, str | Path)]]
    return list(side)
