"""Fits: the process that made the arrivals is found, models survive their file, what is drawn is alike."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpath.core.errors import DamagedInput, UsageError
from tokenpath.simulate.workload import generate
from tokenpath.simulate.workload.arrival_fit import fit_arrivals
from tokenpath.simulate.workload.arrivals import (
    ArrivalProcess,
    AtOnce,
    Constant,
    Diurnal,
    Gamma,
    Poisson,
    Weibull,
)
from tokenpath.simulate.workload.chains import Reuse, fit_reuse, grow
from tokenpath.simulate.workload.changing_rates import MarkovModulated, Pieces, RateTable
from tokenpath.simulate.workload.content import ids_of_parts
from tokenpath.simulate.workload.describe import describe
from tokenpath.simulate.workload.fit import fit
from tokenpath.simulate.workload.generate import SharedPrefix, open_loop
from tokenpath.simulate.workload.lengths import Fixed, Lognormal, TwoLaws, Uniform
from tokenpath.simulate.workload.likelihood import digamma, trigamma
from tokenpath.simulate.workload.model import WorkloadModel, from_json
from tokenpath.simulate.workload.reuse import matches
from tokenpath.simulate.workload.sessions import Sessions, sessions

ONE = TwoLaws(Fixed(1), Fixed(1))


def _fit(process: ArrivalProcess, count: int = 6000, seed: int = 2) -> ArrivalProcess:
    return fit_arrivals(open_loop(process, ONE, num_requests=count, seed=seed).arrival_ns).process


def test_poisson_is_found() -> None:
    found = _fit(Poisson(4.0))
    assert isinstance(found, Poisson)
    assert found.rate_per_s == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize("cv", [0.5, 2.5])
def test_gamma_is_found(cv: float) -> None:
    found = _fit(Gamma(4.0, cv))
    assert isinstance(found, Gamma)
    assert found.cv == pytest.approx(cv, rel=0.12)


def test_weibull_is_found() -> None:
    found = _fit(Weibull(4.0, 3.0))
    assert isinstance(found, Weibull)
    assert found.cv == pytest.approx(3.0, rel=0.12)


def test_switching_rates_are_found() -> None:
    found = _fit(MarkovModulated((1.0, 20.0), (60.0, 10.0)), 12_000)
    assert isinstance(found, MarkovModulated)
    low, high = sorted(zip(found.rates_per_s, found.mean_stays_s, strict=True))
    assert low[0] == pytest.approx(1.0, rel=0.2)
    assert high[0] == pytest.approx(20.0, rel=0.2)
    assert high[1] == pytest.approx(10.0, rel=0.4)


def test_a_drifting_rate_is_a_table() -> None:
    process = RateTable((0.0, 100.0, 200.0, 300.0, 1000.0), (1.0, 5.0, 2.0, 20.0), repeats=False)
    arrival = np.rint(process.all_times_s(np.random.default_rng(0)) * 1e9).astype(np.int64)
    found = fit_arrivals(arrival).process
    assert isinstance(found, RateTable)
    assert found.cv == pytest.approx(1.0, abs=0.15)


def test_a_daily_swing_is_found() -> None:
    found = _fit(Diurnal(0.05, 0.7, peak_s=30_000.0), 12_000)
    assert isinstance(found, Diurnal)
    assert found.swing == pytest.approx(0.7, abs=0.05)
    assert found.peak_s == pytest.approx(30_000, abs=1500)


def test_plain_cases() -> None:
    assert isinstance(fit_arrivals(np.zeros(50, np.int64)).process, AtOnce)
    assert isinstance(_fit(Constant(3.0)), Constant)
    few = fit_arrivals(open_loop(Gamma(3.0, 4.0), ONE, num_requests=40).arrival_ns)
    assert isinstance(few.process, Poisson)
    assert few.candidates == ()
    with pytest.raises(UsageError):
        fit_arrivals(np.empty(0, np.int64))
    with pytest.raises(UsageError):
        fit(generate.poisson(1.0, 0, 1, 1))


@pytest.mark.parametrize("seed", range(3))
def test_any_arrivals_can_be_fitted(seed: int) -> None:
    """Even, clumped, far apart, nearly all at once: a process comes out, and draws."""
    rng = np.random.default_rng(seed)
    cases = [
        np.concatenate((np.arange(300) * 500, 150_000 + np.arange(3000) * 100)) * 1_000_000,
        np.concatenate((np.zeros(500, np.int64), [10**15])),
        np.sort(rng.integers(0, 50, 400)),
        np.cumsum(np.exp(rng.normal(10, 6, 300)).astype(np.int64)),
        np.array([0, 1]),
        np.arange(101),
        np.repeat(np.arange(40), 30) * 10**9,
    ]
    for arrival in cases:
        found = fit_arrivals(np.asarray(arrival, np.int64))
        assert len(found.process.times_s(rng, 50)) == 50


def test_candidates_say_how_far_behind_they_are() -> None:
    found = fit_arrivals(open_loop(Gamma(4.0, 3.0), ONE, num_requests=5000).arrival_ns)
    assert found.kind == "gamma"
    by_kind = {entry.kind: entry for entry in found.candidates}
    assert by_kind["poisson"].behind_best > 10 * by_kind["poisson"].behind_error
    assert found.candidates[0].behind_best == 0


def test_bursts_that_no_process_has_are_replayed_in_pieces() -> None:
    rng = np.random.default_rng(3)
    # Runs of very different size, each a machine gun, between lulls of very different length.
    runs = [
        start + np.cumsum(rng.exponential(0.01, int(size)))
        for start, size in zip(
            np.cumsum(rng.pareto(1.2, 120) * 20), 5 + rng.pareto(1.1, 120) * 20, strict=True
        )
    ]
    arrival = np.sort(np.rint(np.concatenate(runs) * 1e9).astype(np.int64))
    found = fit_arrivals(arrival)
    assert isinstance(found.process, Pieces)
    assert found.candidates[-1].kind == "pieces"
    assert found.candidates[-1].log_likelihood is None
    others = [entry.dispersion_error for entry in found.candidates[:-1]]
    assert found.candidates[-1].dispersion_error < min(others)
    drawn = found.process.times_s(np.random.default_rng(0), 500)
    assert (np.diff(drawn) >= 0).all()
    # Nearly all gaps are recorded ones; the others lie at seams.
    recorded = set(found.process.gaps_us)
    known = [round(gap * 1e6) in recorded for gap in np.diff(drawn)]
    assert np.mean(known) > 0.9
    for gaps, piece in (((), 1.0), ((0, 0), 1.0), ((5_000_000,), 9.0), ((-1, 5), 1e-6)):
        with pytest.raises(UsageError):
            Pieces(gaps, piece)


def test_digamma_and_trigamma() -> None:
    assert digamma(1.0) == pytest.approx(-0.5772156649015329, abs=1e-9)
    assert trigamma(1.0) == pytest.approx(np.pi**2 / 6, abs=1e-9)
    assert digamma(0.01) == pytest.approx(-100.56088545786868, rel=1e-12)


WORKLOADS = [
    generate.poisson(3.0, 2000, Lognormal(300, 0.8), Uniform(10, 90), seed=1),
    generate.gamma(3.0, 2.0, 2000, Lognormal(300, 0.8), 50, prefix=SharedPrefix(8, 160, 1.0), seed=2),
    generate.closed_loop(16, 1500, Lognormal(300, 0.8), 50, seed=3),
    sessions(
        Poisson(2.0), 600,
        Sessions(Uniform(1, 6), TwoLaws(Lognormal(60, 0.7), Lognormal(150, 0.5)), 4.0, SharedPrefix(3, 320)),
        seed=4,
    ),
]  # fmt: skip


@pytest.mark.parametrize("workload", WORKLOADS, ids=["plain", "prefix", "closed", "sessions"])
def test_a_model_survives_its_file_and_draws_what_is_alike(workload: generate.Workload) -> None:
    model = fit(workload)
    again = from_json(json.dumps(model.to_json()))
    assert again == model
    drawn = again.generate(workload.num_requests, seed=9)
    assert np.array_equal(
        drawn.arrival_ns, model.generate(workload.num_requests, seed=9).arrival_ns
    )
    assert not np.array_equal(
        drawn.prompt_tokens, model.generate(workload.num_requests, seed=10).prompt_tokens
    )
    a, b = describe(workload), describe(drawn)
    assert drawn.state == "estimated"
    assert b.num_requests == pytest.approx(a.num_requests, rel=0.1)
    assert a.prompt is not None
    assert b.prompt is not None
    spread = 5 * a.prompt.cv / workload.num_requests**0.5 * 2
    assert b.prompt.mean_tokens == pytest.approx(a.prompt.mean_tokens, rel=spread)
    assert (a.arrivals is None) == (b.arrivals is None)
    if a.arrivals is not None and b.arrivals is not None:
        assert b.arrivals.rate_per_s == pytest.approx(a.arrivals.rate_per_s, rel=0.15)
        assert b.arrivals.gap_cv == pytest.approx(a.arrivals.gap_cv, rel=0.15)
    assert (a.reuse is None) == (b.reuse is None)
    if a.reuse is not None and b.reuse is not None:
        assert b.reuse.ideal_hit_ratio == pytest.approx(a.reuse.ideal_hit_ratio, abs=0.03)
    assert b.concurrency == a.concurrency
    assert (a.sessions is None) == (b.sessions is None)
    if a.sessions is not None and b.sessions is not None:
        assert b.sessions.mean_turns == pytest.approx(a.sessions.mean_turns, rel=0.1)
        assert b.sessions.median_think_s == pytest.approx(a.sessions.median_think_s, rel=0.2)


def test_requests_repeat_as_much_as_they_are_told() -> None:
    rng = np.random.default_rng(0)
    granules = rng.integers(1, 30, 3000)
    match = np.minimum(rng.integers(0, 20, 3000), granules)
    content = grow(granules, match, match, np.full(3000, 40), 16)
    workload = generate.of_columns(
        "w",
        "synthetic",
        np.arange(3000),
        generate.Pairs(granules * 16, np.ones(3000, np.int64)),
        content,
    )
    found = matches(workload).granules
    # Early requests find nobody long enough; all others repeat exactly what they were told.
    assert (found <= match).all()
    assert (found[100:] == match[100:]).mean() > 0.99
    python = Reuse(16, (32, 64), (1, 1), (0, 2), (0, 2), (0, 1)).draw_content(0, 50)
    assert python.hash_start[-1] == len(python.hashes)
    assert fit_reuse(generate.poisson(1.0, 10, 1, 1)) is None


MODEL = fit(WORKLOADS[0]).to_json()


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"version": 99},
        {"arrivals": {"kind": "Poisson", "rate_per_s": -1}},
        {"arrivals": {"kind": "Poisson", "rate_per_s": "4"}},
        {"arrivals": {"kind": "Poisson"}},
        {"arrivals": {"kind": "Fixed", "tokens": 4}},
        {"arrivals": {"kind": "os.system", "command": "true"}},
        {"arrivals": {"kind": "Poisson", "rate_per_s": 1.0, "more": 1}},
        {"arrivals": None},
        {"lengths": {"kind": "TwoLaws", "prompt": 3, "output": 4, "correlation": 0}},
        {"sessions": {"kind": "Sessions"}},
        {"concurrency": "8"},
        {"notes": 3},
        {"errors": 3},
        {"num_requests": True},
    ],
)
def test_a_model_that_is_none_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(DamagedInput):
        from_json(json.dumps(MODEL | change))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "[" * 10_000, '{"format": "tokenpath.workload_model"}']
)
def test_text_that_is_no_model_is_refused(text: str) -> None:
    with pytest.raises(DamagedInput):
        from_json(text)


def test_a_model_draws_nothing_or_refuses() -> None:
    model = from_json(json.dumps(MODEL))
    assert isinstance(model, WorkloadModel)
    assert model.generate(0).num_requests == 0
    with pytest.raises(UsageError):
        model.generate(-1)


@settings(max_examples=40)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 10**12), st.integers(1, 5000), st.integers(1, 2**31), st.integers(0, 3)
        ),
        min_size=1,
        max_size=150,
    ),
    chained=st.booleans(),
    closed=st.booleans(),
)
def test_any_workload_is_described_fitted_and_drawn(
    rows: list[tuple[int, int, int, int]], chained: bool, closed: bool
) -> None:
    arrival, prompt, output, shared = (np.array(column) for column in zip(*rows, strict=True))
    count = len(rows)
    content = ids_of_parts([np.zeros(count, np.int64)], [np.minimum(shared, prompt // 16)], 16)
    workload = generate.of_columns(
        "any", "measured", np.sort(arrival), generate.Pairs(prompt, output), content,
        concurrency=3 if closed else None,
    )  # fmt: skip
    if chained:
        after = np.arange(count) - 1
        workload = dataclasses.replace(workload, after=after, session=np.zeros(count, np.int64))
    assert describe(workload).num_requests == count
    model = fit(workload)
    assert from_json(json.dumps(model.to_json())) == model
    assert model.generate(20).num_requests >= 1
