"""Between the client and the engine: tokenisation, delivery of tokens, and a client that measures itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.finding import Evidence, Finding
from tokenpath.core.units import format_duration
from tokenpath.explain.analyses.client_server import server_latency_ns
from tokenpath.explain.analyses.client_tokeniser import slow_tokeniser
from tokenpath.explain.analyses.contract import Context, Result
from tokenpath.explain.analyses.scheduler_claims import Latencies, claim
from tokenpath.explain.latency import DELIVERY, SEND, UNRESOLVED, Latency, latencies

EXPECTED_WAY_NS = 5_000_000
"""Time of a request to the engine, and of a token back, that is no loss worth naming: HTTP and two processes."""
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
    # Requests that no other source knows, or on clocks of their own, say nothing of the way.
    resolved = ttft.parts_ns[:, UNRESOLVED] == 0
    if not resolved.any():
        return []
    ttft = _some(ttft, resolved)
    if decode is not None:
        joined = set(ttft.request_id)
        decode = _some(decode, np.array([one in joined for one in decode.request_id]))
    mean = float(ttft.total_ns.mean())
    if decode is not None and len(decode):
        mean += float(decode.total_ns.mean())
    of = Latencies(mean, len(ttft), context.status)
    send = ttft.parts_ns[:, SEND].astype(np.float64)
    # The last token's way: that of the first and what it grew by.
    back = float(ttft.parts_ns[:, DELIVERY].mean())
    if decode is not None and len(decode):
        back += float(decode.parts_ns[:, DELIVERY].mean())
    findings = []
    tokeniser = slow_tokeniser(context.capture, of, ttft)
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


def _some(latency: Latency, rows: NDArray[np.bool_]) -> Latency:
    at = np.flatnonzero(rows)
    return replace(
        latency,
        request_id=[latency.request_id[one] for one in at.tolist()],
        total_ns=latency.total_ns[at],
        parts_ns=latency.parts_ns[at],
        num_output_tokens=latency.num_output_tokens[at],
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
