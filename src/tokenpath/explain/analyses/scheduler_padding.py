"""Static batches: nobody joins a batch before its last member is done."""

from __future__ import annotations

import numpy as np

from tokenpath.core.finding import Evidence, Finding
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.analyses.scheduler_claims import Latencies, claim
from tokenpath.explain.analyses.scheduler_model import Model
from tokenpath.explain.analyses.scheduler_service import Service

MIN_BATCHES = 3
"""Fewer batches are no pattern."""
MIN_TOGETHER = 0.9
"""So many of the requests that began beside others began together with the end of a whole batch."""


def padding(service: Service, model: Model, of: Latencies) -> Finding | None:
    """Requests that begin only when all before them have ended, although some of those ended long ago."""
    begin, end = service.started, service.finished
    starts = np.unique(begin)
    if len(starts) < MIN_BATCHES or len(begin) < 2 * len(starts):
        return None
    # At each begin of a batch, how many of the requests begun before are still running?
    begun = np.searchsorted(np.sort(begin), starts, "left")
    over = np.searchsorted(np.sort(end), starts, "right")
    if (begun[1:] == over[1:]).mean() < MIN_TOGETHER:
        return None
    # In continuous batching they would have been let in before, had they been there.
    batch = np.searchsorted(starts, begin)
    last = np.zeros(len(starts), np.int64)
    np.maximum.at(last, batch, end)
    held = int((last[batch] - begin).sum())
    # Rows of who is done may stay in the steps, so that all seem to end together: tokens tell.
    longest = np.zeros(len(starts), np.int64)
    np.maximum.at(longest, batch, service.output)
    padded = (longest[batch] - service.output) / np.maximum(longest[batch], 1)
    idle = int(np.maximum(last[batch] - end, padded * (last[batch] - begin)).sum())
    waited = service.arrival < np.concatenate(([begin.min()], last[:-1]))[batch]
    if idle <= 0.05 * held or waited[batch > 0].mean() < MIN_TOGETHER / 2:
        return None
    # Two fixes: batches whose members are all as long as their mean lose no place, and still nobody joins them;
    # the model of the queue lets requests join at every step.
    even = _even_batches_ns(service, model)
    gain = of.mean_ns - even
    joined = of.mean_ns - model.mean_latency_ns()
    if not of.is_worth(gain):
        return None
    waits = float((begin - service.arrival).mean())
    return claim(
        of,
        "padding",
        f"{len(starts):,} batches run until their longest member is done, and nobody joins them: "
        f"{format_percent(idle, held)} of their places are padding; requests joining at every step would bring "
        f"{format_duration(round(max(joined, gain)))} each, batches of like lengths what is claimed",
        gain,
        fix="continuous (in-flight) batching; until then batches of like lengths",
        falsifier="requests begin in steps in which others go on",
        evidence=(Evidence("request_step", (), len(begin), "first steps of requests"),),
        details={
            "num_batches": len(starts),
            "padding_share": idle / held,
            "continuous_gain_ns": round(joined),
        },
        part_of_ns={"queue-wait": max(min(waits, max(joined, gain)), 0.0)},
        confidence=0.9,
    )


def _even_batches_ns(service: Service, model: Model) -> float:
    """Mean latency with static batches, served in order, whose requests all give as many tokens as the mean.

    Whoever waits when a batch has ended makes the next one.
    """
    order = np.argsort(service.arrival, kind="stable")
    arrival = service.arrival[order]
    prompt = np.maximum(service.prompt - service.cached, 1)[order].astype(np.float64)
    later = float(np.maximum(service.output, 1).mean()) - 1
    limit = min(model.max_running, len(arrival))
    now, at, spent = int(arrival[0]), 0, 0.0
    while at < len(arrival):
        now = max(now, int(arrival[at]))
        come = int(np.searchsorted(arrival, now, "right"))
        end = min(max(come, at + 1), at + limit)
        tokens, size = prompt[at:end], end - at
        first = model.cost[0] * np.ceil(tokens.sum() / model.budget)
        first += model.cost[1] * tokens.sum() + model.cost[4] * (tokens**2).sum() / 2000
        step = model.cost[0] + model.cost[2] * size + model.cost[3] * tokens.sum()
        now += int(first + later * step + model.cost[3] * size * later**2 / 2)
        spent += float((now - arrival[at:end]).sum())
        at = end
    return spent / len(arrival)
