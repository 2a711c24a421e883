"""Allocator events of a profile: a free names only the address, so it is paired with what took it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenpath.ingest import arrow
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.xla.lines import NULL, Int64s, Line, Texts

_FREE = "MemoryDeallocation"
ALLOCATOR_EVENTS = frozenset({"MemoryAllocation", _FREE})
"""Names of the marks that TensorFlow's and XLA's allocators leave on host threads."""


class MemoryEvents:
    """Gathers them over all threads, as memory is often freed by another one."""

    def __init__(self) -> None:
        self._numbers: list[Int64s] = []
        self._pools: list[int] = []
        self._names: dict[str, int] = {}

    def add(self, line: Line) -> None:
        """The events of a thread."""
        if not len(line):
            return
        is_free = np.array([name == _FREE for name in line.names.values])[line.names.codes]
        columns = (
            line.start_ns(),
            is_free.astype(np.int64),
            line.number("addr"),
            line.number("allocation_bytes"),
        )
        self._numbers.append(np.stack(columns))
        allocator, core = line.text("allocator_name"), line.number("index_on_host").tolist()
        for code, index in zip(allocator.codes.tolist(), core, strict=True):
            named = allocator.values[code] if code >= 0 else ""
            pool = named or ("" if index == NULL else f"device {index}")
            self._pools.append(self._names.setdefault(pool, len(self._names)))

    def write(self, builder: CaptureBuilder) -> None:
        """Rows of `memory_event` in order of time."""
        if not self._numbers:
            return
        numbers = np.concatenate(self._numbers, axis=1)
        order = np.argsort(numbers[0], kind="stable")
        at, is_free, address, size = (np.ascontiguousarray(column[order]) for column in numbers)
        pool = np.array(self._pools, np.int32)[order]
        size[size < 0] = NULL
        _pair(is_free, pool, address, size)
        known = size != NULL
        builder.losses.add("allocator event without a size", int((~known).sum()))
        rows = np.flatnonzero(known)
        freed = is_free[rows] == 1
        names = [name or None for name in self._names]
        builder.add(
            "memory_event",
            {
                "at_ns": at[rows],
                "action": Texts(freed.astype(np.int32), ["alloc", "free"]).arrow(),
                "address": arrow.integers(address[rows], NULL),
                "bytes": np.where(freed, -size[rows], size[rows]),
                "category": Texts(pool[rows], []).mapped(names).arrow(),
            },
        )


def _pair(is_free: Int64s, pool: NDArray[np.int32], address: Int64s, size: Int64s) -> None:
    """Give each free without a size that of the last allocation at its address, in place."""
    live: dict[tuple[int, int], int] = {}
    rows = zip(is_free.tolist(), pool.tolist(), address.tolist(), size.tolist(), strict=True)
    for row, (free, where, place, num_bytes) in enumerate(rows):
        if not free:
            live[where, place] = num_bytes
        elif num_bytes == NULL:
            size[row] = live.pop((where, place), NULL)
