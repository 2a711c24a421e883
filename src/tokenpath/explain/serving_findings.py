"""Findings about requests: what their latency is made of that a setting could change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenpath.core.finding import Evidence, Finding, Kind, Status
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.latency import (
    GAPS,
    NOT_SCHEDULED,
    OTHER_PREFILL,
    OUTPUT,
    QUEUE,
    SCHEDULING,
    Latency,
)

MIN_SHARE = 0.05
"""Smaller shares of a latency are not worth a finding."""
_MAX_ROWS = 5


@dataclass(frozen=True)
class _Claim:
    """A group of parts that one finding is about."""

    code: str
    kind: str
    parts: tuple[int, ...]
    what: str
    falsifier: str
    fix: str


_CLAIMS = (
    _Claim(
        "queue-wait",
        "ttft",
        (QUEUE,),
        "waiting in the engine's queue",
        "the queue stays as long with more replicas or a higher limit of running requests",
        "more replicas or fewer requests a replica; raise max_num_seqs if KV blocks are free",
    ),
    _Claim(
        "prefill-interference",
        "decode",
        (OTHER_PREFILL,),
        "in forward passes that others' prefill tokens share",
        "decode steps without prefill tokens are as long as those with",
        "a smaller max_num_batched_tokens, or prefill on instances of its own",
    ),
    _Claim(
        "preempted-requests",
        "decode",
        (NOT_SCHEDULED,),
        "in steps without the request: preempted, or passed over",
        "preemptions stay with more KV blocks",
        "more KV blocks (gpu_memory_utilization, FP8 KV), fewer running requests",
    ),
    _Claim(
        "step-overhead",
        "decode",
        (SCHEDULING, GAPS, OUTPUT),
        "around the forward pass: scheduling, gaps, processing of outputs",
        "steps are as far apart with asynchronous scheduling",
        "asynchronous scheduling, a core of its own for the engine, several steps a schedule",
    ),
)


def serving_findings(
    found: Sequence[Latency], status: Status, *, has_steps: bool = False
) -> list[Finding]:
    """Findings of the outermost observer, the largest first.

    With a step log that names requests (`has_steps`) the analysis `scheduler` looks at the same parts more
    closely, and says what of them is a loss: nothing is claimed here.
    """
    return [] if has_steps else general_claims(found, status)


def general_claims(found: Sequence[Latency], status: Status) -> list[Finding]:
    """All of a part of the latency as what a fix could bring at most."""
    findings = []
    for claim in _CLAIMS:
        of_kind = [latency for latency in found if latency.kind == claim.kind]
        if of_kind and (finding := _finding(outermost(of_kind), claim, status)):
            findings.append(finding)
    return sorted(findings, key=lambda finding: -(finding.gain_ns or 0))


def outermost(found: Sequence[Latency]) -> Latency:
    """What the user saw: the client's view, else the gateway's, else the engine's."""
    order = ("client", "gateway", "engine")
    place = {observer: number for number, observer in enumerate(order)}
    return min(found, key=lambda latency: place.get(latency.observer, len(order)))


def _finding(latency: Latency, claim: _Claim, status: Status) -> Finding | None:
    values = latency.parts_ns[:, claim.parts].sum(axis=1)
    mine, total = int(values.sum()), int(latency.total_ns.sum())
    if total <= 0 or mine < MIN_SHARE * total:
        return None
    mean = mine // len(latency)
    name = "time to first token" if latency.kind == "ttft" else "time from first token to last"
    worst = np.argsort(-values, kind="stable")[:_MAX_ROWS]
    return Finding(
        code=claim.code,
        sentence=(
            f"{format_percent(mine, total)} of the {name} goes by {claim.what}: "
            f"{format_duration(mean)} a request of {format_duration(total // len(latency))}"
        ),
        kind=Kind.COST,
        value=mine / total,
        unit=f"share of the {name}",
        duration_ns=mean,
        share=mine / total,
        gain_ns=mean,
        gain_method="ceiling",
        status=status,
        evidence=(
            Evidence(
                "request",
                (),
                int((values > 0).sum()),
                "worst: " + ", ".join(latency.request_id[at] for at in worst),
            ),
        ),
        falsifier=claim.falsifier,
        fix=claim.fix,
        details={
            "observer": latency.observer,
            "num_requests": len(latency),
            "sum_ns": mine,
            "latency_sum_ns": total,
        },
        scope="requests",
    )
