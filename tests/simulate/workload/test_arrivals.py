"""Laws of arrival processes: rate, spread, order, and the same numbers for the same seed."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpath.core.errors import UsageError
from tokenpath.simulate.workload.arrivals import (
    ArrivalProcess,
    AtOnce,
    Constant,
    Diurnal,
    Gamma,
    Poisson,
    Weibull,
    weibull_shape,
)
from tokenpath.simulate.workload.changing_rates import (
    MarkovModulated,
    RateTable,
    Stages,
    times_until_s,
)

PROCESSES: list[ArrivalProcess] = [
    AtOnce(),
    Constant(4.0),
    Poisson(4.0),
    Gamma(4.0, 2.5),
    Gamma(4.0, 0.4),
    Weibull(4.0, 2.0),
    Diurnal(4.0, 0.7, period_s=300.0),
    MarkovModulated((1.0, 20.0), (30.0, 6.0)),
    MarkovModulated((0.0, 5.0, 50.0), (10.0, 30.0, 1.0)),
    RateTable((0.0, 10.0, 30.0), (9.0, 0.5), cv=2.0, repeats=True),
]


def _draw(process: ArrivalProcess, count: int, seed: int = 1) -> np.ndarray:
    return process.times_s(np.random.default_rng(seed), count)


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.label)
def test_arrivals_ascend_from_zero_and_repeat_with_their_seed(process: ArrivalProcess) -> None:
    times = _draw(process, 5000)
    assert len(times) == 5000
    assert times[0] >= 0
    assert (np.diff(times) >= 0).all()
    assert np.array_equal(times, _draw(process, 5000))
    assert len(_draw(process, 0)) == 0


@pytest.mark.parametrize("process", PROCESSES[1:], ids=lambda process: process.label)
def test_the_rate_is_the_one_asked_for(process: ArrivalProcess) -> None:
    duration = 20_000.0
    counts = [
        len(times_until_s(process, np.random.default_rng(seed), duration)) / duration
        for seed in range(8)
    ]
    spread = np.std(counts, ddof=1) / math.sqrt(len(counts))
    assert abs(np.mean(counts) - process.rate_per_s) < 5 * spread + 1e-3 * process.rate_per_s


@pytest.mark.parametrize(
    "process", [Gamma(3.0, 2.5), Gamma(3.0, 0.3), Weibull(3.0, 2.0), Poisson(3.0)]
)
def test_gaps_have_the_cv_asked_for(process: Gamma | Weibull | Poisson) -> None:
    gaps = np.diff(_draw(process, 200_000))
    expected = process.cv if isinstance(process, Gamma | Weibull) else 1.0
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(expected, rel=0.04)


@given(cv=st.floats(0.05, 12.0))
def test_the_weibull_shape_gives_its_cv_back(cv: float) -> None:
    shape = weibull_shape(cv)
    log_ratio = math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape)
    assert math.sqrt(math.expm1(log_ratio)) == pytest.approx(cv, rel=1e-6)


def test_burstiness_of_vllm_is_the_shape() -> None:
    assert Gamma.of_burstiness(2.0, 0.25).cv == 2.0


def test_a_diurnal_rate_peaks_where_it_should() -> None:
    process = Diurnal(50.0, 0.8, period_s=1000.0, peak_s=250.0)
    phase = _draw(process, 200_000) % 1000.0
    top = ((phase > 200) & (phase < 300)).sum()
    bottom = ((phase > 700) & (phase < 800)).sum()
    # The mean of 1 + 0.8 cos over a tenth of the period around its peak and around its trough.
    mean = math.sin(0.1 * math.pi) / (0.1 * math.pi)
    assert top / bottom == pytest.approx((1 + 0.8 * mean) / (1 - 0.8 * mean), rel=0.05)


def test_markov_modulated_counts_are_as_dispersed_as_theory_says() -> None:
    """Variance over mean of counts in long windows: 1 + 2 (l1 - l2)^2 p1 p2 / (rate (r1 + r2))."""
    process = MarkovModulated((2.0, 20.0), (8.0, 4.0))
    times = times_until_s(process, np.random.default_rng(3), 200_000.0)
    counts = np.bincount((times / 500).astype(int), minlength=400)
    leave = (1 / 8.0, 1 / 4.0)
    p = (leave[1] / sum(leave), leave[0] / sum(leave))
    expected = 1 + 2 * 18.0**2 * p[0] * p[1] / (process.rate_per_s * sum(leave))
    assert counts.var() / counts.mean() == pytest.approx(expected, rel=0.25)


def test_no_arrival_where_the_rate_is_zero() -> None:
    table = RateTable((0.0, 5.0, 10.0, 15.0), (3.0, 0.0, 3.0))
    times = table.all_times_s(np.random.default_rng(0))
    assert not ((times > 5) & (times < 10)).any()
    assert len(times) == pytest.approx(30, abs=20)


def test_a_table_says_when_it_ends_before() -> None:
    with pytest.raises(UsageError, match="ends after"):
        _draw(RateTable((0.0, 10.0), (1.0,)), 1000)
    with pytest.raises(UsageError, match="the stages bring"):
        _draw(Stages(((Poisson(1.0), 10.0),)), 1000)


def test_stages_follow_each_other() -> None:
    stages = Stages(((Constant(2.0), 10.0), (Constant(10.0), 5.0)))
    times = stages.all_times_s(np.random.default_rng(0))
    assert len(times) == 70
    assert (times < 10).sum() == 20
    assert stages.rate_per_s == pytest.approx(70 / 15)


@given(duration=st.floats(0.5, 200.0), seed=st.integers(0, 50))
def test_arrivals_until_a_moment_are_the_first_ones(duration: float, seed: int) -> None:
    process = MarkovModulated((1.0, 9.0), (5.0, 2.0))
    short = times_until_s(process, np.random.default_rng(seed), duration)
    assert (short < duration).all()
    some = process.times_s(np.random.default_rng(seed), len(short) + 1)
    assert some[-1] >= duration


@pytest.mark.parametrize(
    "make",
    [
        lambda: Poisson(0.0),
        lambda: Poisson(-1.0),
        lambda: Poisson(math.nan),
        lambda: Gamma(1.0, 0.0),
        lambda: Gamma(1.0, math.inf),
        lambda: Diurnal(1.0, 1.5),
        lambda: MarkovModulated((1.0,), (1.0,)),
        lambda: MarkovModulated((0.0, 0.0), (1.0, 1.0)),
        lambda: RateTable((0.0, 1.0), (0.0,)),
        lambda: RateTable((0.0, 0.0), (1.0,)),
        lambda: RateTable((0.0, 1.0), (1.0,), law="cauchy").times_s(np.random.default_rng(0), 2),
        lambda: Stages(()),
        lambda: times_until_s(AtOnce(), np.random.default_rng(0), 1.0),
    ],
)
def test_what_is_no_process_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        make()
