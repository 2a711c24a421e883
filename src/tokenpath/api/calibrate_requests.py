"""Calibrate on a load generator's results: nobody saw steps, so physics is scaled until requests take as long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import InputError
from tokenpath.simulate.calibrate.fit import step_error
from tokenpath.simulate.calibrate.model import CalibratedStepModel
from tokenpath.simulate.calibrate.overheads import Delay, Overheads
from tokenpath.simulate.calibrate.requests import (
    Bools,
    Int64s,
    RequestTimes,
    SimulatedSteps,
    fit_requests,
    simulated_steps,
)
from tokenpath.simulate.calibrate.scaled import PRIOR_SIGMA, ScaledForm
from tokenpath.simulate.calibrate.speed import BLOCK_WEIGHT, speed_of
from tokenpath.simulate.calibrate.steps import common_settings, sources_of
from tokenpath.simulate.deploy import Deployed, deploy
from tokenpath.simulate.physics.model import PhysicsModel
from tokenpath.simulate.recorder import NOT_SEEN
from tokenpath.simulate.scenario import Scenario
from tokenpath.simulate.step_model import Float64s, StepCurve
from tokenpath.simulate.workload.from_capture import OBSERVERS, workload_from_capture
from tokenpath.simulate.workload.workload import Workload


@dataclass(frozen=True)
class _Run:
    deployed: Deployed
    workload: Workload
    times: RequestTimes


def calibrate_requests(
    captures: Sequence[Capture], scenario: Scenario, *, num_rounds: int = 8
) -> CalibratedStepModel:
    """Physics of `scenario`, scaled to the times of the requests in these captures.

    The error is that of every other request, fitted on the rest. InputError for captures whose requests do
    not state arrival, tokens and lengths, or state too few.
    """
    runs = [_run(capture, scenario) for capture in captures]
    physics = runs[0].deployed.step_model
    form = ScaledForm(physics.curve)
    measured = _joined([run.times for run in runs])
    at_engine = _without_frontend(measured, runs)

    def simulate(curve: StepCurve) -> SimulatedSteps:
        return _beside([_simulated(run, curve) for run in runs])

    number = np.arange(measured.num_requests)
    predicted = np.empty(measured.num_requests)
    for half in (0, 1):
        fitted = fit_requests(
            at_engine,
            simulate,
            form,
            form.unscaled(),
            use=number % 2 != half,
            num_rounds=num_rounds,
            prior_sigma=PRIOR_SIGMA,
        )
        own = number % 2 == half
        predicted[own] = simulate(fitted.curve).times.decode_ns()[own]
    whole = fit_requests(
        at_engine, simulate, form, form.unscaled(), num_rounds=num_rounds, prior_sigma=PRIOR_SIGMA
    )
    is_spread = at_engine.is_known & (at_engine.output_tokens > 1) & (at_engine.decode_ns() > 0)
    speed = _log_speed(at_engine, predicted, is_spread, number)
    frontend_ns = _frontend_ns(runs[0])
    delay = Delay(0, frontend_ns, {0.5: frontend_ns, 0.99: frontend_ns})
    sources = tuple(source for capture in captures for source in sources_of(capture))
    return CalibratedStepModel(
        curve=whole.curve,
        error=step_error(
            at_engine.decode_ns()[is_spread],
            predicted[is_spread],
            "every other request left out",
        ),
        origin=f"scaled to {measured.num_requests:,} requests of {sources[0].path}: {physics.origin}",
        terms=dict(zip(form.names(), (float(w) for w in whole.weights), strict=True)),
        speed=speed_of(speed, speed, speed, part_weight=BLOCK_WEIGHT),
        draws=(),
        overheads=Overheads(delay, None, None),
        usual_gap_ns=0.0,
        stall_share=0.0,
        num_steps=0,
        num_runs=len(runs),
        num_left_out=int((~measured.is_known).sum()),
        notes=("the way outside the engine is the physics model's, not measured",),
        sources=sources,
        settings=common_settings(captures),
    )


def _run(capture: Capture, scenario: Scenario) -> _Run:
    workload = workload_from_capture(capture).workload
    times = _times(capture)
    if times.num_requests != workload.num_requests:
        raise InputError(
            f"{workload.num_requests} requests with lengths, {times.num_requests} with times",
            where="table request",
            allowed="one source that states arrival, first and last token and lengths of each request",
            next_step="calibrate on the load generator's file alone",
        )
    return _Run(deploy(scenario, workload), workload, times)


def _times(capture: Capture) -> RequestTimes:
    """What the outermost observer saw, in the order of arrival, from the first arrival on."""
    codes, names = capture.codes("request", "observer")
    observer = next((name for name in OBSERVERS if name in names), None)
    if observer is None:
        raise InputError("no request in the capture", next_step="name a load generator's results")
    rows = np.flatnonzero(codes == names.index(observer))

    def column(name: str, null: int = NOT_SEEN) -> Int64s:
        return capture.int64("request", name, null)[rows]

    usable = (
        (column("arrival_ns") != NOT_SEEN)
        & (column("prompt_tokens", 0) >= 1)
        & (column("output_tokens", 0) >= 1)
    )
    order = np.flatnonzero(usable)
    order = order[np.argsort(column("arrival_ns")[order], kind="stable")]
    begin = int(column("arrival_ns")[order].min()) if len(order) else 0

    def moment(name: str) -> Int64s:
        at = column(name)[order]
        return np.where(at == NOT_SEEN, NOT_SEEN, at - begin)

    last = moment("last_token_ns")
    return RequestTimes(
        queued_ns=moment("arrival_ns"),
        scheduled_ns=np.full(len(order), NOT_SEEN),
        first_token_ns=moment("first_token_ns"),
        last_token_ns=np.where(last == NOT_SEEN, moment("finished_ns"), last),
        output_tokens=column("output_tokens", 0)[order],
    )


def _simulated(run: _Run, curve: StepCurve) -> SimulatedSteps:
    ran = run.deployed.run(run.workload, curve, detail="request", stops_on_overload=False)
    return simulated_steps(ran.simulated.rows)


def _frontend_ns(run: _Run) -> float:
    model = run.deployed.step_model
    if not isinstance(model, PhysicsModel):
        return 0.0
    return float(model.frontend_ns_of(float(run.workload.prompt_tokens.mean())))


def _without_frontend(measured: RequestTimes, runs: Sequence[_Run]) -> RequestTimes:
    """Tokens as the engine had them: earlier by the way that physics knows, never before the arrival."""
    way = round(_frontend_ns(runs[0]))

    def earlier(at: Int64s) -> Int64s:
        moved = np.maximum(at - way, measured.queued_ns + 1)
        return np.where(at == NOT_SEEN, NOT_SEEN, moved)

    return RequestTimes(
        measured.queued_ns,
        measured.scheduled_ns,
        earlier(measured.first_token_ns),
        earlier(measured.last_token_ns),
        measured.output_tokens,
    )


def _joined(times: Sequence[RequestTimes]) -> RequestTimes:
    names = RequestTimes.__dataclass_fields__
    return RequestTimes(*(np.concatenate([getattr(t, name) for t in times]) for name in names))


def _beside(runs: Sequence[SimulatedSteps]) -> SimulatedSteps:
    """Runs as if side by side, each on endpoints of its own."""
    offsets = np.cumsum([0, *(int(run.endpoint.max(initial=0)) + 1 for run in runs)])[:-1]
    return SimulatedSteps(
        features=np.concatenate([run.features for run in runs]),
        start_ns=np.concatenate([run.start_ns for run in runs]),
        end_ns=np.concatenate([run.end_ns for run in runs]),
        endpoint=np.concatenate([r.endpoint + o for r, o in zip(runs, offsets, strict=True)]),
        request_endpoint=np.concatenate(
            [r.request_endpoint + o for r, o in zip(runs, offsets, strict=True)]
        ),
        times=_joined([run.times for run in runs]),
    )


def _log_speed(
    measured: RequestTimes, predicted: Float64s, mask: Bools, number: Int64s
) -> Float64s:
    """log(measured / predicted) of the summed decode time of each half left out."""
    found = []
    for half in (0, 1):
        own = mask & (number % 2 == half)
        if own.any():
            found.append(float(np.log(measured.decode_ns()[own].sum() / predicted[own].sum())))
    return np.array(found)
