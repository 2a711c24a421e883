"""What ran inside a scheduler's step, as far as a profiler saw it: kernels, else operators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.capture.intervals import union
from tokenpath.capture.nesting import self_time
from tokenpath.explain.labels import short_label

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class Inside:
    """The device work of a step; of a step without any, its operators on the host."""

    busy_ns: int | None
    """Time in which a device worked; None when there is no device work."""
    exposed_communication_ns: int | None
    """Time in which communication alone ran."""
    num_kernels: int
    """Pieces of device work."""
    longest: str | None
    """Name of the longest piece of device work, or of the operator with the most time of its own."""
    longest_ns: int | None
    """Its time."""

    def cells(self) -> tuple[int | None, int | None, int, str | None, int | None]:
        """For a table: busy, exposed communication, kernels, longest, its time."""
        return (
            self.busy_ns,
            self.exposed_communication_ns,
            self.num_kernels,
            None if self.longest is None else short_label(self.longest),
            self.longest_ns,
        )


class StepContents:
    """Looks up what profilers saw of a step, by the links that `stitch` has made."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        twin = capture.ids("step", "scheduler_step_id")
        self._profiled_of: dict[int, list[int]] = {}
        for row in np.flatnonzero(twin != NO_ID).tolist():
            self._profiled_of.setdefault(int(twin[row]), []).append(row)
        step = capture.ids("kernel", "step_id")
        self._by_step = np.argsort(step, kind="stable")
        self._kernel_step = step[self._by_step]
        self._names, self._kinds = capture.codes("kernel", "name"), capture.codes("kernel", "kind")
        self._kernel_start = capture.int64("kernel", "start_ns")
        self._kernel_end = capture.int64("kernel", "end_ns")
        self._op_self: Int64s | None = None

    def of(self, step: int) -> Inside | None:
        """What ran in a row of `step`; None where no profiler saw it."""
        rows = self._profiled_of.get(step, [step])
        # Of another type than the column, searchsorted would copy that.
        wanted = np.array(rows, np.int32)
        low, high = (np.searchsorted(self._kernel_step, wanted, side) for side in ("left", "right"))
        kernels = np.concatenate(
            [self._by_step[a:b] for a, b in zip(low.tolist(), high.tolist(), strict=True)]
        )
        if len(kernels):
            return self._of_kernels(kernels)
        if step in self._profiled_of:
            return self._of_operators(rows)
        return None

    def _of_kernels(self, kernels: Int64s) -> Inside:
        start, end = self._kernel_start[kernels], self._kernel_end[kernels]
        (codes, names), (kinds, kind_names) = self._names, self._kinds
        is_communication = np.isin(
            kinds[kernels], [at for at, name in enumerate(kind_names) if name == "communication"]
        )
        busy = union(start, end).total
        others = union(start[~is_communication], end[~is_communication]).total
        longest = int(np.argmax(end - start))
        return Inside(
            busy,
            busy - others,
            len(kernels),
            names[codes[kernels[longest]]],
            int(end[longest] - start[longest]),
        )

    def _of_operators(self, rows: list[int]) -> Inside:
        capture = self._capture
        start, end = capture.int64("op", "start_ns"), capture.int64("op", "end_ns")
        source = capture.ids("op", "source_id")
        inside = np.zeros(len(start), bool)
        for row in rows:
            low, high = (capture["step"][name][row].as_py() for name in ("start_ns", "end_ns"))
            same = source == capture["step"]["source_id"][row].as_py()
            inside |= same & (start >= low) & (end <= high)
        ops = np.flatnonzero(inside)
        if len(ops) == 0:
            return Inside(None, None, 0, None, None)
        if self._op_self is None:
            self._op_self = self_time(start, end, capture.ids("op", "parent_op_id"))
        codes, names = capture.codes("op", "name")
        own = np.bincount(codes[ops], weights=self._op_self[ops])
        most = int(np.argmax(own))
        return Inside(None, None, 0, names[most], int(own[most]))
