from __future__ import annotations

import enum
import json
import math
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import sample
from hypothesis import given
from hypothesis import strategies as st
from schema_check import violations

from tokenpath.core.finding import Finding
from tokenpath.core.report import Funnel, FunnelRow, Report, ShownTable, TableColumn, Unit
from tokenpath.export import json as export_json
from tokenpath.export.schema import describe_markdown, report_schema

ROOT = Path(__file__).resolve().parents[2]
REPORTS = [sample.report, sample.empty_report, sample.unusable_report, sample.hostile_report]


def loaded(report: Report) -> dict:
    def no_constant(name: str) -> None:
        raise AssertionError(f"{name} in the JSON")

    return json.loads(export_json.render(report), parse_constant=no_constant)


@pytest.mark.parametrize("report", REPORTS)
def test_the_json_is_what_the_schema_declares(report) -> None:
    document = loaded(sample.with_devices(report(), 2) if report is sample.report else report())
    assert list(violations(document, report_schema(), report_schema())) == []


@pytest.mark.parametrize("report", REPORTS)
def test_reading_it_back_gives_the_document(report) -> None:
    assert loaded(report()) == export_json.document(report())


def test_the_schema_check_can_fail() -> None:
    schema = report_schema()
    for damage in ({"trust": "fine"}, {"verb": 1}, {"extra": 1}, {"funnel": {}}, {"notes": [{}]}):
        document = loaded(sample.report()) | damage
        assert len(list(violations(document, schema, schema))) > 0, damage
    document = loaded(sample.report())
    del document["state"]
    assert list(violations(document, schema, schema)) == ["$ lacks ['state']"]


def test_the_page_is_generated_from_the_schema() -> None:
    page = (ROOT / "docs" / "report-json.md").read_text(encoding="utf-8")
    assert page == describe_markdown()


def test_keys_come_in_the_order_of_the_report() -> None:
    keys = list(loaded(sample.report()))
    assert keys == ["schema_version", "tokenpath_version", *(f.name for f in fields(Report))]
    assert keys == list(report_schema()["properties"])
    finding = loaded(sample.report())["findings"][0]
    assert set(finding) == {field.name for field in fields(Finding)}


def test_a_funnel_is_a_tree_whose_residuals_prove_that_it_closes() -> None:
    funnel = loaded(sample.report())["funnel"]
    assert funnel["is_closed"] is True
    idle = funnel["root"]["parts"][1]
    assert idle["key"] == "idle"
    assert idle["residual_ns"] == 0
    assert [part["duration_ns"] for part in idle["parts"]] == [21_870_000, 4_120_000, 2_499_996, 4]
    beside = funnel["root"]["parts"][0]["parts"][-1]
    assert (beside["key"], beside["is_part"]) == ("overlapped", False)


def test_a_funnel_that_does_not_close_says_by_how_much() -> None:
    rows = [*sample.funnel().rows[:-1], FunnelRow("unattributed", "unattributed", 2, 11)]
    funnel = loaded(replace(sample.report(), funnel=Funnel("total", rows)))["funnel"]
    assert funnel["is_closed"] is False
    assert funnel["root"]["parts"][1]["residual_ns"] == -7


@st.composite
def funnels(draw) -> Funnel:
    """Any rows below one wall; depth grows by at most one."""
    rows = [FunnelRow("wall", "wall", 0, draw(st.integers(0, 2**62)))]
    for index in range(draw(st.integers(0, 12))):
        depth = draw(st.integers(1, rows[-1].depth + 1))
        length = draw(st.integers(-(2**40), 2**62))
        rows.append(FunnelRow(f"k{index}", "x", depth, length, is_part=draw(st.booleans())))
    return Funnel("any", rows)


@given(funnels())
def test_residuals_are_those_of_the_report(funnel) -> None:
    found = {}

    def walk(node) -> int:
        if node["residual_ns"]:
            found[node["key"]] = node["residual_ns"]
        return 1 + sum(walk(part) for part in node["parts"])

    tree = export_json.funnel_tree(funnel)
    assert walk(tree["root"]) == len(funnel.rows)
    assert found == funnel.residuals()
    assert tree["is_closed"] == (not found)


def test_integers_stay_exact_and_numpy_is_unpacked() -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    facts = {
        "big_ns": 2**62 + 1,
        "np_ns": np.int64(2**53 + 1),
        "array": np.array([1, 2]),
        "nan": float("nan"),
        "inf": [math.inf, np.float64("-inf")],
        "enum": Colour.RED,
        "set": {"b", "a"},
        "yes": np.bool_(True),
        3: None,
    }
    text = export_json.render(replace(sample.empty_report(), facts=facts))
    assert "4611686018427387905" in text
    assert json.loads(text)["facts"] == {
        "big_ns": 2**62 + 1, "np_ns": 2**53 + 1, "array": [1, 2], "nan": None, "inf": [None, None],
        "enum": "red", "set": ["a", "b"], "yes": True, "3": None,
    }  # fmt: skip


def test_what_has_no_json_form_is_named() -> None:
    report = replace(sample.empty_report(), facts={"a": {"b": [object()]}})
    with pytest.raises(TypeError, match=r"facts\.a\.b\[0\] is object"):
        export_json.render(report)


def test_equal_keys_are_refused() -> None:
    table = sample.kernel_table()
    with pytest.raises(ValueError, match="table 'kernels'"):
        export_json.render(replace(sample.report(), tables=[table, table]))
    column = TableColumn("a", "a", Unit.COUNT)
    double = ShownTable("t", "t", [column, column], [], 0)
    with pytest.raises(ValueError, match="column of t 'a'"):
        export_json.render(replace(sample.report(), tables=[double]))
    two_walls = Funnel("t", [FunnelRow("a", "a", 0, 1), FunnelRow("b", "b", 0, 1)])
    with pytest.raises(ValueError, match="2 rows of lowest depth"):
        export_json.funnel_tree(two_walls)


def test_hostile_names_come_back_exactly_and_harmless() -> None:
    text = export_json.render(sample.hostile_report())
    assert text.isascii()
    assert all(char.isprintable() or char == "\n" for char in text)
    assert json.loads(text)["answer"] == list(sample.HOSTILE)


def test_equal_reports_give_equal_bytes() -> None:
    assert export_json.render(sample.report()) == export_json.render(sample.report())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=60),
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner, max_size=5),
        max_leaves=30,
    )
)  # fmt: skip
def test_the_writer_writes_json(value) -> None:
    assert json.loads(export_json.write(value)) == value
