"""The algebra of intervals against sets of points."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenpath.capture.intervals import (
    EMPTY,
    Intervals,
    clip,
    covered,
    difference,
    expand,
    gaps,
    intersection,
    overlap_count,
    union,
)

LOW, HIGH = -(2**63), 2**63 - 1
# Small, so that intervals touch, repeat, are empty or reversed all the time.
POINT = st.integers(-4, 12)
PAIRS = st.lists(st.tuples(POINT, POINT), max_size=12)
# A longer list, which is only ever nearly sorted.
SORTED_PAIRS = PAIRS.map(sorted)
AXIS = range(-6, 15)


def arrays(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    # Captures hand out arrays that cannot be written to.
    start, end = table[:, 0].copy(), table[:, 1].copy()
    start.flags.writeable = end.flags.writeable = False
    return start, end


def merged(pairs: list[tuple[int, int]]) -> Intervals:
    return union(*arrays(pairs))


def pairs_of(intervals: Intervals) -> list[tuple[int, int]]:
    assert intervals.start.dtype == intervals.end.dtype == np.int64
    return list(zip(intervals.start.tolist(), intervals.end.tolist(), strict=True))


def points(pairs: list[tuple[int, int]]) -> set[int]:
    return {point for start, end in pairs for point in range(start, end)}


def runs(of: set[int]) -> list[tuple[int, int]]:
    """The set as the fewest intervals: what every function here must return."""
    starts = sorted(point for point in of if point - 1 not in of)
    ends = sorted(point + 1 for point in of if point + 1 not in of)
    return list(zip(starts, ends, strict=True))


@given(PAIRS | SORTED_PAIRS)
@example([])
@example([(1, 1)])
@example([(3, 1)])
@example([(0, 2), (2, 4)])
@example([(0, 9), (1, 2), (9, 9), (3, 12)])
def test_union(pairs):
    found = merged(pairs)
    assert pairs_of(found) == runs(points(pairs))
    assert found.total == len(points(pairs))
    assert len(found) == len(runs(points(pairs)))


@given(PAIRS, st.randoms(use_true_random=False))
def test_union_depends_on_no_order_and_is_idempotent(pairs, random):
    shuffled = random.sample(pairs * 2, 2 * len(pairs))
    assert pairs_of(merged(shuffled)) == pairs_of(merged(pairs))
    assert pairs_of(merged(pairs_of(merged(pairs)))) == pairs_of(merged(pairs))


@given(PAIRS, PAIRS)
def test_intersection_and_difference(a_pairs, b_pairs):
    a, b = merged(a_pairs), merged(b_pairs)
    a_points, b_points = points(a_pairs), points(b_pairs)
    assert pairs_of(intersection(a, b)) == runs(a_points & b_points)
    assert pairs_of(intersection(b, a)) == runs(a_points & b_points)
    assert pairs_of(difference(a, b)) == runs(a_points - b_points)
    assert intersection(a, b).total + difference(a, b).total == a.total


@given(PAIRS, POINT, POINT)
def test_gaps(pairs, low, high):
    found = gaps(merged(pairs), low, high)
    assert pairs_of(found) == runs(set(range(low, high)) - points(pairs))
    inside = intersection(merged(pairs), merged([(low, high)]))
    assert found.total + inside.total == max(high - low, 0)


@given(PAIRS, POINT, POINT)
def test_clip(pairs, low, high):
    start, end = clip(*arrays(pairs), low, high)
    assert start.dtype == end.dtype == np.int64
    assert len(start) == len(end) == len(pairs)
    for row, (old_start, old_end) in enumerate(pairs):
        new = (int(start[row]), int(end[row]))
        assert new[0] <= new[1]
        assert points([new]) == points([(old_start, old_end)]) & set(range(low, high))


@given(PAIRS, PAIRS)
def test_covered(pairs, by_pairs):
    found = covered(*arrays(pairs), merged(by_pairs))
    assert found.dtype == np.int64
    assert found.tolist() == [len(points([pair]) & points(by_pairs)) for pair in pairs]


@given(PAIRS)
def test_overlap_count(pairs):
    at, count = overlap_count(*arrays(pairs))
    assert at.dtype == count.dtype == np.int64
    real = [pair for pair in pairs if pair[0] < pair[1]]
    assert at.tolist() == sorted({edge for pair in real for edge in pair})
    for point in AXIS:
        expected = sum(start <= point < end for start, end in real)
        index = int(np.searchsorted(at, point, side="right")) - 1
        assert (count[index] if index >= 0 else 0) == expected
    assert count[-1:].tolist() == [0][: len(at)]
    # Where at least one is open is the union.
    covered_length = int((np.diff(at) * (count[:-1] > 0)).sum()) if len(at) else 0
    assert covered_length == len(points(pairs))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=10))
@example([])
@example([(3, 3), (5, 2)])
def test_expand(pairs):
    row, index = expand(*arrays(pairs))
    found = list(zip(row.tolist(), index.tolist(), strict=True))
    assert found == [(i, k) for i, (low, high) in enumerate(pairs) for k in range(low, high)]


SETS = [runs({p for p in range(6) if bits >> p & 1}) for bits in range(2**6)]
BOUNDS = list(itertools.product(range(-1, 7), repeat=2))


def test_every_pair_of_sets_of_six_points():
    for a_pairs, b_pairs in itertools.product(SETS, repeat=2):
        a, b = merged(a_pairs), merged(b_pairs)
        a_points, b_points = points(a_pairs), points(b_pairs)
        assert pairs_of(intersection(a, b)) == runs(a_points & b_points)
        assert pairs_of(difference(a, b)) == runs(a_points - b_points)


def test_every_set_of_six_points_within_every_bounds():
    start, end = arrays(BOUNDS)
    for pairs in SETS:
        a, inside = merged(pairs), points(pairs)
        expected = [len(inside & set(range(low, high))) for low, high in BOUNDS]
        assert covered(start, end, a).tolist() == expected
        for low, high in BOUNDS:
            assert pairs_of(gaps(a, low, high)) == runs(set(range(low, high)) - inside)


def test_every_three_intervals_on_four_points():
    pairs = list(itertools.product(range(4), repeat=2))
    for three in itertools.product(pairs, repeat=3):
        assert pairs_of(merged(list(three))) == runs(points(three))


# The functions below only compare times. So they must commute with every strictly increasing map of the
# times, and such maps reach all corners of int64.
STRETCH = [
    {point: LOW + point + 6 for point in AXIS},
    {point: HIGH + point - 14 for point in AXIS},
    {point: LOW + (point + 6) * ((HIGH - LOW) // 20) for point in AXIS},
    {point: (LOW if point < 4 else HIGH - 20) + point + 6 for point in AXIS},
]


@pytest.mark.parametrize("stretch", STRETCH)
@given(PAIRS, PAIRS, POINT, POINT)
@settings(max_examples=40)
def test_the_whole_of_int64(stretch, a_pairs, b_pairs, low, high):
    def far(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(stretch[start], stretch[end]) for start, end in pairs]

    a, b = merged(a_pairs), merged(b_pairs)
    far_a, far_b = merged(far(a_pairs)), merged(far(b_pairs))
    assert pairs_of(far_a) == far(pairs_of(a))
    assert far_a.total == sum(end - start for start, end in far(pairs_of(a)))
    assert pairs_of(intersection(far_a, far_b)) == far(pairs_of(intersection(a, b)))
    assert pairs_of(difference(far_a, far_b)) == far(pairs_of(difference(a, b)))
    far_gaps = gaps(far_a, stretch[low], stretch[high])
    assert pairs_of(far_gaps) == far(pairs_of(gaps(a, low, high)))
    start, end = clip(*arrays(far(a_pairs)), stretch[low], stretch[high])
    near_start, near_end = clip(*arrays(a_pairs), low, high)
    assert start.tolist() == [stretch[point] for point in near_start.tolist()]
    assert end.tolist() == [stretch[point] for point in near_end.tolist()]
    at, count = overlap_count(*arrays(far(a_pairs)))
    near_at, near_count = overlap_count(*arrays(a_pairs))
    assert at.tolist() == [stretch[point] for point in near_at.tolist()]
    assert count.tolist() == near_count.tolist()


FAR = st.sampled_from([LOW, LOW + 1, -(2**62), -1, 0, 1, 2**62, HIGH - 1, HIGH])
FAR_PAIRS = st.lists(st.tuples(FAR, FAR), max_size=6)


@given(FAR_PAIRS, FAR_PAIRS)
@example([(LOW, HIGH)], [(LOW, HIGH)])
@example([(LOW, HIGH), (HIGH, LOW)], [(-1, HIGH)])
@example([(LOW, HIGH)], [(-1, HIGH - 1)])
def test_covered_is_exact_or_an_error(pairs, by_pairs):
    by = merged(by_pairs)
    assert by.total == sum(end - start for start, end in pairs_of(by))
    if by.total > HIGH:
        with pytest.raises(OverflowError, match="more than int64 holds"):
            covered(*arrays(pairs), by)
        return
    found = covered(*arrays(pairs), by)
    for row, (start, end) in enumerate(pairs):
        expected = sum(max(min(end, stop) - max(start, begin), 0) for begin, stop in pairs_of(by))
        assert found[row] == expected


def test_bounds_outside_int64_are_refused_not_rounded():
    a = merged([(0, 5)])
    for bounds in ((LOW - 1, 0), (0, HIGH + 1)):
        with pytest.raises(OverflowError):
            gaps(a, *bounds)


def test_nothing():
    for a in (EMPTY, merged([]), merged([(3, 3)])):
        assert (len(a), a.total) == (0, 0)
        assert a.start.dtype == a.end.dtype == np.int64
        some = merged([(1, 2)])
        assert len(intersection(a, some)) == len(intersection(some, a)) == 0
        assert len(difference(a, some)) == 0
        assert pairs_of(difference(some, a)) == [(1, 2)]
        assert pairs_of(gaps(a, 1, 4)) == [(1, 4)]
        assert len(gaps(a, 4, 4)) == len(gaps(a, 4, 1)) == 0
        assert covered(*arrays([(1, 2)]), a).tolist() == [0]
        assert covered(a.start, a.end, some).tolist() == []
    at, count = overlap_count(EMPTY.start, EMPTY.end)
    assert (at.dtype, count.dtype, len(at), len(count)) == (np.int64, np.int64, 0, 0)


def test_results_do_not_share_memory_with_the_input():
    start, end = np.array([0, 5]), np.array([2, 7])
    found = union(start, end)
    start[:] = end[:] = 99
    assert pairs_of(found) == [(0, 2), (5, 7)]


def test_many_intervals_against_counting_points():
    random = np.random.default_rng(7)
    start = random.integers(0, 200_000, 30_000)
    end = start + random.integers(-2, 12, 30_000)
    is_open = np.zeros(200_020, np.int64)
    real = end > start
    np.add.at(is_open, start[real], 1)
    np.add.at(is_open, end[real], -1)
    depth = np.cumsum(is_open)
    found = union(start, end)
    assert found.total == int((depth > 0).sum())
    assert (found.start[1:] > found.end[:-1]).all()
    at, count = overlap_count(start, end)
    assert (depth[at] == count).all()
    inside = np.concatenate(([0], np.cumsum(depth > 0)))
    expected = np.where(real, inside[np.maximum(start, end)] - inside[start], 0)
    assert (covered(start, end, found) == expected).all()
    assert gaps(found, 0, 200_000).total == 200_000 - int((depth[:200_000] > 0).sum())
