"""Report types: a funnel either closes or says where it does not."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpath.core.report import (
    Funnel,
    FunnelRow,
    Note,
    Report,
    Severity,
    ShownTable,
    TableColumn,
    Trust,
    Unit,
)

Tree = tuple[int, list["Tree"]]


def row(key: str, depth: int, duration_ns: int, is_part: bool = True) -> FunnelRow:
    return FunnelRow(key, key, depth, duration_ns, is_part=is_part)


CLOSED = [
    row("wall", 0, 100),
    row("busy", 1, 70),
    row("compute", 2, 50),
    row("gemm", 3, 30),
    row("other", 3, 20),
    row("exposed_communication", 2, 20),
    row("hidden_communication", 2, 999, is_part=False),
    row("idle", 1, 30),
]


def changed(key: str, by: int) -> dict[str, int]:
    rows = [
        dataclasses.replace(one, duration_ns=one.duration_ns + by) if one.key == key else one
        for one in CLOSED
    ]
    return Funnel("total", rows).residuals()


def test_a_funnel_that_closes():
    funnel = Funnel("total", CLOSED)
    assert funnel.residuals() == {}
    assert funnel.wall_ns == 100
    assert Funnel("total", [row("wall", 0, 5)]).residuals() == {}


def test_a_nanosecond_too_many_is_found_above_and_below():
    assert changed("gemm", 1) == {"compute": -1}
    assert changed("compute", 1) == {"busy": -1, "compute": 1}
    assert changed("idle", -3) == {"wall": 3}
    assert changed("wall", 2**62) == {"wall": 2**62}
    assert changed("hidden_communication", 1) == {}


def test_parts_of_a_row_shown_beside_the_sum_are_summed_too():
    rows = [
        row("wall", 0, 10),
        row("all", 1, 10),
        row("beside", 1, 7, is_part=False),
        row("x", 2, 6),
    ]
    assert Funnel("total", rows).residuals() == {"beside": 1}
    only_beside = [row("wall", 0, 10), row("beside", 1, 3, is_part=False)]
    assert Funnel("total", only_beside).residuals() == {}


@pytest.mark.parametrize(
    ("depths", "place"),
    [
        ([], "no wall"),
        ([1], "row 0"),
        ([0, 2], "row 1"),
        ([0, 1, 3], "row 2"),
        ([0, 1, -1], "row 2"),
    ],
)
def test_rows_that_make_no_tree_are_refused(depths, place):
    with pytest.raises(ValueError, match=rf"{place}.*|funnel 'total' has {place}"):
        Funnel("total", [row(f"k{i}", depth, 0) for i, depth in enumerate(depths)])


trees = st.recursive(
    st.tuples(st.integers(0, 2**62), st.just([])),
    lambda below: st.tuples(st.just(0), st.lists(below, min_size=1, max_size=3)),
    max_leaves=12,
)


def length(tree: Tree) -> int:
    own, below = tree
    return own if not below else sum(map(length, below))


def rows_of(tree: Tree, key: str = "k", depth: int = 0) -> list[FunnelRow]:
    rows = [row(key, depth, length(tree))]
    for index, below in enumerate(tree[1]):
        rows += rows_of(below, f"{key}.{index}", depth + 1)
    return rows


@given(trees, st.data())
def test_any_tree_of_sums_closes_and_any_changed_row_is_found(tree, data):
    rows = rows_of(tree)
    assert Funnel("t", rows).residuals() == {}
    if len(rows) == 1:
        return
    index = data.draw(st.integers(0, len(rows) - 1))
    by = data.draw(st.integers(-(2**62), 2**62).filter(bool))
    key = rows[index].key
    rows[index] = dataclasses.replace(rows[index], duration_ns=rows[index].duration_ns + by)
    expected = {}
    if index:
        expected[key.rpartition(".")[0]] = -by
    if any(one.key.startswith(key + ".") for one in rows):
        expected[key] = by
    assert Funnel("t", rows).residuals() == expected


def test_defaults_claim_nothing():
    report = Report(
        verb="explain",
        headline="h",
        answer=["a"],
        trust=Trust.GOOD,
        window=None,
        funnel=None,
        findings=(),
        dismissed=(),
        notes=(),
    )
    assert report.state == "measured"
    assert report.timeline is None
    assert report.tables == report.device_funnels == report.step_funnels == ()
    column = TableColumn("total_ns", "total", Unit.NS)
    table = ShownTable("kernels", "Kernels", [column], [[5]], num_rows_in_all=9)
    assert (column.is_key_figure, table.note) == (True, None)
    assert Note("c", Severity.INFO, "s").details == {}
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.verb = "inspect"


def test_words_are_stable():
    assert [str(one) for one in Trust] == ["good", "limited", "unusable"]
    assert [str(one) for one in Severity] == ["info", "warning", "withheld"]
    units = ["text", "count", "ns", "share", "percent", "bytes", "per_s", "number"]
    assert [str(one) for one in Unit] == units
