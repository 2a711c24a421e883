"""Workload: what is asked of a deployment, read, described, fitted and drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenpath.api.load import Progress, load
from tokenpath.capture.capture import Capture

if TYPE_CHECKING:
    from tokenpath.core.report import Report
    from tokenpath.simulate.workload.lengths import LengthLaw
    from tokenpath.simulate.workload.model import WorkloadModel
    from tokenpath.simulate.workload.rows import ReadWorkload
    from tokenpath.simulate.workload.workload import Workload


@dataclass(frozen=True)
class DescribedWorkload:
    """A workload, and what is said of it."""

    report: Report
    """For people and programs: render it with `tokenpath.export`."""
    read: ReadWorkload
    """The requests (`read.workload`), and what was left out of the file."""


@dataclass(frozen=True)
class FittedWorkload:
    """A model of a workload, and what is said of it."""

    report: Report
    """For people and programs: render it with `tokenpath.export`."""
    model: WorkloadModel
    """What draws workloads like it; `model.to_json()` is its artefact."""


def workload(
    paths: str | Path | Sequence[str | Path],
    *,
    output: LengthLaw | None = None,
    begin_s: float | None = None,
    duration_s: float | None = None,
    closed_loop: bool | None = None,
    seed: int = 0,
    keep_hosts: bool = False,
    progress: Progress | None = None,
    columns: Mapping[str, str] | None = None,
) -> ReadWorkload:
    """The requests of a workload file, or of any file that is read as a capture.

    `output` is the law of outputs for lists of prompt lengths alone; `begin_s` and `duration_s` choose a
    stretch (of ServeGen's clients: what is drawn, with `seed`); `closed_loop` says how a recorded run is taken,
    None lets the recording decide. Raises an InputError with file and reason when nothing can be read.
    """
    from tokenpath.simulate.workload.files import read_workload, sniff
    from tokenpath.simulate.workload.from_capture import workload_from_capture
    from tokenpath.simulate.workload.transform import cut_read

    files = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    if files and not columns and all(path.exists() and sniff(path) is not None for path in files):
        return read_workload(
            files, output=output, begin_s=begin_s, duration_s=duration_s, seed=seed
        )
    capture = load(files, keep_hosts=keep_hosts, progress=progress, columns=columns)
    read = workload_from_capture(capture, closed_loop=closed_loop)
    return cut_read(read, begin_s, duration_s)


def describe_workload(source: ReadWorkload | Workload | Capture) -> DescribedWorkload:
    """Rates and burstiness, lengths, shared content and sessions of a workload."""
    from tokenpath.simulate.workload.report import report_of_workload

    read = _as_read(source)
    return DescribedWorkload(report_of_workload(read), read)


def fit_workload(source: ReadWorkload | Workload | Capture) -> FittedWorkload:
    """A model of a workload with its errors. UsageError for a workload without a request."""
    from tokenpath.simulate.workload.fit import fit
    from tokenpath.simulate.workload.report import report_of_model

    read = _as_read(source)
    model = fit(read.workload)
    return FittedWorkload(report_of_model(model, read), model)


def _as_read(source: ReadWorkload | Workload | Capture) -> ReadWorkload:
    from tokenpath.simulate.workload.from_capture import workload_from_capture
    from tokenpath.simulate.workload.rows import ReadWorkload
    from tokenpath.simulate.workload.workload import Workload

    if isinstance(source, Capture):
        return workload_from_capture(source)
    if isinstance(source, Workload):
        return ReadWorkload(source, "memory")
    return source
