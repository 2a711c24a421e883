"""The same work on several things side by side: NumPy leaves the interpreter to others meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_MAX_WORKERS = 4


def worker_count(wanted: int | None) -> int:
    """As many threads as wanted; where that is open, as there are cores, but not many."""
    return wanted or min(_MAX_WORKERS, _num_cores())


def each(
    function: Callable[[Item], Result], items: Iterable[Item], num_workers: int
) -> list[Result]:
    """The function's result for each item, in their order."""
    if num_workers < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(num_workers, "tokenpath-rows") as pool:
        return list(pool.map(function, items))


def _num_cores() -> int:
    """Cores that this process may use, which a container or taskset can make fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
