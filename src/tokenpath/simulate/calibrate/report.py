"""What a calibration found, for people: what a step costs, and how wrong that is where it was not fitted."""

from __future__ import annotations

import math

from tokenpath.core.report import (
    Cell,
    Note,
    Report,
    Severity,
    ShownTable,
    TableColumn,
    Trust,
    Unit,
)
from tokenpath.core.units import format_duration
from tokenpath.simulate.calibrate.model import CalibratedStepModel

_PER: dict[str, tuple[str, float]] = {
    "step": ("a step", 1.0),
    "step with prefill": ("a step with prefill, more", 1.0),
    "num_prefill_requests": ("a request in prefill", 1.0),
    "num_prefill_tokens": ("1,000 prefill tokens", 1e3),
    "sum_prefill_kv_tokens": ("1,000 tokens that prefills had before", 1e3),
    "num_prefill_pairs": ("1,000,000 query-key pairs of prefills", 1e6),
    "num_decode_requests": ("a request in decode", 1.0),
    "num_decode_tokens": ("a decode token", 1.0),
    "sum_decode_kv_tokens": ("1,000 tokens of decode context", 1e3),
}
"""Terms as people read them, and how many units make a number worth reading."""
_GOOD, _LIMITED = 0.15, 0.40
"""Mean error of a step left out: below the first a model is good, above the second it is unusable."""
_MAX_BIAS = 0.05


def report_of(model: CalibratedStepModel) -> Report:
    """The report of a calibration."""
    return Report(
        verb="calibrate",
        headline=model.origin,
        answer=_answer(model),
        trust=_trust(model),
        window=None,
        funnel=None,
        findings=(),
        dismissed=(),
        notes=[
            Note("calibration", Severity.INFO, note[0].upper() + note[1:] + ".")
            for note in model.notes
        ],
        tables=[_terms(model), _errors(model), *_overheads(model)],
        facts=facts_of(model),
    )


def facts_of(model: CalibratedStepModel) -> dict[str, object]:
    """The numbers for programs; the curve itself is in the artefact."""
    error = model.error
    return {
        "calibration": {
            "num_steps": model.num_steps,
            "num_runs": model.num_runs,
            "num_left_out": model.num_left_out,
            "usual_gap_ns": model.usual_gap_ns,
            "stall_share": model.stall_share,
            "terms_ns": dict(model.terms),
            "error": None
            if error is None
            else {
                "measured_on": error.measured_on,
                "num_steps": error.num_steps,
                "mean_abs_relative": error.mean_abs_relative,
                "bias_relative": error.bias_relative,
                "log_ratio_quantiles": {str(at): value for at, value in error.quantiles.items()},
            },
            "run_speed": {
                "sigma": model.speed.sigma,
                "decode_sigma": model.speed.decode_sigma,
                "prefill_sigma": model.speed.prefill_sigma,
                "freedom": model.speed.freedom,
                "num_parts": model.speed.num_parts,
            },
        }
    }


def _answer(model: CalibratedStepModel) -> tuple[str, ...]:
    error = model.error
    if error is None:
        return ("The error of this model was never measured.",)
    low, high = (100 * math.expm1(error.quantiles[at]) for at in (0.05, 0.95))
    what = "a step" if model.num_steps else "a request's time per output token"
    steps = (
        f"On {error.measured_on} {what} is predicted within {100 * error.mean_abs_relative:.1f} % on "
        f"average (90 % took {low:+.0f} % to {high:+.0f} % more than predicted), and all of "
        f"them together {100 * error.bias_relative:+.1f} % off."
    )
    runs = (
        f"The speed of a whole run differs from this fit by {100 * model.speed.sigma:.1f} % (one "
        f"standard deviation; steps of decode alone {100 * model.speed.decode_sigma:.1f} %, with prefill "
        f"{100 * model.speed.prefill_sigma:.1f} %): a queue near saturation multiplies that."
    )
    return (steps, runs)


def _trust(model: CalibratedStepModel) -> Trust:
    error = model.error
    if error is None or error.mean_abs_relative > _LIMITED:
        return Trust.UNUSABLE
    if error.mean_abs_relative > _GOOD or abs(error.bias_relative) > _MAX_BIAS:
        return Trust.LIMITED
    return Trust.GOOD


def _terms(model: CalibratedStepModel) -> ShownTable:
    rows: list[list[Cell]] = []
    for name, weight in model.terms.items():
        label, units = _PER.get(name, (name, 1.0))
        is_scale = name.startswith("scale")
        rows.append([label, f"x {weight:.2f}" if is_scale else format_duration(weight * units)])
    columns = [
        TableColumn("term", "what it costs", Unit.TEXT),
        TableColumn("cost", "cost", Unit.TEXT),
    ]
    note = f"Time between steps ({format_duration(model.usual_gap_ns)}) is in the cost of a step. "
    note = (note if model.usual_gap_ns > 0 else "") + "Terms of 0 ns were not needed."
    return ShownTable(
        "terms", "a step costs the sum of", columns, rows, len(rows), note, is_lead=True
    )


def _errors(model: CalibratedStepModel) -> ShownTable:
    error = model.error
    rows: list[list[Cell]] = []
    if error is not None:
        for at, value in sorted(error.quantiles.items()):
            rows.append([f"{100 * at:g} %", 100 * math.expm1(value)])
    columns = [
        TableColumn("share", "of those left out", Unit.TEXT),
        TableColumn("deviation_percent", "took at most this % more", Unit.PERCENT),
    ]
    return ShownTable("left_out", "measured against predicted", columns, rows, len(rows))


def _overheads(model: CalibratedStepModel) -> list[ShownTable]:
    rows: list[list[Cell]] = []
    for label, delay in (
        ("client to the engine's queue", model.overheads.arrival),
        ("first token to the client", model.overheads.first_token),
        ("last token to the client", model.overheads.delivery),
    ):
        if delay is not None and delay.num:
            rows.append(
                [label, delay.num, delay.mean_ns, delay.quantiles[0.5], delay.quantiles[0.99]]
            )
    if not rows:
        return []
    columns = [
        TableColumn("delay", "outside the engine", Unit.TEXT),
        TableColumn("num", "requests", Unit.COUNT),
        TableColumn("mean_ns", "mean", Unit.NS),
        TableColumn("p50_ns", "p50", Unit.NS),
        TableColumn("p99_ns", "p99", Unit.NS),
    ]
    return [ShownTable("overheads", "delays", columns, rows, len(rows), is_lead=True)]
