"""Building declared tables: what fits is kept to the bit, what does not is refused by name."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from declared_rows import INT64, sample_row
from hypothesis import given
from hypothesis import strategies as st

from tokenpath.capture.capture import NO_ID, Capture, build_table, dictionary, nullable
from tokenpath.capture.tables import TABLES
from tokenpath.core.errors import CaptureError

EVENT = {"source_id": [0], "at_ns": [1], "action": ["alloc"], "bytes": [2]}


def test_columns_left_out_are_null_and_the_order_is_the_declared_one():
    table = build_table("memory_event", dict(reversed(EVENT.items())))
    assert table.schema.equals(TABLES["memory_event"].schema)
    assert table.to_pylist() == [
        {
            "source_id": 0,
            "at_ns": 1,
            "action": "alloc",
            "address": None,
            "bytes": 2,
            "stream_id": None,
            "category": None,
            "frame_id": None,
            "device_index": None,
            "call_stack": None,
        }
    ]


@pytest.mark.parametrize("name", list(TABLES))
def test_each_required_column_is_required(name):
    required = sample_row(name)
    assert build_table(name, required).num_rows == 1
    for left_out in required:
        rest = {key: value for key, value in required.items() if key != left_out}
        for columns in (rest, {**rest, left_out: [None]}):
            if not columns:
                continue
            with pytest.raises(CaptureError) as error:
                build_table(name, columns)
            assert f"table {name}, column {left_out}: " in str(error.value)
            assert "NULL" in str(error.value)


def test_unknown_columns_and_unequal_lengths():
    with pytest.raises(
        CaptureError, match=r"table op: no such column: nam, zzz\n  allowed: source"
    ):
        build_table("op", {"nam": [], "zzz": []})
    with pytest.raises(CaptureError, match=r"table op: .*'name': 2.*'start_ns': 1"):
        build_table("op", {"name": ["a", "b"], "start_ns": [1]})


@pytest.mark.parametrize("value", [3, "alloc", b"alloc", None, 1.5])
def test_one_value_for_a_whole_column_is_refused(value):
    with pytest.raises(CaptureError, match="table memory_event, column action: one value"):
        build_table("memory_event", {**EVENT, "action": value})


BAD_VALUES = {
    "fraction": ("at_ns", [0.5]),
    "whole float": ("at_ns", [1.0]),
    "NumPy float": ("at_ns", np.array([1.0])),
    "NumPy float in a list": ("at_ns", [np.float64(1.0)]),
    "NumPy float as object": ("at_ns", np.array([1.5], object)),
    "NaN": ("at_ns", [float("nan")]),
    "Arrow float": ("at_ns", pa.array([1.0])),
    "decimal": ("at_ns", [Decimal("1.5")]),
    "truth value": ("at_ns", [True]),
    "NumPy truth value": ("at_ns", np.array([True])),
    "text for a number": ("at_ns", ["1"]),
    "Arrow text for a number": ("at_ns", pa.array(["1"])),
    "time": ("at_ns", np.array([1], "datetime64[ns]")),
    "Python time": ("at_ns", [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)]),
    "2**63": ("at_ns", [2**63]),
    "below -2**63": ("at_ns", [-(2**63) - 1]),
    "uint64 above int64": ("at_ns", np.array([2**63], np.uint64)),
    "list": ("at_ns", [[1]]),
    "two dimensions": ("at_ns", np.array([[1]])),
    "past int32": ("source_id", [2**31]),
    "NumPy past int32": ("source_id", np.array([-(2**31) - 1])),
    "number for text": ("action", [5]),
    "NumPy number for text": ("action", np.array([5])),
    "Arrow number for text": ("action", pa.array([5])),
    "numbers in a dictionary": ("action", pa.array([5]).dictionary_encode()),
    "bytes that are no text": ("action", [b"\xff"]),
    "Arrow bytes": ("action", pa.array([b"a"])),
    "half a surrogate pair": ("action", ["\ud800"]),
}


@pytest.mark.parametrize("case", BAD_VALUES)
def test_values_of_another_type_are_refused_not_bent(case):
    column, values = BAD_VALUES[case]
    with pytest.raises(CaptureError) as error:
        build_table("memory_event", {**EVENT, column: values})
    assert f"table memory_event, column {column}: " in str(error.value)
    assert "allowed: " in str(error.value)


@pytest.mark.parametrize(
    ("table", "column", "values"),
    [
        ("kernel", "grid", [[1, 2]]),
        ("kernel", "grid", [[1, 2, 3, 4]]),
        ("kernel", "grid", [[1, 2, 2.5]]),
        ("kernel", "grid", [[1, 2, 2**31]]),
        ("kernel", "grid", [(1, 2, "3")]),
        ("kernel", "blocks_per_sm", ["1.5"]),
        ("kernel", "blocks_per_sm", [True]),
        ("kernel", "blocks_per_sm", [2**53 + 1]),
        ("kernel", "blocks_per_sm", np.array([True])),
        ("skip", "lost", [1]),
        ("skip", "lost", np.array([2])),
        ("skip", "lost", pa.array([1.0])),
        ("skip", "lost", ["True"]),
        ("graph_node", "predecessors", [[1, 2.5]]),
        ("graph_node", "predecessors", [["1"]]),
        ("token_score", "top_logprobs", [[-0.5]]),
        ("span", "attributes", [{"a": 1}]),
        ("span", "attributes", [{1: "a"}]),
    ],
)
def test_nested_and_other_types_are_refused_too(table, column, values):
    columns = {**sample_row(table), column: values}
    with pytest.raises(CaptureError, match=f"table {table}, column {column}: "):
        build_table(table, columns)


GOOD_INTEGERS = {
    "list": [5, None],
    "tuple": (5, None),
    "NumPy scalars": [np.int32(5), None],
    "objects": np.array([5, None], object),
    "Arrow int8": pa.array([5, None], pa.int8()),
    "Arrow uint64": pa.array([5, None], pa.uint64()),
    "chunks": pa.chunked_array([[5], [None]], pa.int32()),
}


@pytest.mark.parametrize("case", GOOD_INTEGERS)
def test_every_form_of_integers(case):
    two = {key: value * 2 for key, value in EVENT.items()}
    table = build_table("memory_event", {**two, "address": GOOD_INTEGERS[case]})
    assert table["address"].to_pylist() == [5, None]


GOOD_TEXTS = {
    "list": ["a", None, "a"],
    "NumPy objects": np.array(["a", None, "a"], object),
    "Arrow text": pa.array(["a", None, "a"]),
    "large text": pa.array(["a", None, "a"], pa.large_string()),
    "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
    "dictionary with int64 codes": pa.DictionaryArray.from_arrays(
        pa.array([0, None, 0], pa.int64()), pa.array(["a"])
    ),
    "dictionary of large texts": pa.array(["a", None, "a"], pa.large_string()).dictionary_encode(),
    "chunks": pa.chunked_array([["a", None], ["a"]]),
    "chunks of dictionaries": pa.chunked_array(
        [pa.array(["a", None]).dictionary_encode(), pa.array(["a"]).dictionary_encode()]
    ),
    "our dictionary()": dictionary(np.array([0, -1, 0], np.int32), ["a"]),
}


@pytest.mark.parametrize("case", GOOD_TEXTS)
@pytest.mark.parametrize("column", ["category", "action"])
def test_every_form_of_texts(case, column):
    three = {key: value * 3 for key, value in EVENT.items()}
    if column == "action":
        with pytest.raises(CaptureError, match="column action: NULL"):
            build_table("memory_event", {**three, column: GOOD_TEXTS[case]})
        return
    table = build_table("memory_event", {**three, column: GOOD_TEXTS[case]})
    assert table[column].to_pylist() == ["a", None, "a"]
    codes, texts = Capture({"memory_event": table}).codes("memory_event", column)
    assert (codes.tolist(), texts) == ([0, NO_ID, 0], ["a"])


def test_numpy_text_without_null():
    three = {key: value * 3 for key, value in EVENT.items()}
    table = build_table("memory_event", {**three, "action": np.array(["a", "b", "a"])})
    assert table["action"].to_pylist() == ["a", "b", "a"]


def test_a_column_of_nothing_but_null_fits_every_type():
    for name, declared in TABLES.items():
        for column in declared.columns:
            if column.null is None:
                continue
            for values in ([None, None], pa.nulls(2)):
                table = build_table(name, {**sample_row(name, 2), column.name: values})
                assert table[column.name].to_pylist() == [None, None]


@given(st.lists(st.none() | st.floats(), max_size=8))
def test_floats_keep_nan_apart_from_null(values):
    rows = sample_row("kernel", len(values))
    table = build_table("kernel", {**rows, "blocks_per_sm": values})
    assert str(table["blocks_per_sm"].to_pylist()) == str(values)


@given(
    st.lists(st.integers(-3, 3), max_size=8), st.lists(st.text(max_size=2), min_size=4, max_size=4)
)
def test_dictionary_spells_its_codes(codes, texts):
    column = dictionary(np.array(codes, np.int32), texts)
    assert column.to_pylist() == [None if code < 0 else texts[code] for code in codes]
    assert column.null_count == sum(code < 0 for code in codes)


def test_dictionary_without_texts_and_with_a_code_too_high():
    assert dictionary(np.empty(0, np.int32), []).to_pylist() == []
    assert dictionary(np.array([-1], np.int32), []).to_pylist() == [None]
    with pytest.raises(IndexError):
        dictionary(np.array([0, 2], np.int32), ["a", "b"])
    with pytest.raises(IndexError):
        dictionary(np.array([0], np.int32), [])


@given(st.lists(INT64, max_size=8), INT64)
def test_nullable_replaces_exactly_the_stand_in(values, null):
    found = nullable(np.array(values, np.int64), null).to_pylist()
    assert found == [None if value == null else value for value in values]
