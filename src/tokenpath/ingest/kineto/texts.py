"""Distinct texts of a file and their codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Int32s = NDArray[np.int32]

_SURROGATE = re.compile("[\ud800-\udfff]")


class Texts(Protocol):
    """Gives each distinct text a code, in order of first appearance."""

    def code(self, text: str) -> int:
        """The code of a text, a new one for a new text."""

    def pair(self, pid: int, tid: int) -> int:
        """The number of a (pid, tid) pair, given as codes."""


class SlowTexts:
    """Codes from dictionaries."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._pairs: dict[tuple[int, int], int] = {}

    def code(self, text: str) -> int:
        """The code of a text, a new one for a new text."""
        return self._codes.setdefault(text, len(self._codes))

    def pair(self, pid: int, tid: int) -> int:
        """The number of a (pid, tid) pair, given as codes."""
        return self._pairs.setdefault((pid, tid), len(self._pairs))

    def texts(self) -> list[str]:
        """All texts by code."""
        return [readable(text) for text in self._codes]

    def pairs(self) -> Int32s:
        """All pairs by number, an array (num_pairs, 2)."""
        return np.array(list(self._pairs), np.int32).reshape(-1, 2)


def readable(text: str) -> str:
    """The text with what is no character (bytes outside UTF-8, lone surrogates) as U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("�", text)


def compact_json(value: object) -> str:
    """JSON without spaces; floats are quoted, because the decoder keeps their digits as text."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def make_decoder() -> Callable[[str, int], tuple[object, int]]:
    """A JSON decoder `(text, position) -> (value, end)`.

    Floats stay text, so nothing is rounded; NaN and Infinity read as null; control characters in
    strings are accepted. Raises ValueError, StopIteration or RecursionError.
    """
    decoder = json.JSONDecoder(parse_float=str, parse_constant=lambda _: None, strict=False)
    # Not in the type stubs, but what `raw_decode` itself calls.
    scan: Callable[[str, int], tuple[object, int]] = vars(decoder)["scan_once"]
    return scan
