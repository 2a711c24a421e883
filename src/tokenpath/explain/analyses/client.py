"""Between the client and the engine: tokenisation, delivery of tokens, and a client that measures itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.core.finding import Evidence, Finding
from tokenpath.core.units import format_duration
from tokenpath.explain.analyses.client_server import server_latency_ns
from tokenpath.explain.analyses.contract import Context, Result
from tokenpath.explain.analyses.scheduler_claims import Latencies, claim
from tokenpath.explain.latency import DELIVERY, SEND, Latency, latencies
from tokenpath.explain.moments import Requests

Int64s = NDArray[np.int64]

EXPECTED_WAY_NS = 5_000_000
"""Time of a request to the engine, and of a token back, that is no loss worth naming: HTTP and two processes."""
EXPECTED_TOKEN_NS = 3_000
"""Time to tokenise a token: fast tokenisers do 0.3 to 3 million a second and thread."""
MIN_CORRELATION = 0.3
"""Rank correlation of the way to the engine with the prompt's length from which on the length is why."""
MIN_REQUESTS = 20
"""With fewer no correlation is told."""
CLIENT_SHARE = 0.5
"""The client is why when so much of the way lies outside what the server saw."""


def analyse(context: Context) -> Result:
    """Slow tokeniser, slow delivery, or a client that is late itself."""
    found = latencies(context.capture)
    outer = [one for one in found if one.observer in ("client", "gateway")]
    ttft = next((one for one in outer if one.kind == "ttft"), None)
    if ttft is None:
        return Result()
    decode = next(
        (one for one in outer if (one.kind, one.observer) == ("decode", ttft.observer)), None
    )
    return Result(findings=_findings(context, ttft, decode))


def _findings(context: Context, ttft: Latency, decode: Latency | None) -> list[Finding]:
    mean = float(ttft.total_ns.mean()) + (0.0 if decode is None else float(decode.total_ns.mean()))
    of = Latencies(mean, len(ttft), context.status)
    send = ttft.parts_ns[:, SEND].astype(np.float64)
    # The last token's way: that of the first and what it grew by.
    back = float(ttft.parts_ns[:, DELIVERY].mean())
    if decode is not None:
        back += float(decode.parts_ns[:, DELIVERY].mean())
    findings = []
    tokeniser = _tokeniser(context.capture, of, ttft, send)
    if tokeniser is not None:
        findings.append(tokeniser)
    forth = 0.0 if tokeniser is not None else max(float(send.mean()) - EXPECTED_WAY_NS, 0.0)
    back = max(back - EXPECTED_WAY_NS, 0.0)
    # Where the server states how long requests took it, the rest of the way is the client's.
    server = server_latency_ns(context.capture, ttft.request_id)
    outside = None if server is None else mean - server
    if (
        outside is not None
        and outside > CLIENT_SHARE * (forth + back)
        and of.is_worth(gain := min(outside, forth + back))
    ):
        findings.append(_client_bound(of, ttft, gain, outside))
    elif of.is_worth(forth + back):
        findings.append(_delivery(of, ttft, forth, back, known=server is not None))
    return findings


def _tokeniser(
    capture: Capture, of: Latencies, ttft: Latency, send: NDArray[np.float64]
) -> Finding | None:
    prompt = _prompt_tokens(capture, ttft)
    known = prompt > 0
    if known.sum() < MIN_REQUESTS or np.ptp(prompt[known]) == 0:
        return None
    x, y = prompt[known].astype(np.float64), send[known]
    correlation = float(np.corrcoef(_ranks(x), _ranks(y))[0, 1]) if np.ptp(y) else 0.0
    slope = max(float(np.cov(x, y)[0, 1] / np.var(x, ddof=1)), 0.0)
    base = float(np.percentile(y - slope * x, 10))
    gain = float(y.mean()) - max(base, 0.0) - EXPECTED_TOKEN_NS * float(x.mean())
    if correlation < max(MIN_CORRELATION, 2.6 / np.sqrt(len(x))) or not of.is_worth(gain):
        return None
    # What a queue before the tokeniser adds goes with it: only the way of an empty prompt stays.
    return claim(
        of,
        "slow-tokeniser",
        f"prompts take {format_duration(round(float(y.mean())))} from client to engine, and the longer the more: "
        f"{format_duration(round(slope))} a prompt token",
        gain,
        fix="a fast tokeniser, more API server processes or tokeniser threads, token ids instead of text",
        falsifier="prompts sent as token ids take as long",
        evidence=(
            Evidence("request", (), int(known.sum()), "queued_ns - arrival_ns over prompt_tokens"),
        ),
        details={"ns_per_token": round(slope), "rank_correlation": correlation},
        confidence=0.5 + correlation / 2,
    )


def _client_bound(of: Latencies, ttft: Latency, gain: float, outside: float) -> Finding:
    return claim(
        of,
        "client-bound",
        f"{format_duration(round(outside))} of a request's {format_duration(round(of.mean_ns))} lie outside what the "
        "server saw: the load generator measures itself",
        gain,
        fix="more processes for the load generator, on a host of its own; less work a token in it",
        falsifier="two load generators with half the rate each see the same latency",
        evidence=(Evidence("request", (), len(ttft), "client's times against the server's"),),
        details={"outside_ns": round(outside)},
        confidence=0.8,
    )


def _delivery(of: Latencies, ttft: Latency, forth: float, back: float, *, known: bool) -> Finding:
    return claim(
        of,
        "slow-delivery",
        f"tokens reach the client {format_duration(round(back))} and requests the engine "
        f"{format_duration(round(forth))} later than a short way takes, of {format_duration(round(of.mean_ns))}: "
        "network, API server, detokenisation",
        forth + back,
        fix="more API server processes, a core of their own for them, fewer hops",
        falsifier="a client on the engine's own host sees the same",
        evidence=(Evidence("request", (), len(ttft), "client's tokens against ends of steps"),),
        details={"send_excess_ns": round(forth), "delivery_excess_ns": round(back)},
        confidence=0.8 if known else 0.6,
    )


def _prompt_tokens(capture: Capture, ttft: Latency) -> Int64s:
    requests = Requests(capture)
    codes, _ = capture.codes("request", "request_id")
    tokens = np.full(len(requests.ids), NO_ID, np.int64)
    np.maximum.at(tokens, codes, capture.int64("request", "prompt_tokens", NO_ID))
    number_of = {name: number for number, name in enumerate(requests.ids)}
    result: Int64s = tokens[[number_of[name] for name in ttft.request_id]]
    return result


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks with ties at their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    result: NDArray[np.float64] = (ends - (counts - 1) / 2)[inverse]
    return result
