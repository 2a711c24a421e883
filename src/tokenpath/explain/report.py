"""The report of `explain`: the answer first, then everything it stands on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tokenpath.capture.capture import Capture
from tokenpath.core.finding import Kind, Status
from tokenpath.core.report import Cell, Note, Report, Severity, ShownTable, TableColumn, Trust, Unit
from tokenpath.core.units import format_ms
from tokenpath.explain.analyses.contract import Context, Options, Result
from tokenpath.explain.analyses.registry import run_all
from tokenpath.explain.analysis import Analysis, analyse
from tokenpath.explain.answer import answer
from tokenpath.explain.asked import asked_what_ifs
from tokenpath.explain.causes import CAUSES, Group
from tokenpath.explain.exposure_findings import exposure_findings
from tokenpath.explain.findings import (
    MIN_SHARE,
    Verdicts,
    find,
    is_launch_bound,
    launch_details,
)
from tokenpath.explain.funnel import build_funnel
from tokenpath.explain.gains import replayed_gains
from tokenpath.explain.holdings import hang_of, has_work, holdings_answer, memory_table
from tokenpath.explain.host_answer import host_answer
from tokenpath.explain.metrics_table import metrics_table, stated_answer, summary_table
from tokenpath.explain.overview import overview
from tokenpath.explain.ranking import joint_table, not_worth, ranked
from tokenpath.explain.ranks import ranks_table
from tokenpath.explain.request import WindowRequest
from tokenpath.explain.serving import join_notes, profiled_steps_only, serving, source_notes
from tokenpath.explain.steps_table import step_funnels, steps_table
from tokenpath.explain.worst import worst_gaps
from tokenpath.replay.replay import Replay

_ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "atom": "ATOM", "profiler": "PyTorch"}


def explain(
    capture: Capture, request: WindowRequest | None = None, options: Options | None = None
) -> tuple[Report, Analysis]:
    """Explain a linked capture; the analysis is what the report was written from.

    UsageError when the requested window does not exist, or for a what-if that cannot be replayed.
    """
    analysis = analyse(profiled_steps_only(capture), request or WindowRequest())
    status = capture_status(capture)
    context = Context(capture, analysis, status, options or Options())
    result = run_all(context)
    report = build_report(analysis, result, context.replay)
    if context.options.what_ifs:
        asked = asked_what_ifs(capture, context.replay, context.options.what_ifs)
        report = replace(report, tables=[asked, *report.tables])
    return with_serving(report, analysis, capture, result), analysis


def with_serving(report: Report, analysis: Analysis, capture: Capture, result: Result) -> Report:
    """The report with what the capture says about requests; that leads where no device is seen."""
    state = capture_state(capture)
    found = serving(
        capture, capture_status(capture), [f for f in result.findings if f.scope == "requests"]
    )
    stated = [table for table in (metrics_table(capture), summary_table(capture)) if table]
    report = replace(report, tables=[*report.tables, *stated])
    report = replace(report, notes=[*report.notes, *join_notes(capture), *source_notes(capture)])
    if found is None and not has_work(capture) and not stated:
        notes = [note for note in report.notes if note.code != "no-device-work"]
        memory = memory_table(capture)
        return replace(
            report,
            headline=f"{'a hanging job' if hang_of(report.findings) else 'no work to explain'} · "
            f"{capture.num_rows('source')} source(s)",
            answer=holdings_answer(capture, report.findings),
            window=None,
            trust=Trust.GOOD
            if all(note.severity is Severity.INFO for note in notes)
            else report.trust,
            notes=notes,
            tables=[] if memory is None else [memory],
        )
    if found is None:
        return _with_stated(report, analysis, capture) if stated else report
    tables = [*found.tables, *(table for table in report.tables if table.rows)]
    if analysis.devices or capture.num_rows("op") or capture.num_rows("api_call"):
        return replace(
            report,
            answer=(*report.answer, *found.answer),
            findings=[*report.findings, *found.findings],
            tables=tables,
            request_funnels=found.funnels,
        )
    notes = [note for note in report.notes if note.code != "no-device-work"]
    return replace(
        report,
        headline=" · ".join([found.headline, *([state.upper()] if state != "measured" else [])]),
        answer=found.answer,
        trust=Trust.GOOD if all(note.severity is Severity.INFO for note in notes) else report.trust,
        window=None,
        funnel=None,
        request_funnels=found.funnels,
        findings=found.findings,
        notes=notes,
        tables=tables,
    )


def build_report(analysis: Analysis, result: Result, replay: Replay | None = None) -> Report:
    """Put the device side into words; `result` is what the analyses beside it found.

    Without a `replay` gains stay as they were claimed.
    """
    capture, quality = analysis.capture, analysis.quality
    state = capture_state(capture)
    status = capture_status(capture)
    others = [finding for finding in result.findings if finding.scope != "requests"]
    verdicts = find(analysis, status, [*exposure_findings(analysis, status), *others])
    verdicts, fixes, gain_notes = _replayed(analysis, verdicts, result, replay)
    withheld = quality.idle_withheld
    supported = bool(analysis.devices) and withheld is None
    parts = [device.funnel for device in analysis.devices]
    tables = [causes_table(analysis)] if supported else []
    if steps := steps_table(analysis):
        tables.append(steps)
    tables += [analysis.kernel_table, analysis.host_table]
    if supported:
        tables.append(worst_gaps(analysis))
    if (ranks := ranks_table(capture)) is not None:
        tables.append(ranks)
    tables += result.tables
    tables += fixes
    return Report(
        verb="explain",
        headline=headline(analysis, state),
        answer=host_answer(capture, analysis.host_table, verdicts.findings)
        if not analysis.devices and withheld is None
        else answer(analysis, verdicts.findings),
        trust=quality.trust,
        window=analysis.window,
        funnel=build_funnel("total", parts, analysis.totals) if supported else None,
        findings=verdicts.findings,
        dismissed=verdicts.dismissed,
        notes=[*quality.notes, *result.notes, *gain_notes],
        device_funnels=[
            build_funnel(device.work.label, [device.funnel], device.totals)
            for device in analysis.devices
        ]
        if supported and len(parts) > 1
        else (),
        step_funnels=step_funnels(analysis),
        tables=tables,
        timeline=overview(analysis),
        state=state,
        facts=facts(analysis, verdicts),
    )


def _replayed(
    analysis: Analysis, verdicts: Verdicts, result: Result, replay: Replay | None
) -> tuple[Verdicts, list[ShownTable], list[Note]]:
    """The verdicts by replayed gains, the table of fixes, and why nothing was replayed."""
    if replay is None:
        return verdicts, [], []
    gains = replayed_gains(analysis, replay, verdicts.findings, result.proposals, MIN_SHARE)
    verdicts = replace(
        verdicts,
        findings=tuple(ranked(gains.findings)),
        dismissed=(*not_worth(gains), *verdicts.dismissed),
    )
    fixes = joint_table(replay, gains.fixes)
    return verdicts, [] if fixes is None else [fixes], [] if gains.note is None else [gains.note]


def _with_stated(report: Report, analysis: Analysis, capture: Capture) -> Report:
    """A capture of aggregates alone: they are the answer, and nothing below them is known."""
    if analysis.devices or capture.num_rows("op"):
        return report
    answer = stated_answer(capture) or (
        "Metrics alone: the values are in the table; requests and steps would say where time went.",
    )
    notes = [note for note in report.notes if note.code != "no-device-work"]
    return replace(
        report,
        headline="metrics" if capture.num_rows("counter_sample") else "results of a load generator",
        answer=answer,
        window=None,
        notes=notes,
        tables=[table for table in report.tables if table.rows],
        trust=Trust.GOOD if all(note.severity is Severity.INFO for note in notes) else report.trust,
    )


def capture_state(capture: Capture) -> str:
    """`measured` only when every source is; else the first other state."""
    states = [state for state in capture["source"]["state"].to_pylist() if state != "measured"]
    return states[0] if states else "measured"


def capture_status(capture: Capture) -> Status:
    """How the numbers of a capture came to be."""
    return Status(capture_state(capture))


def headline(analysis: Analysis, state: str) -> str:
    """What was looked at, in one line."""
    parts = []
    if what := _workload(analysis.capture):
        parts.append(what)
    names = Counter(
        analysis.capture["device"]["name"][device.work.device_id].as_py() or "unnamed device"
        for device in analysis.devices
    )
    parts.append(
        ", ".join(f"{count} x {name}" for name, count in names.most_common(3)) or "no device work"
    )
    spans = [device.spans.num_busy for device in analysis.devices]
    wall = f"{format_ms(analysis.window.end_ns - analysis.window.start_ns)} ms"
    if count := max(spans, default=0):
        wall = f"{count} step{'s' if count > 1 else ''}, {wall}"
    parts.append(wall)
    verdict = {Trust.GOOD: "good", Trust.LIMITED: "limited", Trust.UNUSABLE: "idle withheld"}
    num_notes = len(analysis.quality.notes)
    parts.append(
        f"capture: {verdict[analysis.quality.trust]}, {num_notes} note{'s' if num_notes != 1 else ''}"
    )
    if state != "measured":
        parts.append(state.upper())
    return " · ".join(parts)


def _workload(capture: Capture) -> str:
    step = capture["step"]
    if step.num_rows == 0:
        return ""
    engines = Counter(name for name in step["engine"].to_pylist() if name)
    phases = Counter(name for name in step["phase"].to_pylist() if name)
    engine = _ENGINES.get(engines.most_common(1)[0][0], "") if engines else ""
    phase = phases.most_common(1)[0][0] if len(phases) == 1 else "mixed steps" if phases else ""
    return f"{engine} {phase}".strip()


def causes_table(analysis: Analysis) -> ShownTable:
    """Time without compute: idle, exposed communication, exposed copies, each by cause."""
    columns = (
        TableColumn("cause", "cause", Unit.TEXT),
        TableColumn("group", "group", Unit.TEXT),
        TableColumn("idle_ns", "idle", Unit.NS),
        TableColumn("num_gaps", "gaps", Unit.COUNT),
        TableColumn("p50_gap_ns", "gap p50", Unit.NS),
        TableColumn("exposed_communication_ns", "exposed communication", Unit.NS),
        TableColumn("exposed_memcpy_ns", "exposed memcpy", Unit.NS),
        TableColumn("share", "share of window", Unit.SHARE),
        TableColumn("meaning", "what was seen", Unit.TEXT, is_key_figure=False),
    )
    totals, wall = analysis.totals, analysis.wall_ns
    rows: list[Sequence[Cell]] = []
    for cause in CAUSES:
        idle, comm = totals.idle_ns[cause.key], totals.communication_ns[cause.key]
        copy = totals.memcpy_ns[cause.key]
        if idle or comm or copy:
            count = totals.num_gaps[cause.key]
            rows.append(
                (
                    cause.label,
                    cause.group.value,
                    idle,
                    count,
                    totals.p50_ns[cause.key] if count else None,
                    comm,
                    copy,
                    (idle + comm + copy) / wall if wall else None,
                    cause.meaning,
                )
            )
    rows.sort(key=lambda row: -(_int(row[2]) + _int(row[5]) + _int(row[6])))
    groups = totals.groups_ns()
    note = "Groups: " + ", ".join(
        f"{group.value.replace('_', ' ')} {format_ms(groups[group])} ms" for group in Group
    )
    return ShownTable(
        "idle_causes", "Time without compute, by cause", columns, rows, len(rows), note
    )


def _int(cell: Cell) -> int:
    return cell if isinstance(cell, int) else 0


def facts(analysis: Analysis, verdicts: Verdicts) -> dict[str, object]:
    """Machine-readable facts: sources, devices over the whole file and the window, reconciliation."""
    capture, totals = analysis.capture, analysis.totals
    device_rows = capture["device"].to_pylist()
    devices = []
    for device in analysis.devices:
        split, own = device.funnel.split, device_rows[device.work.device_id]
        devices.append(
            {
                "label": device.work.label,
                "index": own["index"],
                "name": own["name"],
                "hardware": own["hardware"],
                "rank": capture["source"]["rank"][own["source_id"]].as_py(),
                "idle_supported": analysis.quality.idle_withheld is None,
                "whole_file": {
                    "start_ns": device.whole.window_start_ns,
                    "span_ns": device.whole.span_ns,
                    "busy_ns": device.whole_busy_ns,
                    "num_kernels": len(device.whole.row),
                },
                "window": {
                    "start_ns": device.work.window_start_ns,
                    "span_ns": split.wall_ns,
                    "busy_ns": split.busy_ns,
                    "compute_ns": split.compute.total,
                    "memset_ns": split.memset.total,
                    "communication_ns": split.communication_ns,
                    "exposed_communication_ns": split.exposed_communication.total,
                    "memcpy_ns": split.memcpy_ns,
                    "exposed_memcpy_ns": split.exposed_memcpy.total,
                    "compute_ns_by_family": dict(device.funnel.family_ns),
                },
            }
        )
    sources = capture["source"].to_pylist()
    return {
        "sources": sources,
        "skips": capture["skip"].to_pylist(),
        "devices": devices,
        "compute_absent": {
            "total_ns": sum(totals.groups_ns().values()),
            "groups_ns": {group.value: value for group, value in totals.groups_ns().items()},
            "idle_ns": dict(totals.idle_ns),
            "exposed_communication_ns": dict(totals.communication_ns),
            "exposed_memcpy_ns": dict(totals.memcpy_ns),
        }
        if analysis.devices and analysis.quality.idle_withheld is None
        else None,
        "launches": launch_details(analysis) | {"is_launch_bound": is_launch_bound(analysis)},
        "launch_coverage": vars(analysis.coverage),
        "unclassified": {
            "kernel_ns": analysis.kernel_ns,
            "unclassified_ns": analysis.unclassified_ns,
            "share": analysis.unclassified_ns / analysis.kernel_ns if analysis.kernel_ns else None,
        },
        "num_findings": len([f for f in verdicts.findings if f.kind is Kind.COST]),
        "claims": [
            {"code": code, "duration_ns": duration_ns}
            for code, duration_ns in sorted(verdicts.durations_ns.items())
        ],
    }
