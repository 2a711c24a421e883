"""Columns of a SQLite table read from the pages of its file, without a Python object for each value.

The format is the one of https://www.sqlite.org/fileformat2.html: a table is a tree of pages; a leaf page
holds cells; a cell is a row id and a record, whose header gives the type of each column. Only integers
and texts in the page itself are read here. Rows that go on in overflow pages are named, to be read by
SQLite; whatever breaks the format is an error, and then SQLite reads the whole table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.compiled import compiled
from tokenpath.capture.intervals import Int64s
from tokenpath.core.units import INT64_MIN

Bytes = NDArray[np.uint8]

_HEADER_BYTES = 100
_UTF8 = 1
_MAX_PAGES = 2**31


class CannotScan(Exception):
    """The pages are not what this module reads: the caller asks SQLite instead."""


@dataclass(frozen=True)
class Wanted:
    """A table and the columns to read of it."""

    root: int
    """Page at which its tree begins."""
    integers: Sequence[int]
    """Positions of integer columns in a record."""
    texts: Sequence[int]
    """Positions of text columns."""
    row_id: int | None
    """Position of the column that is the row id; None where there is none."""


@dataclass(frozen=True)
class Scanned:
    """What was read, rows in the order of the table."""

    num_rows: int
    """Rows."""
    integers: list[Int64s]
    """INT64_MIN for NULL."""
    texts: list[pa.Array]
    """String arrays."""
    odd_rows: Int64s
    """Rows that SQLite must read; their values here are NULL."""
    odd_ids: Int64s
    """Their row ids."""
    num_wrong: int
    """Values that are neither NULL nor of the wanted type; they are NULL here."""


def map_pages(path: Path) -> tuple[Bytes, int]:
    """The mapped file and its page size. CannotScan for a file of another kind or encoding."""
    if path.stat().st_size < _HEADER_BYTES:
        raise CannotScan
    data = np.memmap(path, np.uint8, "r")
    head = bytes(data[:_HEADER_BYTES])
    page_size = int.from_bytes(head[16:18], "big")
    page_size = 65536 if page_size == 1 else page_size
    reserved = head[20]
    if page_size < 512 or page_size & (page_size - 1) or reserved:
        raise CannotScan
    if int.from_bytes(head[56:60], "big") != _UTF8 or len(data) // page_size > _MAX_PAGES:
        raise CannotScan
    return data, page_size


def scan_table(data: Bytes, page_size: int, wanted: Wanted) -> Scanned:
    """Read the columns. CannotScan where the pages break the format."""
    num_pages = len(data) // page_size
    pages = np.empty(num_pages + 1, np.int64)
    stack = np.empty(num_pages + 1, np.int64)
    seen = np.zeros(num_pages + 1, np.uint8)
    # The loops are worth compiling for the number of pages of a large table only.
    size = num_pages * 100
    num_leaves = _find_leaves(size)(data, page_size, wanted.root, num_pages, seen, stack, pages)
    if num_leaves < 0:
        raise CannotScan
    first = np.empty(num_leaves + 1, np.int64)
    num_rows = _count_cells(size)(data, page_size, pages, num_leaves, first)
    if num_rows < 0 or num_rows > len(data):
        raise CannotScan
    num_columns = 1 + max([*wanted.integers, *wanted.texts], default=0)
    slot = np.full(num_columns, -1, np.int64)
    for number, column in enumerate((*wanted.integers, *wanted.texts)):
        slot[column] = number
    num_integers = len(wanted.integers)
    values = np.full((num_integers + len(wanted.texts), num_rows), INT64_MIN, np.int64)
    lengths = np.full((max(1, len(wanted.texts)), num_rows), -1, np.int64)
    odd_rows, odd_ids = np.empty(num_rows, np.int64), np.empty(num_rows, np.int64)
    counts = np.zeros(2, np.int64)
    alias = -1 if wanted.row_id is None else wanted.row_id
    failed = _read_cells(size)(
        *(data, page_size, pages, num_leaves, first, slot, num_integers, alias),
        *(values, lengths, odd_rows, odd_ids, counts),
    )
    if failed:
        raise CannotScan
    return Scanned(
        int(num_rows),
        [values[number] for number in range(num_integers)],
        [
            gather_texts(data, values[num_integers + number], lengths[number])
            for number in range(len(wanted.texts))
        ],
        odd_rows[: counts[0]].copy(),
        odd_ids[: counts[0]].copy(),
        int(counts[1]),
    )


def gather_texts(data: Bytes, offset: Int64s, length: Int64s) -> pa.Array:
    """Texts that lie somewhere in the file as one string array; NULL where the length is negative."""
    size = np.maximum(length, 0)
    begin = np.zeros(len(size) + 1, np.int64)
    np.cumsum(size, out=begin[1:])
    if begin[-1] >= 2**31:
        raise CannotScan
    content = np.empty(int(begin[-1]), np.uint8)
    _copy_texts(len(size))(data, offset, size, begin, content)
    valid = np.packbits(length >= 0, bitorder="little")
    array = pa.StringArray.from_buffers(
        len(size),
        pa.py_buffer(begin.astype(np.int32)),
        pa.py_buffer(content),
        pa.py_buffer(valid),
        int((length < 0).sum()),
    )
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raw = array.cast(pa.binary()).to_pylist()
        texts = [None if text is None else text.decode("utf-8", "replace") for text in raw]
        return pa.array(texts, pa.string())
    return array


@compiled
def _find_leaves(
    data: Bytes,
    page_size: int,
    root: int,
    num_pages: int,
    seen: Bytes,
    stack: Int64s,
    leaves: Int64s,
) -> int:
    """Leaf pages in order of the table; their number, or -1 for a page that is none of a table."""
    if root < 1 or root > num_pages:
        return -1
    depth, found = 1, 0
    stack[0] = root
    seen[root] = 1
    while depth > 0:
        depth -= 1
        page = stack[depth]
        begin = (page - 1) * page_size
        head = begin + 100 if page == 1 else begin
        kind = data[head]
        if kind == 13:
            leaves[found] = page
            found += 1
            continue
        if kind != 5:
            return -1
        num_cells = int(data[head + 3]) * 256 + int(data[head + 4])
        if head + 12 + 2 * num_cells > begin + page_size:
            return -1
        for cell in range(num_cells, -1, -1):
            # The rightmost child first, so that the leftmost lies on top of the stack.
            at = head + 8
            if cell < num_cells:
                pointer = head + 12 + 2 * cell
                at = begin + int(data[pointer]) * 256 + int(data[pointer + 1])
                if at + 4 > begin + page_size:
                    return -1
            child = 0
            for byte in range(4):
                child = child * 256 + int(data[at + byte])
            if child < 1 or child > num_pages or seen[child] != 0:
                return -1
            seen[child] = 1
            stack[depth] = child
            depth += 1
    return found


@compiled
def _count_cells(
    data: Bytes, page_size: int, leaves: Int64s, num_leaves: int, first: Int64s
) -> int:
    """Row number at which each leaf begins; the number of rows, or -1 for a page too full to be one."""
    total = 0
    for number in range(num_leaves):
        first[number] = total
        page = leaves[number]
        begin = (page - 1) * page_size
        head = begin + 100 if page == 1 else begin
        num_cells = int(data[head + 3]) * 256 + int(data[head + 4])
        if head + 8 + 2 * num_cells > begin + page_size:
            return -1
        total += num_cells
    first[num_leaves] = total
    return total


@compiled
def _read_cells(
    data: Bytes,
    page_size: int,
    leaves: Int64s,
    num_leaves: int,
    first: Int64s,
    slot: Int64s,
    num_integers: int,
    alias: int,
    values: Int64s,
    lengths: Int64s,
    odd_rows: Int64s,
    odd_ids: Int64s,
    counts: Int64s,
) -> int:
    """Fill the values; 0, or 1 for a record that breaks the format."""
    num_columns = len(slot)
    for number in range(num_leaves):
        page = leaves[number]
        begin = (page - 1) * page_size
        end = begin + page_size
        head = begin + 100 if page == 1 else begin
        for cell in range(first[number + 1] - first[number]):
            row = first[number] + cell
            pointer = head + 8 + 2 * cell
            at = begin + int(data[pointer]) * 256 + int(data[pointer + 1])
            # Two varints: seven bits a byte, the ninth byte gives all its eight.
            payload, row_id = 0, 0
            for which in range(2):
                value, going = 0, 1
                for byte in range(9):
                    if going == 1:
                        if at >= end:
                            return 1
                        part = int(data[at])
                        at += 1
                        if byte == 8:
                            if value >= 2**55:
                                value -= 2**56
                            value = value * 256 + part
                        else:
                            value = value * 128 + (part & 127)
                            if part < 128:
                                going = 0
                if which == 0:
                    payload = value
                else:
                    row_id = value
            if payload < 1 or payload > page_size - 35:
                if payload < 1:
                    return 1
                odd_rows[counts[0]] = row
                odd_ids[counts[0]] = row_id
                counts[0] += 1
                continue
            stop = at + payload
            if stop > end:
                return 1
            header_size = int(data[at])
            header_at = at + 1
            if header_size >= 128:
                if header_at >= stop or int(data[header_at]) >= 128:
                    return 1
                header_size = (header_size & 127) * 128 + int(data[header_at])
                header_at += 1
            body = at + header_size
            header_end = body
            if body > stop:
                return 1
            for column in range(num_columns):
                if header_at >= header_end:
                    return 1
                kind = int(data[header_at])
                header_at += 1
                if kind >= 128:
                    kind &= 127
                    more = 1
                    for _ in range(4):
                        if more == 1:
                            if header_at >= header_end:
                                return 1
                            part = int(data[header_at])
                            header_at += 1
                            kind = kind * 128 + (part & 127)
                            if part < 128:
                                more = 0
                    if more == 1:
                        return 1
                size = 0
                if kind >= 12:
                    size = (kind - 12) >> 1
                elif kind <= 4:
                    size = kind
                elif kind == 5:
                    size = 6
                elif kind <= 7:
                    size = 8
                elif kind >= 10:
                    return 1
                if body + size > stop:
                    return 1
                where = slot[column]
                if column == alias:
                    if where >= 0:
                        if where < num_integers:
                            values[where, row] = row_id
                        else:
                            counts[1] += 1
                elif where >= num_integers:
                    if kind >= 13 and (kind & 1) == 1:
                        values[where, row] = body
                        lengths[where - num_integers, row] = size
                    elif kind != 0:
                        counts[1] += 1
                elif where >= 0:
                    if kind >= 8 and kind <= 9:
                        values[where, row] = kind - 8
                    elif kind >= 7:
                        counts[1] += 1
                    elif kind > 0:
                        value = int(data[body])
                        if value >= 128:
                            value -= 256
                        for byte in range(1, size):
                            value = value * 256 + int(data[body + byte])
                        values[where, row] = value
                body += size
    return 0


@compiled
def _copy_texts(data: Bytes, offset: Int64s, size: Int64s, begin: Int64s, content: Bytes) -> None:
    for row in range(len(size)):
        to, source = begin[row], offset[row]
        for byte in range(size[row]):
            content[to + byte] = data[source + byte]
