"""Texts that an export keeps once (`StringIds`) and names by number."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s
from tokenpath.core.units import INT64_MIN
from tokenpath.ingest.nsys.export import Export

Codes = NDArray[np.int32]


def codes_of(values: Int64s) -> tuple[Int64s, Codes]:
    """The distinct values, sorted, and which of them each one is."""
    if len(values) == 0:
        return values, np.zeros(0, np.int32)
    # Rows of one thread or stream come in runs, and a run is looked up once.
    begin = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    distinct, which = np.unique(values[begin], return_inverse=True)
    sizes = np.diff(np.append(begin, len(values)))
    return distinct, np.repeat(which.astype(np.int32), sizes)


class Strings:
    """The table `StringIds`."""

    def __init__(self, export: Export) -> None:
        columns = export.read("StringIds", ["id"], ["value"])
        ids = columns.integer("id")
        order = np.argsort(ids, kind="stable")
        self._ids = ids[order]
        self._texts = columns.text("value").take(pa.array(order))
        self.num_wrong = columns.num_wrong
        """Values of another type than text."""
        self.problem = columns.problem
        """Why the table was not read to its end."""

    def distinct(self, numbers: Int64s) -> tuple[list[str | None], Codes]:
        """The distinct texts behind numbers, and which each one is; None for NULL and dangling ones."""
        wanted, codes = codes_of(numbers)
        if len(self._ids) == 0:
            return [None] * len(wanted), codes
        at = np.minimum(np.searchsorted(self._ids, wanted), len(self._ids) - 1)
        known = (self._ids[at] == wanted) & (wanted != INT64_MIN)
        texts = self._texts.take(pa.array(at)).to_pylist()
        return [t if k else None for t, k in zip(texts, known.tolist(), strict=True)], codes

    def column(self, numbers: Int64s) -> pa.Array:
        """The same as a string array."""
        texts, codes = self.distinct(numbers)
        return pa.array(texts, pa.string()).take(pa.array(codes))

    def text(self, number: int) -> str | None:
        """One text."""
        texts, _ = self.distinct(np.array([number], np.int64))
        return texts[0]
