"""Laws of lengths: quantiles, bounds, correlation."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpath.core.errors import UsageError
from tokenpath.simulate.workload.chance import (
    Purpose,
    normal_quantile,
    normal_share,
    stream,
    uniforms,
)
from tokenpath.simulate.workload.length_fit import fit_lengths, fit_pairs
from tokenpath.simulate.workload.lengths import (
    BodyAndTail,
    Fixed,
    LengthLaw,
    Lognormal,
    Pairs,
    Quantiles,
    Sample,
    Table,
    TwoLaws,
    Uniform,
)
from tokenpath.simulate.workload.spec import parse_arrivals, parse_law
from tokenpath.simulate.workload.statistics import mean_ranks, rank_correlation

LAWS: list[LengthLaw] = [
    Fixed(512),
    Uniform(3, 900),
    Uniform.of_nominal(1024),
    Lognormal(500, 1.2),
    Lognormal(500, 1.2, 100, 900),
    BodyAndTail(Lognormal(500, 0.8), 2000, 0.05, 1.3),
    Table((4, 8, 1000), (1.0, 2.0, 0.5)),
    Quantiles((0.0, 0.5, 1.0), (1, 300, 4000)),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.label)
def test_quantiles_ascend_within_bounds(law: LengthLaw) -> None:
    shares = uniforms(np.random.default_rng(0), 5000)
    shares.sort()
    tokens = law.at(shares)
    assert tokens.dtype == np.int64
    assert (np.diff(tokens) >= 0).all()
    assert tokens.min() >= 1
    assert len(law.at(np.empty(0))) == 0


def test_moments_are_those_asked_for() -> None:
    shares = uniforms(np.random.default_rng(1), 400_000)
    assert Uniform(10, 20).at(shares).mean() == pytest.approx(15, abs=0.02)
    assert set(Uniform(10, 12).at(shares).tolist()) == {10, 11, 12}
    tokens = Lognormal.of_mean(1000, 700).at(shares)
    assert tokens.mean() == pytest.approx(1000, rel=0.01)
    assert tokens.std() == pytest.approx(700, rel=0.03)
    tail = BodyAndTail(Lognormal(500, 0.8), 2000, 0.05, 1.3).at(shares)
    assert (tail > 2000).mean() == pytest.approx(0.05, abs=0.002)
    # Pareto: the share above 4000 of those above 2000 is 2 ** -1.3.
    assert (tail > 4000).sum() / (tail > 2000).sum() == pytest.approx(2**-1.3, rel=0.03)
    table = Table((4, 8, 1000), (1.0, 2.0, 1.0)).at(shares)
    assert np.unique(table, return_counts=True)[1] / len(table) == pytest.approx(
        [0.25, 0.5, 0.25], abs=0.005
    )


@given(share=st.floats(1e-15, 1 - 1e-12))
def test_the_normal_quantile_is_python_s(share: float) -> None:
    mine = float(normal_quantile(np.array([share]))[0])
    assert mine == pytest.approx(statistics.NormalDist().inv_cdf(share), abs=1e-9, rel=1e-9)
    assert float(normal_share(np.array([mine]))[0]) == pytest.approx(share, rel=1e-6)


@pytest.mark.parametrize("correlation", [-0.7, 0.0, 0.5, 1.0])
def test_a_copula_ties_ranks_and_leaves_both_laws(correlation: float) -> None:
    law = TwoLaws(Lognormal(500, 1.0), Lognormal(100, 0.5), correlation)
    pairs = law.draw(3, 100_000)
    # Spearman's correlation of a Gaussian copula (Pearson, 1907).
    expected = 6 / np.pi * np.arcsin(correlation / 2)
    assert rank_correlation(pairs.prompt_tokens, pairs.output_tokens) == pytest.approx(
        expected, abs=0.01
    )
    assert np.median(pairs.output_tokens) == pytest.approx(100, rel=0.02)


def test_rows_are_resampled_together() -> None:
    pairs = Pairs(np.array([1, 2, 3]), np.array([10, 20, 30]))
    drawn = pairs.draw(0, 500)
    assert (drawn.output_tokens == 10 * drawn.prompt_tokens).all()
    kept = Sample((1, 2, 3), (10, 20, 30)).draw(0, 500)
    assert np.array_equal(kept.prompt_tokens, drawn.prompt_tokens)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_equal_values_share_their_mean_rank(values: list[int]) -> None:
    ranks = mean_ranks(np.array(values))
    for value, rank in zip(values, ranks, strict=True):
        below = sum(other < value for other in values)
        same = values.count(value)
        assert rank == below + (same - 1) / 2


def test_fits_find_the_law_that_made_the_lengths() -> None:
    rng = stream(5, Purpose.PROMPT)
    tokens = Lognormal(700, 0.9).at(uniforms(rng, 20_000))
    found = fit_lengths(tokens)
    assert found.kind == "lognormal"
    assert isinstance(found.law, Lognormal)
    assert found.law.median == pytest.approx(700, rel=0.03)
    two = np.where(rng.random(20_000) < 0.5, 40, 4000) + rng.integers(0, 10, 20_000)
    assert fit_lengths(two).kind == "quantiles"
    assert fit_lengths(np.full(30, 9)).law == Fixed(9)
    assert fit_lengths(np.array([3, 9])).kind == "quantiles"
    with pytest.raises(UsageError):
        fit_lengths(np.empty(0, np.int64))


def test_dependence_that_no_correlation_shows_is_resampled() -> None:
    rng = np.random.default_rng(2)
    prompt = rng.integers(1, 1000, 5000)
    output = np.where((prompt // 100) % 2 == 0, 10, 500) + rng.integers(0, 50, 5000)
    assert isinstance(fit_pairs(prompt, output).law, Sample)
    free = fit_pairs(prompt, rng.permutation(output))
    assert isinstance(free.law, TwoLaws)


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("512", Fixed(512)),
        ("100:900", Uniform(100, 900)),
        ("nominal:1024", Uniform(819, 1024)),
        ("lognormal:500,1", Lognormal(500, 1)),
        ("tail:500,1,4000,0.02,1.2", BodyAndTail(Lognormal(500, 1), 4000, 0.02, 1.2)),
        ("quantiles:0=1,0.5=300,1=4000", Quantiles((0, 0.5, 1), (1, 300, 4000))),
    ],
)
def test_laws_as_text(text: str, law: LengthLaw) -> None:
    assert parse_law(text) == law


@pytest.mark.parametrize(
    "text",
    ["", "0", "-3", "a", "9:3", "lognormal:5", "lognormal:-5,1", "quantiles:0=1", "tail:1,2,3,4,5",
     "1e400", "lognormal:nan,1", "nominal:0", "quantiles:0=5,1=2", "99999999999999999999"],
)  # fmt: skip
def test_what_is_no_law_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_law(text)


@pytest.mark.parametrize(
    "text",
    ["", "poisson", "poisson:x", "poisson:0", "gamma:4", "mmpp:1x2", "stages:", "diurnal:1,7", "at-once:3"],
)  # fmt: skip
def test_what_is_no_process_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_arrivals(text)


@pytest.mark.parametrize(
    "text",
    ["poisson:4", "gamma:4,2.5", "weibull:4,2", "constant:4", "at-once", "diurnal:4,0.5",
     "diurnal:4,0.5,600", "mmpp:1x60,20x5", "stages:5x600,10x600"],
)  # fmt: skip
def test_processes_as_text(text: str) -> None:
    assert parse_arrivals(text).rate_per_s > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fixed(0),
        lambda: Uniform(0, 3),
        lambda: Lognormal(5, 0),
        lambda: BodyAndTail(Lognormal(5, 1), 10, 1.0, 1),
        lambda: Table((), ()),
        lambda: Table((3, 2), (1, 1)),
        lambda: Table((2, 3), (0, 0)),
        lambda: Quantiles((0.1, 1), (1, 2)),
        lambda: TwoLaws(Fixed(1), Fixed(1), 1.5),
        lambda: Sample((), ()),
        lambda: Sample((0,), (1,)),
        lambda: Pairs(np.empty(0, np.int64), np.empty(0, np.int64)).draw(0, 1),
        lambda: stream(-1, Purpose.PROMPT),
    ],
)
def test_impossible_laws_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        make()
