"""Findings about requests, in one form: mean time a request, its share of the mean latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenpath.core.finding import Evidence, Finding, Kind, Status

MIN_GAIN_SHARE = 0.02
"""A fix that brings less of the mean latency (queued to last token) is not worth a finding."""


@dataclass(frozen=True)
class Latencies:
    """What all claims about the requests of a capture are measured against."""

    mean_ns: float
    """Mean latency of a request, queued to last token."""
    num_requests: int
    """How many there are."""
    status: Status
    """How the numbers of the capture came to be."""
    error: float = 0.1
    """Relative error of the model of the queue on this very capture."""
    share: float = 1.0
    """Of all requests those that a gain is the mean of: the ones of one engine of several."""

    def is_worth(self, gain_ns: float) -> bool:
        """Whether a gain is a finding's worth."""
        return gain_ns * self.share >= MIN_GAIN_SHARE * self.mean_ns > 0


def claim(
    of: Latencies,
    code: str,
    sentence: str,
    gain_ns: float,
    *,
    fix: str,
    falsifier: str,
    evidence: Sequence[Evidence] = (),
    details: Mapping[str, object] | None = None,
    place: Mapping[str, str] | None = None,
    part_of_ns: Mapping[str, float] | None = None,
    confidence: float | None = None,
    effort: str = "setting",
) -> Finding:
    """A finding whose gain was estimated by serving the same requests again without the cause."""
    gain = round(gain_ns * of.share)
    blur = min(max(of.error, 0.05), 0.5)
    return Finding(
        code=code,
        sentence=sentence,
        kind=Kind.COST,
        value=gain / of.mean_ns,
        unit="share of the mean latency",
        duration_ns=gain,
        share=gain / of.mean_ns,
        gain_ns=gain,
        gain_method="estimated",
        gain_interval_ns=(round(gain * (1 - blur)), round(gain * (1 + blur))),
        status=of.status,
        evidence=tuple(evidence),
        falsifier=falsifier,
        fix=fix,
        details={
            "num_requests": of.num_requests,
            "mean_latency_ns": round(of.mean_ns),
            **(details or {}),
        },
        scope="requests",
        place=place or {},
        part_of_ns={name: round(value * of.share) for name, value in (part_of_ns or {}).items()},
        confidence=None if confidence is None else round(min(max(confidence, 0.05), 0.99), 2),
        effort=effort,
    )
