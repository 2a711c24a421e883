"""What a fix would change in measured work: some kernels, some host time, some waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int32] | NDArray[np.int64]
"""Row numbers of a capture table."""
Factors = float | NDArray[np.float64]
"""One factor for all rows, or one a row."""


@dataclass(frozen=True)
class KernelChange:
    """Device work that takes another time."""

    rows: Rows
    """Rows of `kernel`; each at most once."""
    factor: Factors = 0.0
    """New time over measured time, not negative; 0 removes the work, hand-over to it and what delayed it."""
    with_launch: bool = False
    """Whether the host time from the launch before to the launch of this goes as well, where it only launches."""


@dataclass(frozen=True)
class HostChange:
    """Stretches of host time that shrink; what lies in them of several stretches shrinks once."""

    thread: Rows
    """Rows of `thread`, one a stretch."""
    start_ns: NDArray[np.int64]
    """Starts on the capture's clock."""
    end_ns: NDArray[np.int64]
    """Ends."""
    factor: Factors = 0.0
    """Share of the time that is left, 0 to 1 (or more: slower). Waits for the device are never scaled:
    they last as long as what they wait for."""


@dataclass(frozen=True)
class WhatIf:
    """A change of a measured run; all parts of it apply together."""

    label: str
    """A few words: `no garbage collection`."""
    kernels: Sequence[KernelChange] = ()
    """Kernels with another time; factors of several changes multiply."""
    host: Sequence[HostChange] = ()
    """Host time that shrinks."""
    not_waiting: Sequence[Rows] = ()
    """Rows of `api_call` that no longer wait for the device (synchronise, blocking copy)."""
    hidden: Sequence[Rows] = ()
    """Rows of `kernel` for which no other kernel waits any more; they still run, in their own order."""
    prompt: Sequence[Rows] = ()
    """Rows of `kernel` that start at once when what they are ordered behind is over: no launch latency,
    hand-over or unexplained delay."""
    is_balanced: bool = False
    """Whether no rank takes longer than the mean of all ranks between two matched collectives."""
    catching_up: Sequence[int] = ()
    """Rows of `device` that take no longer there than the median of the other ranks."""


def joined(label: str, what_ifs: Sequence[WhatIf]) -> WhatIf:
    """All of these at once; overlapping changes are not counted twice, except factors, which multiply."""
    return WhatIf(
        label,
        [change for item in what_ifs for change in item.kernels],
        [change for item in what_ifs for change in item.host],
        [rows for item in what_ifs for rows in item.not_waiting],
        [rows for item in what_ifs for rows in item.hidden],
        [rows for item in what_ifs for rows in item.prompt],
        any(item.is_balanced for item in what_ifs),
        sorted({device for item in what_ifs for device in item.catching_up}),
    )


def without_host_time(
    label: str, thread: Rows, start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
) -> WhatIf:
    """The host time in these stretches gone: a pause, a slow function, an allocator call."""
    return WhatIf(label, host=[HostChange(thread, start_ns, end_ns)])


def with_kernel_times(
    label: str, rows: Rows, measured_ns: NDArray[np.int64], new_ns: NDArray[np.int64]
) -> WhatIf:
    """These kernels taking `new_ns` each, of the `measured_ns` that they took."""
    factor = new_ns / np.maximum(measured_ns, 1)
    return WhatIf(label, kernels=[KernelChange(rows, factor)])
