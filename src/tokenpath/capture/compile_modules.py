"""Functions of several modules, valid as Python and as numba nopython code, compiled as one piece.

The functions call each other by name as ordinary Python. To compile them, they are copied into one shared
namespace in which every such name stands for numba's version of it; the modules themselves stay as they are.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FunctionType, ModuleType
from typing import cast

from tokenpath.capture.machine_code import (
    Library,
    MachineCode,
    Overload,
    is_kept,
    library_of,
    load,
    numba_type,
)


def load_modules(
    entry: Callable[..., int], modules: Sequence[ModuleType], signature: tuple[str, ...]
) -> MachineCode:
    """`entry` as machine code, from the cache or freshly compiled.

    `modules` must hold every function that it calls, directly or not, and `entry` itself. No two different
    functions or constants of them may share a name.
    """
    name, sources = _name_and_sources(modules)
    return load(name, signature, sources, lambda: compile_modules(entry, modules, signature))


def are_kept(modules: Sequence[ModuleType], signature: tuple[str, ...]) -> bool:
    """Whether `load_modules` would find finished code, and not have to compile for half a minute."""
    name, sources = _name_and_sources(modules)
    return is_kept(name, signature, sources)


def _name_and_sources(modules: Sequence[ModuleType]) -> tuple[str, list[Path]]:
    sources = [Path(__file__), *(Path(inspect.getfile(module)) for module in modules)]
    return modules[-1].__name__.rsplit(".", 1)[-1], sources


def compile_modules(
    entry: Callable[..., int], modules: Sequence[ModuleType], signature: tuple[str, ...]
) -> Library:
    """Compile `entry` and what it calls, for arguments of these types."""
    import numba

    names: dict[str, object] = {}
    for module in modules:
        for name, value in vars(module).items():
            if not name.startswith("__") and names.setdefault(name, value) is not value:
                raise ValueError(f"{name} is two things in {[m.__name__ for m in modules]}")
    own = {module.__name__ for module in modules}
    # No reference counts: every array comes from outside and stays. No wrappers: only machine code
    # calls. (numba's declared types know neither option.)
    compiled = vars(numba)["njit"](
        nogil=True,
        error_model="numpy",
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        _nrt=False,
    )
    for name, value in list(names.items()):
        if isinstance(value, FunctionType) and value.__module__ in own:
            copy = FunctionType(
                value.__code__, names, value.__name__, value.__defaults__, value.__closure__
            )
            names[name] = compiled(functools.update_wrapper(copy, value, updated=()))
    dispatcher = cast("_Dispatcher", names[entry.__name__])
    with _optimising_little():
        dispatcher.compile(tuple(numba_type(kind) for kind in signature))
    # A call that is left passes every array as nine numbers; inlining is a third of the time.
    return replace(library_of(next(iter(dispatcher.overloads.values()))), is_one_piece=True)


@contextlib.contextmanager
def _optimising_little() -> Iterator[None]:
    """Numba optimises each function alone and again in each caller; once at the end is enough.

    A little is still needed: numba also translates every one of these functions to machine code that
    nobody calls, which takes far longer for code that was not simplified at all.
    """
    from numba.core import config

    settings = vars(config)
    level = settings["OPT"]
    settings["OPT"] = type(level)(1)
    try:
        yield
    finally:
        settings["OPT"] = level


class _Dispatcher:
    """What numba makes of a function (numba/core/dispatcher.py)."""

    overloads: dict[object, Overload]

    def compile(self, types: tuple[object, ...]) -> None: ...
