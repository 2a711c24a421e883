"""Workloads from a few numbers: open loop, closed loop, shared prefixes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenpath.core.errors import UsageError
from tokenpath.simulate.workload.arrivals import (
    MAX_ARRIVALS,
    NS_PER_S,
    ArrivalProcess,
    AtOnce,
    Gamma,
    Poisson,
    check_count,
)
from tokenpath.simulate.workload.chance import Floats, Purpose, stream, uniforms
from tokenpath.simulate.workload.changing_rates import times_until_s
from tokenpath.simulate.workload.content import (
    GRANULE_TOKENS,
    Content,
    id_ranges,
    ids_of_parts,
    nothing_shared,
)
from tokenpath.simulate.workload.lengths import (
    LengthLaw,
    PairLaw,
    Pairs,
    TwoLaws,
    law_of,
)
from tokenpath.simulate.workload.workload import NO_REQUEST, Int64s, Workload

MAX_REQUESTS = MAX_ARRIVALS
MAX_GROUPS = 10_000_000
MAX_POPULARITY = 20.0
MAX_NS = 2**62
"""No moment lies beyond, so that the difference of any two fits an int64."""
Length = int | LengthLaw


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """System prompts: each request begins with one of a few."""

    num_groups: int
    """Different prefixes."""
    tokens: Length
    """Length of a prefix; with a law each group has its own."""
    popularity: float = 0.0
    """How unequal the groups are: the share of the n-th falls as n**-popularity; 0: all alike."""
    granule_tokens: int = GRANULE_TOKENS
    """Tokens of a granule of content."""

    def __post_init__(self) -> None:
        if not (1 <= self.num_groups <= MAX_GROUPS and 0 <= self.popularity <= MAX_POPULARITY):
            raise UsageError(
                f"{self.num_groups} groups of popularity {self.popularity:g}",
                where="shared prefix",
                allowed=f"1 to {MAX_GROUPS:,} groups, popularity 0 to {MAX_POPULARITY:g}",
            )


def open_loop(
    arrivals: ArrivalProcess,
    lengths: PairLaw,
    *,
    num_requests: int | None = None,
    duration_s: float | None = None,
    prefix: SharedPrefix | None = None,
    seed: int = 0,
) -> Workload:
    """Requests that come when the process says, however slow the answers are.

    Give `num_requests` or `duration_s`. The tokens of a `prefix` come on top of those of the prompt.
    """
    times = _draw_arrivals(arrivals, num_requests, duration_s, seed)
    name = f"{arrivals.label}, {len(times):,} requests"
    return _assemble(name, times, lengths.draw(seed, len(times)), prefix, seed, None)


def poisson(
    rate_per_s: float,
    num_requests: int,
    prompt: Length,
    output: Length,
    *,
    prefix: SharedPrefix | None = None,
    seed: int = 0,
) -> Workload:
    """`open_loop` with Poisson arrivals and independent lengths."""
    lengths = TwoLaws(law_of(prompt), law_of(output))
    return open_loop(
        Poisson(rate_per_s), lengths, num_requests=num_requests, prefix=prefix, seed=seed
    )


def gamma(
    rate_per_s: float,
    cv: float,
    num_requests: int,
    prompt: Length,
    output: Length,
    *,
    prefix: SharedPrefix | None = None,
    seed: int = 0,
) -> Workload:
    """`open_loop` with gamma arrivals of the given CV and independent lengths."""
    lengths = TwoLaws(law_of(prompt), law_of(output))
    return open_loop(
        Gamma(rate_per_s, cv), lengths, num_requests=num_requests, prefix=prefix, seed=seed
    )


def all_at_once(
    num_requests: int,
    prompt: Length,
    output: Length,
    *,
    prefix: SharedPrefix | None = None,
    seed: int = 0,
) -> Workload:
    """Every request at time 0: offline throughput."""
    lengths = TwoLaws(law_of(prompt), law_of(output))
    return open_loop(AtOnce(), lengths, num_requests=num_requests, prefix=prefix, seed=seed)


def closed_loop(
    concurrency: int,
    num_requests: int,
    prompt: Length,
    output: Length,
    *,
    prefix: SharedPrefix | None = None,
    seed: int = 0,
) -> Workload:
    """So many requests in flight all the time: the next is sent when one ends."""
    lengths = TwoLaws(law_of(prompt), law_of(output))
    return closed_loop_of(concurrency, num_requests, lengths, prefix=prefix, seed=seed)


def closed_loop_of(
    concurrency: int,
    num_requests: int,
    lengths: PairLaw,
    *,
    prefix: SharedPrefix | None = None,
    seed: int = 0,
) -> Workload:
    """`closed_loop` with any law of pairs."""
    if concurrency < 1:
        raise UsageError(f"{concurrency} in flight", where="concurrency", allowed="from 1 on")
    times = _draw_arrivals(AtOnce(), num_requests, None, seed)
    name = f"closed loop of {concurrency:,}, {num_requests:,} requests"
    return _assemble(name, times, lengths.draw(seed, num_requests), prefix, seed, concurrency)


def of_columns(
    name: str,
    state: str,
    arrival_ns: Int64s,
    pairs: Pairs,
    content: Content | None = None,
    *,
    concurrency: int | None = None,
) -> Workload:
    """A workload of independent requests of priority 0."""
    count = len(arrival_ns)
    content = content or nothing_shared(count)
    return Workload(
        name=name,
        state=state,
        arrival_ns=arrival_ns,
        prompt_tokens=pairs.prompt_tokens,
        output_tokens=pairs.output_tokens,
        priority=np.zeros(count, np.int64),
        after=np.full(count, NO_REQUEST, np.int64),
        think_ns=np.zeros(count, np.int64),
        session=np.arange(count),
        hash_start=content.hash_start,
        hashes=content.hashes,
        hash_granule_tokens=content.granule_tokens,
        concurrency=concurrency,
    )


def whole_ns(times_s: Floats) -> Int64s:
    """Seconds to whole nanoseconds. UsageError for moments beyond MAX_NS, 146 years."""
    if len(times_s) and not float(times_s.max()) * NS_PER_S < MAX_NS:
        raise UsageError(
            f"a moment after {float(times_s.max()):g} s",
            where="workload",
            allowed=f"up to {MAX_NS / NS_PER_S:g} s",
            next_step="choose a higher rate or fewer requests",
        )
    return np.rint(times_s * NS_PER_S).astype(np.int64)


def _draw_arrivals(
    arrivals: ArrivalProcess, num_requests: int | None, duration_s: float | None, seed: int
) -> Int64s:
    if (num_requests is None) == (duration_s is None):
        raise UsageError(
            "neither or both of requests and duration are given",
            where="workload",
            allowed="one of them",
        )
    expected = num_requests if num_requests is not None else arrivals.rate_per_s * (duration_s or 0)
    check_count(expected)
    rng = stream(seed, Purpose.ARRIVAL)
    if duration_s is not None:
        return whole_ns(times_until_s(arrivals, rng, duration_s))
    return whole_ns(arrivals.times_s(rng, int(expected)))


def _assemble(
    name: str,
    arrival_ns: Int64s,
    pairs: Pairs,
    prefix: SharedPrefix | None,
    seed: int,
    concurrency: int | None,
) -> Workload:
    if prefix is None:
        return of_columns(name, "synthetic", arrival_ns, pairs, concurrency=concurrency)
    group = draw_groups(prefix, len(arrival_ns), seed)
    tokens = law_of(prefix.tokens).at(uniforms(stream(seed, Purpose.PREFIX), prefix.num_groups))
    # Only whole granules: what follows within the last one differs.
    granules = tokens // prefix.granule_tokens
    content = ids_of_parts([id_ranges(granules)[group]], [granules[group]], prefix.granule_tokens)
    longer = Pairs(pairs.prompt_tokens + tokens[group], pairs.output_tokens)
    return of_columns(name, "synthetic", arrival_ns, longer, content, concurrency=concurrency)


def draw_groups(prefix: SharedPrefix, count: int, seed: int) -> Int64s:
    """The group of each request."""
    weight = np.arange(1, prefix.num_groups + 1, dtype=np.float64) ** -prefix.popularity
    below = np.cumsum(weight)
    share = uniforms(stream(seed, Purpose.GROUP), count)
    place = np.searchsorted(below, share * below[-1], side="right")
    return np.asarray(np.minimum(place, prefix.num_groups - 1), np.int64)
