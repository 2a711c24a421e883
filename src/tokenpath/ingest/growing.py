"""Rows that grow one by one, held as machine words: integers, and texts as codes."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.core.kernel_names import classify_many
from tokenpath.ingest import arrow
from tokenpath.ingest.kineto.texts import readable

NULL = -(2**63)
"""Stands for NULL in a column of `GrowingRows`."""

BY_NAME, MEMCPY, MEMSET = 0, 1, 2
"""How the kind of a piece of device work is known: by its name, or it is a copy or a fill."""

_KINDS = ("compute", "memcpy", "memset", "communication")


class GrowingRows:
    """Rows of int64, one machine word a value; NULL where there is none."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._words = array("q")

    def append(self, *values: int) -> None:
        """Add a row. OverflowError for an integer that is no int64."""
        if len(values) != len(self._names):
            raise ValueError(f"{len(values)} values for {len(self._names)} columns")
        self._words.extend(values)

    def __len__(self) -> int:
        return len(self._words) // len(self._names)

    def columns(self) -> dict[str, NDArray[np.int64]]:
        """A copy of all rows by column."""
        table = np.frombuffer(self._words, np.int64).reshape(-1, len(self._names))
        return {name: table[:, at].copy() for at, name in enumerate(self._names)}


class Words:
    """Distinct texts in the order in which they first appeared, and their codes."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        """The code of a text, a new one for a new text."""
        return self._codes.setdefault(text, len(self._codes))

    def texts(self) -> list[str]:
        """All texts by code; what is no character is U+FFFD."""
        return [readable(text) for text in self._codes]

    def column(self, codes: NDArray[np.int64]) -> pa.Array:
        """A text column; negative codes are NULL."""
        return arrow.texts(np.maximum(codes, -1).astype(np.int32), self.texts())


def whole(value: object) -> int:
    """A JSON or SQLite integer (also as text) that fits int64; NULL when it is none."""
    if type(value) is int:
        return value if NULL < value < 2**63 else NULL
    if isinstance(value, str) and len(value) <= 20:
        try:
            number = int(value)
        except ValueError:
            return NULL
        return number if NULL < number < 2**63 else NULL
    return NULL


def small(value: object) -> int:
    """A count or size from 0 to 2**31 - 1; NULL when it is none."""
    number = whole(value)
    return number if 0 <= number < 2**31 else NULL


def nullable(values: NDArray[np.int64]) -> pa.Array:
    """An int64 column, NULL where `NULL` stands."""
    return arrow.integers(np.ascontiguousarray(values), NULL)


def nullable_ids(values: NDArray[Any]) -> pa.Array:
    """An int32 column of row numbers, NULL where they are negative."""
    ids = np.maximum(values, -1).astype(np.int32)
    return arrow.integers(ids, -1)


def kinds_and_families(
    codes: NDArray[np.int64], words: Words, how: NDArray[np.int64]
) -> Mapping[str, pa.Array]:
    """The columns `kind` and `family` of device work, decided once for each distinct name."""
    kind = how.astype(np.int32)
    labels = list(_KINDS)
    family = kind.copy()
    rows = np.flatnonzero(how == BY_NAME)
    distinct, which = np.unique(codes[rows], return_inverse=True)
    texts = words.texts()
    verdicts = classify_many([texts[code] for code in distinct.tolist()])
    code_of = {label: code for code, label in enumerate(labels)}
    families = []
    for verdict in verdicts:
        label = str(verdict.family)
        if label not in code_of:
            code_of[label] = len(labels)
            labels.append(label)
        families.append(code_of[label])
    kind[rows] = np.array([3 * v.is_communication for v in verdicts], np.int32)[which]
    family[rows] = np.array(families, np.int32)[which]
    return {"kind": arrow.texts(kind, list(_KINDS)), "family": arrow.texts(family, labels)}


def find_rows(
    wanted: NDArray[np.int64], keys: NDArray[np.int64], rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The row of the first key equal to each wanted pair; -1 where there is none or a part is NULL."""
    found = np.full(len(wanted), -1, np.int64)
    if len(keys) == 0 or len(wanted) == 0:
        return found
    _, which = np.unique(np.concatenate([keys, wanted]), axis=0, return_inverse=True)
    which = which.reshape(-1)
    first = np.full(int(which.max()) + 1, -1, np.int64)
    # Written back to front, so that the first of equal keys stays.
    first[which[: len(keys)][::-1]] = rows[::-1]
    is_known = (wanted != NULL).all(axis=1)
    return np.where(is_known, first[which[len(keys) :]], found)
