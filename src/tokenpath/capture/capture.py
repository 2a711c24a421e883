"""A capture in memory: Arrow tables that keep to their declaration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s
from tokenpath.capture.schema import Table
from tokenpath.capture.tables import TABLES
from tokenpath.core.errors import CaptureError

Integer = TypeVar("Integer", np.int32, np.int64)

NO_ID = -1
"""What a NULL row number reads as in `Capture.ids`."""


class Capture:
    """What happened: declared tables, absent ones read as empty.

    Immutable; `replace` gives a capture with some tables exchanged. Every method that names a table or
    column raises CaptureError for one that is not declared.
    """

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        """Tables by declared name; CaptureError for one that is not declared or has other columns."""
        for name, table in tables.items():
            expected = _declared(name).schema
            if not table.schema.equals(expected):
                raise CaptureError(
                    "columns differ from the declaration: " + _difference(table.schema, expected),
                    where=f"table {name}",
                    allowed=", ".join(f"{field.name} {field.type}" for field in expected),
                    next_step="build it with tokenpath.capture.build_table",
                )
            for column in expected.names:
                if pa.types.is_dictionary(expected.field(column).type):
                    _refuse_null_text(name, column, table[column])
        self._tables = dict(tables)

    def __getitem__(self, name: str) -> pa.Table:
        """The table; an empty one when the capture does not hold it."""
        table = self._tables.get(name)
        return _declared(name).schema.empty_table() if table is None else table

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def num_rows(self, name: str) -> int:
        """Rows of a table, 0 when it is absent."""
        rows: int = self[name].num_rows
        return rows

    def int64(self, table: str, column: str, null: int | None = None) -> Int64s:
        """A column of integers or truth values as int64.

        `null` stands for NULL; CaptureError when the column holds one and no stand-in is named.
        """
        values = self._column(table, column, ("int64", "int32", "bool"), "int64")
        if values.null_count and null is None:
            raise CaptureError(
                "the column holds NULL and the caller named no stand-in for it",
                where=f"table {table}, column {column}",
                allowed="a column without NULL, or a value for `null`",
            )
        if values.type == pa.int64():
            whole: Int64s = _integers(values, np.int64, 0 if null is None else null)
            return whole
        result: Int64s = _flat(values, pa.int64(), null).to_numpy(zero_copy_only=False)
        return result

    def ids(self, table: str, column: str) -> NDArray[np.int32]:
        """A column of row numbers as int32, NO_ID for NULL."""
        values = self._column(table, column, ("int32",), "ids")
        result: NDArray[np.int32] = _integers(values, np.int32, NO_ID)
        return result

    def float64(self, table: str, column: str) -> NDArray[np.float64]:
        """A column of numbers as float64, NaN for NULL (inside calculations only).

        CaptureError for integers that a float64 cannot hold exactly.
        """
        values = self._column(table, column, ("float64", "int64", "int32"), "float64")
        try:
            array = _flat(values, pa.float64(), None)
        except pa.ArrowInvalid as error:
            raise CaptureError(
                f"not exact as float64: {error}", where=f"table {table}, column {column}"
            ) from None
        result: NDArray[np.float64] = array.to_numpy(zero_copy_only=False)
        return result

    def codes(self, table: str, column: str) -> tuple[NDArray[np.int32], list[str]]:
        """A text column as codes into a list of distinct texts; NO_ID for NULL.

        The list may hold texts that no row has.
        """
        values = self._column(table, column, ("text",), "codes")
        if values.num_chunks != 1:
            values = pa.chunked_array([values.unify_dictionaries().combine_chunks()])
        chunk = values.chunk(0)
        texts: list[str] = chunk.dictionary.to_pylist()
        codes: NDArray[np.int32] = _integers(pa.chunked_array([chunk.indices]), np.int32, NO_ID)
        if len(set(texts)) == len(texts):
            return codes, texts
        distinct = chunk.dictionary.dictionary_encode()
        # The extra last entry is what NO_ID indexes.
        recode = np.append(distinct.indices.to_numpy(), np.int32(NO_ID))
        return recode[codes], distinct.dictionary.to_pylist()

    def replace(self, tables: Mapping[str, pa.Table]) -> Capture:
        """The same capture with these tables in place of its own."""
        return Capture({**self._tables, **tables})

    def nbytes(self) -> int:
        """Bytes held by all tables."""
        return sum(table.nbytes for table in self._tables.values())

    def _column(
        self, table: str, column: str, types: tuple[str, ...], reader: str
    ) -> pa.ChunkedArray:
        declared = _declared(table)
        types_by_name = {known.name: known.type for known in declared.columns}
        if column not in types_by_name:
            raise CaptureError(
                f"no such column: {column}",
                where=f"table {table}",
                allowed=", ".join(types_by_name),
                next_step="see docs/tables.md",
            )
        if types_by_name[column] not in types:
            raise CaptureError(
                f"a column of type {types_by_name[column]} cannot be read by {reader}()",
                where=f"table {table}, column {column}",
                allowed=", ".join(types),
            )
        return self[table][column]


def build_table(name: str, columns: Mapping[str, Sized]) -> pa.Table:
    """A declared table from columns given as Arrow or NumPy arrays or lists; missing ones are NULL.

    Values are converted only where nothing is lost: a float never becomes an integer. CaptureError when
    a column is unknown, of the wrong type, of another length, or missing or NULL although it may not be.
    """
    declared = _declared(name)
    names = [column.name for column in declared.columns]
    unknown = set(columns) - set(names)
    if unknown:
        raise CaptureError(
            f"no such column: {', '.join(sorted(unknown))}",
            where=f"table {name}",
            allowed=", ".join(names),
        )
    for key, value in columns.items():
        if isinstance(value, str | bytes) or not isinstance(value, Sized):
            raise CaptureError(
                f"one value for the whole column: {value!r}",
                where=f"table {name}, column {key}",
                allowed="one value a row, as an Arrow array, a NumPy array or a list",
            )
    lengths = {key: len(value) for key, value in columns.items()}
    if len(set(lengths.values())) > 1:
        raise CaptureError(f"columns differ in length: {lengths}", where=f"table {name}")
    num_rows = next(iter(lengths.values()), 0)
    arrays = []
    # Columns of NULL of one type share their memory: wide tables have dozens of them.
    nulls: dict[pa.DataType, pa.Array] = {}
    for column in declared.columns:
        where = f"table {name}, column {column.name}"
        if column.name in columns:
            array = _as_arrow(where, columns[column.name], column.arrow_type)
            if column.null is None and array.null_count:
                raise CaptureError("NULL in a column that may not hold one", where=where)
            arrays.append(array)
        elif column.null is None and num_rows:
            required = ", ".join(known.name for known in declared.columns if known.null is None)
            raise CaptureError(
                f"column {column.name!r} is missing and may not be NULL",
                where=where,
                allowed=f"only columns other than {required} may be left out",
            )
        else:
            if column.arrow_type not in nulls:
                nulls[column.arrow_type] = pa.nulls(num_rows, column.arrow_type)
            arrays.append(nulls[column.arrow_type])
    return pa.Table.from_arrays(arrays, schema=declared.schema)


def dictionary(codes: NDArray[np.int32], texts: Sequence[str] | pa.Array) -> pa.DictionaryArray:
    """A text column from codes into `texts`; negative codes are NULL.

    IndexError for a code that is not below `len(texts)`.
    """
    mask = codes < 0
    indices = pa.array(codes, mask=mask) if mask.any() else pa.array(codes)
    values = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
    return pa.DictionaryArray.from_arrays(indices, values)


def nullable(values: NDArray[np.int64] | NDArray[np.int32], null: int) -> pa.Array:
    """An integer column in which `null` stands for NULL."""
    mask = values == null
    return pa.array(values, mask=mask) if mask.any() else pa.array(values)


def _declared(name: str) -> Table:
    table = TABLES.get(name)
    if table is None:
        raise CaptureError(
            f"table {name!r} is not declared",
            allowed=", ".join(TABLES),
            next_step="see docs/tables.md",
        )
    return table


def _as_arrow(where: str, values: Sized, kind: pa.DataType) -> pa.Array:
    allowed = f"{kind}, or what becomes it without loss"
    try:
        array: pa.Array = values
        if not isinstance(values, pa.Array | pa.ChunkedArray):
            array = _from_python(values, kind)
        if not _fits(array.type, kind):
            raise CaptureError(f"values of type {array.type}", where=where, allowed=allowed)
        return array if array.type == kind else array.cast(kind)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise CaptureError(f"values do not fit: {error}", where=where, allowed=allowed) from None


def _from_python(values: Sized, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    # With a type given, Arrow cuts the fraction off a Python float without a word, and takes any NumPy
    # number for a truth value. So values keep their own type here, and `_fits` judges that.
    is_typed = isinstance(values, np.ndarray) and values.dtype != object
    return pa.array(values) if is_typed or _holds_numbers(kind) else pa.array(values, kind)


def _holds_numbers(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return _holds_numbers(kind.value_type)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _fits(found: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a cast either keeps every value or fails."""
    types = pa.types
    if types.is_null(found) or found == kind:
        return True
    if types.is_dictionary(found):
        return (types.is_dictionary(kind) or types.is_string(kind)) and _is_text(found.value_type)
    if types.is_dictionary(kind) or types.is_string(kind):
        return _is_text(found)
    if types.is_list(kind) or types.is_fixed_size_list(kind):
        is_list = types.is_list(found) or types.is_large_list(found)
        return (is_list or types.is_fixed_size_list(found)) and _fits(
            found.value_type, kind.value_type
        )
    if types.is_floating(kind):
        return bool(types.is_integer(found) or types.is_floating(found))
    return bool(types.is_integer(kind) and types.is_integer(found))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _integers(values: pa.ChunkedArray, dtype: type[Integer], null: int) -> NDArray[Integer]:
    """A column of that very type as one array, without Arrow's compute functions; no copy of one chunk."""
    if values.num_chunks == 1 and not values.null_count:
        whole: NDArray[Integer] = values.chunk(0).to_numpy()
        return whole
    result = np.empty(len(values), dtype)
    at = 0
    for chunk in values.chunks:
        part = result[at : at + len(chunk)]
        at += len(chunk)
        if len(chunk) == chunk.null_count:
            part[:] = null
            continue
        validity, data = chunk.buffers()
        begin = chunk.offset
        part[:] = np.frombuffer(data, dtype, begin + len(chunk))[begin:]
        if chunk.null_count:
            bits = np.frombuffer(validity, np.uint8)
            valid = np.unpackbits(bits, count=begin + len(chunk), bitorder="little")[begin:]
            part[valid == 0] = null
    return result


def _flat(values: pa.ChunkedArray, kind: pa.DataType, null: int | None) -> pa.Array:
    """The column as one array; NULL stays when there is no stand-in."""
    if values.type != kind:
        values = values.cast(kind)
    if null is not None and values.null_count:
        # Importing Arrow's compute functions takes a tenth of a second: not for the usual columns.
        import pyarrow.compute as pc

        values = pc.fill_null(values, pa.scalar(null, kind))
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def _refuse_null_text(table: str, column: str, values: pa.ChunkedArray) -> None:
    # Such a NULL is missing from null_count, and dictionaries that hold one cannot be unified.
    if any(chunk.dictionary.null_count for chunk in values.chunks):
        raise CaptureError(
            "a dictionary that holds NULL as one of its texts",
            where=f"table {table}, column {column}",
            allowed="NULL as the code of a row",
        )


def _difference(found: pa.Schema, expected: pa.Schema) -> str:
    for name in expected.names:
        if name not in found.names:
            return f"column {name!r} is missing"
        if len(found.get_all_field_indices(name)) > 1:
            return f"column {name!r} is there more than once"
        if not found.field(name).equals(expected.field(name)):
            return (
                f"column {name!r} is {_written(found, name)}, declared {_written(expected, name)}"
            )
    unknown = [name for name in found.names if name not in expected.names]
    if unknown:
        return "unknown columns: " + ", ".join(unknown)
    return "the order is " + ", ".join(found.names)


def _written(schema: pa.Schema, name: str) -> str:
    field = schema.field(name)
    return f"{field.type}" + ("" if field.nullable else " not null")
