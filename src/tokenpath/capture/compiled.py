"""Loops that are compiled when there is enough work, and plain Python when there is not.

Importing numba costs about half a second, so a small capture must never load it. A decorated function
is the same source on both paths, so both give the same result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

COMPILE_FROM_ROWS = 20_000
"""Loops over fewer rows take less time in plain Python than numba takes to load."""


def compiled(function: Callable[P, R]) -> Callable[[int], Callable[P, R]]:
    """Turn a loop into `loop(num_rows)`, which returns the version fit for that many rows.

    The loop must be valid both as Python and as numba nopython code. The compiled version is cached on
    disk by numba, where it finds a folder it may write to, and releases the GIL.
    """

    @functools.cache
    def machine_code() -> Callable[P, R]:
        import numba

        jitted: Callable[P, R]
        try:
            jitted = numba.njit(cache=True, nogil=True)(function)
        except RuntimeError:
            # Neither the package's folder nor the user's cache can be written to.
            jitted = numba.njit(nogil=True)(function)
        return jitted

    def pick(num_rows: int) -> Callable[P, R]:
        return machine_code() if num_rows >= COMPILE_FROM_ROWS else function

    return pick
