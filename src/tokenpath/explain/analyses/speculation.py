"""Speculative decoding: whether the tokens that drafts win are worth the steps they make longer."""

from __future__ import annotations

import numpy as np

from tokenpath.core.finding import Evidence, Finding
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.analyses.contract import Context, Result
from tokenpath.explain.analyses.scheduler_claims import Latencies, claim
from tokenpath.explain.analyses.scheduler_service import Service, services

DRAFT_COST = 0.15
"""What a draft token adds to a decode step where no step without drafts shows it: drafting and checking. Published
draft heads take 5 to 20 % of the target's step for each token (EAGLE, arXiv 2401.15077; Medusa, 2401.10774)."""
MIN_DRAFTS = 100
"""Fewer drafts say nothing about their acceptance."""


def analyse(context: Context) -> Result:
    """One finding an engine whose drafts cost more than they bring."""
    known = services(context.capture)
    num = sum(len(service.arrival) for service in known)
    made = [_loss(context, service, len(service.arrival) / num) for service in known]
    return Result(findings=[finding for finding in made if finding is not None])


def _loss(context: Context, service: Service, share: float) -> Finding | None:
    capture = context.capture
    place = np.full(capture.num_rows("step"), -1, np.int64)
    place[service.steps.row] = np.arange(len(service.steps))
    phases, names = capture.codes("request_step", "phase")
    at = place[capture.ids("request_step", "step_id")]
    is_decode = np.array([name == "decode" for name in names] or [False])[phases] & (at >= 0)
    tokens = capture.int64("request_step", "num_tokens")[is_decode]
    given = capture.int64("request_step", "num_emitted", 0)[is_decode]
    at = at[is_decode]
    drafted = tokens > 1
    drafts = int((tokens - 1)[drafted].sum())
    if drafts < MIN_DRAFTS:
        return None
    accepted = int(np.maximum(given - 1, 0)[drafted].sum())
    per_step = float(given[drafted].mean())
    length = float((tokens - 1)[drafted].mean())
    with_drafts = np.unique(at[drafted])
    pure = service.prefill_tokens == 0
    own = service.steps.end - service.steps.start
    slow = np.median(own[with_drafts][pure[with_drafts]]) if pure[with_drafts].any() else 0.0
    plain = pure & (service.decode_requests > 0)
    plain[with_drafts] = False
    is_measured = int(plain.sum()) >= 10 and slow > 0
    ratio = float(slow / np.median(own[plain])) if is_measured else 1 + DRAFT_COST * length
    # Without drafts a token takes 1 / ratio of the step, and a step gives one.
    decode = float((service.finished - service.first_token).mean())
    latency = float((service.finished - service.arrival).mean())
    gain = decode * (1 - per_step / ratio)
    of = Latencies(latency, len(service.arrival), context.status, 0.3, share)
    if not of.is_worth(gain):
        return None
    by_position = [
        round(float((given[drafted] > number + 1).mean()), 3)
        for number in range(min(round(length), 8))
    ]
    return claim(
        of,
        "speculation-loss",
        f"{format_percent(accepted, drafts)} of {drafts:,} draft tokens are accepted: a step gives {per_step:.2f} "
        f"tokens and takes {ratio:.2f} times as long as one without drafts, {format_duration(round(gain))} a request",
        gain,
        fix="fewer draft tokens, a draft model trained on this traffic, or no speculation at this batch size",
        falsifier="without speculation the time per output token is no shorter",
        evidence=(
            Evidence("request_step", (), int(drafted.sum()), "decode rows with num_tokens > 1"),
        ),
        details={
            "acceptance": accepted / drafts,
            "tokens_per_step": per_step,
            "draft_length": length,
            "acceptance_by_position": by_position,
            "step_ratio": ratio,
            "is_ratio_measured": is_measured,
        },
        confidence=0.9 if is_measured else 0.7,
    )
