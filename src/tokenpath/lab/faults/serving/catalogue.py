"""All faults of the serving world, and the service that each needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tokenpath.lab.faults.serving import host, kv, scheduling
from tokenpath.lab.faults.serving.fault import Fault
from tokenpath.lab.serving.plan import Plan
from tokenpath.lab.serving.service import Service, Wish

_OPEN = Wish(is_open=True, sharing=("none", "none", "groups"))
_ONE = Wish(is_open=True, replicas=(1,), sharing=("none", "none", "groups"))
_SHARED = ((0.08, 0.15), (0.25, 0.35), (0.5, 0.6), (0.75, 0.85))
"""Share of a prompt that is shared, by level of kv-prefix-miss."""


def _without_speculation(plan: Plan) -> Plan:
    return replace(plan, speculation=None)


def _equal_lengths(service: Service) -> Service:
    load = replace(service.plan.load, prompt_sigma=0.0, output_sigma=0.0)
    return Service(replace(service.plan, load=load), service.expected)


def _sized_for_overload(service: Service) -> Service:
    """So many may run that more would bring little: the work that grows with them is most of a step."""
    plan, expected = service.plan, service.expected
    work = plan.step.decode_request_ns + plan.step.kv_token_ns * (
        expected.prompt + expected.output / 2
    )
    many = max(expected.running * 2, 2.5 * expected.base_ns / work)
    seqs = max(16, round(many / 16) * 16)
    blocks = seqs * (expected.prompt + expected.output * 0.7) / plan.engine.block_size * 1.3
    engine = replace(
        plan.engine,
        max_num_seqs=seqs,
        num_blocks=max(plan.engine.num_blocks, int(blocks) + 512),
        max_num_batched_tokens=max(2048, seqs),
    )
    return Service(replace(plan, engine=engine), expected)


def _roomy(service: Service) -> Service:
    """Blocks for long prompts beside all others, so that nothing but their steps disturbs."""
    engine = service.plan.engine
    blocks = engine.num_blocks * 3 + 12 * engine.max_model_len // engine.block_size
    return Service(
        replace(service.plan, engine=replace(engine, num_blocks=blocks)), service.expected
    )


FAULTS: Mapping[str, Fault] = {
    fault.kind: fault
    for fault in (
        Fault("host-slow-tokeniser", host.slow_tokeniser, _OPEN),
        Fault("host-slow-detokeniser", host.slow_detokeniser, _OPEN),
        Fault("host-step-overhead", host.step_overhead, replace(_OPEN, utilisation=(0.35, 0.55))),
        Fault(
            "scheduler-prefill-interference",
            scheduling.prefill_interference,
            replace(
                _ONE, utilisation=(0.35, 0.45), prompt=(150, 350), output=(80, 140), sharing=("none",),
                budget_over_need=14,
            ),
            prepare=_roomy,
        ),
        Fault("scheduler-batch-limit", scheduling.batch_limit, replace(_ONE, utilisation=(0.3, 0.45), prompt=(150, 400))),
        Fault("scheduler-overload", scheduling.overload, replace(_ONE, sharing=("none",), prompt=(300, 800), output=(25, 50)), prepare=_sized_for_overload),
        Fault(
            "scheduler-token-budget", scheduling.token_budget,
            replace(_ONE, utilisation=(0.4, 0.5), prompt=(700, 1500), output=(50, 90), sharing=("none",), seqs_over_need=1.8),
        ),
        Fault(
            "scheduler-padding", scheduling.padding,
            replace(_ONE, utilisation=(0.35, 0.5), is_static=True, sharing=("none",)), prepare=_equal_lengths,
        ),
        Fault(
            "scheduler-speculation", scheduling.speculation,
            replace(_ONE, utilisation=(0.2, 0.35), is_speculating=True, seqs_over_need=6, sharing=("none",)), prepare=_roomy, without=_without_speculation,
        ),
        Fault("scheduler-dp-imbalance", scheduling.dp_imbalance, replace(_OPEN, utilisation=(0.35, 0.5), replicas=(2, 2, 3, 4))),
        Fault(
            "kv-preemption", kv.preemption,
            replace(_ONE, utilisation=(0.4, 0.6), prompt=(100, 250), output=(90, 160), sharing=("none",)),
        ),
        Fault("kv-prefix-miss", kv.prefix_miss, replace(_ONE, utilisation=(0.3, 0.45), sharing=("groups",))),
        Fault(
            "kv-prefix-evicted", kv.prefix_evicted,
            replace(_ONE, utilisation=(0.12, 0.2), prompt=(60, 150), output=(15, 30), sharing=("groups",), groups=(80, 120), prefix=(600, 1200), seqs_over_need=10),
        ),
        Fault("kv-slow-tier", kv.slow_tier, replace(_ONE, has_tier=True, sharing=("none",), prompt=(150, 400))),
        Fault("bench-client-bound", host.client_bound, _OPEN),
    )
}  # fmt: skip
"""By kind."""

FREE = ("host-slow-tokeniser", "host-slow-detokeniser", "bench-client-bound", "host-step-overhead")
"""Faults that need nothing special of a service, so that they go with any other; each pair has one of them."""


def wish_for(kinds: tuple[str, ...], levels: tuple[int, ...]) -> Wish:
    """The service for one fault, or for the more demanding of two."""
    if not kinds:
        return Wish()
    first = leading(kinds)
    wish = FAULTS[first].wish
    if first == "kv-prefix-miss":
        low, high = _SHARED[levels[kinds.index(first)]]
        # Own part and prefix give that share of a prompt; longer prompts where more is shared.
        own = 500 * (1 - (low + high) / 2) + 60
        prefix = tuple(own * s / (1 - s) for s in (low, high))
        wish = replace(wish, prompt=(own * 0.95, own * 1.05), prefix=(prefix[0], prefix[1]))
    return wish


def leading(kinds: tuple[str, ...]) -> str:
    """The fault whose service it is."""
    special = [kind for kind in kinds if kind not in FREE]
    return special[0] if special else kinds[0]


def goes_together(one: str, other: str) -> bool:
    """Whether two faults can be in one service and stay what they are."""
    return one != other and (one in FREE or other in FREE)
