"""Settings that a load generator writes into its results: what may be kept, and what is private."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tokenpath.ingest.fields import MAX_TEXT
from tokenpath.ingest.load_metrics import Figures, is_word
from tokenpath.ingest.losses import Losses

MAX_SETTINGS = 400
"""A run has no more; further ones are counted."""

_PRIVATE = re.compile(
    r"(?:^|[._-])(?:api_?key|.*_key|key|secret|pass(?:word|wd|phrase)?|pwd|(?:auth|hf|access|bearer)_?token"
    r"|token|credentials?|authorization|headers?|cookies?|extra_headers?|request_headers?)$",
    re.IGNORECASE,
)
_PLACE = re.compile(
    r"(?:^|[._-])(?:target|ur[il]s?|api_base|host(?:name|s)?|addr(?:ess)?(?:es)?|ip|endpoints?|server|nodes?"
    r"|user(?:_?name)?|cli_command|command|cmdline|argv|args|env(?:ironment)?)$",
    re.IGNORECASE,
)
_MAX_DEPTH = 6

NESTED = object()
"""Stands for a value that is no setting: a list of objects."""


def keep(figures: Figures, losses: Losses, name: str, value: object) -> None:
    """Keep a setting, nested ones by dotted names; keys, headers and addresses are counted and dropped."""
    for full, single in _flat(name, value, 0):
        if _PLACE.search(full) or any(_PRIVATE.search(part) for part in full.split(".")):
            losses.add("private setting", lost=False)
        elif not all(is_word(part) for part in full.split(".")):
            losses.add("setting without a word for a name")
        elif single is NESTED:
            losses.add("nested setting")
        elif len(figures.settings) >= MAX_SETTINGS:
            losses.add("more settings than are kept")
        else:
            figures.settings[full] = single


def _flat(name: str, value: object, depth: int) -> Iterator[tuple[str, object]]:
    if value is None:
        return
    if isinstance(value, dict) and depth < _MAX_DEPTH:
        for key, inner in value.items():
            if _PRIVATE.search(str(key)):
                yield str(key), ""
            else:
                yield from _flat(f"{name}.{key}" if name else str(key), inner, depth + 1)
    elif isinstance(value, bool | int | float):
        yield name, value
    elif isinstance(value, str):
        yield name, value[:MAX_TEXT]
    elif isinstance(value, list) and all(isinstance(one, str | int | float) for one in value):
        yield name, ", ".join(str(one) for one in value[:64])[:MAX_TEXT]
    else:
        yield name, NESTED
