"""Reading columns of a capture: every way in which Arrow may hold them gives the same arrays."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from declared_rows import INT64, TEXTS, columns
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpath.capture.capture import NO_ID, Capture, build_table
from tokenpath.capture.tables import TABLES
from tokenpath.core.errors import CaptureError

ALL_COLUMNS = [(table.name, column) for table in TABLES.values() for column in table.columns]
READERS = {
    "int32": {"int64", "ids", "float64"},
    "int64": {"int64", "float64"},
    "float64": {"float64"},
    "bool": {"int64"},
    "text": {"codes"},
}
DTYPES = {"int64": np.int64, "ids": np.int32, "float64": np.float64}


def thread(names: object, **more: object) -> Capture:
    """A capture of threads with these names."""
    size = len(names)
    fixed = {"source_id": [0] * size, "pid": ["1"] * size, "tid": ["2"] * size}
    return Capture({"thread": build_table("thread", {**fixed, "name": names, **more})})


def without_chunks(name: str) -> pa.Table:
    schema = TABLES[name].schema
    return pa.table([pa.chunked_array([], kind) for kind in schema.types], schema=schema)


EMPTY_FORMS = {
    "absent": lambda name: Capture({}),
    "no chunks": lambda name: Capture({name: without_chunks(name)}),
    "empty table": lambda name: Capture({name: TABLES[name].schema.empty_table()}),
    "built of nothing": lambda name: Capture({name: build_table(name, {})}),
    "built of empty lists": lambda name: Capture(
        {name: build_table(name, {column.name: [] for column in TABLES[name].columns})}
    ),
    "two empty chunks": lambda name: Capture(
        {name: pa.concat_tables([TABLES[name].schema.empty_table()] * 2)}
    ),
    "empty slice": lambda name: Capture({name: build_table(name, {}).slice(0, 0)}),
}


@pytest.mark.parametrize("form", EMPTY_FORMS)
def test_a_table_without_rows_reads_as_empty_arrays_in_every_column(form):
    for name, column in ALL_COLUMNS:
        capture = EMPTY_FORMS[form](name)
        assert capture.num_rows(name) == 0
        assert capture[name].schema.equals(TABLES[name].schema)
        for reader in READERS.get(column.type, ()):
            found = getattr(capture, reader)(name, column.name)
            if reader == "codes":
                codes, texts = found
                assert (codes.dtype, len(codes), texts) == (np.int32, 0, [])
            else:
                assert (found.dtype, len(found)) == (DTYPES[reader], 0)


@pytest.mark.parametrize("reader", ["int64", "ids", "float64", "codes"])
def test_a_column_of_another_type_is_refused_by_name_even_when_empty(reader):
    for name, column in ALL_COLUMNS:
        if reader in READERS.get(column.type, ()):
            continue
        with pytest.raises(CaptureError) as error:
            getattr(Capture({}), reader)(name, column.name)
        text = str(error.value)
        assert f"table {name}, column {column.name}" in text
        assert column.type in text
        assert "allowed:" in text


@pytest.mark.parametrize("reader", ["int64", "ids", "float64", "codes"])
def test_unknown_tables_and_columns_are_named_with_what_is_allowed(reader):
    read = getattr(Capture({}), reader)
    with pytest.raises(CaptureError, match=r"'kernels' is not declared\n  allowed: .*\bkernel\b"):
        read("kernels", "name")
    with pytest.raises(CaptureError, match=r"table kernel: no such column: nam\n  allowed: .*name"):
        read("kernel", "nam")


def test_unknown_table_is_an_error_wherever_it_is_named():
    table = TABLES["op"].schema.empty_table()
    for call in (
        lambda: Capture({})["kernels"],
        lambda: Capture({}).num_rows("kernels"),
        lambda: Capture({"kernels": table}),
        lambda: Capture({}).replace({"kernels": table}),
        lambda: build_table("kernels", {}),
    ):
        with pytest.raises(CaptureError, match=r"'kernels' is not declared\n  allowed: source, "):
            call()


def split(values: list[object], cuts: list[int]) -> list[list[object]]:
    edges = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    return [values[a:b] for a, b in itertools.pairwise(edges)]


def chunked(values: list[object], cuts: list[int], kind: pa.DataType) -> pa.ChunkedArray:
    """The values in chunks of their own, text ones each with a dictionary of its own."""
    if pa.types.is_dictionary(kind):
        parts = [pa.array(part, pa.string()).dictionary_encode() for part in split(values, cuts)]
    else:
        parts = [pa.array(part, kind) for part in split(values, cuts)]
    return pa.chunked_array(parts, kind)


CUTS = st.lists(st.integers(0, 12), max_size=4)


@given(values=st.lists(st.none() | TEXTS, max_size=12), cuts=CUTS, unify=st.booleans())
def test_codes_spell_the_column_however_its_dictionaries_are_cut(values, cuts, unify):
    column = chunked(values, cuts, pa.dictionary(pa.int32(), pa.string()))
    codes, texts = thread(column.unify_dictionaries() if unify else column).codes("thread", "name")
    assert codes.dtype == np.int32
    assert [None if code == NO_ID else texts[code] for code in codes] == values
    assert len(set(texts)) == len(texts)
    assert None not in texts


@given(values=st.lists(st.none() | INT64, min_size=1, max_size=12), cuts=CUTS)
def test_int64_is_exact_with_null_and_chunks(values, cuts):
    column = chunked(values, cuts, pa.int64())
    capture = thread([""] * len(values))
    table = build_table(
        "memory_event",
        {
            "source_id": [0] * len(values),
            "at_ns": [0] * len(values),
            "action": ["alloc"] * len(values),
            "bytes": [0] * len(values),
            "address": column,
        },
    )
    capture = capture.replace({"memory_event": table})
    for null in (-1, -(2**63), 2**63 - 1):
        found = capture.int64("memory_event", "address", null=null)
        assert found.tolist() == [null if value is None else value for value in values]
    if None in values:
        with pytest.raises(CaptureError, match=r"table memory_event, column address: .*NULL"):
            capture.int64("memory_event", "address")
    else:
        assert capture.int64("memory_event", "address").tolist() == values


def test_a_stand_in_may_lie_outside_the_type_of_the_column():
    # rank is int32; a stand-in of 2**40 must not wrap or fail.
    rows = {
        "source_id": [0, 0],
        "op": ["a", "a"],
        "group_size": [None, 8],
    }
    capture = Capture({"collective": build_table("collective", rows)})
    assert capture.int64("collective", "group_size", null=2**40).tolist() == [2**40, 8]


@given(st.data())
@settings(max_examples=40)
def test_every_column_of_every_table_reads_back_what_was_built(data):
    name = data.draw(st.sampled_from(list(TABLES)))
    rows = data.draw(columns(name))
    capture = Capture({name: build_table(name, rows)})
    for column in TABLES[name].columns:
        values = rows[column.name]
        assert capture[name][column.name].to_pylist() == values
        if column.type in ("int32", "int64", "bool"):
            read = capture.int64(name, column.name, null=-7)
            assert read.tolist() == [-7 if value is None else int(value) for value in values]
        if column.type == "float64":
            read = capture.float64(name, column.name)
            assert np.array_equal(read, np.array(values, float), equal_nan=True)


def test_float64_refuses_integers_that_it_would_round():
    rows = {"source_id": [0], "at_ns": [2**53 + 1], "action": ["free"], "bytes": [-3]}
    capture = Capture({"memory_event": build_table("memory_event", rows)})
    assert capture.float64("memory_event", "bytes").tolist() == [-3.0]
    assert np.isnan(capture.float64("memory_event", "address")).all()
    with pytest.raises(CaptureError, match="table memory_event, column at_ns: not exact"):
        capture.float64("memory_event", "at_ns")


def test_codes_of_a_dictionary_that_repeats_a_text():
    column = pa.DictionaryArray.from_arrays(
        pa.array([2, 1, None, 0, 3], pa.int32()), pa.array(["a", "b", "a", "c"])
    )
    codes, texts = thread(column).codes("thread", "name")
    assert texts == ["a", "b", "c"]
    assert codes.tolist() == [0, 1, NO_ID, 0, 2]


def test_a_dictionary_that_holds_null_as_a_text_is_refused():
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a", None]))
    with pytest.raises(CaptureError, match=r"table thread, column name: .*NULL"):
        thread(column)
    required = build_table("skip", {}).schema
    arrays = [pa.array([0, 0], kind) for kind in required.types[:1]]
    arrays += [column, pa.array([True, True]), pa.array([1, 1]), pa.nulls(2, pa.string())]
    with pytest.raises(CaptureError, match=r"table skip, column reason: .*NULL"):
        Capture({"skip": pa.Table.from_arrays(arrays, schema=required)})


def test_codes_of_a_slice_stay_true():
    capture = thread(pa.array(["a", "b", None, "b", "c"]))
    part = Capture({"thread": capture["thread"].slice(1, 3)})
    codes, texts = part.codes("thread", "name")
    assert [None if code == NO_ID else texts[code] for code in codes] == ["b", None, "b"]


def test_codes_of_many_large_dictionaries():
    # 4 chunks of 50,000 texts each, half of them shared with the next chunk.
    parts = [
        pa.array([f"kernel<{i}>" for i in range(25_000 * k, 25_000 * (k + 2))]).dictionary_encode()
        for k in range(4)
    ]
    codes, texts = thread(pa.chunked_array(parts)).codes("thread", "name")
    assert len(texts) == 125_000
    assert [texts[code] for code in codes[::997]] == [
        text for part in parts for text in part.to_pylist()
    ][::997]


def test_arrays_of_a_capture_cannot_be_written_to():
    capture = thread(["a", "b"])
    before = capture["thread"].to_pylist()
    ids = capture.ids("thread", "source_id")
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = 5
    assert capture["thread"].to_pylist() == before


def test_replace_leaves_the_original_alone():
    first = thread(["a"])
    second = first.replace({"thread": thread(["b", "c"])["thread"]})
    assert (first.num_rows("thread"), second.num_rows("thread")) == (1, 2)
    assert list(first) == list(second) == ["thread"]
    assert "op" not in first
    assert first.nbytes() > 0
    assert Capture({}).nbytes() == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop_columns(["pid"]), "'pid' is missing"),
        (lambda t: t.append_column("extra", pa.array(["x"])), "unknown columns: extra"),
        (lambda t: t.append_column("pid", pa.array(["x"])), "'pid' is there more than once"),
        (lambda t: t.select(t.column_names[::-1]), "the order is name, tid, pid, source_id"),
        (
            lambda t: t.set_column(0, "source_id", pa.array([0], pa.int64())),
            "'source_id' is int64, declared int32 not null",
        ),
        (
            lambda t: t.set_column(0, "source_id", pa.array([0], pa.int32())),
            "'source_id' is int32, declared int32 not null",
        ),
    ],
)
def test_a_table_that_differs_from_its_declaration_is_described(change, message):
    table = change(thread(["a"])["thread"])
    with pytest.raises(CaptureError) as error:
        Capture({"thread": table})
    assert message in str(error.value)
    assert "table thread" in str(error.value)
    assert "allowed: source_id int32, pid string" in str(error.value)


def test_schema_metadata_does_not_matter():
    table = thread(["a"])["thread"].replace_schema_metadata({"written_by": "another program"})
    assert Capture({"thread": table}).num_rows("thread") == 1
