"""Static batches: nobody joins a batch before its last member is done."""

from __future__ import annotations

import numpy as np

from tokenpath.core.finding import Evidence, Finding
from tokenpath.core.units import format_percent
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
    idle = int((last[batch] - end).sum())
    waited = service.arrival < np.concatenate(([begin.min()], last[:-1]))[batch]
    if idle <= 0.05 * held or waited[batch > 0].mean() < MIN_TOGETHER / 2:
        return None
    # The model lets requests join at every step: that is what the batches lack.
    gain = model.measured_ns - model.mean_latency_ns()
    if not of.is_worth(gain):
        return None
    return claim(
        of,
        "padding",
        f"{len(starts):,} batches run until their longest member is done, and nobody joins them: "
        f"{format_percent(idle, held)} of their places are padding",
        gain,
        fix="continuous (in-flight) batching; until then batches of like lengths",
        falsifier="requests begin in steps in which others go on",
        evidence=(Evidence("request_step", (), len(begin), "first steps of requests"),),
        details={"num_batches": len(starts), "padding_share": idle / held},
        confidence=0.9,
    )
