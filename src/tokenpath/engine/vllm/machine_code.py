"""The scheduler as finished machine code: loading it takes no numba once it was compiled."""

from __future__ import annotations

import functools

from tokenpath.capture.compile_modules import are_kept, load_modules
from tokenpath.capture.machine_code import MachineCode
from tokenpath.engine.vllm import (
    complete,
    entry,
    eviction,
    keys,
    layout,
    pool,
    queue,
    schedule,
)

MODULES = (layout, keys, eviction, pool, queue, schedule, complete)
"""Everything that the scheduler's entry calls."""

ARRAYS = (
    "int64:1",
    "int64:2",
    "int64:1",
    "int64:1",
    *("int64:2",) * 4,
    "int64:1",
    "int64:2",
    "int64:3",
)
"""Types of the fields of `layout.Memory`."""


_SIGNATURE = ("int64",) * 4 + ARRAYS


@functools.cache
def load_entry() -> MachineCode:
    """`entry.run`, from the cache or freshly compiled."""
    return load_modules(entry.run, (*MODULES, entry), _SIGNATURE)


def is_at_hand() -> bool:
    """Whether `load_entry` finds finished code."""
    return are_kept((*MODULES, entry), _SIGNATURE)
