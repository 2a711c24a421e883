"""Data-parallel engines against each other: whether one of them is given most of the work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tokenpath.core.finding import Evidence, Finding, Status
from tokenpath.core.units import format_duration
from tokenpath.explain.analyses.scheduler_claims import Latencies, claim
from tokenpath.explain.analyses.scheduler_model import Model
from tokenpath.explain.analyses.scheduler_service import Service

MIN_EXCESS = 1.25
"""An engine is the busiest when it has so many times the mean work."""


def imbalance(known: Sequence[tuple[Service, Model, float]], status: Status) -> Finding | None:
    """The busiest engine, where its requests are slower for it; work is the steps' own cost."""
    if len(known) < 2:
        return None
    work = np.array(
        [
            float((one.cost[1] * one.prompt + (one.cost[2] + one.cost[0] / 4) * one.output).sum())
            for _, one, _ in known
        ]
    )
    busiest = int(work.argmax())
    excess = float(work[busiest] / work.mean())
    if excess < MIN_EXCESS:
        return None
    num = sum(len(one.arrival) for _, one, _ in known)
    mean = sum(one.measured_ns * len(one.arrival) for _, one, _ in known) / num
    of = Latencies(mean, num, status, max(error for _, _, error in known))
    gain = mean - _balanced_ns(known)
    if not of.is_worth(gain):
        return None
    service = known[busiest][0]
    name = str(service.engine) if service.engine >= 0 else f"of source {busiest}"
    waits = float((service.started - service.arrival).sum()) / num
    return claim(
        of,
        "dp-imbalance",
        f"engine {name} has {excess:.2f} times the work of the mean of {len(known)} engines: a request takes "
        f"{format_duration(round(known[busiest][1].measured_ns))} there, "
        f"{format_duration(round(mean))} over all",
        gain,
        fix="route by queue length or KV use instead of by turns or by hash; cap sticky sessions",
        falsifier="with the router's choice at random, the same engine is the slowest",
        evidence=(
            Evidence("request_step", (), len(service.arrival), "requests by engine of the step"),
        ),
        details={
            "work_over_mean": excess,
            "num_requests_by_engine": {str(one.engine): len(one.arrival) for one, _, _ in known},
        },
        place={"engine": name},
        part_of_ns={"queue-wait": min(waits, gain)},
        confidence=0.95,
        effort="code",
    )


def _balanced_ns(known: Sequence[tuple[Service, Model, float]]) -> float:
    """Mean latency with each request, in order of arrival, on the engine with the least work so far."""
    models = [one for _, one, _ in known]
    origin = [int(service.arrival.min()) for service, _, _ in known]
    first = min(origin)
    columns = {
        name: np.concatenate([getattr(one, name) for one in models])
        for name in ("prompt", "cached", "output")
    }
    arrival = np.concatenate(
        [one.arrival + at - first for one, at in zip(models, origin, strict=True)]
    )
    order = np.argsort(arrival, kind="stable")
    cost = np.mean([one.cost for one in models], axis=0)
    weight = (cost[1] * columns["prompt"] + (cost[2] + cost[0] / 4) * columns["output"])[order]
    total, engine = np.zeros(len(models)), np.zeros(len(order), np.int64)
    for at, amount in enumerate(weight.tolist()):
        engine[at] = int(total.argmin())
        total[engine[at]] += amount
    error = sum(one.mean_latency_ns() / one.measured_ns for one in models) / len(models)
    spent = 0.0
    for number, one in enumerate(models):
        mine = order[engine == number]
        if len(mine):
            again = replace(
                one, arrival=arrival[mine], cost=cost,
                **{name: column[mine] for name, column in columns.items()},
            )  # fmt: skip
            spent += again.mean_latency_ns() * len(mine)
    return spent / len(order) / error
