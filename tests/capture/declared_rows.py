"""Random valid rows of any declared table, straight from its declaration."""

from __future__ import annotations

from hypothesis import strategies as st

from tokenpath.capture.schema import Column
from tokenpath.capture.tables import TABLES

# Few distinct texts, so that dictionaries repeat; among them what files get wrong.
TEXTS = st.one_of(
    st.sampled_from(["", "a", "aten::mm", "ü\u2028\x00", "x" * 300]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
INT64 = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1, 0, -1, 2**53 + 1])
)
INT32 = st.one_of(st.integers(-(2**31), 2**31 - 1), st.sampled_from([-(2**31), 2**31 - 1]))

VALUES = {
    "int32": INT32,
    "int64": INT64,
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "text": TEXTS,
    "string": TEXTS,
    "dim3": st.lists(INT32, min_size=3, max_size=3),
    "int64s": st.lists(INT64, max_size=3),
    "strings": st.lists(TEXTS, max_size=3),
    "map": st.dictionaries(TEXTS, TEXTS, max_size=3).map(lambda items: list(items.items())),
}


def cell(column: Column) -> st.SearchStrategy[object]:
    """A value of the column, NULL too where it may hold one."""
    values = VALUES[column.type]
    return values if column.null is None else st.none() | values


def columns(name: str, max_rows: int = 6) -> st.SearchStrategy[dict[str, list[object]]]:
    """The columns of a table with the same number of rows each; the order of ids is not kept."""
    declared = TABLES[name].columns
    rows = st.lists(st.tuples(*(cell(column) for column in declared)), max_size=max_rows)
    return rows.map(
        lambda found: {column.name: [row[i] for row in found] for i, column in enumerate(declared)}
    )


def sample_row(name: str, num_rows: int = 1) -> dict[str, list[object]]:
    """The columns of a table that may not be NULL, with the plainest values."""
    plainest = {"text": "a", "string": "a", "float64": 1.0, "bool": True, "int32": 0, "int64": 0}
    declared = TABLES[name].columns
    return {
        column.name: [plainest[column.type]] * num_rows for column in declared if not column.null
    }
