"""The scheduler: why requests wait, and what steps cost that they need not.

The queue is split by what held the first waiting request back, and each suspect is tried on a model of the queue
that is fitted to the capture (`scheduler_model`): the same requests are served again without it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tokenpath.core.finding import Evidence, Finding
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.analyses.contract import Context, Result
from tokenpath.explain.analyses.replicas import imbalance
from tokenpath.explain.analyses.scheduler_claims import Latencies, claim
from tokenpath.explain.analyses.scheduler_model import UNLIMITED, Model, fit
from tokenpath.explain.analyses.scheduler_padding import padding
from tokenpath.explain.analyses.scheduler_service import Service, services
from tokenpath.explain.analyses.scheduler_waits import Waits, split_queue
from tokenpath.explain.latency import latencies
from tokenpath.explain.serving_findings import general_claims

STABLE_LOAD = 0.7
"""Load at which a service has room: what a fix of overload is compared with."""
OVERLOAD = 0.9
"""From this load on, with KV and batch unlimited, no setting of the engine serves what arrives: batches that grow
without end, as they do in the model there, are more than any engine has."""
USUAL_HOST_NS = 1_000_000
"""Time between the forward passes of two steps that is no loss worth naming: vLLM's processes hand over in about
1 ms where scheduling is synchronous."""
HOST_NS_PER_REQUEST = 10_000
"""What scheduling and output processing of one more request in a step may take beside that: in Python 3 to 10 us."""
ATTAINABLE_HOST_NS = 500_000
"""What is left of it with asynchronous scheduling."""
MIN_LIMITED = 0.5
"""A limit is why requests wait when it held them back for this share of the waiting."""
MIN_CHUNKS = 2.5
"""From so many steps a prompt on, at the median over long prompts, prompts are cut in many."""
WIDE_BUDGET = 8192
"""Tokens a step that are no limit: vLLM's own choice for large devices."""
LONG_PROMPT = 6.0
"""A prompt is long when it is so many times the median one ..."""
MIN_STRETCH = 3.0
"""... and steps with a piece of it are so many times as long as those that only decode."""
MAX_ERROR = 0.5
"""A model that is further off says nothing."""


def analyse(context: Context) -> Result:
    """Overload, limits of the batch, token budget, interference, host time between steps, static batches."""
    all_services = services(context.capture)
    models = [fit(service) for service in all_services]
    fitted = [
        (service, model, abs(model.error()))
        for service, model in zip(all_services, models, strict=True)
        if model is not None
    ]
    found = [_padding(context, *one) for one in fitted]
    known = [one for one, is_static in zip(fitted, found, strict=True) if not is_static]
    known = [one for one in known if one[2] <= MAX_ERROR]
    findings = [finding for finding in found if finding is not None]
    if not known:
        general = general_claims(latencies(context.capture), context.status)
        return Result(findings=findings or general)
    num_requests = sum(len(service.arrival) for service, _, _ in known)
    uneven = imbalance(known, context.status)
    if uneven is not None:
        findings.append(uneven)
    for service, model, error in known:
        mean = sum(one.measured_ns * len(one.arrival) for _, one, _ in known) / num_requests
        share = len(service.arrival) / num_requests
        all_requests = Latencies(mean, num_requests, context.status, error, share)
        waits = split_queue(service)
        queue = (
            _batch_limit(service, model, waits, all_requests),
            _overload(service, model, waits, all_requests),
        )
        parts = (
            *(queue if uneven is None else ()),
            _token_budget(service, model, all_requests),
            _interference(service, model, all_requests),
            _overhead(service, model, all_requests),
        )
        findings += [finding for finding in parts if finding is not None]
    return Result(findings=findings)


def _padding(context: Context, service: Service, model: Model, error: float) -> Finding | None:
    # The model of continuous batching need not fit: that it does not is the point.
    of = Latencies(model.measured_ns, len(service.arrival), context.status, min(error, 0.2))
    return padding(service, model, of)


def _evidence(query: str, num_rows: int) -> tuple[Evidence, ...]:
    return (Evidence("step", (), num_rows, query),)


def _overload(service: Service, model: Model, waits: Waits, of: Latencies) -> Finding | None:
    # Where KV alone is why the load is too high, that is the claim of kv_cache.
    # So is a budget that cuts prompts into steps of their own.
    without_limits = replace(
        model, kv_tokens=UNLIMITED, max_running=UNLIMITED, budget=max(model.budget, WIDE_BUDGET)
    ).load()
    load = model.load()
    if without_limits < OVERLOAD or load < 1 or not waits.is_growing:
        return None
    slower = replace(model, arrival=np.rint(model.arrival * (load / STABLE_LOAD)).astype(np.int64))
    gain = model.gain_ns(slower)
    if not (of.is_worth(gain) and of.is_worth(waits.mean_ns)):
        return None
    return claim(
        of,
        "overload",
        f"requests bring {load:.2f} times the work that this engine can do, and the queue grows as long as they "
        f"arrive: {format_duration(round(waits.mean_ns))} of waiting a request, of a latency of "
        f"{format_duration(round(of.mean_ns))}",
        gain,
        fix=f"{int(np.ceil(load / STABLE_LOAD))} replicas, or a limit on what is admitted; a faster GPU",
        falsifier="at the same rate of arrivals, a run twice as long has no longer queue at its end",
        evidence=_evidence("steps with num_queued > 0", int((service.queued > 0).sum())),
        details={
            "load": load,
            "load_without_limits": without_limits,
            "stable_load": STABLE_LOAD,
            "waited_ns": round(waits.mean_ns),
            "waited_ns_by_limit": waits.by_limit_ns,
        },
        part_of_ns={"queue-wait": waits.mean_ns},
        confidence=0.7 + min(without_limits - OVERLOAD, 0.25),
        effort="hardware",
    )


def _batch_limit(service: Service, model: Model, waits: Waits, of: Latencies) -> Finding | None:
    total = sum(waits.by_limit_ns.values())
    limited = waits.by_limit_ns.get("batch", 0)
    if not total or limited < MIN_LIMITED * total or waits.batch_limit is None:
        return None
    gain = model.gain_ns(replace(model, max_running=UNLIMITED))
    if not of.is_worth(gain):
        return None
    source = "max_num_seqs" if service.max_running else "a limit"
    return claim(
        of,
        "batch-limit",
        f"{source} of {waits.batch_limit} running requests keeps others waiting for "
        f"{format_duration(round(limited))} each, with {format_percent(round(1000 * waits.free_kv), 1000)} of the "
        "KV blocks free and steps that would take more",
        gain,
        fix="raise max_num_seqs (SGLang: max_running_requests), and the sizes of captured graphs with it",
        falsifier="with the limit doubled, requests wait as long and steps take twice the time",
        evidence=_evidence("steps with num_running at the limit", waits.num_limited),
        details={
            "max_running": waits.batch_limit,
            "waited_ns": round(waits.mean_ns),
            "free_kv": waits.free_kv,
            "load": model.load(),
            "load_without_limit": replace(model, max_running=UNLIMITED).load(),
        },
        part_of_ns={"queue-wait": min(gain, waits.mean_ns)},
        confidence=limited / total,
    )


def _token_budget(service: Service, model: Model, of: Latencies) -> Finding | None:
    if service.budget is None:
        return None
    tokens = service.prompt - service.cached
    cut = service.prefill_steps[tokens > service.budget]
    at_budget = (service.prefill_tokens + service.decode_tokens) >= 0.95 * service.budget
    chunks = int(np.median(cut)) if len(cut) else 0
    if chunks < MIN_CHUNKS or len(cut) < 0.1 * len(tokens):
        return None
    wider = max(WIDE_BUDGET, 2 * int(tokens.max()))
    gain = model.gain_ns(replace(model, budget=wider))
    if not of.is_worth(gain):
        return None
    filled = service.decode_tokens[at_budget].mean() / service.budget if at_budget.any() else 0.0
    return claim(
        of,
        "token-budget",
        f"a budget of {service.budget:,} tokens a step cuts {len(cut):,} of {len(tokens):,} prompts into {chunks} "
        f"steps at the median, though decoding takes only {format_percent(round(1000 * filled), 1000)} of the "
        "budget of those",
        gain,
        fix="raise max_num_batched_tokens (SGLang: chunked_prefill_size) to what a step can do in the ITL allowed",
        falsifier="with the budget doubled, prefill takes as long: steps are as slow as their tokens are many",
        evidence=_evidence("steps with as many tokens as the budget", int(at_budget.sum())),
        details={"budget": service.budget, "num_cut": len(cut), "p50_chunks": chunks},
        part_of_ns={},
        confidence=0.9,
    )


def _interference(service: Service, model: Model, of: Latencies) -> Finding | None:
    tokens = service.prompt - service.cached
    usual = float(np.median(tokens))
    # Who misses a prefix that others find has more to compute, but no long prompt.
    long = tokens > LONG_PROMPT * usual
    long &= service.prompt > LONG_PROMPT * float(np.median(service.prompt))
    decodes = service.decode_requests > 0
    alone, mixed = (
        decodes & (service.prefill_tokens == 0),
        service.prefill_tokens > LONG_PROMPT * usual,
    )
    mixed &= decodes
    if not long.any() or not mixed.any() or not alone.any():
        return None
    plain = float(np.median(service.step_ns[alone]))
    slow = float(np.median(service.step_ns[mixed]))
    if slow < MIN_STRETCH * plain:
        return None
    # Elsewhere: their prompts cost nothing here, and they come when they would have been ready to decode.
    order = np.argsort(service.arrival, kind="stable")
    is_long = long[order]
    without = replace(model, prompt=np.where(is_long, 1, model.prompt))
    last = model.run()[1]
    later = without.run()[1]
    others = ~is_long
    scale = of.mean_ns / float((last - model.arrival).mean())
    gain = float((last - later)[others].sum()) / len(last) * scale
    waits = service.decode_requests[mixed] * np.maximum(service.step_ns[mixed] - plain, 0)
    waited = float(waits.sum()) / len(tokens)
    if model.load() >= OVERLOAD:
        # What taking work away does to a queue that grows is a matter of load.
        gain = min(gain, waited)
    if not of.is_worth(gain):
        return None
    return claim(
        of,
        "prefill-interference",
        f"{int(long.sum()):,} prompts of more than {LONG_PROMPT * usual:,.0f} tokens share their steps with decoding "
        f"requests: {int(mixed.sum()):,} steps last {format_duration(round(slow))} at the median instead of "
        f"{format_duration(round(plain))}",
        gain,
        fix="prefill on instances of its own, or a smaller max_num_batched_tokens, which spreads it over more steps",
        falsifier="decode steps without prefill tokens are as long as those with",
        evidence=_evidence("steps with prefill and decode", int(mixed.sum())),
        details={
            "num_long": int(long.sum()),
            "p50_prompt_tokens": usual,
            "p50_step_ns": round(slow),
            "p50_decode_step_ns": round(plain),
            "waited_ns": round(waited),
        },
        confidence=0.8,
        effort="hardware",
    )


def _overhead(service: Service, model: Model, of: Latencies) -> Finding | None:
    used = service.step_requests > 0
    if not used.any() or not service.host_ns.any():
        return None
    # A stall or two are not what every step costs.
    usual = float(np.median(service.host_ns[used]))
    members = HOST_NS_PER_REQUEST * float(np.median(service.step_requests[used]))
    excess = usual - ATTAINABLE_HOST_NS - members
    if usual <= USUAL_HOST_NS + members:
        return None
    cost = model.cost.copy()
    cost[0] = max(cost[0] - excess, 0.0)
    gain = model.gain_ns(replace(model, cost=cost))
    if not of.is_worth(gain):
        return None
    step = float(np.median(service.step_ns[used]))
    return claim(
        of,
        "step-overhead",
        f"{format_duration(round(usual))} of every step of {format_duration(round(step))} go by around the forward "
        "pass at the median: scheduling, handing over, processing of outputs, gaps",
        gain,
        fix="asynchronous scheduling, a core of its own for the engine, several steps a schedule",
        falsifier="steps are as far apart with asynchronous scheduling",
        evidence=_evidence(
            "start_ns .. execute_start_ns, execute_end_ns .. next start_ns", int(used.sum())
        ),
        details={
            "p50_host_ns": round(usual),
            "p50_step_ns": round(step),
            "attainable_host_ns": ATTAINABLE_HOST_NS,
            "p50_schedule_ns": int(np.median(service.steps.schedule_ns[used])),
            "p50_dispatch_ns": int(np.median(service.steps.dispatch_ns[used])),
            "p50_output_ns": int(np.median(service.steps.output_ns[used])),
            "p50_between_ns": int(np.median(service.between_ns[used])),
        },
        confidence=0.9,
        effort="code",
    )
