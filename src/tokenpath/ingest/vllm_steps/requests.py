"""Which request a share of a step belongs to.

An id may be used again: each added request is one of its own, and a share belongs to the last one that
was added under its id before the step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenpath.ingest.vllm_steps.record import NULL, Int32s, Int64s


@dataclass(frozen=True)
class Requests:
    """All requests of a log, in the order in which they were added; those never added come last."""

    number: Int32s
    """Number of the id."""
    added_us: Int64s
    """When it was added; NULL if the log does not say."""
    prompt: Int64s
    """Prompt tokens; NULL if the log does not say."""
    _key: Int64s
    """Number and line of each added request as one number, sorted."""
    _row: Int64s
    """Row of each key."""
    _stranger: Int64s
    """Row for a number that was never added, -1 for none."""
    _num_lines: int

    @property
    def num_added(self) -> int:
        """Requests that the log saw being added."""
        return len(self._row)

    def rows(self, number: Int32s, line: Int64s) -> Int64s:
        """The request that an id means at a line; -1 when it was added only later, or never seen."""
        if not len(number):
            return np.zeros(0, np.int64)
        at = np.searchsorted(self._key, number * np.int64(self._num_lines) + line, "right") - 1
        if not len(self._row):
            return self._stranger[number]
        row = self._row[np.maximum(at, 0)]
        is_same = (at >= 0) & (self.number[row] == number)
        return np.where(is_same, row, self._stranger[number])


def find_requests(
    add_line: Int64s,
    add_number: Int32s,
    added_us: Int64s,
    prompt: Int64s,
    share_line: Int64s,
    share_number: Int32s,
    num_ids: int,
    num_lines: int,
) -> Requests:
    """The requests of a log: one for each `add`, and one for each id that steps name before any `add`."""
    key = add_number * np.int64(num_lines) + add_line
    order = np.argsort(key, kind="stable")
    first = np.full(num_ids, num_lines, np.int64)
    np.minimum.at(first, add_number, add_line)
    early = np.unique(share_number[share_line < first[share_number]])
    stranger = np.full(num_ids, -1, np.int64)
    stranger[early] = len(add_number) + np.arange(len(early))
    unknown = np.full(len(early), NULL)
    return Requests(
        np.concatenate([add_number, early]).astype(np.int32),
        np.concatenate([added_us, unknown]),
        np.concatenate([prompt, unknown]),
        key[order],
        order,
        stranger,
        num_lines,
    )
