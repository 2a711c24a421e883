"""Descriptions: dispersion, ties, and reuse checked against caches kept by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpath.simulate.workload import generate
from tokenpath.simulate.workload.arrivals import Gamma, Poisson
from tokenpath.simulate.workload.changing_rates import MarkovModulated
from tokenpath.simulate.workload.content import Content
from tokenpath.simulate.workload.describe import describe
from tokenpath.simulate.workload.generate import SharedPrefix, of_columns, open_loop
from tokenpath.simulate.workload.lengths import Fixed, Lognormal, Pairs, TwoLaws
from tokenpath.simulate.workload.reuse import KEEP_TIMES_S, matches, reuse_facts
from tokenpath.simulate.workload.sessions import Sessions, sessions
from tokenpath.simulate.workload.statistics import arrival_facts, rounding_s
from tokenpath.simulate.workload.transform import cut, first, scale_rate, select
from tokenpath.simulate.workload.workload import Workload

ONE = TwoLaws(Fixed(1), Fixed(1))


def test_poisson_counts_are_as_uneven_as_chance_at_every_scale() -> None:
    facts = arrival_facts(open_loop(Poisson(5.0), ONE, num_requests=60_000).arrival_ns)
    assert facts is not None
    assert facts.gap_cv == pytest.approx(1.0, abs=0.02)
    assert facts.rate_per_s == pytest.approx(5.0, rel=0.02)
    for entry in facts.dispersions:
        # The index of Poisson counts has a standard error of sqrt(2 / windows).
        windows = facts.span_s / entry.window_s
        assert abs(entry.index - 1) < 5 * (2 / windows) ** 0.5, entry
    assert [entry.window_s for entry in facts.dispersions] == [0.1, 1.0, 10.0, 60.0, 600.0]


def test_renewal_counts_tend_to_the_square_of_the_cv() -> None:
    facts = arrival_facts(open_loop(Gamma(20.0, 3.0), ONE, num_requests=200_000).arrival_ns)
    assert facts is not None
    assert facts.dispersions[-1].index == pytest.approx(9.0, rel=0.5)
    assert facts.dispersions[2].index == pytest.approx(9.0, rel=0.2)


def test_rounded_times_are_known_and_spread() -> None:
    exact = open_loop(Poisson(4.0), ONE, num_requests=20_000).arrival_ns
    rounded = exact // 3_000_000_000 * 3_000_000_000
    assert rounding_s(exact) is None
    assert rounding_s(rounded) == 3.0
    facts = arrival_facts(rounded)
    assert facts is not None
    assert facts.gap_cv == pytest.approx(1.0, abs=0.03)
    assert facts.dispersions[0].window_s == 10.0


def test_too_little_to_say() -> None:
    assert arrival_facts(np.array([0, 5])) is None
    assert arrival_facts(np.zeros(50, np.int64)) is None
    empty = describe(generate.poisson(1.0, 0, 1, 1))
    assert "no request" in empty.sentence
    assert empty.prompt is None
    assert "at once" in describe(generate.all_at_once(5, 1, 1)).sentence
    assert "closed loop of 3" in describe(generate.closed_loop(3, 50, 1, 1)).sentence


def test_the_sentence_says_what_matters() -> None:
    spec = Sessions(4, TwoLaws(Fixed(50), Fixed(100)), 5.0, SharedPrefix(2, 320))
    found = describe(sessions(MarkovModulated((0.5, 20.0), (60.0, 10.0)), 2000, spec))
    assert "sessions/s" in found.sentence
    assert "times as uneven as chance" in found.sentence
    assert "2,000 sessions of 4.0 turns on average" in found.sentence
    assert found.sessions is not None
    assert found.sessions.share_waiting == 0.75
    assert found.sessions.median_think_s == pytest.approx(5.0 * np.log(2), rel=0.1)


TREES = st.lists(
    st.tuples(
        st.lists(st.integers(0, 2), max_size=5),
        st.integers(1, 60),
        st.integers(1, 30),
        st.integers(0, 20),
    ),
    min_size=1,
    max_size=25,
)


def _workload(requests: list[tuple[list[int], int, int, int]]) -> tuple[Workload, list[list[int]]]:
    """Requests whose content is a path down a tree; ids stand for whole prefixes."""
    known: dict[tuple[int, ...], int] = {}
    rows = []
    for path, *_ in requests:
        rows.append(
            [known.setdefault(tuple(path[: depth + 1]), len(known)) for depth in range(len(path))]
        )
    ids = np.array([entry for row in rows for entry in row], np.int64)
    start = np.concatenate(([0], np.cumsum([len(row) for row in rows])))
    arrival = np.cumsum([gap for *_, gap in requests]) * 1_000_000_000
    pairs = Pairs(
        np.array([prompt for _, prompt, _, _ in requests]),
        np.array([output for _, _, output, _ in requests]),
    )
    return of_columns("w", "synthetic", arrival, pairs, Content(start, ids, 10)), rows


@given(TREES)
def test_matches_are_those_of_a_set_of_seen_ids(
    requests: list[tuple[list[int], int, int, int]],
) -> None:
    workload, rows = _workload(requests)
    found = matches(workload)
    last: dict[int, int] = {}
    for index, row in enumerate(rows):
        prompt = int(workload.prompt_tokens[index])
        held = 0
        for granule in row[: -(-prompt // 10)]:
            if granule not in last:
                break
            held += 1
        assert found.granules[index] == held
        assert found.tokens[index] == min(10 * held, prompt)
        assert found.parent[index] == (last[row[held - 1]] if held else -1)
        last.update(dict.fromkeys(row, index))


@given(TREES)
def test_kept_for_a_while_is_a_cache_with_a_clock(
    requests: list[tuple[list[int], int, int, int]],
) -> None:
    workload, rows = _workload(requests)
    facts = reuse_facts(workload)
    if not len(workload.hashes):
        assert facts is None
        return
    assert facts is not None
    seconds = workload.arrival_ns // 1_000_000_000
    span = int(seconds.max() - min(seconds[index] for index, row in enumerate(rows) if row))
    for entry in facts.kept_for:
        used: dict[int, int] = {}
        hits = 0
        for index, row in enumerate(rows):
            now, prompt, held = int(seconds[index]), int(workload.prompt_tokens[index]), 0
            for granule in row[: -(-prompt // 10)]:
                if now - used.get(granule, -(10**9)) > entry.keep_s:
                    break
                held += 1
            hits += min(10 * held, prompt)
            used.update(dict.fromkeys(row, now))
        assert entry.hit_ratio == pytest.approx(hits / workload.prompt_tokens.sum())
    assert len(facts.kept_for) <= sum(keep <= max(span, 0) for keep in KEEP_TIMES_S)
    ratios = [entry.hit_ratio for entry in facts.kept_for] + [facts.ideal_hit_ratio]
    assert ratios == sorted(ratios)


def test_the_working_set_of_a_steady_load_is_its_content() -> None:
    workload = generate.poisson(50.0, 20_000, 1, 1, prefix=SharedPrefix(4, 160))
    facts = reuse_facts(workload)
    assert facts is not None
    assert facts.ideal_hit_ratio == pytest.approx(160 / 161, abs=0.001)
    assert facts.kept_for[1].mean_held_tokens == pytest.approx(640, rel=0.01)


def test_stretches_and_selections() -> None:
    workload = generate.poisson(10.0, 500, Lognormal(100, 1.0), 5, prefix=SharedPrefix(3, 64))
    part = cut(workload, 10.0, 20.0)
    inside = (workload.arrival_ns >= 10**10) & (workload.arrival_ns < 3 * 10**10)
    assert part.num_requests == inside.sum()
    assert np.array_equal(part.prompt_tokens, workload.prompt_tokens[inside])
    assert part.arrival_ns[0] == workload.arrival_ns[inside][0] - 10**10
    assert (np.diff(part.hash_start) == 4).all()
    assert first(workload, 7).num_requests == 7
    fast = scale_rate(workload, 2.0)
    assert abs(fast.arrival_ns * 2 - workload.arrival_ns).max() <= 1
    chain = sessions(Poisson(1.0), 3, Sessions(3, TwoLaws(Fixed(20), Fixed(20)), 1.0))
    kept = select(chain, np.array([0, 2, 3, 4, 5]))
    assert kept.after.tolist() == [-1, -1, -1, 2, 3]
    assert kept.think_ns[1] == 0
