"""Simulate: what a workload would do on an engine, a part and a configuration, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokenpath.api.load import Progress, load
from tokenpath.capture.capture import Capture
from tokenpath.core.errors import UsageError

if TYPE_CHECKING:
    from tokenpath.core.report import Report
    from tokenpath.core.stats_bootstrap import Interval
    from tokenpath.simulate.deploy import Deployed, Ran
    from tokenpath.simulate.scenario import Scenario
    from tokenpath.simulate.step_model import StepCurve, StepModel
    from tokenpath.simulate.summary import Summary
    from tokenpath.simulate.workload.workload import Workload

SHARES_MAX = 20_000_000
"""Output tokens from which on the shares of requests in steps are not kept unless asked for."""


@dataclass(frozen=True)
class SimulatedRun:
    """A simulated run, and what is said of it."""

    report: Report
    """For people and programs: render it with `tokenpath.export`."""
    summary: Summary
    """Its figures, as the user sees them."""
    intervals: Mapping[str, Interval]
    """Prediction intervals by the names of `Summary.flat`; empty if none were asked for."""
    capture: Capture
    """The run as tables, for `explain`, `convert` and comparison."""
    deployed: Deployed
    """What was run: memory plan, step model, settings."""
    workload: Workload
    """What was asked of it."""
    draws: tuple[Mapping[str, float], ...] = ()
    """`Summary.flat` of the runs that the intervals are of: the same draw of two scenarios differs in them alone."""


def simulate(
    scenario: Scenario,
    workload: Workload,
    *,
    step_model: StepModel | None = None,
    redraw: Callable[[int], Workload] | None = None,
    num_draws: int = 40,
    seed: int = 0,
    detail: str | None = None,
    to: str | Path | None = None,
    stops_on_overload: bool = True,
    notify: Callable[[str], None] | None = None,
) -> SimulatedRun:
    """Run a workload on a deployment that need not exist.

    `step_model` None: physics. `redraw` gives the workload of another seed, for the intervals; None: the
    workload is known and only the engine is unsure. `num_draws` 0: no intervals. `detail`: `request`, `step`
    or `token`; None: `step` where that is affordable. `to`: a new folder that the capture is written to; shares and
    tokens are streamed there with `token`, and are then not in memory. `notify` is told what goes on. Raises UsageError or InputError, naming the limit and the
    nearest value that works, for what cannot be.
    """
    from tokenpath.api.simulate_report import report_of
    from tokenpath.simulate.deploy import deploy
    from tokenpath.simulate.summary import summarise

    deployed = deploy(scenario, workload, step_model, num_runs=1 + num_draws)
    if notify is not None:
        notify(
            "simulating; the event loop is compiled first, once for a machine, if much is to be done"
        )
    if detail is None:
        detail = "step" if int(workload.output_tokens.sum()) <= SHARES_MAX else "request"
    ran, itl_ns = _run(
        deployed, workload, detail, None if to is None else Path(to), stops_on_overload
    )
    summary = summarise(ran.capture, scenario.slo, observer=_observer(ran.capture), itl_ns=itl_ns)
    if summary is None:
        raise UsageError("no request was run", where=workload.name)
    intervals: Mapping[str, Interval] = {}
    draws: tuple[Mapping[str, float], ...] = ()
    if num_draws and ran.simulated.overload is None:
        intervals, draws = _intervals(deployed, workload, redraw, num_draws, seed, notify)
    report = report_of(deployed, workload, ran, summary, intervals)
    return SimulatedRun(report, summary, intervals, ran.capture, deployed, workload, draws)


def simulate_from(
    paths: Sequence[str | Path],
    settings: Sequence[str] = (),
    *,
    scenario: Scenario | None = None,
    num_draws: int = 40,
    seed: int = 0,
    keep_hosts: bool = False,
    progress: Progress | None = None,
    columns: Mapping[str, str] | None = None,
) -> tuple[SimulatedRun, SimulatedRun | None]:
    """What a recorded run would have been with other settings.

    The workload and the step latency come from the recording. The first result is the run as it was set, whose
    report states how far it is from what was measured; the second, with `settings` (`key=value`), answers the
    question. `scenario` None: what the recording says of its engine.
    """
    from tokenpath.api.residuals import residual_tables
    from tokenpath.api.simulate_report import beside_measured, what_if
    from tokenpath.simulate.calibrate import fit_steps
    from tokenpath.simulate.scenario import scenario_of, with_settings
    from tokenpath.simulate.workload.from_capture import workload_from_capture

    capture = load(paths, keep_hosts=keep_hosts, progress=progress, columns=columns)
    model = fit_steps(capture)
    workload = workload_from_capture(capture).workload
    base = scenario or scenario_of(model.settings)
    first = simulate(base, workload, step_model=model, num_draws=num_draws, seed=seed)
    first = replace(first, report=beside_measured(first.report, first.capture, capture))
    if not settings:
        return first, None
    asked = with_settings(base, settings)
    second = simulate(asked, workload, step_model=model, num_draws=num_draws, seed=seed)
    report = what_if(second.report, first, second, settings)
    # How far the calibrated simulation is from the recording stands beside its answer.
    tables = [*report.tables[:1], *residual_tables(capture, first.capture), *report.tables[1:]]
    return first, replace(second, report=replace(report, tables=tables))


def compare_runs(
    first: Capture | Sequence[str | Path],
    second: Capture | Sequence[str | Path],
    *,
    names: tuple[str, str] = ("A", "B"),
    keep_hosts: bool = False,
    progress: Progress | None = None,
    columns: Mapping[str, str] | None = None,
) -> Report:
    """Two runs, measured or simulated, side by side: what differs by more than chance."""
    from tokenpath.core.report import Report, Trust
    from tokenpath.simulate.compare import compare, comparison_answer, comparison_table

    captures = [
        run
        if isinstance(run, Capture)
        else load(run, keep_hosts=keep_hosts, progress=progress, columns=columns)
        for run in (first, second)
    ]
    found = compare(*captures)
    counts = [f"{name}: {n:,} requests" for name, n in zip("AB", found.num_requests, strict=True)]
    states = {_state(capture) for capture in captures}
    return Report(
        verb="compare",
        headline=" · ".join([f"A {names[0]} · B {names[1]}", *counts]),
        answer=comparison_answer(found),
        trust=Trust.GOOD,
        window=None,
        funnel=None,
        findings=[],
        dismissed=[],
        notes=[],
        tables=[comparison_table(found)],
        state="simulated" if "simulated" in states else "measured",
    )


def _run(
    deployed: Deployed, workload: Workload, detail: str, to: Path | None, stops: bool
) -> tuple[Ran, Mapping[str, float] | None]:
    """The run, written where asked; statistics of token gaps where its tables do not hold them."""
    from tokenpath.capture.parquet import write_capture
    from tokenpath.simulate.recorder_stream import StreamWriter
    from tokenpath.simulate.token_gaps import TokenGaps

    if detail == "token" and to is not None:
        with StreamWriter(to, workload.num_requests, workload.request_ids) as writer:
            gaps = TokenGaps(workload.num_requests, writer)
            ran = deployed.run(workload, detail="token", sink=gaps, stops_on_overload=stops)
            writer.finish(ran.simulated.rows, workload, ran.facts)
        return ran, gaps.statistics()
    gaps = TokenGaps(workload.num_requests)
    if detail == "request":
        # Shares are made for the gaps between tokens, and not kept.
        ran = deployed.run(workload, detail="step", sink=gaps, stops_on_overload=stops)
    else:
        ran = deployed.run(workload, detail=detail, stops_on_overload=stops)
    if to is not None:
        write_capture(ran.capture, to)
    return ran, gaps.statistics() if detail == "request" else None


def _state(capture: Capture) -> str:
    states = set(capture["source"]["state"].to_pylist())
    return "simulated" if "simulated" in states else "measured"


def _observer(capture: Capture) -> str:
    """The user's side where it was simulated."""
    names = set(capture["request"]["observer"].to_pylist())
    return "client" if "client" in names else "engine"


def _intervals(
    deployed: Deployed,
    workload: Workload,
    redraw: Callable[[int], Workload] | None,
    num_draws: int,
    seed: int,
    notify: Callable[[str], None] | None,
) -> tuple[dict[str, Interval], tuple[Mapping[str, float], ...]]:
    import numpy as np

    from tokenpath.simulate.calibrate.intervals import draw_curve, predict
    from tokenpath.simulate.summary import summarise

    found: list[Mapping[str, float]] = []

    def run(curve: StepCurve, of_seed: int) -> Mapping[str, float]:
        if notify is not None:
            notify(f"intervals: run {len(found) + 1} of {num_draws + 1}")
        drawn = workload if redraw is None or of_seed == seed else redraw(of_seed)
        decode = deployed.decode
        decode_curve = None
        if found and decode is not None and decode.step_model is not deployed.step_model:
            random = np.random.default_rng((seed, len(found)))
            decode_curve = draw_curve(decode.step_model, random)
        ran = deployed.run(
            drawn, curve, decode_curve=decode_curve, detail="step", stops_on_overload=False
        )
        summary = summarise(ran.capture, deployed.scenario.slo, observer=_observer(ran.capture))
        found.append({} if summary is None else summary.flat())
        return found[-1]

    intervals = predict(
        run,
        deployed.step_model,
        num_draws=num_draws,
        seed=seed,
        vary_workload=redraw is not None,
    )
    # The first is the point: the model's own curve.
    return intervals, tuple(found[1:])
