"""The report of a simulated run: its figures lead, then the story of its latency as `explain` tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from tokenpath.core.report import Note, Report, Severity, Trust
from tokenpath.core.units import format_bytes, format_percent
from tokenpath.simulate.report import answer, summary_tables

if TYPE_CHECKING:
    from tokenpath.api.simulate import SimulatedRun
    from tokenpath.capture.capture import Capture
    from tokenpath.core.stats_bootstrap import Interval
    from tokenpath.simulate.deploy import Deployed, Ran
    from tokenpath.simulate.summary import Summary
    from tokenpath.simulate.workload.workload import Workload

_ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
_REFUSALS_NAMED = 3


def report_of(
    deployed: Deployed,
    workload: Workload,
    ran: Ran,
    summary: Summary,
    intervals: Mapping[str, Interval],
) -> Report:
    """The report of one run."""
    from tokenpath.explain.report import explain

    story, _ = explain(ran.capture)
    bounds = {name: (found.low, found.high) for name, found in intervals.items()}
    sentences = answer(summary, bounds)
    overload = ran.simulated.overload
    if overload is not None:
        first = overload.sentence[0].upper() + overload.sentence[1:]
        until = " What follows is the run up to then." if overload.is_stopped else ""
        sentences = (f"{first}.{until}", *sentences)
    notes = [*_notes(deployed, ran), *story.notes]
    is_sure = deployed.step_model.error is not None and overload is None
    return replace(
        story,
        verb="simulate",
        headline=_headline(deployed, workload),
        answer=sentences,
        trust=Trust.GOOD if is_sure else Trust.LIMITED,
        window=None,
        funnel=None,
        notes=notes,
        tables=[*summary_tables(summary, bounds), *story.tables],
        state="simulated",
        facts={
            **story.facts,
            "settings": deployed.settings(),
            "figures": summary.flat(),
            "intervals": {name: [found.low, found.high] for name, found in intervals.items()},
            "memory": None if deployed.memory is None else asdict(deployed.memory),
            "num_gpus": deployed.num_gpus,
            "overload": None if overload is None else asdict(overload),
        },
    )


def beside_measured(report: Report, simulated: Capture, measured: Capture) -> Report:
    """The report of a recorded run simulated as it was set: how far that is from what was measured."""
    from tokenpath.api.residuals import residual_tables
    from tokenpath.simulate.compare import compare, comparison_table

    found = compare(measured, simulated)
    table = replace(comparison_table(found), key="residual", title="measured (A) and simulated (B)")
    stages = residual_tables(measured, simulated)
    return replace(report, tables=[table, *stages, *report.tables])


def what_if(
    report: Report, before: SimulatedRun, after: SimulatedRun, settings: Sequence[str]
) -> Report:
    """The report of a run with other settings: what they change, both runs simulated."""
    from tokenpath.simulate.compare import compare, comparison_answer, comparison_table

    found = compare(before.capture, after.capture, draws=(before.draws, after.draws))
    table = replace(
        comparison_table(found),
        key="what_if",
        title=f"as recorded (A) and with {', '.join(settings)} (B)",
    )
    sentences = (*comparison_answer(found), *report.answer)
    return replace(report, answer=sentences, tables=[table, *report.tables])


def _headline(deployed: Deployed, workload: Workload) -> str:
    at, scenario = deployed.deployment, deployed.scenario
    parts = []
    if at is not None:
        parts.append(at.model.name)
        layout = [
            f"{name} {getattr(scenario, name)}"
            for name in ("tp", "pp", "dp", "ep")
            if getattr(scenario, name) > 1
        ]
        parts.append(
            f"{deployed.num_gpus} x {at.hardware.name}" + "".join(f", {x}" for x in layout)
        )
    replicas = f"{scenario.replicas} x " if scenario.replicas > 1 else ""
    engine = _ENGINES.get(scenario.engine, scenario.engine)
    if scenario.decode_replicas:
        engine += f" ({scenario.replicas} prefill, {scenario.decode_replicas} decode)"
        replicas = ""
    counted = "" if "requests" in workload.name else f"{workload.num_requests:,} requests, "
    parts += [f"{replicas}{engine}", f"{counted}{workload.name}"]
    return " · ".join(parts)


def _notes(deployed: Deployed, ran: Ran) -> list[Note]:
    model, notes = deployed.step_model, []
    error = model.error
    if error is None:
        notes.append(
            Note(
                "step-model-unmeasured",
                Severity.WARNING,
                f"step latency: {model.origin}; its error was never measured, so intervals are a guess",
            )
        )
    else:
        notes.append(
            Note(
                "step-model-error",
                Severity.INFO,
                f"step latency: {model.origin}; {100 * error.mean_abs_relative:.1f} % off on average, "
                f"{100 * error.bias_relative:+.1f} % in sum, on {error.measured_on}",
                {"num_steps": error.num_steps},
            )
        )
    memory = deployed.memory
    if memory is not None:
        share = format_percent(memory.weight_bytes, memory.budget_bytes)
        notes.append(
            Note(
                "memory-plan",
                Severity.INFO,
                f"{memory.num_blocks:,} KV blocks of {memory.block_tokens} tokens "
                f"({format_bytes(memory.kv_bytes)} of {format_bytes(memory.budget_bytes)} a rank; "
                f"weights take {share}), estimated: an engine prints its own number at its start",
            )
        )
    refused = ran.simulated.refusals
    if refused:
        named = "; ".join(f"{index}: {why}" for index, why in refused[:_REFUSALS_NAMED])
        notes.append(
            Note(
                "requests-refused",
                Severity.WARNING,
                f"{len(refused):,} requests can never run and were refused ({named})",
            )
        )
    overload = ran.simulated.overload
    if overload is not None:
        notes.append(Note("overload", Severity.WARNING, overload.sentence, asdict(overload)))
    return notes
