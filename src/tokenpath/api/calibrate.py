"""Calibrate: step latency from captures of the user's own engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenpath.api.load import Progress, load
from tokenpath.capture.capture import Capture
from tokenpath.core.errors import UsageError

if TYPE_CHECKING:
    from tokenpath.core.report import Report
    from tokenpath.simulate.calibrate import CalibratedStepModel
    from tokenpath.simulate.scenario import Scenario

Run = Capture | str | Path | Sequence[str | Path]
"""One run of an engine: a linked capture, a file, or the files that belong together."""


@dataclass(frozen=True)
class Calibrated:
    """The model, and what is said of it."""

    report: Report
    """For people and programs: render it with `tokenpath.export`."""
    model: CalibratedStepModel
    """Step latency with its error; `tokenpath.simulate.calibrate.to_json` is its artefact."""


def calibrate(
    runs: Sequence[Run],
    *,
    scenario: Scenario | None = None,
    seed: int = 0,
    keep_hosts: bool = False,
    progress: Progress | None = None,
    columns: Mapping[str, str] | None = None,
) -> Calibrated:
    """Fit step latency on runs of one engine on one machine; three or more are judged by leaving each out.

    Where nobody recorded steps, and only there, `scenario` is needed: model, GPU and settings, whose physics is
    scaled to the times of the requests. Raises UsageError without a run, and InputError for files that cannot be
    read or hold too few steps or requests.
    """
    from tokenpath.simulate.calibrate import fit_steps
    from tokenpath.simulate.calibrate.report import report_of

    if not runs:
        raise UsageError("no run to calibrate on", next_step="name a capture with steps")
    captures = []
    for run in runs:
        if isinstance(run, Capture):
            captures.append(run)
            continue
        paths = [run] if isinstance(run, str | Path) else run
        captures.append(load(paths, keep_hosts=keep_hosts, progress=progress, columns=columns))
    if scenario is not None and not any(capture.num_rows("step") for capture in captures):
        from tokenpath.api.calibrate_requests import calibrate_requests

        model = calibrate_requests(captures, scenario)
    else:
        model = fit_steps(captures, seed=seed)
    return Calibrated(report_of(model), model)
