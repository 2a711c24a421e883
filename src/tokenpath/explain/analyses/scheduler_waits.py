"""What held waiting requests back, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tokenpath.explain.analyses.scheduler_service import Service

KV_FULL = 0.95
"""Share of KV blocks in use from which on admission is held back by them."""
PLATEAU_SHARE = 0.3
"""Without a stated limit: so much of the steps with a queue must stand at the same largest batch."""


@dataclass(frozen=True)
class Waits:
    """The queue of one scheduler, split."""

    mean_ns: float
    """Waiting of a request on average."""
    by_limit_ns: Mapping[str, int]
    """Mean by what held the queue back: `batch`, `kv`, `tokens`, `step` (for the step that ran)."""
    batch_limit: int | None
    """Limit of running requests, as stated or as seen."""
    num_limited: int
    """Steps with a queue and as many requests as the limit allows."""
    free_kv: float
    """KV blocks free in those, mean share; 1 where unknown."""
    is_growing: bool
    """Whether later requests wait longer than earlier ones, all the way."""


def split_queue(service: Service) -> Waits:
    """Every step and the time before it, weighed by the requests that waited then."""
    wait = service.started - service.arrival
    waiting = np.sort(service.arrival), np.sort(service.started)
    start = service.steps.start - service.steps.gap_before_ns
    waiting_then = np.searchsorted(waiting[0], start, "right") - np.searchsorted(
        waiting[1], start, "right"
    )
    time = np.maximum(waiting_then, 0) * (service.steps.end - start)
    limit = service.max_running or _plateau(service)
    used = service.kv_used / service.kv_total if service.kv_total else np.zeros(len(start))
    has_queue = (service.queued > 0) | ((service.queued < 0) & (waiting_then > 0))
    full_batch = has_queue & (service.running >= limit) if limit else np.zeros(len(start), bool)
    full_kv = has_queue & ~full_batch & (used >= KV_FULL)
    tokens = service.prefill_tokens + service.decode_tokens
    full_step = has_queue & ~full_batch & ~full_kv
    full_step &= tokens >= 0.95 * service.budget if service.budget else False
    # Admission is decided by blocks for the whole prompt: a queue behind nothing else waits for those.
    full_kv |= has_queue & ~full_batch & ~full_step & (used >= 0.5)
    parts = {"batch": full_batch, "kv": full_kv, "tokens": full_step}
    num = max(len(wait), 1)
    by_limit = {name: int(time[rows].sum()) // num for name, rows in parts.items()}
    by_limit["step"] = max(int(wait.sum()) // num - sum(by_limit.values()), 0)
    return Waits(
        float(wait.mean()) if len(wait) else 0.0,
        by_limit,
        limit,
        int(full_batch.sum()),
        float(1 - used[full_batch].mean()) if full_batch.any() and service.kv_total else 1.0,
        _is_growing(service),
    )


def _plateau(service: Service) -> int | None:
    largest = int(service.running.max(initial=0))
    queued = service.queued > 0
    if largest <= 0 or not queued.any():
        return None
    at = (service.running[queued] == largest).mean()
    return largest if at >= PLATEAU_SHARE else None


def _is_growing(service: Service) -> bool:
    """Whether the last quarter of the requests waits longer than the second, and that than the first."""
    order = np.argsort(service.arrival, kind="stable")
    wait = (service.started - service.arrival)[order]
    quarters = [float(part.mean()) for part in np.array_split(wait, 4) if len(part)]
    return len(quarters) == 4 and quarters[3] > quarters[1] > quarters[0]
