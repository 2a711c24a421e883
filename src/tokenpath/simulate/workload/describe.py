"""What a workload is like, in numbers and in one sentence."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from tokenpath.simulate.workload.arrivals import NS_PER_S
from tokenpath.simulate.workload.reuse import ReuseFacts, reuse_facts
from tokenpath.simulate.workload.statistics import (
    ArrivalFacts,
    LengthFacts,
    arrival_facts,
    length_facts,
    rank_correlation,
)
from tokenpath.simulate.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """Sessions with more than one request among them."""

    num_sessions: int
    """Sessions, those of one request included."""
    mean_turns: float
    """Requests of a session."""
    max_turns: int
    """Most requests of a session."""
    share_waiting: float
    """Share of requests that wait for another one's answer."""
    median_think_s: float | None
    """Time from an answer to the next request; None where nothing waits."""


@dataclass(frozen=True, slots=True)
class Description:
    """What a workload is like."""

    name: str
    """The workload's name."""
    state: str
    """`measured`, `estimated` or `synthetic`."""
    num_requests: int
    """Requests."""
    concurrency: int | None
    """Requests in flight at most; None: open loop."""
    arrivals: ArrivalFacts | None
    """Arrivals; None where requests come at once or are too few."""
    prompt: LengthFacts | None
    """Prompt tokens."""
    output: LengthFacts | None
    """Output tokens."""
    length_correlation: float | None
    """Spearman's rank correlation of prompt and output tokens."""
    reuse: ReuseFacts | None
    """Shared content; None where nothing is known of it."""
    sessions: SessionFacts | None
    """Sessions; None where every request is its own."""

    def to_json(self) -> dict[str, object]:
        """JSON types only; every unit in a name."""
        return dataclasses.asdict(self)

    @property
    def sentence(self) -> str:
        """The workload in a sentence or two."""
        if not self.num_requests or self.prompt is None or self.output is None:
            return "The workload holds no request."
        parts = [f"{self.num_requests:,} requests {_pace(self)}"]
        parts.append(
            f"prompts of {self.prompt.quantile_tokens[3]:,} and outputs of "
            f"{self.output.quantile_tokens[3]:,} tokens in the median"
        )
        parts.append(
            "nothing is known of shared content"
            if self.reuse is None
            else f"an infinite prefix cache would find {self.reuse.ideal_hit_ratio:.1%} of the prompt tokens"
        )
        if self.sessions is not None:
            parts.append(
                f"{self.sessions.num_sessions:,} sessions of {self.sessions.mean_turns:.1f} turns on average"
            )
        return "; ".join(parts) + "."


def describe(workload: Workload) -> Description:
    """What a workload is like: rates and burstiness, lengths, sharing, sessions."""
    first = workload.after < 0
    return Description(
        name=workload.name,
        state=workload.state,
        num_requests=workload.num_requests,
        concurrency=workload.concurrency,
        arrivals=None if workload.concurrency else arrival_facts(workload.arrival_ns[first]),
        prompt=length_facts(workload.prompt_tokens),
        output=length_facts(workload.output_tokens),
        length_correlation=rank_correlation(workload.prompt_tokens, workload.output_tokens),
        reuse=reuse_facts(workload),
        sessions=_session_facts(workload),
    )


def _session_facts(workload: Workload) -> SessionFacts | None:
    _, turns = np.unique(workload.session, return_counts=True)
    if not len(turns) or turns.max() == 1:
        return None
    waits = workload.after >= 0
    think = workload.think_ns[waits]
    return SessionFacts(
        num_sessions=len(turns),
        mean_turns=float(turns.mean()),
        max_turns=int(turns.max()),
        share_waiting=float(waits.mean()),
        median_think_s=float(np.median(think)) / NS_PER_S if len(think) else None,
    )


def _pace(found: Description) -> str:
    if found.concurrency is not None:
        return f"in a closed loop of {found.concurrency:,}"
    arrivals = found.arrivals
    if arrivals is None:
        return "at once"
    what = "sessions" if found.sessions and found.sessions.share_waiting else "arrivals"
    index = arrivals.dispersions[-1].index if arrivals.dispersions else arrivals.gap_cv**2
    if index > 2:
        burst = f", {index:,.{0 if index >= 10 else 1}f} times as uneven as chance"
    elif index < 0.5 and arrivals.gap_cv < 0.7:
        burst = ", more even than chance"
    else:
        burst = ", about as uneven as chance"
    scale = arrivals.dispersions[-1].window_s if arrivals.dispersions else None
    over = f" over {scale:g} s" if scale is not None else ""
    return f"in {_span(arrivals.span_s)} ({arrivals.rate_per_s:.3g} {what}/s{burst}{over})"


def _span(seconds: float) -> str:
    for unit, size in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
