"""The event loop as finished machine code: loading it takes no numba once it was compiled."""

from __future__ import annotations

import functools

from tokenpath.capture.compile_modules import are_kept, load_modules
from tokenpath.capture.machine_code import MachineCode, signature_of
from tokenpath.engine.vllm.machine_code import MODULES
from tokenpath.simulate import loop, step_cost
from tokenpath.simulate.compiled import clients, entry, events, layout, serving
from tokenpath.simulate.compiled.layout import Sim

_MODULES = (*MODULES, loop, step_cost, layout, events, clients, serving, entry)


@functools.cache
def _load(signature: tuple[str, ...]) -> MachineCode:
    return load_modules(entry.advance, _MODULES, signature)


def load_advance(sim: Sim) -> MachineCode:
    """`entry.advance` for the types of these arrays, from the cache or freshly compiled."""
    return _load(_signature(sim))


def is_at_hand(sim: Sim) -> bool:
    """Whether `load_advance` finds finished code."""
    return are_kept(_MODULES, _signature(sim))


def _signature(sim: Sim) -> tuple[str, ...]:
    return ("int64", "int64", *signature_of(sim))
