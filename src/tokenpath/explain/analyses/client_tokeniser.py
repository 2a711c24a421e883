"""Prompts on their way to the engine: whether the tokeniser holds them up, and what that costs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.core.finding import Evidence, Finding
from tokenpath.core.units import format_duration
from tokenpath.explain.analyses.scheduler_claims import Latencies, claim
from tokenpath.explain.analyses.scheduler_model import fit
from tokenpath.explain.analyses.scheduler_service import services
from tokenpath.explain.latency import SEND, Latency
from tokenpath.explain.moments import UNKNOWN, Requests

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

EXPECTED_TOKEN_NS = 3_000
"""Time to tokenise a token: fast tokenisers do 0.3 to 3 million a second and thread."""
MIN_CORRELATION = 0.3
"""Rank correlation of the way to the engine with the prompt's length from which on the length is why."""
MIN_REQUESTS = 20
"""With fewer no correlation is told."""


def slow_tokeniser(capture: Capture, of: Latencies, ttft: Latency) -> Finding | None:
    """A way to the engine that grows with the prompt.

    One tokeniser works prompts off in turn: what a prompt takes is then the time from its arrival, or from the end of
    the one before it where that is later, to its entry into the engine. In a queue the way itself says nothing of
    the length; with several tokenisers the turns do not. The clearer of the two is believed.
    """
    prompt, arrival = _columns(capture, ttft)
    known = (prompt > 0) & (arrival != UNKNOWN)
    way = ttft.parts_ns[known, SEND]
    if known.sum() < MIN_REQUESTS or np.ptp(prompt[known]) == 0 or np.ptp(way) == 0:
        return None
    x = prompt[known].astype(np.float64)
    turn = _turns(arrival[known], way)
    y = max((way.astype(np.float64), turn), key=lambda times: _correlation(x, times))
    correlation = _correlation(x, y)
    slope = max(float(np.cov(x, y)[0, 1] / np.var(x, ddof=1)), 0.0)
    if correlation < max(MIN_CORRELATION, 2.6 / np.sqrt(len(x))) or slope <= EXPECTED_TOKEN_NS:
        return None
    base = max(float(np.percentile(y - slope * x, 10)), 0.0)
    # What a queue before the tokeniser adds goes with it: only the way of an empty prompt stays.
    saved = np.maximum(way - base - EXPECTED_TOKEN_NS * x, 0.0)
    whole = float(saved.sum()) / len(ttft)
    names = [one for one, is_known in zip(ttft.request_id, known.tolist(), strict=True) if is_known]
    gain = whole - _crowding_ns(capture, dict(zip(names, saved.tolist(), strict=True)), len(ttft))
    if not of.is_worth(gain):
        return None
    return claim(
        of,
        "slow-tokeniser",
        f"prompts take {format_duration(round(float(way.mean())))} from client to engine, and the longer the more: "
        f"{format_duration(round(slope))} a prompt token",
        gain,
        fix="a fast tokeniser, more API server processes or tokeniser threads, token ids instead of text",
        falsifier="prompts sent as token ids take as long",
        evidence=(
            Evidence("request", (), int(known.sum()), "queued_ns - arrival_ns over prompt_tokens"),
        ),
        details={
            "ns_per_token": round(slope),
            "rank_correlation": correlation,
            "mean_way_ns": round(float(way.mean())),
            "is_in_turn": y is turn,
            "lost_to_fuller_steps_ns": round(whole - gain),
        },
        confidence=0.5 + correlation / 2,
    )


def _turns(arrival: Int64s, way: Int64s) -> Float64s:
    """What each prompt takes if they are worked off one after another."""
    order = np.argsort(arrival + way, kind="stable")
    entered = (arrival + way)[order]
    free = np.concatenate(([entered[0] - way[order[0]]], entered[:-1]))
    turn = np.zeros(len(way))
    turn[order] = entered - np.maximum(arrival[order], free)
    return turn


def _crowding_ns(capture: Capture, saved_ns: dict[str, float], num_requests: int) -> float:
    """What requests lose in the engine when they reach it as early as they could: a mean, maybe negative.

    A slow tokeniser spreads bursts, and the engine's steps are emptier for it.
    """
    lost = 0.0
    for service in services(capture):
        model = fit(service)
        if model is None:
            continue
        order = np.argsort(service.arrival, kind="stable")
        shift = np.array([saved_ns.get(service.ids[at], 0.0) for at in order.tolist()])
        sooner = model.moved(-shift)
        lost -= model.gain_ns(sooner) * len(service.arrival)
    return lost / num_requests


def _columns(capture: Capture, ttft: Latency) -> tuple[Int64s, Int64s]:
    """Prompt tokens of each request, and when it was sent."""
    requests = Requests(capture)
    codes, _ = capture.codes("request", "request_id")
    tokens = np.full(len(requests.ids), NO_ID, np.int64)
    np.maximum.at(tokens, codes, capture.int64("request", "prompt_tokens", NO_ID))
    number_of = {name: number for number, name in enumerate(requests.ids)}
    at = np.array([number_of[name] for name in ttft.request_id], np.int64)
    return tokens[at], requests.observers[ttft.observer].arrival[at]


def _correlation(x: Float64s, y: Float64s) -> float:
    return float(np.corrcoef(_ranks(x), _ranks(y))[0, 1]) if np.ptp(y) else 0.0


def _ranks(values: Float64s) -> Float64s:
    """Ranks with ties at their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    result: Float64s = (ends - (counts - 1) / 2)[inverse]
    return result
