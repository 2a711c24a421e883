"""What a declared table is: columns with type, meaning and what NULL means."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

_TEXT = pa.dictionary(pa.int32(), pa.string())
_TYPES: dict[str, pa.DataType] = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "text": _TEXT,
    "string": pa.string(),
    "dim3": pa.list_(pa.int32(), 3),
    "int64s": pa.list_(pa.int64()),
    "strings": pa.list_(pa.string()),
    "map": pa.map_(pa.string(), pa.string()),
}


@dataclass(frozen=True)
class Column:
    """One declared column."""

    name: str
    """Name; the unit ends it."""
    type: str
    """One of the short type names of this file; `text` is a dictionary-encoded string."""
    doc: str
    """What it means."""
    null: str | None = None
    """What NULL means; None when the column may not be NULL."""

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the column."""
        return _TYPES[self.type]


@dataclass(frozen=True)
class Table:
    """One declared table."""

    name: str
    """Singular noun."""
    doc: str
    """What one row is."""
    columns: tuple[Column, ...]
    """In the order in which they are stored."""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the table."""
        return pa.schema(
            pa.field(column.name, column.arrow_type, nullable=column.null is not None)
            for column in self.columns
        )

    def column(self, name: str) -> Column:
        """The declared column of that name; KeyError when there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


def table(name: str, doc: str, *columns: tuple[str, ...]) -> Table:
    """A table from its columns, each (name, type, meaning) or (name, type, meaning, what NULL means)."""
    return Table(name, doc, tuple(Column(*column) for column in columns))


SOURCE = ("source_id", "int32", "row of `source` that this came from")
START = ("start_ns", "int64", "start on the capture's clock")
END = ("end_ns", "int64", "end on the capture's clock (exclusive)")
AT = ("at_ns", "int64", "time on the capture's clock")
