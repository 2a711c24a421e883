"""Why communication and copies ran alone: what the next compute kernel was waiting for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s, Intervals
from tokenpath.explain.causes import CAUSE_NUMBER, CAUSES
from tokenpath.explain.gaps import Late, host_causes
from tokenpath.explain.host_timeline import HostTimeline
from tokenpath.explain.waits import Waits, last_on_stream
from tokenpath.explain.work import COMMUNICATION, COMPUTE, MEMSET, NO_LAUNCH, DeviceWork


@dataclass(frozen=True)
class Exposed:
    """Stretches in which one kind of work ran alone, each with its cause."""

    duration_ns: Int64s
    """Length of each."""
    cause: NDArray[np.int8]
    """Index into CAUSES."""
    late: Late
    """The stretches in which the host was not ready."""

    def by_cause(self, host: HostTimeline, work: DeviceWork) -> Counter[str]:
        """Time by cause, the late stretches by what the host was doing; adds up to all stretches."""
        cause = self.cause.copy()
        if len(self.late.rows):
            cause[self.late.rows] = host_causes(host, work, self.late).cause
        totals: Counter[str] = Counter()
        for number in np.unique(cause):
            totals[CAUSES[number].key] = int(self.duration_ns[cause == number].sum())
        return totals


def find_exposed(work: DeviceWork, exposed: Intervals, kind: int, waits: Waits) -> Exposed:
    """Why one kind of work (communication or memcpy) ran alone.

    For each exposed stretch the next compute kernel is looked at. Launched only after most of the
    stretch had passed: the host was not ready, there was nothing to overlap with. Launched before, and
    on the same stream or behind an event: it was ordered behind, so the stretch blocked it. Launched
    before without a recorded order: not known.
    """
    length = exposed.end - exposed.start
    compute = np.flatnonzero(np.isin(work.kind, (COMPUTE, MEMSET)))
    if len(exposed) == 0 or len(compute) == 0:
        cause = np.full(len(exposed), CAUSE_NUMBER["no_work"], np.int8)
        nothing = exposed.start[:0]
        return Exposed(length, cause, Late(nothing, work.call[:0], nothing, nothing))
    position = np.searchsorted(work.start[compute], exposed.end, side="left")
    exists = position < len(compute)
    kernel = compute[np.minimum(position, len(compute) - 1)]
    launch = np.where(exists, work.launch_start[kernel], NO_LAUNCH)
    called = launch != NO_LAUNCH
    launch_in = np.where(called, np.clip(launch, exposed.start, exposed.end), exposed.end)
    is_late = called & (launch_in - exposed.start > exposed.end - launch_in)

    cause = np.full(len(exposed), CAUSE_NUMBER["queued_unexplained"], np.int8)
    ordered = called & ~is_late & _is_ordered_behind(work, exposed, kind, kernel, waits)
    name = "communication_order" if kind == COMMUNICATION else "memcpy_order"
    cause[ordered] = CAUSE_NUMBER[name]
    cause[~called] = CAUSE_NUMBER["launch_not_in_file"]
    cause[~exists] = CAUSE_NUMBER["no_work"]
    rows = np.flatnonzero(is_late)
    late = Late(rows, work.call[kernel[rows]], exposed.start[rows], launch_in[rows])
    return Exposed(length, cause, late)


def _is_ordered_behind(
    work: DeviceWork, exposed: Intervals, kind: int, kernel: Int64s, waits: Waits
) -> NDArray[np.bool_]:
    """Whether the next compute kernel had to wait for the work that ran alone."""
    # By stream order: the last work of that kind on the kernel's own stream, if it ran in the stretch.
    # Other streams may have had some of it as well.
    of_kind = np.flatnonzero(work.kind == kind)
    by_stream = of_kind[np.lexsort((work.start[of_kind], work.stream[of_kind]))]
    position = last_on_stream(
        work.stream[by_stream], work.start[by_stream], work.stream[kernel], exposed.end - 1
    )
    before = by_stream[np.maximum(position, 0)]
    same_stream = (position >= 0) & (work.stream[before] == work.stream[kernel])
    same_stream &= work.end[before] > exposed.start
    last = np.searchsorted(work.start[of_kind], exposed.end, side="left") - 1
    same_launch = work.call[of_kind[np.maximum(last, 0)]] == work.call[kernel]
    waited = waits.before(work, kernel) != Waits.NONE
    ordered: NDArray[np.bool_] = same_stream | same_launch | waited
    return ordered
