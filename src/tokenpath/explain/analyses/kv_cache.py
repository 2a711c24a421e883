"""The KV cache: preemptions and pressure, prefixes that miss or are evicted, waiting for a slower tier."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tokenpath.capture.intervals import Int64s
from tokenpath.core.finding import Evidence, Finding
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.analyses.contract import Context, Result
from tokenpath.explain.analyses.kv_cache_prefix import (
    Prefix,
    avoidable_misses,
    evicted_tokens,
    inferred_prefix,
    shared_prefix,
    uses_tier,
)
from tokenpath.explain.analyses.scheduler_claims import Latencies, claim
from tokenpath.explain.analyses.scheduler_model import UNLIMITED, Model, fit
from tokenpath.explain.analyses.scheduler_service import Service, services
from tokenpath.explain.analyses.scheduler_waits import split_queue

MIN_PREEMPTED = 0.02
"""Preemptions over requests from which on they are a storm and no accident ..."""
MIN_NUM_PREEMPTED = 3
"""... and so many at least."""
MAX_ERROR = 0.5
"""A model of the queue that is further off says nothing."""
LOW_HITS = 0.5
"""Hits over what is shared below which prefixes miss."""
WORKING_CACHE = 0.1
"""From so many requests with a hit on, prefixes are found where they are: who finds none came too late."""
MIN_CORRELATION = 0.4
"""Rank correlation of waiting with cached tokens from which on loading them is why, though no source says so."""


def analyse(context: Context) -> Result:
    """Each cause by a second run of the model of the queue without it."""
    findings: list[Finding] = []
    known = services(context.capture)
    num_requests = sum(len(service.arrival) for service in known)
    prefix = shared_prefix(context.capture) if known else None
    for service in known:
        model = fit(service)
        if model is None:
            continue
        error = abs(model.error())
        share = len(service.arrival) / num_requests
        of = Latencies(model.measured_ns, num_requests, context.status, error, share)
        made = [_load_wait(context, service, model, of)]
        if error <= MAX_ERROR:
            made += [_preemption(service, model, of), _prefix(context, service, model, prefix, of)]
        findings += [finding for finding in made if finding is not None]
    return Result(findings=findings)


def _preemption(service: Service, model: Model, of: Latencies) -> Finding | None:
    num = int(service.preempted.sum())
    if service.kv_tokens is None:
        return None
    gain = model.gain_ns(replace(model, kv_tokens=UNLIMITED))
    if not of.is_worth(gain):
        return None
    waits = split_queue(service)
    waited = {"queue-wait": min(gain, float(waits.by_limit_ns.get("kv", 0)))}
    fix = "more KV blocks (gpu_memory_utilization, FP8 KV, tensor parallelism), or fewer running requests"
    used = float(service.kv_used.mean() / service.kv_total) if service.kv_total else 0.0
    details = {
        "num_preempted": num,
        "recomputed_tokens": int(service.recomputed.sum()),
        "recompute_ns": round(
            float(model.cost[1] * service.recomputed.sum()) / len(service.arrival)
        ),
        "kv_tokens": service.kv_tokens,
        "mean_kv_usage": used,
        "waited_for_kv_ns": int(waits.by_limit_ns.get("kv", 0)),
    }
    evidence = (
        Evidence("step", (), int((service.preempted > 0).sum()), "steps with num_preempted > 0"),
    )
    if num >= max(MIN_NUM_PREEMPTED, MIN_PREEMPTED * len(service.arrival)):
        again = int(service.recomputed.sum())
        return claim(
            of,
            "preemption-storm",
            f"{num:,} preemptions among {len(service.arrival):,} requests: KV for {service.kv_tokens:,} tokens does "
            f"not hold who runs, and {again:,} tokens were computed again",
            gain,
            fix=fix,
            falsifier="with twice the KV blocks as many requests are preempted",
            evidence=evidence,
            details=details,
            part_of_ns=waited,
            confidence=0.9,
        )
    return claim(
        of,
        "kv-pressure",
        f"KV for {service.kv_tokens:,} tokens, {format_percent(round(1000 * used), 1000)} of it in use on average, "
        f"keeps requests waiting for {format_duration(int(waits.by_limit_ns.get('kv', 0)))} each",
        gain,
        fix=fix,
        falsifier="with twice the KV blocks requests wait as long",
        evidence=(
            Evidence(
                "step", (), int((service.queued > 0).sum()), "kv_used_blocks while num_queued > 0"
            ),
        ),
        details=details,
        part_of_ns=waited,
        confidence=0.8,
    )


def _prefix(
    context: Context, service: Service, model: Model, prefix: Prefix | None, of: Latencies
) -> Finding | None:
    # A preempted request stores its own blocks again: that is another loss.
    lost = max(evicted_tokens(context.capture) - int(service.recomputed.sum()), 0)
    total = int(service.prompt.sum())
    hits = int(service.cached.sum())
    evidence = (
        Evidence("request_step", (), len(service.arrival), "num_computed_before of first steps"),
    )
    details: dict[str, object] = {"prompt_tokens": total, "cached_tokens": hits}
    if lost:
        share = min(lost / max(int(model.prompt.sum()), 1), 0.95)
        gain = model.gain_ns(_more_cached(model, np.rint(model.prompt * share).astype(np.int64)))
        return None if not of.is_worth(gain) else claim(
            of,
            "prefix-evicted",
            f"{lost:,} tokens of prefixes were stored again after they had been evicted: "
            f"{format_percent(lost, total)} of all prompt tokens",
            gain,
            fix="more KV blocks or a host tier for them; route requests of one prefix to one engine",
            falsifier="with twice the KV blocks as many blocks are stored again",
            evidence=(Evidence("kv_event", (), lost, "stored, removed, stored again"),),
            details={**details, "evicted_tokens": lost},
            confidence=0.9,
        )  # fmt: skip
    is_stated = prefix is not None
    prefix = prefix or inferred_prefix(service)
    if prefix is None:
        return None
    shared = np.minimum(prefix.tokens, model.prompt + model.cached - 1)
    missed = avoidable_misses(shared, model.cached, prefix.num_prefixes)
    hit_share = float((2 * model.cached >= shared).mean())
    details |= {"shared_tokens": prefix.tokens, "stated_by": prefix.stated_by}
    working_set = prefix.num_prefixes * prefix.tokens
    busy = float(service.kv_used.mean() / service.kv_total) if service.kv_total else 0.0
    if hit_share >= WORKING_CACHE and service.kv_tokens is not None:
        room = (1 - busy) * service.kv_tokens
        gain = model.gain_ns(_more_cached(model, missed))
        return None if working_set <= room or not of.is_worth(gain) else claim(
            of,
            "prefix-evicted",
            f"{prefix.num_prefixes:,} prefixes of {prefix.tokens:,} tokens ({prefix.stated_by}) do not fit into the "
            f"{room:,.0f} tokens of KV that running requests leave: {int((missed > 0).sum()):,} of "
            f"{len(missed):,} requests compute again what had been there",
            gain,
            fix="more KV blocks or a host tier for them; route requests of one prefix to one engine",
            falsifier="with twice the KV blocks as many requests find no prefix",
            evidence=evidence,
            details={**details, "working_set_tokens": working_set, "room_tokens": round(room)},
            confidence=0.85 if is_stated else 0.6,
        )  # fmt: skip
    if not is_stated or missed.sum() <= (1 - LOW_HITS) * shared.sum():
        return None
    gain = model.gain_ns(_more_cached(model, missed))
    return None if not of.is_worth(gain) else claim(
        of,
        "prefix-miss",
        f"requests share {prefix.tokens:,} tokens of prefix ({prefix.stated_by}), and "
        f"{format_percent(hits, total)} of their prompt tokens come from the cache",
        gain,
        fix="switch prefix caching on; keep what changes (time, user, tools) behind what is shared",
        falsifier="the same prompts sent twice hit no more the second time",
        evidence=evidence,
        details=details,
        confidence=0.8,
    )  # fmt: skip


def _more_cached(model: Model, more: Int64s) -> Model:
    more = np.minimum(more, model.prompt - 1)
    return replace(model, prompt=model.prompt - more, cached=model.cached + more)


def _load_wait(context: Context, service: Service, model: Model, of: Latencies) -> Finding | None:
    excess = _waited_with_room(service)
    waited = float(excess.mean()) if len(excess) else 0.0
    # Who need not wait meets fuller steps: what the others' waiting had spared them is no gain.
    order = np.argsort(service.arrival, kind="stable")
    late = model.moved(excess[order].astype(np.float64))
    gain = min(waited, waited - (model.mean_latency_ns() - late.mean_latency_ns()))
    if not of.is_worth(gain):
        return None
    is_stated = uses_tier(context.capture)
    correlation = _correlation(service.cached, excess)
    if not is_stated and correlation < MIN_CORRELATION:
        return None
    loaded = service.cached > 0
    speed = (
        float(service.cached[loaded].sum() / excess[loaded].sum() * 1e9)
        if excess[loaded].any()
        else 0.0
    )
    return claim(
        of,
        "kv-load-wait",
        f"requests wait {format_duration(round(waited))} each though the engine has room for them, the longer the more "
        f"of their prompt comes from a cache: {speed:,.0f} tokens of KV a second",
        gain,
        fix="a faster tier or link; load behind the computation; compute short prefixes again instead",
        falsifier="without the slower tier those requests start as late",
        evidence=(
            Evidence(
                "request",
                (),
                int((excess > 0).sum()),
                "queued_ns .. first step, with room in steps between",
            ),
        ),
        details={
            "mean_wait_ns": round(waited),
            "rank_correlation": correlation,
            "tokens_per_s": speed,
            "is_tier_stated": is_stated,
        },
        part_of_ns={"queue-wait": waited},
        confidence=0.9 if is_stated else 0.6 + correlation / 4,
    )


def _waited_with_room(service: Service) -> Int64s:
    """Time from the first step in which each request could have begun to that in which it did."""
    room = np.ones(len(service.steps), np.bool_)
    if service.max_running:
        room &= service.running < service.max_running
    if service.budget:
        room &= service.prefill_tokens + service.decode_tokens < 0.95 * service.budget
    if service.kv_total:
        room &= service.kv_used < 0.9 * service.kv_total
    starts = service.steps.start[room]
    at = np.searchsorted(starts, service.arrival, "left")
    could = starts[np.minimum(at, len(starts) - 1)] if len(starts) else service.started
    could = np.where(at < len(starts), could, service.started)
    # An engine without any work begins at once.
    previous = np.searchsorted(np.sort(service.started), service.arrival, "left")
    over = np.searchsorted(np.sort(service.finished), service.arrival, "right")
    could = np.where(previous == over, service.arrival, could)
    result: Int64s = np.maximum(service.started - could, 0)
    return result


def _correlation(cached: Int64s, excess: Int64s) -> float:
    if len(cached) < 20 or np.ptp(cached) == 0 or np.ptp(excess) == 0:
        return 0.0
    rank_of = [np.unique(values, return_inverse=True)[1] for values in (cached, excess)]
    return float(np.corrcoef(rank_of[0].astype(np.float64), rank_of[1].astype(np.float64))[0, 1])
