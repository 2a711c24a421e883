"""Measured against simulated latency, stage by stage: where a simulation is wrong, not only by how much."""

from __future__ import annotations

from dataclasses import dataclass

from tokenpath.capture.capture import Capture, build_table
from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit

STAGES: tuple[tuple[str, str], ...] = (
    ("queue", "queue"),
    ("prefill", "prefill: its own prompt"),
    ("interference", "interference: others in its steps"),
    ("decode", "decode: its own tokens"),
    ("outside", "outside: client to engine and back"),
    ("unresolved", "not resolved by the step log"),
)
"""Key and meaning of each stage; their means add up to the mean end-to-end latency."""
_WITHIN_STEP = ("schedule_end_ns", "execute_start_ns", "execute_end_ns", "output_ns")
_STAGE_OF = {
    "queue": "queue",
    "others_prefill": "interference",
    "others_decode": "interference",
    "not_scheduled": "interference",
    "send": "outside",
    "delivery": "outside",
    "unresolved": "unresolved",
}
"""Parts of `explain.latency`; every other part is the request's own, prefill or decode by its latency."""


@dataclass(frozen=True)
class StageResidual:
    """One stage of the latency of all requests."""

    stage: str
    """Key of STAGES."""
    measured_ns: float
    """Mean over the measured requests."""
    simulated_ns: float
    """Mean over the simulated ones."""

    @property
    def residual_ns(self) -> float:
        """Simulated minus measured."""
        return self.simulated_ns - self.measured_ns


def stage_residuals(
    measured: Capture, simulated: Capture, observer: str = "engine"
) -> list[StageResidual]:
    """The stages of both captures' requests; empty where either has none that `observer` saw.

    Steps are taken as wholes on both sides, shared among their requests by tokens: a simulation does not
    know what happened within one.
    """
    both = [_stages(_without_inner_times(capture), observer) for capture in (measured, simulated)]
    if not (both[0] and both[1]):
        return []
    return [
        StageResidual(key, both[0][key], both[1][key])
        for key, _ in STAGES
        if both[0][key] or both[1][key]
    ]


def residual_table(residuals: list[StageResidual]) -> ShownTable:
    """The residuals for people, with the sum last."""
    meaning = dict(STAGES)
    total = [sum(r.measured_ns for r in residuals), sum(r.simulated_ns for r in residuals)]
    rows: list[list[Cell]] = []
    for label, measured, simulated in [
        *((r.stage, r.measured_ns, r.simulated_ns) for r in residuals),
        ("all", total[0], total[1]),
    ]:
        share = (simulated - measured) / total[0] if total[0] > 0 else None
        rows.append([meaning.get(label, label), measured, simulated, simulated - measured, share])
    columns = [
        TableColumn("stage", "stage", Unit.TEXT),
        TableColumn("measured_ns", "measured", Unit.NS),
        TableColumn("simulated_ns", "simulated", Unit.NS),
        TableColumn("residual_ns", "residual", Unit.NS),
        TableColumn("residual_share", "of E2E", Unit.SHARE),
    ]
    note = "Means over all requests, engine's view; residual = simulated - measured."
    return ShownTable(
        "residual_by_stage",
        "simulated against measured, by stage",
        columns,
        rows,
        len(rows),
        note,
        is_lead=True,
    )


def residual_tables(measured: Capture, simulated: Capture) -> list[ShownTable]:
    """The residuals by stage; none where either side does not say which steps requests were in."""
    both = (measured, simulated)
    if not all(capture.num_rows("request_step") for capture in both):
        return []
    found = stage_residuals(measured, simulated)
    return [residual_table(found)] if found else []


def _without_inner_times(capture: Capture) -> Capture:
    step = capture["step"]
    columns = {name: step[name] for name in step.column_names if name not in _WITHIN_STEP}
    return capture.replace({"step": build_table("step", columns)}) if step.num_rows else capture


def _stages(capture: Capture, observer: str) -> dict[str, float]:
    """Mean time of each stage; {} without requests."""
    from tokenpath.explain.latency import PARTS, latencies

    sums = dict.fromkeys((key for key, _ in STAGES), 0.0)
    num_requests = 0
    for latency in latencies(capture):
        if latency.observer != observer:
            continue
        own = "prefill" if latency.kind == "ttft" else "decode"
        if latency.kind == "ttft":
            num_requests = len(latency)
        for (part, _), total in zip(PARTS, latency.parts_ns.sum(axis=0).tolist(), strict=True):
            sums[_STAGE_OF.get(part, own)] += total
    return {key: total / num_requests for key, total in sums.items()} if num_requests else {}
