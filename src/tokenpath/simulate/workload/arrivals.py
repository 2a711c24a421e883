"""When requests come: arrival processes, each a few numbers that say what it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tokenpath.core.errors import UsageError
from tokenpath.simulate.workload.chance import Floats

NS_PER_S = 1_000_000_000
DAY_S = 86_400.0
MAX_ARRIVALS = 50_000_000
"""Of one workload; more would not fit into memory with all that belongs to them."""
MIN_CV, MAX_CV = 0.01, 1_000.0
"""Gaps more even than the first are a constant rate; above the second nearly all of them are 0."""


class ArrivalProcess(Protocol):
    """What draws the moments at which requests are sent."""

    @property
    def rate_per_s(self) -> float:
        """Requests a second in the long run; infinite when all come at once."""

    @property
    def label(self) -> str:
        """The process in a few words."""

    def times_s(self, rng: np.random.Generator, num_requests: int, /) -> Floats:
        """The first so many arrivals, ascending, in seconds from 0 on. UsageError if it ends before."""


@dataclass(frozen=True, slots=True)
class AtOnce:
    """All requests at time 0: the offline batch, and load generators with an infinite rate."""

    @property
    def rate_per_s(self) -> float:
        """Infinite."""
        return math.inf

    @property
    def label(self) -> str:
        """The process in a few words."""
        return "all at once"

    def times_s(self, _rng: np.random.Generator, num_requests: int, /) -> Floats:
        """Zeros."""
        return np.zeros(num_requests)


@dataclass(frozen=True, slots=True)
class Constant:
    """One request every 1 / rate seconds, the first at 0."""

    rate_per_s: float
    """Requests a second."""

    def __post_init__(self) -> None:
        check_positive("rate", self.rate_per_s, "requests a second")

    @property
    def label(self) -> str:
        """The process in a few words."""
        return f"constant {self.rate_per_s:g}/s"

    def times_s(self, _rng: np.random.Generator, num_requests: int, /) -> Floats:
        """Multiples of the period."""
        return np.arange(num_requests) / self.rate_per_s


@dataclass(frozen=True, slots=True)
class Poisson:
    """Requests that know nothing of each other."""

    rate_per_s: float
    """Requests a second."""

    def __post_init__(self) -> None:
        check_positive("rate", self.rate_per_s, "requests a second")

    @property
    def label(self) -> str:
        """The process in a few words."""
        return f"poisson {self.rate_per_s:g}/s"

    def times_s(self, rng: np.random.Generator, num_requests: int, /) -> Floats:
        """Sums of exponential gaps."""
        return np.asarray(np.cumsum(rng.standard_exponential(num_requests)) / self.rate_per_s)


@dataclass(frozen=True, slots=True)
class Gamma:
    """Independent gaps of a gamma distribution: bursts above a CV of 1, more even than chance below it."""

    rate_per_s: float
    """Requests a second."""
    cv: float
    """Standard deviation of the gaps over their mean; 1 is Poisson."""

    def __post_init__(self) -> None:
        check_positive("rate", self.rate_per_s, "requests a second")
        check_cv(self.cv)

    @classmethod
    def of_burstiness(cls, rate_per_s: float, burstiness: float) -> Gamma:
        """From the `--burstiness` of `vllm bench serve`, the shape of the gamma distribution: 1 / CV**2."""
        check_positive("burstiness", burstiness, "the shape of a gamma distribution")
        return cls(rate_per_s, 1.0 / math.sqrt(burstiness))

    @property
    def label(self) -> str:
        """The process in a few words."""
        return f"gamma {self.rate_per_s:g}/s, CV {self.cv:g}"

    def times_s(self, rng: np.random.Generator, num_requests: int, /) -> Floats:
        """Sums of gamma gaps."""
        gaps = unit_gaps(rng, num_requests, "gamma", self.cv)
        return np.asarray(np.cumsum(gaps) / self.rate_per_s)


@dataclass(frozen=True, slots=True)
class Weibull:
    """Independent gaps of a Weibull distribution; ServeGen finds it for some clients."""

    rate_per_s: float
    """Requests a second."""
    cv: float
    """Standard deviation of the gaps over their mean; 1 is Poisson."""

    def __post_init__(self) -> None:
        check_positive("rate", self.rate_per_s, "requests a second")
        check_cv(self.cv)

    @property
    def label(self) -> str:
        """The process in a few words."""
        return f"weibull {self.rate_per_s:g}/s, CV {self.cv:g}"

    def times_s(self, rng: np.random.Generator, num_requests: int, /) -> Floats:
        """Sums of Weibull gaps."""
        gaps = unit_gaps(rng, num_requests, "weibull", self.cv)
        return np.asarray(np.cumsum(gaps) / self.rate_per_s)


@dataclass(frozen=True, slots=True)
class Diurnal:
    """Poisson arrivals whose rate swings like a sine over a day (or another period), from the mean on at 0."""

    rate_per_s: float
    """Mean requests a second."""
    swing: float
    """Height of the swing over the mean, 0 to 1: 0.5 goes from half to one and a half times the mean."""
    period_s: float = DAY_S
    """Length of a swing."""
    peak_s: float | None = None
    """When the rate is highest; None: a quarter of the period after 0."""

    def __post_init__(self) -> None:
        check_positive("rate", self.rate_per_s, "requests a second")
        check_positive("period", self.period_s, "seconds")
        if not 0 <= self.swing <= 1:
            raise UsageError(f"{self.swing:g} is no swing", where="swing", allowed="0 to 1")

    @property
    def label(self) -> str:
        """The process in a few words."""
        return f"diurnal {self.rate_per_s:g}/s ±{self.swing:.0%} over {self.period_s:g} s"

    def times_s(self, rng: np.random.Generator, num_requests: int, /) -> Floats:
        """Thinned arrivals of the highest rate (Lewis and Shedler, 1979), exact for any swing."""
        highest = self.rate_per_s * (1 + self.swing)
        peak = self.period_s / 4 if self.peak_s is None else self.peak_s
        kept: list[Floats] = []
        num_kept, now = 0, 0.0
        while num_kept < num_requests:
            count = int((num_requests - num_kept) * (1 + self.swing) * 1.05) + 64
            times = now + np.cumsum(rng.standard_exponential(count)) / highest
            rate = 1 + self.swing * np.cos(2 * math.pi * (times - peak) / self.period_s)
            kept.append(times[rng.random(count) * (1 + self.swing) < rate])
            num_kept += len(kept[-1])
            now = float(times[-1])
        return np.concatenate(kept)[:num_requests] if kept else np.empty(0)


def unit_gaps(rng: np.random.Generator, count: int, law: str, cv: float) -> Floats:
    """Independent gaps of mean 1 with the given CV; `law` is `gamma` or `weibull`."""
    if law == "weibull":
        shape = weibull_shape(cv)
        # The mean of a Weibull distribution of scale 1 is Gamma(1 + 1 / shape).
        return np.asarray(rng.weibull(shape, count) * math.exp(-math.lgamma(1 + 1 / shape)))
    if law != "gamma":
        raise UsageError(f"{law!r} is no law of gaps", where="law", allowed="gamma, weibull")
    return np.asarray(rng.standard_gamma(1.0 / (cv * cv), count) * (cv * cv))


def weibull_shape(cv: float) -> float:
    """Shape of the Weibull distribution with this CV: CV**2 = G(1 + 2/k) / G(1 + 1/k)**2 - 1."""
    low, high = 0.02, 200.0
    for _ in range(80):
        middle = math.sqrt(low * high)
        log_ratio = math.lgamma(1 + 2 / middle) - 2 * math.lgamma(1 + 1 / middle)
        if log_ratio > math.log1p(cv * cv):
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


def check_cv(cv: float) -> None:
    """UsageError unless gaps of this CV can be drawn."""
    if not MIN_CV <= cv <= MAX_CV:
        raise UsageError(
            f"a CV of {cv:g}",
            where="cv",
            allowed=f"{MIN_CV:g} to {MAX_CV:g}",
            next_step="use a constant rate for gaps that do not vary" if cv < MIN_CV else None,
        )


def check_count(expected: float, what: str = "requests") -> None:
    """UsageError for more than a workload may hold, or fewer than none."""
    if not 0 <= expected <= MAX_ARRIVALS:
        raise UsageError(
            f"{expected:,.0f} {what}", where="workload", allowed=f"0 to {MAX_ARRIVALS:,} {what}"
        )


def check_positive(where: str, value: float, what: str) -> None:
    """UsageError unless the value is above zero and finite."""
    if not (math.isfinite(value) and value > 0):
        raise UsageError(
            f"{value:g} is not above zero", where=where, allowed=f"{what}, above 0 and finite"
        )
