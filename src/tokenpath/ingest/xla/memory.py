"""Allocator events of a profile: a free names only the address, so it is paired with what took it."""

from __future__ import annotations

import numpy as np

from tokenpath.ingest import arrow
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.xla.lines import NULL, Int64s, Line, Texts, distinct, together

_FREE = "MemoryDeallocation"
ALLOCATOR_EVENTS = frozenset({"MemoryAllocation", _FREE})
"""Names of the marks that TensorFlow's and XLA's allocators leave on host threads."""


class MemoryEvents:
    """Gathers them over all threads, as memory is often freed by another one."""

    def __init__(self) -> None:
        self._numbers: list[Int64s] = []
        self._pools: dict[str, int] = {}

    def add(self, line: Line) -> None:
        """The events of a thread."""
        if not len(line):
            return
        is_free = np.array([name == _FREE for name in line.names.values])[line.names.codes]
        columns = (
            line.start_ns,
            is_free.astype(np.int64),
            line.number("addr"),
            line.number("allocation_bytes"),
            self._pool_of(line),
        )
        self._numbers.append(np.stack(columns))

    def _pool_of(self, line: Line) -> Int64s:
        """Which allocator took the memory; a TPU's names only the device."""
        allocator = line.text("allocator_name")
        cores, core = distinct(line.number("index_on_host"))
        names = [None if index == NULL else f"device {index}" for index in cores.tolist()]
        which, said = together(allocator, Texts(core, []).mapped(names))
        pools = [
            self._pools.setdefault(own or device or "", len(self._pools)) for own, device in said
        ]
        return np.array(pools, np.int64)[which]

    def write(self, builder: CaptureBuilder) -> None:
        """Rows of `memory_event` in order of time."""
        if not self._numbers:
            return
        numbers = np.concatenate(self._numbers, axis=1)
        self._numbers.clear()
        if (numbers[0, 1:] < numbers[0, :-1]).any():
            numbers = numbers[:, np.argsort(numbers[0], kind="stable")]
        at, is_free, address, size, pool = numbers
        size = np.where(size < 0, NULL, size)
        size = _paired(is_free, pool, address, size)
        known = size != NULL
        builder.losses.add("allocator event without a size", int((~known).sum()))
        rows = np.flatnonzero(known)
        freed = is_free[rows] == 1
        names = [name or None for name in self._pools]
        builder.add(
            "memory_event",
            {
                "at_ns": at[rows],
                "action": Texts(freed.astype(np.int32), ["alloc", "free"]).arrow(),
                "address": arrow.integers(address[rows], NULL),
                "bytes": np.where(freed, -size[rows], size[rows]),
                "category": Texts(pool[rows].astype(np.int32), []).mapped(names).arrow(),
            },
        )


def _paired(is_free: Int64s, pool: Int64s, address: Int64s, size: Int64s) -> Int64s:
    """The sizes, with those of frees that state none taken from what came before at their address."""
    if not ((is_free == 1) & (size == NULL)).any():
        return size
    order = np.lexsort((np.arange(len(size)), address, pool))
    before, after = order[:-1], order[1:]
    takes = (
        (is_free[after] == 1)
        & (size[after] == NULL)
        & (is_free[before] == 0)
        & (address[after] == address[before])
        & (pool[after] == pool[before])
    )
    size[after[takes]] = size[before[takes]]
    return size
