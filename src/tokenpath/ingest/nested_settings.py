"""Settings that a dump holds as dicts within dicts."""

from __future__ import annotations

import re
from typing import Any

from tokenpath.ingest.builder import CaptureBuilder

_PLAIN = re.compile(r"\w{1,80}", re.ASCII)
"""What a key may be: hosts and addresses are not masked any more once they stand between dots."""
_MAX_SETTINGS = 1000
_MAX_CHARS = 100_000


def add_settings(builder: CaptureBuilder, name: str, value: Any, depth: int = 2) -> None:
    """Keep `name.KEY`, `name.KEY.KEY` and so on, `depth` dicts deep.

    Counted: names that are no plain words, values that are no plain text or number, and what is beyond
    the bound.
    """
    left = [_MAX_SETTINGS]
    _add(builder, name, value, depth, left)


def _add(builder: CaptureBuilder, name: str, value: Any, depth: int, left: list[int]) -> None:
    if isinstance(value, dict) and depth:
        for key, inner in value.items():
            if left[0] <= 0:
                builder.losses.add("setting beyond the bound", dropped=False)
                return
            if _PLAIN.fullmatch(str(key)) is None:
                builder.losses.add("setting without a plain name or value", dropped=False)
            else:
                _add(builder, f"{name}.{key}", inner, depth - 1, left)
        return
    left[0] -= 1
    if not isinstance(value, str | bool | int | float):
        builder.losses.add("setting without a plain name or value", dropped=False)
    else:
        builder.setting(name, str(value)[:_MAX_CHARS])
