"""The compiled scanners as finished machine code: loading it takes no numba once it was compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenpath.capture.machine_code import Library, library_of, load

Entry = Callable[[int, int, int, int], int]
"""`compiled.entry.run`."""

_HERE = Path(__file__).parent
_SOURCES = (
    "otlp/compiled/*.py",
    "otlp/state.py",
    "otlp/batch.py",
    "kineto/compiled/json.py",
    "kineto/compiled/machine.py",
    "kineto/compiled/texts.py",
)
_SIGNATURE = ("int64",) * 4


@functools.cache
def load_entry() -> Entry:
    """The entry point of the compiled scanners, from the cache or freshly compiled."""
    sources = [source for pattern in _SOURCES for source in sorted(_HERE.parent.glob(pattern))]
    return load("otlp", _SIGNATURE, sources, _compile)


def _compile() -> Library:
    from numba.core import config as settings

    config: Any = settings

    level = config.OPT
    # numba would optimise each function on its own and again in each caller; once at the end is enough.
    config.OPT = type(level)(0)
    try:
        from tokenpath.ingest.otlp.compiled.entry import run
    finally:
        config.OPT = level
    return library_of(run.overloads[run.signatures[0]])
