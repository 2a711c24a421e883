"""How long prompts and outputs are: laws of one length, and of pairs that keep their correlation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.errors import UsageError
from tokenpath.simulate.workload.arrivals import check_positive
from tokenpath.simulate.workload.chance import (
    Floats,
    Purpose,
    normal_quantile,
    normal_share,
    stream,
    uniforms,
)

Int64s = NDArray[np.int64]

MAX_TOKENS = 1 << 31
"""No single length is above it; a heavy tail is cut there."""


class LengthLaw(Protocol):
    """A distribution of token counts, known by its quantiles."""

    @property
    def label(self) -> str:
        """The law in a few words."""

    def at(self, shares: Floats) -> Int64s:
        """Quantiles: the tokens below which each share, inside (0, 1), of the lengths lies. At least 1."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same."""

    tokens: int
    """Tokens, at least 1."""

    def __post_init__(self) -> None:
        _check_tokens("length", self.tokens)

    @property
    def label(self) -> str:
        """The law in a few words."""
        return f"{self.tokens:,}"

    def at(self, shares: Floats) -> Int64s:
        """The length for every share."""
        return np.full(len(shares), self.tokens, np.int64)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every whole number from `low` to `high`, both included, as likely."""

    low: int
    """Fewest tokens, at least 1."""
    high: int
    """Most tokens."""

    def __post_init__(self) -> None:
        _check_tokens("low", self.low)
        _check_tokens("high", self.high)
        if self.high < self.low:
            raise UsageError(f"{self.low} to {self.high} is no range", where="uniform length")

    @classmethod
    def of_nominal(cls, tokens: int, ratio: float = 0.8) -> Uniform:
        """From `ratio` times the nominal length up to it: InferenceX draws with RANDOM_RANGE_RATIO 0.8."""
        if not 0 < ratio <= 1:
            raise UsageError(f"{ratio:g} is no ratio", where="ratio", allowed="above 0, at most 1")
        return cls(max(1, int(tokens * ratio)), tokens)

    @property
    def label(self) -> str:
        """The law in a few words."""
        return f"{self.low:,} to {self.high:,}"

    def at(self, shares: Floats) -> Int64s:
        """Quantiles."""
        spread = (shares * (self.high - self.low + 1)).astype(np.int64)
        return np.asarray(self.low + np.minimum(spread, self.high - self.low))


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Logarithms are normal; rounded, and cut at both ends."""

    median: float
    """Tokens that half of the lengths stay below."""
    sigma: float
    """Standard deviation of the natural logarithm."""
    low: int = 1
    """Fewest tokens."""
    high: int = MAX_TOKENS
    """Most tokens."""

    def __post_init__(self) -> None:
        check_positive("median", self.median, "tokens")
        check_positive("sigma", self.sigma, "standard deviation of the logarithm")
        _check_tokens("low", self.low)
        _check_tokens("high", self.high)

    @classmethod
    def of_mean(cls, mean: float, std: float, low: int = 1, high: int = MAX_TOKENS) -> Lognormal:
        """From mean and standard deviation of the lengths themselves."""
        check_positive("mean", mean, "tokens")
        check_positive("std", std, "tokens")
        variance = math.log1p((std / mean) ** 2)
        return cls(mean * math.exp(-variance / 2), math.sqrt(variance), low, high)

    @property
    def label(self) -> str:
        """The law in a few words."""
        return f"lognormal, median {self.median:,.0f}, sigma {self.sigma:.3g}"

    def at(self, shares: Floats) -> Int64s:
        """Quantiles."""
        # Beyond exp(40) every length is cut; without the bound a wild sigma overflows.
        log = np.minimum(math.log(self.median) + self.sigma * normal_quantile(shares), 40.0)
        return _whole(np.exp(log), self.low, self.high)


@dataclass(frozen=True, slots=True)
class BodyAndTail:
    """A lognormal body, and above a length a Pareto (power-law) tail. ServeGen finds it in prompt lengths."""

    body: Lognormal
    """Law of the lengths up to `tail_from`."""
    tail_from: float
    """Tokens from which on the tail rules."""
    tail_share: float
    """Share of the lengths in the tail, 0 to 1."""
    tail_index: float
    """Alpha: the share above x falls as x**-alpha. Zipf's law by rank has alpha 1."""
    high: int = MAX_TOKENS
    """Most tokens."""

    def __post_init__(self) -> None:
        check_positive("tail_from", self.tail_from, "tokens")
        check_positive("tail_index", self.tail_index, "a power")
        _check_tokens("high", self.high)
        if not 0 < self.tail_share < 1:
            raise UsageError(
                f"{self.tail_share:g} is no share", where="tail_share", allowed="inside 0 to 1"
            )

    @property
    def label(self) -> str:
        """The law in a few words."""
        return (
            f"{self.body.label}; {self.tail_share:.1%} from {self.tail_from:,.0f} on "
            f"in a tail of power {self.tail_index:.3g}"
        )

    def at(self, shares: Floats) -> Int64s:
        """Quantiles: those of the body below the tail, then those of the tail."""
        body_share = 1 - self.tail_share
        reach = (math.log(self.tail_from) - math.log(self.body.median)) / self.body.sigma
        # The body is cut where the tail begins, so its own shares end there.
        below = float(normal_share(np.array([reach]))[0])
        inner = np.clip(shares / body_share, 0.0, 1.0) * below
        log = math.log(self.body.median) + self.body.sigma * normal_quantile(
            np.clip(inner, 1e-300, 1 - 2.0**-53)
        )
        body = np.minimum(np.exp(np.minimum(log, 40.0)), self.tail_from)
        left = np.clip((1 - shares) / self.tail_share, 2.0**-53, 1.0)
        tail = self.tail_from * left ** (-1 / self.tail_index)
        return _whole(np.where(shares < body_share, body, tail), self.body.low, self.high)


@dataclass(frozen=True, slots=True)
class Table:
    """Lengths with a weight each: an empirical distribution, a histogram."""

    tokens: tuple[int, ...]
    """Lengths, ascending, each at least 1."""
    weights: tuple[float, ...]
    """How often each occurs, in any unit."""

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights)
        if len(self.tokens) != len(weights) or not len(weights) or not (weights >= 0).all():
            raise UsageError(
                f"{len(self.tokens)} lengths and {len(weights)} weights",
                where="table of lengths",
                allowed="as many weights from 0 on as lengths, at least one",
            )
        if not (np.diff(np.asarray(self.tokens)) > 0).all() or not 0 < weights.sum() < math.inf:
            raise UsageError("lengths do not ascend or weigh nothing", where="table of lengths")
        _check_tokens("table of lengths", self.tokens[0])
        _check_tokens("table of lengths", self.tokens[-1])

    @classmethod
    def of_lengths(cls, lengths: Int64s) -> Table:
        """The empirical distribution of measured lengths."""
        tokens, counts = np.unique(lengths, return_counts=True)
        return cls(tuple(tokens.tolist()), tuple(counts.astype(float).tolist()))

    @property
    def label(self) -> str:
        """The law in a few words."""
        median = int(self.at(np.array([0.5]))[0])
        return f"{len(self.tokens):,} lengths, median {median:,}"

    def at(self, shares: Floats) -> Int64s:
        """Quantiles: the smallest length that so many lie at or below."""
        below = np.cumsum(self.weights)
        place = np.searchsorted(below, shares * below[-1], side="left")
        return np.asarray(np.asarray(self.tokens, np.int64)[np.minimum(place, len(below) - 1)])


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Given quantiles, straight lines between them."""

    shares: tuple[float, ...]
    """Ascending, the first 0 and the last 1."""
    tokens: tuple[float, ...]
    """Tokens at each share, not falling, at least 1."""

    def __post_init__(self) -> None:
        shares, tokens = np.asarray(self.shares), np.asarray(self.tokens)
        if len(shares) != len(tokens) or len(shares) < 2 or shares[0] != 0 or shares[-1] != 1:
            raise UsageError(
                "quantiles do not go from 0 to 1",
                where="quantiles",
                allowed="as many lengths as shares; the first share 0, the last 1",
            )
        if not (np.diff(shares) > 0).all() or not (np.diff(tokens) >= 0).all():
            raise UsageError(
                "quantiles fall", where="quantiles", allowed="ascending shares and lengths"
            )
        _check_tokens("quantiles", tokens[0])
        _check_tokens("quantiles", tokens[-1])

    @property
    def label(self) -> str:
        """The law in a few words."""
        median = int(self.at(np.array([0.5]))[0])
        return f"{len(self.shares)} quantiles, median {median:,}"

    def at(self, shares: Floats) -> Int64s:
        """Lengths between the given quantiles, rounded."""
        value = np.interp(shares, self.shares, self.tokens)
        return _whole(np.asarray(value), 1, MAX_TOKENS)


class PairLaw(Protocol):
    """What draws a prompt and an output for each request."""

    @property
    def label(self) -> str:
        """The law in a few words."""

    def draw(self, seed: int, count: int) -> Pairs:
        """So many pairs."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Prompt and output tokens, one pair a request; as a law, it is resampled row by row."""

    prompt_tokens: Int64s
    """Tokens of each prompt."""
    output_tokens: Int64s
    """Tokens of each output."""

    @property
    def label(self) -> str:
        """The law in a few words."""
        return f"resampled from {len(self.prompt_tokens):,} pairs"

    def draw(self, seed: int, count: int) -> Pairs:
        """Rows with replacement, so that long prompts keep their outputs."""
        if not len(self.prompt_tokens):
            raise UsageError("no pair to draw from", where="lengths")
        row = stream(seed, Purpose.PROMPT).integers(0, len(self.prompt_tokens), count)
        return Pairs(self.prompt_tokens[row], self.output_tokens[row])


@dataclass(frozen=True, slots=True)
class Sample:
    """Pairs that a model keeps, resampled row by row: any dependence of outputs on prompts stays."""

    prompt_tokens: tuple[int, ...]
    """Tokens of each prompt, at least 1."""
    output_tokens: tuple[int, ...]
    """Tokens of each output, at least 1."""

    def __post_init__(self) -> None:
        if len(self.prompt_tokens) != len(self.output_tokens) or not self.prompt_tokens:
            raise UsageError("no pairs, or a half one", where="sample of lengths")
        for column in (self.prompt_tokens, self.output_tokens):
            _check_tokens("sample of lengths", min(column))
            _check_tokens("sample of lengths", max(column))

    @property
    def label(self) -> str:
        """The law in a few words."""
        return f"lengths resampled from {len(self.prompt_tokens):,} requests"

    def draw(self, seed: int, count: int) -> Pairs:
        """Rows with replacement."""
        return Pairs(
            np.asarray(self.prompt_tokens, np.int64), np.asarray(self.output_tokens, np.int64)
        ).draw(seed, count)


@dataclass(frozen=True, slots=True)
class TwoLaws:
    """A law for prompts and one for outputs, joined by a Gaussian copula."""

    prompt: LengthLaw
    """Law of the prompts."""
    output: LengthLaw
    """Law of the outputs."""
    correlation: float = 0.0
    """Correlation of the normal scores, -1 to 1; 0: a prompt says nothing about its output."""

    def __post_init__(self) -> None:
        if not -1 <= self.correlation <= 1:
            raise UsageError(
                f"{self.correlation:g} is no correlation", where="correlation", allowed="-1 to 1"
            )

    @property
    def label(self) -> str:
        """The law in a few words."""
        tied = f", correlation {self.correlation:.2f}" if self.correlation else ""
        return f"prompts {self.prompt.label}; outputs {self.output.label}{tied}"

    def draw(self, seed: int, count: int) -> Pairs:
        """Independent draws of each law, or draws whose normal scores are correlated."""
        prompt_share = uniforms(stream(seed, Purpose.PROMPT), count)
        output_share = uniforms(stream(seed, Purpose.OUTPUT), count)
        if self.correlation:
            own = math.sqrt(max(0.0, 1 - self.correlation**2))
            score = self.correlation * normal_quantile(prompt_share)
            score = score + own * normal_quantile(output_share)
            output_share = np.clip(normal_share(score), 2.0**-54, 1 - 2.0**-53)
        return Pairs(self.prompt.at(prompt_share), self.output.at(output_share))


def law_of(length: int | LengthLaw) -> LengthLaw:
    """A number of tokens as a law; a law as it is."""
    return Fixed(length) if isinstance(length, int) else length


def _whole(value: Floats, low: int, high: int) -> Int64s:
    return np.clip(np.rint(value), low, high).astype(np.int64)


def _check_tokens(where: str, tokens: float) -> None:
    if not 1 <= tokens <= MAX_TOKENS:
        raise UsageError(
            f"{tokens:g} tokens", where=where, allowed=f"from 1 to {MAX_TOKENS:,} tokens"
        )
