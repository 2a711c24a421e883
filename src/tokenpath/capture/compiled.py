"""Loops that are compiled when there is enough work, and plain Python when there is not.

Importing numba costs over half a second, so a small capture must never load it, and a large one only the
first time. A decorated function is the same source on both paths, so both give the same result.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

COMPILE_FROM_ROWS = 20_000
"""Loops over fewer rows take less time in plain Python than numba takes to load."""

WARM_FROM_ROWS = 1_000
"""The same once the loader of machine code is there, which it is after a large file was read."""


def compiled(function: Callable[P, R]) -> Callable[[int], Callable[P, R]]:
    """Turn a loop into `loop(num_rows)`, which returns the version fit for that many rows.

    The loop takes integers and C-contiguous arrays, returns an integer or nothing, and must be valid both
    as Python and as numba nopython code. The compiled version is kept on disk where it finds a folder it
    may write to (`machine_code`), and releases the GIL.
    """
    loaded: dict[tuple[str, ...], Callable[..., object]] = {}

    @functools.wraps(function)
    def run_machine_code(*args: P.args, **_: P.kwargs) -> R:
        from tokenpath.capture import machine_code

        arguments = cast("tuple[machine_code.Argument, ...]", args)
        signature = machine_code.signature_of(arguments)
        if signature not in loaded:
            loaded[signature] = machine_code.load_loop(function, signature)
        return cast("R", loaded[signature](*arguments))

    def pick(num_rows: int) -> Callable[P, R]:
        enough = WARM_FROM_ROWS if "llvmlite" in sys.modules else COMPILE_FROM_ROWS
        return run_machine_code if num_rows >= enough else function

    return pick
