"""Columns that the compiled scanner writes to, and how they reach the stores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpath.ingest.kineto.categories import (
    FIRST_TEXTS,
    LAUNCH_FLOW_OF_CATEGORY,
    SORT_OF_COMPLETE,
    SORT_OF_PHASE,
    Sort,
)
from tokenpath.ingest.kineto.columns import NUM_COLUMNS, Col
from tokenpath.ingest.kineto.fast_texts import FastTexts, address
from tokenpath.ingest.kineto.numbers import parse_real_bits
from tokenpath.ingest.kineto.reasons import REASONS, Reason, count
from tokenpath.ingest.kineto.sorting import FIELDS, STORE_OF, Sorter, distinct_metadata
from tokenpath.ingest.kineto.state import (
    FIELD_WORDS,
    GROUP_WORDS,
    LONG_REAL,
    NUM_GROUPS,
    G,
    Group,
    Op,
    S,
)
from tokenpath.ingest.kineto.stores import Field, Store, without_nulls

Array = NDArray[Any]

_FIRST_ROWS = 8192
_NOTHING = np.empty(0, np.int8)
_LONG_REAL_MASK = -(2**48)
_STORE_OF_GROUP: dict[int, str] = {
    **{int(sort): name for sort, name in STORE_OF.items()},
    int(Group.OP_COLLECTIVE): "op_collective",
    int(Group.KERNEL_COLLECTIVE): "kernel_collective",
}
_RAW_FIELDS = tuple(Field(str(column), column, "i8") for column in range(NUM_COLUMNS))
_DTYPES = {"i4": np.int32, "i8": np.int64, "f8": np.int64, "u1": np.uint8}


class GroupSink:
    """Rows go to groups, column by column, in compiled code; the groups go to the stores at the end."""

    def __init__(self, texts: FastTexts, sorter: Sorter) -> None:
        self.sorter = sorter
        self._texts = texts
        self._row = np.empty(NUM_COLUMNS, np.int64)
        self._groups = np.zeros((NUM_GROUPS, GROUP_WORDS), np.int64)
        self._counts = np.zeros((len(Reason), 3), np.int64)
        self._columns: dict[int, list[Array]] = {}
        self._fields: dict[int, NDArray[np.int64]] = {}
        self._tables = tuple(
            np.ascontiguousarray(table, np.uint8)
            for table in (SORT_OF_PHASE, SORT_OF_COMPLETE, LAUNCH_FLOW_OF_CATEGORY)
        )
        for number, name in _STORE_OF_GROUP.items():
            self._add_group(number, FIELDS[name])
        self._add_group(int(Sort.BEGIN_END), _RAW_FIELDS)
        state = texts.state
        state[S.ROW], state[S.GROUPS] = address(self._row), address(self._groups)
        state[S.COUNTS] = address(self._counts)
        state[S.SORT_OF_PHASE], state[S.SORT_OF_CATEGORY], state[S.LAUNCH_FLOWS] = (
            address(table) for table in self._tables
        )
        state[S.NUM_KNOWN_TEXTS] = len(FIRST_TEXTS)

    def _add_group(self, number: int, fields: tuple[Field, ...]) -> None:
        table = np.zeros((len(fields), FIELD_WORDS), np.int64)
        for row, field in enumerate(fields):
            table[row] = 8 * field.column, 0, np.dtype(_DTYPES[field.dtype]).itemsize
        group = self._groups[number]
        group[G.NUM_FIELDS], group[G.FIELDS] = len(fields), address(table)
        self._fields[number] = table
        self._start_columns(number, [_DTYPES[field.dtype] for field in fields])

    def _start_columns(self, number: int, dtypes: list[type]) -> None:
        self._columns[number] = [np.empty(_FIRST_ROWS, dtype) for dtype in dtypes]
        self._groups[number, G.NUM_ROWS] = 0
        self._publish(number, _FIRST_ROWS)

    def _publish(self, number: int, max_rows: int) -> None:
        self._groups[number, G.MAX_ROWS] = max_rows
        self._fields[number][:, 1] = [address(column) for column in self._columns[number]]

    def add(self, row: list[int]) -> None:
        """Keep or count one raw row."""
        self._row[:] = row
        while self._texts.run(Op.COMMIT):
            self.make_room()

    def make_room(self) -> None:
        """Give the group that stopped the scanner room for more rows."""
        number = int(self._texts.state[S.FULL_GROUP])
        if number == Sort.METADATA:
            self._empty(number)
            return
        max_rows = 2 * int(self._groups[number, G.MAX_ROWS])
        for column in self._columns[number]:
            # Memory of this size is moved by the kernel page by page, without copying; pages that no
            # row has reached take none.
            column.resize(max_rows, refcheck=False)
        self._publish(number, max_rows)

    def flush(self) -> None:
        """Hand all rows and counts on."""
        for number in self._columns:
            self._empty(number)
        for reason in REASONS:
            num_events, offset, phase = self._counts[reason].tolist()
            count(self.sorter.losses, reason, num_events, offset, phase)
        self._counts[:] = 0
        state = self._texts.state
        self.sorter.num_events += int(state[S.NUM_EVENTS])
        state[S.NUM_EVENTS] = 0

    def restart(self, sorter: Sorter) -> None:
        """Hand what comes on to another sorter; the groups must be empty."""
        self.sorter = sorter
        self._groups[:, G.NUM_BEFORE] = 0

    def _empty(self, number: int) -> None:
        """Hand the rows of a group to its store; the group begins anew."""
        num_rows = int(self._groups[number, G.NUM_ROWS])
        if num_rows == 0:
            return
        columns = self._columns[number]
        self._groups[number, G.NUM_BEFORE] += num_rows
        self._start_columns(number, [column.dtype.type for column in columns])
        for column in columns:
            column.resize(num_rows, refcheck=False)
        if number == Sort.BEGIN_END:
            for real in (Col.BLOCKS_PER_SM, Col.WARPS_PER_SM, Col.OCCUPANCY):
                self._resolve_long_reals(columns[real])
            self.sorter.begin_end.append(np.stack(columns, axis=1))
        elif number == Sort.METADATA:
            distinct_metadata(self.sorter.stores["metadata"], *columns)
        else:
            self._append(self.sorter.stores[_STORE_OF_GROUP[number]], columns, num_rows)

    def _append(self, store: Store, columns: list[Array], num_rows: int) -> None:
        named = {}
        for at, field in enumerate(store.fields):
            values, columns[at] = columns[at], _NOTHING
            if field.dtype == "f8":
                self._resolve_long_reals(values)
            named[field.name] = without_nulls(values, field.dtype)
        store.append_columns(named, num_rows)

    def _resolve_long_reals(self, values: NDArray[np.int64]) -> None:
        """Numbers of many digits are the codes of their text by now."""
        for row in np.flatnonzero((values & _LONG_REAL_MASK) == LONG_REAL).tolist():
            values[row] = parse_real_bits(self._texts.text(int(values[row]) & 0xFFFFFFFF))
