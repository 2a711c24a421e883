"""Arrivals whose rate changes: a table of rates, states that switch at random, stages one after another."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tokenpath.core.errors import UsageError
from tokenpath.simulate.workload.arrivals import (
    ArrivalProcess,
    check_count,
    check_cv,
    check_positive,
    unit_gaps,
)
from tokenpath.simulate.workload.chance import Floats, split

MAX_GROWTH_STEPS = 60


@dataclass(frozen=True, slots=True)
class RateTable:
    """Rates that hold for a while each; within them arrivals as bursty as said.

    Gaps of mean 1 are drawn and stretched by the integral of the rate (time rescaling; for a CV of 1 this is
    the non-homogeneous Poisson process, exactly). ServeGen's windows, and what `fit` writes for load that
    changes over the day.
    """

    edges_s: tuple[float, ...]
    """Where each rate begins, and last where the table ends; ascending from 0 on."""
    rates_per_s: tuple[float, ...]
    """Requests a second between an edge and the next; 0 is allowed."""
    cv: float = 1.0
    """Standard deviation over mean of the stretched gaps; 1 is Poisson."""
    law: str = "gamma"
    """Distribution of the stretched gaps: `gamma` or `weibull`."""
    repeats: bool = False
    """Whether the table begins anew after its end."""

    def __post_init__(self) -> None:
        edges, rates = np.asarray(self.edges_s), np.asarray(self.rates_per_s)
        if len(rates) < 1 or len(edges) != len(rates) + 1 or not (np.diff(edges) > 0).all():
            raise UsageError(
                f"{len(edges)} edges for {len(rates)} rates",
                where="rate table",
                allowed="ascending edges, one more than rates",
            )
        if edges[0] < 0 or not np.isfinite(edges).all() or not (rates >= 0).all():
            raise UsageError(
                "a rate or an edge is below zero", where="rate table", allowed="from 0 on"
            )
        if not np.isfinite(rates).all() or rates.max() <= 0:
            raise UsageError(
                "no finite rate above zero", where="rate table", allowed="at least one"
            )
        check_cv(self.cv)

    @property
    def expected_requests(self) -> float:
        """Requests that one pass through the table brings on average."""
        return float(np.dot(np.diff(self.edges_s), self.rates_per_s))

    @property
    def rate_per_s(self) -> float:
        """Mean requests a second over the table."""
        return self.expected_requests / self.edges_s[-1]

    @property
    def label(self) -> str:
        """The process in a few words."""
        burst = "" if self.cv == 1 else f", {self.law} CV {self.cv:g}"
        return f"{len(self.rates_per_s)} rates, mean {self.rate_per_s:g}/s{burst}"

    def times_s(self, rng: np.random.Generator, num_requests: int, /) -> Floats:
        """Stretched gaps. UsageError where a table that does not repeat ends before."""
        work = np.cumsum(unit_gaps(rng, num_requests, self.law, self.cv))
        total = self.expected_requests
        if not self.repeats and num_requests and work[-1] > total:
            held = int(np.searchsorted(work, total))
            raise UsageError(
                f"the table ends after {held:,} requests",
                where="rate table",
                allowed=f"about {total:,.0f} requests",
                next_step="ask for fewer requests or let the table repeat",
            )
        edges = np.asarray(self.edges_s)
        done = np.concatenate(([0.0], np.cumsum(np.diff(edges) * self.rates_per_s)))
        passes = np.floor(work / total) if self.repeats else np.zeros_like(work)
        return np.asarray(passes * edges[-1] + _when(work - passes * total, edges, done))

    def all_times_s(self, rng: np.random.Generator) -> Floats:
        """All arrivals of one pass through the table."""
        total = self.expected_requests
        check_count(total)
        gaps: list[Floats] = []
        work = 0.0
        spread = max(self.cv, 1.0) * math.sqrt(total) * 4 + 64
        while work <= total:
            gaps.append(unit_gaps(rng, int(total - work + spread), self.law, self.cv))
            work += float(gaps[-1].sum())
        moments = np.cumsum(np.concatenate(gaps))
        edges = np.asarray(self.edges_s)
        done = np.concatenate(([0.0], np.cumsum(np.diff(edges) * self.rates_per_s)))
        return _when(moments[moments <= total], edges, done)


@dataclass(frozen=True, slots=True)
class MarkovModulated:
    """Poisson arrivals whose rate switches at random between states: long bursts and lulls.

    Fischer and Meier-Hellstern, "The Markov-modulated Poisson process (MMPP) cookbook", 1993. Stays are
    exponential; the next state is any other, each as likely.
    """

    rates_per_s: tuple[float, ...]
    """Requests a second in each state; at least two states."""
    mean_stays_s: tuple[float, ...]
    """Mean time in each state."""

    def __post_init__(self) -> None:
        rates, stays = np.asarray(self.rates_per_s), np.asarray(self.mean_stays_s)
        if len(rates) < 2 or len(rates) != len(stays):
            raise UsageError(
                f"{len(rates)} rates and {len(stays)} stays",
                where="states",
                allowed="as many stays as rates, at least two",
            )
        if not (np.isfinite(rates).all() and (rates >= 0).all() and rates.max() > 0):
            raise UsageError("no state brings requests", where="states", allowed="rates from 0 on")
        for stay in self.mean_stays_s:
            check_positive("stay", stay, "seconds")

    @property
    def rate_per_s(self) -> float:
        """Mean requests a second."""
        return float(np.dot(self.rates_per_s, self.mean_stays_s) / sum(self.mean_stays_s))

    @property
    def label(self) -> str:
        """The process in a few words."""
        states = ", ".join(
            f"{rate:g}/s for {stay:g} s"
            for rate, stay in zip(self.rates_per_s, self.mean_stays_s, strict=True)
        )
        return f"markov-modulated {states}"

    def times_s(self, rng: np.random.Generator, num_requests: int, /) -> Floats:
        """Arrivals along a random walk through the states, begun in its stationary distribution."""
        if not num_requests:
            return np.empty(0)
        # Two streams: more states drawn must not move the arrivals within them.
        walk, chance = split(rng, 2)
        work = np.cumsum(chance.standard_exponential(num_requests))
        rates, stays = np.asarray(self.rates_per_s), np.asarray(self.mean_stays_s)
        state = int(walk.choice(len(rates), p=stays / stays.sum()))
        edges, done = [np.zeros(1)], [np.zeros(1)]
        now, reached = 0.0, 0.0
        per_stay = float(np.dot(rates, stays)) / len(rates)
        check_count(num_requests / per_stay if per_stay > 0 else math.inf, "changes of state")
        while reached <= work[-1]:
            count = min(int((work[-1] - reached) / per_stay * 1.1) + 16, 4_000_000)
            jumps = walk.integers(1, len(rates), count)
            states = (state + np.concatenate(([0], np.cumsum(jumps)))) % len(rates)
            stay = walk.standard_exponential(count) * stays[states[:-1]]
            edges.append(now + np.cumsum(stay))
            done.append(reached + np.cumsum(stay * rates[states[:-1]]))
            state, now, reached = int(states[-1]), float(edges[-1][-1]), float(done[-1][-1])
        return _when(work, np.concatenate(edges), np.concatenate(done))


@dataclass(frozen=True, slots=True)
class Pieces:
    """Recorded arrivals, stretch by stretch in random order: bursts and lulls as they were, whatever made them.

    The circular moving-block bootstrap (Politis and Romano, 1992) on the time axis: each stretch begins
    anywhere in the recording, whose end is followed by its begin.
    """

    gaps_us: tuple[int, ...]
    """Microseconds from each recorded arrival to the next, and last from the last one to the recording's end."""
    piece_s: float
    """Length of a stretch."""

    def __post_init__(self) -> None:
        check_positive("piece", self.piece_s, "seconds")
        if not self.gaps_us or min(self.gaps_us) < 0 or not 0 < sum(self.gaps_us) < 2**62:
            raise UsageError("no recording", where="pieces", allowed="gaps from 0 on, some above")
        if self.piece_s > self.span_s:
            raise UsageError(
                f"{self.piece_s:g} s of a recording of {self.span_s:g} s", where="pieces",
                allowed="up to the recording's length",
            )  # fmt: skip

    @classmethod
    def of(cls, times_s: Floats, num_pieces: int) -> Pieces:
        """From arrivals, at least two and not all at once; a stretch is the span over `num_pieces`."""
        at_us = np.rint((times_s - times_s[0]) * 1e6).astype(np.int64)
        end = at_us[-1] + max(int(at_us[-1]) // (len(at_us) - 1), 1)
        return cls(tuple(np.diff(at_us, append=end).tolist()), float(end) / 1e6 / num_pieces)

    @property
    def span_s(self) -> float:
        """Length of the recording."""
        return sum(self.gaps_us) / 1e6

    @property
    def rate_per_s(self) -> float:
        """Recorded arrivals a second."""
        return len(self.gaps_us) / self.span_s

    @property
    def label(self) -> str:
        """The process in a few words."""
        return (
            f"stretches of {self.piece_s:,.0f} s of {len(self.gaps_us):,} recorded arrivals, "
            f"mean {self.rate_per_s:g}/s"
        )

    def times_s(self, rng: np.random.Generator, num_requests: int, /) -> Floats:
        """Arrivals of stretches, one after another."""
        span = self.span_s
        check_count(num_requests / (self.rate_per_s * self.piece_s), "stretches")
        once = np.concatenate(([0.0], np.cumsum(self.gaps_us[:-1]) / 1e6))
        recorded = np.concatenate((once, once + span))
        parts: list[Floats] = []
        num_drawn = num_pieces = 0
        while num_drawn < num_requests:
            missing = (num_requests - num_drawn) / (self.rate_per_s * self.piece_s)
            begin = rng.random(int(missing * 1.1) + 4) * span
            low = np.searchsorted(recorded, begin)
            counts = np.searchsorted(recorded, begin + self.piece_s) - low
            ends = np.cumsum(counts)
            place = np.arange(int(ends[-1])) + np.repeat(low - (ends - counts), counts)
            offset = (num_pieces + np.arange(len(begin))) * self.piece_s - begin
            parts.append(recorded[place] + np.repeat(offset, counts))
            num_drawn += len(place)
            num_pieces += len(begin)
        # Sums of floats may swap neighbours at the seam of two stretches.
        return np.sort(np.concatenate([np.empty(0), *parts]))[:num_requests]


@dataclass(frozen=True, slots=True)
class Stages:
    """One process after another, each for a while: ramps and steps of a benchmark."""

    stages: tuple[tuple[ArrivalProcess, float], ...]
    """Process and seconds for which it runs."""

    def __post_init__(self) -> None:
        if not self.stages:
            raise UsageError("no stage", where="stages", allowed="at least one")
        for _, duration_s in self.stages:
            check_positive("stage", duration_s, "seconds")

    @property
    def rate_per_s(self) -> float:
        """Mean requests a second over the stages."""
        duration_s = sum(duration for _, duration in self.stages)
        return sum(process.rate_per_s * duration for process, duration in self.stages) / duration_s

    @property
    def label(self) -> str:
        """The process in a few words."""
        return ", then ".join(
            f"{process.label} for {duration:g} s" for process, duration in self.stages
        )

    def all_times_s(self, rng: np.random.Generator) -> Floats:
        """Arrivals of all stages."""
        check_count(sum(duration * process.rate_per_s for process, duration in self.stages))
        parts: list[Floats] = []
        now = 0.0
        for (process, duration), chance in zip(
            self.stages, split(rng, len(self.stages)), strict=True
        ):
            parts.append(now + times_until_s(process, chance, duration))
            now += duration
        return np.concatenate(parts)

    def times_s(self, rng: np.random.Generator, num_requests: int, /) -> Floats:
        """The first arrivals of the stages. UsageError where they end before."""
        times = self.all_times_s(rng)
        if len(times) < num_requests:
            raise UsageError(
                f"the stages bring {len(times):,} requests, not {num_requests:,}",
                where="stages",
                allowed=f"up to {len(times):,} requests",
                next_step="ask for fewer requests or make the last stage longer",
            )
        return times[:num_requests]


def times_until_s(process: ArrivalProcess, rng: np.random.Generator, duration_s: float) -> Floats:
    """All arrivals before `duration_s`. UsageError for requests that come all at once."""
    if isinstance(process, Stages) or (isinstance(process, RateTable) and not process.repeats):
        times = process.all_times_s(rng)
        return np.asarray(times[times < duration_s])
    if not math.isfinite(process.rate_per_s):
        raise UsageError(
            "requests at once fill no duration", where="duration", next_step="say how many requests"
        )
    check_count(process.rate_per_s * duration_s)
    state = rng.bit_generator.state
    count = int(process.rate_per_s * duration_s * 1.1) + 64
    for _ in range(MAX_GROWTH_STEPS):
        # The same numbers again: what comes before the end must not depend on how far we looked.
        rng.bit_generator.state = state
        times = process.times_s(rng, count)
        if times[-1] >= duration_s:
            return times[times < duration_s]
        count *= 2
    raise UsageError(f"no end of arrivals within {duration_s:g} s", where="duration")


def _when(work: Floats, edges: Floats, done: Floats) -> Floats:
    """Moments at which the integral of the rate, `done` at each of `edges`, reaches each of `work`."""
    return np.asarray(np.interp(work, done, edges))
