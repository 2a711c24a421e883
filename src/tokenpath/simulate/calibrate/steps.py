"""From captures with steps to a calibrated step model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import UsageError
from tokenpath.simulate.calibrate.fit import MIN_RUNS_LEFT_OUT, fit_observations
from tokenpath.simulate.calibrate.model import CalibratedStepModel, SourceFile
from tokenpath.simulate.calibrate.observe import observe
from tokenpath.simulate.calibrate.overheads import Overheads, overheads_of
from tokenpath.simulate.calibrate.speed import BLOCK_WEIGHT, speed_of

_STALL_SHARE = 0.01
"""More time than this beyond any feature is worth a note."""


def fit_steps(captures: Capture | Sequence[Capture], *, seed: int = 0) -> CalibratedStepModel:
    """Step latency from the steps that captures of one engine hold, each capture one run.

    UsageError without a capture; InputError for captures with too few usable steps.
    """
    runs = [captures] if isinstance(captures, Capture) else list(captures)
    if not runs:
        raise UsageError("no capture to calibrate on", next_step="name a capture")
    observed = [observe(run) for run in runs]
    fitted = fit_observations(observed, seed=seed)
    notes = list(dict.fromkeys(note for run in observed for note in run.notes))
    if fitted.stall_share > _STALL_SHARE:
        notes.append(
            f"stalls that no feature explains: {100 * fitted.stall_share:.1f} % of step time"
        )
    if len(runs) < MIN_RUNS_LEFT_OUT:
        notes.append(
            "one run or two: how speed differs between runs is taken from blocks of time within them"
        )
    sources = tuple(source for run in runs for source in sources_of(run))
    observers = " and ".join(dict.fromkeys(run.observer for run in observed))
    num_steps = sum(run.num_steps for run in observed)
    return CalibratedStepModel(
        curve=fitted.curve,
        error=fitted.error,
        origin=f"fitted on {num_steps:,} {observers} steps of {_files(sources)}",
        terms={
            name: float(weight)
            for name, weight in zip(fitted.form.names(), fitted.weights, strict=True)
        },
        speed=speed_of(
            fitted.log_speed,
            fitted.log_decode_speed,
            fitted.log_prefill_speed,
            part_weight=1.0 if len(runs) >= MIN_RUNS_LEFT_OUT else BLOCK_WEIGHT,
        ),
        draws=fitted.draws,
        overheads=_overheads(runs),
        usual_gap_ns=float(np.median([run.usual_gap_ns for run in observed])),
        stall_share=fitted.stall_share,
        num_steps=num_steps,
        num_runs=len(runs),
        num_left_out=sum(run.num_unknown for run in observed),
        notes=tuple(notes),
        sources=sources,
        settings=common_settings(runs),
        noise=fitted.noise,
    )


def sources_of(capture: Capture) -> list[SourceFile]:
    """The files of a capture."""
    table = capture["source"].select(["path", "format", "sha256", "num_bytes"])
    return [SourceFile(**row) for row in table.to_pylist()]


def common_settings(captures: Sequence[Capture]) -> dict[str, str]:
    """Settings of the engine that every capture that states them has alike."""
    found: dict[str, set[str]] = {}
    for capture in captures:
        table = capture["setting"].select(["name", "value"])
        for row in table.to_pylist():
            found.setdefault(str(row["name"]), set()).add(str(row["value"]))
    return {name: min(values) for name, values in sorted(found.items()) if len(values) == 1}


def _overheads(runs: Sequence[Capture]) -> Overheads:
    """Of the first run that shows both sides."""
    for run in runs:
        found = overheads_of(run)
        if found.arrival is not None or found.delivery is not None:
            return found
    return Overheads(None, None, None)


def _files(sources: Sequence[SourceFile]) -> str:
    names = [source.path for source in sources]
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} more files"
