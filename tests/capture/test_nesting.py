"""Nesting against its definition, in plain Python and compiled."""

from __future__ import annotations

import bisect
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenpath.capture import compiled
from tokenpath.capture.nesting import (
    innermost,
    nesting_order,
    parents,
    search_grouped,
    self_time,
)

LOW, HIGH = -(2**63), 2**63 - 1
POINT = st.integers(-3, 9)
GROUP = st.sampled_from([0, 1, 2, 7, -(2**31), 2**31 - 1])
ROW = st.tuples(GROUP, POINT, POINT)
# One group more often than many: that is where nesting happens.
ROWS = st.lists(st.tuples(st.just(0), POINT, POINT), max_size=14) | st.lists(ROW, max_size=14)
# Hypothesis finds the corners, once a path; the mass of cases is in test_hundreds_of_random_cases.
FEW = settings(max_examples=50)
PATHS = {"plain": sys.maxsize, "compiled": 0}


@pytest.fixture(autouse=True, scope="module", params=PATHS)
def path(request):
    """Each test runs on both paths of `compiled`."""
    patch = pytest.MonkeyPatch()
    patch.setattr(compiled, "COMPILE_FROM_ROWS", PATHS[request.param])
    yield request.param
    patch.undo()


def arrays(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    group = np.array([row[0] for row in rows], np.int32)
    start = np.array([row[1] for row in rows], np.int64)
    end = np.array([row[2] for row in rows], np.int64)
    for array in (group, start, end):
        array.flags.writeable = False
    return group, start, end


def slow_order(rows: list[tuple[int, int, int]]) -> list[int]:
    return sorted(range(len(rows)), key=lambda i: (rows[i][0], rows[i][1], -rows[i][2], i))


def contains(outer: tuple[int, int, int], inner: tuple[int, int, int]) -> bool:
    return outer[0] == inner[0] and outer[1] <= inner[1] and outer[2] >= inner[2]


def slow_parents(rows: list[tuple[int, int, int]]) -> list[int]:
    order, found = slow_order(rows), [-1] * len(rows)
    for place, row in enumerate(order):
        around = [other for other in order[:place] if contains(rows[other], rows[row])]
        found[row] = around[-1] if around else -1
    return found


def slow_innermost(rows: list[tuple[int, int, int]], at: list[tuple[int, int, int]]) -> list[int]:
    order = slow_order(rows)
    around = [[row for row in order if contains(rows[row], one)] for one in at]
    return [found[-1] if found else -1 for found in around]


@FEW
@given(ROWS)
@example([(0, 1, 5), (0, 1, 9), (0, 1, 5), (1, 1, 9)])
@example([(5, 0, 1), (-(2**31), 0, 2), (2**31 - 1, 0, 3)])
def test_nesting_order(rows):
    assert nesting_order(*arrays(rows)).tolist() == slow_order(rows)
    ordered = [rows[row] for row in slow_order(rows)]
    assert nesting_order(*arrays(ordered)).tolist() == list(range(len(rows)))


@FEW
@given(ROWS)
@example([])
@example([(0, 5, 5), (0, 0, 5), (0, 5, 5), (0, 5, 9)])
@example([(0, 3, 1), (0, 0, 9)])
def test_parents(rows):
    found = parents(*arrays(rows))
    assert found.dtype == np.int32
    assert found.tolist() == slow_parents(rows)


@FEW
@given(ROWS)
def test_parents_contain_their_children_and_make_no_circle(rows):
    found = parents(*arrays(rows)).tolist()
    place = {row: i for i, row in enumerate(slow_order(rows))}
    for row, up in enumerate(found):
        if up >= 0:
            assert contains(rows[up], rows[row])
            assert place[up] < place[row]


@FEW
@given(ROWS, st.lists(ROW | st.tuples(st.just(0), POINT, POINT), max_size=14))
@example([(0, 0, 9), (0, 1, 2), (0, 3, 4)], [(0, 5, 6), (0, 3, 4), (0, 1, 4), (0, 0, 10)])
@example([], [(0, 1, 2)])
@example([(0, 1, 2)], [])
def test_innermost(rows, at):
    columns = arrays(rows)
    found = innermost(*columns, parents(*columns), *arrays(at))
    assert found.dtype == np.int32
    assert found.tolist() == slow_innermost(rows, at)


@FEW
@given(
    st.lists(st.tuples(GROUP, POINT), max_size=14), st.lists(st.tuples(GROUP, POINT), max_size=14)
)
@example([], [(0, 0)])
def test_search_grouped(rows, at):
    rows = sorted(rows)
    found = search_grouped(
        np.array([row[0] for row in rows], np.int32),
        np.array([row[1] for row in rows], np.int64),
        np.array([one[0] for one in at], np.int32),
        np.array([one[1] for one in at], np.int64),
    )
    assert found.dtype == np.int64
    assert found.tolist() == [bisect.bisect_right(rows, one) for one in at]


def point_set(row: tuple[int, int, int]) -> set[int]:
    return set(range(row[1], row[2]))


@FEW
@given(ROWS)
@example([(0, 0, 9), (0, 0, 6), (0, 4, 9)])
def test_self_time(rows):
    group, start, end = arrays(rows)
    parent = parents(group, start, end)
    found = self_time(start, end, parent)
    assert found.dtype == np.int64
    for row, columns in enumerate(rows):
        own = point_set(columns)
        for child in np.flatnonzero(parent == row):
            own -= point_set(rows[child])
        assert found[row] == len(own)


@FEW
@given(ROWS, st.randoms(use_true_random=False))
def test_self_time_of_parents_that_a_file_gives(rows, random):
    # They need not contain their children; what lies outside is not taken from them.
    size = len(rows)
    parent = [random.choice([-1, *range(row), *range(row + 1, size)]) for row in range(size)]
    found = self_time(*arrays(rows)[1:], np.array(parent, np.int32))
    for row, columns in enumerate(rows):
        own = point_set(columns)
        for child, up in enumerate(parent):
            if up == row:
                own -= point_set(rows[child])
        assert found[row] == len(own)


def nested_rows(draw_int, low: int, high: int, depth: int) -> list[tuple[int, int, int]]:
    """Calls that return before their caller does, as on a real stack."""
    rows, at = [], low
    while at < high and depth:
        start = draw_int(at, high)
        end = draw_int(start, high)
        rows.append((0, start, end))
        rows += nested_rows(draw_int, start, end, depth - 1)
        at = end + 1
    return rows


@FEW
@given(st.randoms(use_true_random=False))
def test_self_times_of_a_call_tree_close(random):
    rows = nested_rows(random.randint, 0, 60, 5)
    random.shuffle(rows)
    group, start, end = arrays(rows)
    parent = parents(group, start, end)
    busy = set().union(*map(point_set, rows))
    assert int(self_time(start, end, parent).sum()) == len(busy)


@pytest.mark.parametrize("seed", range(3))
def test_hundreds_of_random_cases(seed):
    # Examples of hypothesis resemble one another; these do not.
    random = np.random.default_rng(seed)
    for _ in range(300):
        size, span = random.integers(1, 13), random.integers(1, 12)
        rows, at = (
            list(map(tuple, np.column_stack((random.integers(0, 2, size), *columns)).tolist()))
            for columns in random.integers(0, span, (2, 2, size))
        )
        columns = arrays(rows)
        parent = parents(*columns)
        assert parent.tolist() == slow_parents(rows)
        assert innermost(*columns, parent, *arrays(at)).tolist() == slow_innermost(rows, at)


def test_innermost_in_a_deep_call_tree():
    # One in another, many with the same end; the `at` intervals need ever longer ones.
    random = np.random.default_rng(0)
    for _ in range(100):
        ends = np.cumsum(random.choice([0, 0, 1, 2], 40))[::-1].tolist()
        rows = [(0, i, end + 40) for i, end in enumerate(ends)]
        at = [(0, start, end + 40) for end in range(0, ends[0] + 2, 3) for start in (25, 39)]
        columns = arrays(rows)
        found = innermost(*columns, parents(*columns), *arrays(at))
        assert found.tolist() == slow_innermost(rows, at)


AXIS = range(-3, 10)
STRETCH = [
    {point: LOW + point + 3 for point in AXIS},
    {point: HIGH + point - 9 for point in AXIS},
    {point: LOW + (point + 3) * ((HIGH - LOW) // 12) for point in AXIS},
]


@pytest.mark.parametrize("stretch", STRETCH)
@given(ROWS, st.lists(ROW, max_size=6))
@example([(0, -3, -3), (0, -3, 5)], [(0, -3, -3)])
@FEW
def test_the_whole_of_int64(stretch, rows, at):
    far_rows = [(group, stretch[start], stretch[end]) for group, start, end in rows]
    far_at = [(group, stretch[start], stretch[end]) for group, start, end in at]
    columns = arrays(far_rows)
    assert nesting_order(*columns).tolist() == slow_order(rows)
    parent = parents(*columns)
    assert parent.tolist() == slow_parents(rows)
    assert innermost(*columns, parent, *arrays(far_at)).tolist() == slow_innermost(rows, at)
    if all(end - start <= HIGH for _, start, end in far_rows):
        own = self_time(*columns[1:], parent).tolist()
        assert all(
            0 <= time <= max(end - start, 0)
            for time, (_, start, end) in zip(own, far_rows, strict=True)
        )
    else:
        with pytest.raises(OverflowError, match="longer than int64"):
            self_time(*columns[1:], parent)


def test_self_time_at_the_edge_of_int64():
    start, end = np.array([LOW, LOW, -1]), np.array([-1, LOW + 5, -1])
    assert self_time(start, end, np.array([-1, 0, 0], np.int32)).tolist() == [HIGH - 5, 5, 0]
