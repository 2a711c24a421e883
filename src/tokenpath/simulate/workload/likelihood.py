"""How likely arrivals are under a process, gap by gap, and the parameters that make them likeliest."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.simulate.workload.chance import Floats

MIN_GAP_S = 1e-6
"""Smaller gaps count as this: the density of bursty laws is infinite at 0, and no clock here is finer."""
MAX_EXPONENT = 700.0
LOWEST_SCORE = -1e6
"""Log density below which one gap says no more against a process."""
NUM_EM_STEPS = 40
MAX_BINS = 20_000
MEAN_PER_BIN = 2.0


@dataclass(frozen=True, slots=True)
class Blocks:
    """Arrivals cut into equal stretches of time; a row of `gaps_s` each, filled up with NaN."""

    width_s: float
    """Length of a block."""
    num_arrivals: NDArray[np.int64]
    """Arrivals in each block."""
    gaps_s: Floats
    """[blocks, most gaps]: time to the next arrival within the block."""
    times_s: Floats
    """All arrivals, from 0 on."""

    @classmethod
    def of(cls, times_s: Floats, num_blocks: int, max_gaps: int) -> Blocks:
        """Cut the span into blocks, and keep the first so many gaps of each."""
        times = times_s - times_s[0]
        width = float(times[-1]) / num_blocks * (1 + 1e-12)
        owner = np.minimum((times / width).astype(np.int64), num_blocks - 1)
        counts = np.bincount(owner, minlength=num_blocks)
        first = np.cumsum(counts) - counts
        most = int(min(max(counts.max() - 1, 1), max_gaps))
        gaps = np.full((num_blocks, most), np.nan)
        for block in range(num_blocks):
            own = np.diff(times[first[block] : first[block] + min(counts[block], most + 1)])
            gaps[block, : len(own)] = np.maximum(own, MIN_GAP_S)
        return cls(width, counts, gaps, times)

    @property
    def rates_per_s(self) -> Floats:
        """Arrivals a second in each block."""
        return np.asarray(self.num_arrivals / self.width_s)


@dataclass(frozen=True, slots=True)
class TwoStates:
    """A Markov-modulated Poisson process of two states."""

    rates_per_s: tuple[float, float]
    """Rate in each state."""
    stays_s: tuple[float, float]
    """Mean stay in each."""


def gamma_shape(gaps: Floats) -> float:
    """Likeliest shape of a gamma distribution (Minka, "Estimating a gamma distribution", 2002)."""
    spread = math.log(float(gaps.mean())) - float(np.log(gaps).mean())
    if spread < 1e-9:
        return 1e8
    shape = (3 - spread + math.sqrt((spread - 3) ** 2 + 24 * spread)) / (12 * spread)
    for _ in range(30):
        step = (math.log(shape) - digamma(shape) - spread) / (1 / shape - trigamma(shape))
        shape = max(shape - step, shape / 2)
        if abs(step) < 1e-10 * shape:
            break
    return shape


def weibull_shape_of(gaps: Floats) -> float:
    """Likeliest shape of a Weibull distribution."""
    log = np.log(gaps / gaps.max())
    mean_log = float(log.mean())
    low, high = 0.02, 200.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        weight = np.exp(middle * log)
        if float((weight * log).sum() / weight.sum()) - 1 / middle > mean_log:
            high = middle
        else:
            low = middle
    return math.sqrt(low * high)


def log_density(gaps: Floats, law: str, shape: float) -> Floats:
    """Logarithm of the density of gaps whose law has mean 1; `law` is `poisson`, `gamma` or `weibull`."""
    if law == "poisson":
        return np.asarray(-gaps)
    log = np.log(gaps)
    if law == "gamma":
        # Mean 1: the rate of the gamma distribution is its shape.
        constant = shape * math.log(shape) - math.lgamma(shape)
        return np.asarray(constant + (shape - 1) * log - shape * gaps)
    log_scale = -math.lgamma(1 + 1 / shape)
    reduced = log - log_scale
    return np.asarray(
        math.log(shape)
        - log_scale
        + (shape - 1) * reduced
        - np.exp(np.minimum(shape * reduced, MAX_EXPONENT))
    )


def renewal_scores(gaps: Floats, rates: Floats, law: str, shape: float) -> Floats:
    """Log density of each gap [blocks, gaps] where each block has its rate; NaN where there is no gap."""
    rate = rates[:, None]
    found = np.log(rate) + log_density(gaps * rate, law, shape)
    return np.asarray(np.maximum(found, LOWEST_SCORE))


def two_state_scores(gaps: Floats, states: TwoStates) -> Floats:
    """Log density of each gap [blocks, gaps] given those before it in its block, by the forward filter.

    Fischer and Meier-Hellstern, 1993, section 2: a gap's density matrix is exp((Q - L) gap) L.
    """
    (rate_1, rate_2), (stay_1, stay_2) = states.rates_per_s, states.stays_s
    leave_1, leave_2 = 1 / stay_1, 1 / stay_2
    top, bottom = -leave_1 - rate_1, -leave_2 - rate_2
    middle = (top + bottom) / 2
    half = math.sqrt(((top - bottom) / 2) ** 2 + leave_1 * leave_2)
    scores = np.full_like(gaps, np.nan)
    share = stay_1 / (stay_1 + stay_2)
    at_arrival = share * rate_1 / (share * rate_1 + (1 - share) * rate_2)
    first = np.full(len(gaps), at_arrival)
    for column in range(gaps.shape[1]):
        gap = gaps[:, column]
        # exp(A g) = e^(m g) (cosh(s g) I + sinh(s g) / s (A - m I)), both signs of s kept from overflow.
        slow, fast = np.exp((middle + half) * gap), np.exp((middle - half) * gap)
        even, odd = (slow + fast) / 2, (slow - fast) / (2 * half)
        second = 1 - first
        to_first = (first * (even + odd * (top - middle)) + second * odd * leave_2) * rate_1
        to_second = (first * odd * leave_1 + second * (even + odd * (bottom - middle))) * rate_2
        total = to_first + to_second
        scores[:, column] = np.log(np.maximum(total, 1e-300))
        first = np.where(np.isnan(total), first, to_first / np.maximum(total, 1e-300))
    return scores


def fit_two_states(blocks: Blocks, chosen: NDArray[np.bool_]) -> TwoStates | None:
    """Likeliest two states of the chosen blocks, by expectation-maximisation on counts in short bins.

    Rabiner, "A tutorial on hidden Markov models", 1989. None where the two states do not differ.
    """
    rate = float(blocks.num_arrivals[chosen].sum()) / (blocks.width_s * chosen.sum())
    per_block = int(np.clip(blocks.width_s * rate / MEAN_PER_BIN, 4, MAX_BINS // len(chosen)))
    bin_s = blocks.width_s / per_block
    place = np.minimum((blocks.times_s / bin_s).astype(np.int64), len(chosen) * per_block - 1)
    counts = np.bincount(place, minlength=len(chosen) * per_block).reshape(len(chosen), per_block)
    observed = counts[chosen].astype(np.float64)
    means = np.array([0.5, 1.6]) * max(float(observed.mean()), 1e-9)
    stay = np.array([0.95, 0.95])
    begin = np.array([0.5, 0.5])
    for _ in range(NUM_EM_STEPS):
        means, stay, begin = _em_step(observed, means, stay, begin)
    if not (means.min() > 0 and means.max() > 1.1 * means.min() and stay.min() > 0.5):
        return None
    stays = bin_s / np.maximum(1 - stay, 1e-9)
    if stays.min() > blocks.width_s * len(chosen):
        return None
    return TwoStates(
        (float(means[0] / bin_s), float(means[1] / bin_s)), (float(stays[0]), float(stays[1]))
    )


def _em_step(
    counts: Floats, means: Floats, stay: Floats, begin: Floats
) -> tuple[Floats, Floats, Floats]:
    num_bins = counts.shape[1]
    log_chance = counts[:, :, None] * np.log(means) - means
    chance = np.exp(log_chance - log_chance.max(axis=2, keepdims=True))
    move = np.array([[stay[0], 1 - stay[0]], [1 - stay[1], stay[1]]])
    forward = np.empty_like(chance)
    state = begin * chance[:, 0]
    forward[:, 0] = state / state.sum(axis=1, keepdims=True)
    for bin_ in range(1, num_bins):
        state = (forward[:, bin_ - 1] @ move) * chance[:, bin_]
        forward[:, bin_] = state / state.sum(axis=1, keepdims=True)
    behind = np.ones((len(counts), 2))
    after = np.empty_like(chance)
    after[:, -1] = behind
    for bin_ in range(num_bins - 1, 0, -1):
        behind = (behind * chance[:, bin_]) @ move.T
        behind /= behind.sum(axis=1, keepdims=True)
        after[:, bin_ - 1] = behind
    posterior = forward * after
    posterior /= posterior.sum(axis=2, keepdims=True)
    pair = forward[:, :-1, :, None] * move * (chance[:, 1:] * after[:, 1:])[:, :, None, :]
    pair /= pair.sum(axis=(2, 3), keepdims=True)
    jumps = pair.sum(axis=(0, 1))
    weight = posterior.sum(axis=(0, 1))
    new_means = (posterior * counts[:, :, None]).sum(axis=(0, 1)) / np.maximum(weight, 1e-12)
    new_stay = np.diag(jumps) / np.maximum(jumps.sum(axis=1), 1e-12)
    return (
        np.maximum(new_means, 1e-9),
        np.clip(new_stay, 1e-6, 1 - 1e-9),
        np.asarray(posterior[:, 0].mean(axis=0)),
    )


def digamma(x: float) -> float:
    """Derivative of the logarithm of the gamma function (asymptotic series, DLMF 5.11.2)."""
    result = 0.0
    while x < 8:
        result -= 1 / x
        x += 1
    y = 1 / (x * x)
    return result + math.log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y / 240)))


def trigamma(x: float) -> float:
    """Derivative of `digamma` (DLMF 5.15.8)."""
    result = 0.0
    while x < 8:
        result += 1 / (x * x)
        x += 1
    y = 1 / (x * x)
    return result + 1 / x + y / 2 + y / x * (1 / 6 - y * (1 / 30 - y * (1 / 42 - y / 30)))
