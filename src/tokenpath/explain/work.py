"""The device work of a capture as columns, one set a device, sorted by start."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.capture.intervals import Int64s, Intervals, clip, difference, union
from tokenpath.capture.nesting import Int32s

KINDS = ("compute", "memset", "communication", "memcpy")
"""Kinds of device work in order of precedence: time under several kinds belongs to the first.

So communication is exposed where no compute and no memset runs, a copy where no communication runs
either: the definitions of docs/glossary.md.
"""
COMPUTE, MEMSET, COMMUNICATION, MEMCPY = range(4)

NO_LAUNCH = np.iinfo(np.int64).min
"""Launch time of device work whose launch is not in the file (inside calculations only)."""


@dataclass(frozen=True)
class DeviceWork:
    """The work of one device within a window; all arrays have one entry a piece of work."""

    device_id: int
    """Row of `device`."""
    label: str
    """`GPU 0`, or `rank 3 GPU 0` where ranks matter."""
    window_start_ns: int
    """Start of the window."""
    window_end_ns: int
    """End of the window."""
    row: Int32s
    """Row of `kernel`, by start time."""
    start: Int64s
    """Start, not cut to the window."""
    end: Int64s
    """End, not cut to the window."""
    kind: NDArray[np.int8]
    """Index into KINDS."""
    family: Int32s
    """Code of the family."""
    families: tuple[str, ...]
    """Families by code."""
    stream: Int64s
    """Stream."""
    call: Int32s
    """Row of `api_call`; NO_ID when the launch is not in the file."""
    launch_start: Int64s
    """Start of the launching call, or NO_LAUNCH."""
    launch_end: Int64s
    """End of the launching call, or NO_LAUNCH."""

    @property
    def span_ns(self) -> int:
        """Length of the window."""
        return self.window_end_ns - self.window_start_ns

    def busy(self, *kinds: int) -> Intervals:
        """The union of work of these kinds (all when none is named) within the window."""
        start, end = clip(self.start, self.end, self.window_start_ns, self.window_end_ns)
        if kinds:
            chosen = np.isin(self.kind, kinds)
            start, end = start[chosen], end[chosen]
        return union(start, end)

    def within(self, low: int, high: int) -> DeviceWork:
        """The same work with another window, kept whole so that what comes next stays known."""
        return replace(self, window_start_ns=low, window_end_ns=max(low, high))

    def in_window(self) -> NDArray[np.bool_]:
        """Which pieces of work touch the window (an empty one counts where it starts)."""
        low, high = self.window_start_ns, self.window_end_ns
        inside: NDArray[np.bool_] = (self.start < high) & (
            (self.end > low) | ((self.start >= low) & (self.end == self.start))
        )
        return inside


@dataclass(frozen=True)
class BusySplit:
    """The window of one device, every nanosecond in exactly one part."""

    wall_ns: int
    """The window."""
    busy_ns: int
    """Any device work."""
    compute: Intervals
    """Compute runs."""
    memset: Intervals
    """A memset runs and no compute."""
    exposed_communication: Intervals
    """Communication runs, no compute and no memset."""
    exposed_memcpy: Intervals
    """Only copies run."""
    communication_ns: int
    """Communication in all, overlapped or not."""
    memcpy_ns: int
    """Copies in all, overlapped or not."""
    busy: Intervals
    """Any device work."""

    @property
    def idle_ns(self) -> int:
        """No device work."""
        return self.wall_ns - self.busy_ns


def split_busy(work: DeviceWork) -> BusySplit:
    """Who has the device when, by the precedence of KINDS."""
    compute = work.busy(COMPUTE)
    compute_or_memset = work.busy(COMPUTE, MEMSET)
    communication = work.busy(COMMUNICATION)
    with_communication = work.busy(COMPUTE, MEMSET, COMMUNICATION)
    memcpy = work.busy(MEMCPY)
    busy = work.busy()
    return BusySplit(
        wall_ns=work.span_ns,
        busy_ns=busy.total,
        compute=compute,
        memset=difference(work.busy(MEMSET), compute),
        exposed_communication=difference(communication, compute_or_memset),
        exposed_memcpy=difference(memcpy, with_communication),
        communication_ns=communication.total,
        memcpy_ns=memcpy.total,
        busy=busy,
    )


def device_work(capture: Capture) -> list[DeviceWork]:
    """The work of every device that has some, over its whole span."""
    if capture.num_rows("kernel") == 0:
        return []
    device = capture.ids("kernel", "device_id")
    start, end = capture.int64("kernel", "start_ns"), capture.int64("kernel", "end_ns")
    order = np.lexsort((end, start, device))
    device = device[order]
    kind_codes, kind_names = capture.codes("kernel", "kind")
    kind_of_code = np.array([KINDS.index(name) for name in kind_names] or [0], np.int8)
    family, families = capture.codes("kernel", "family")
    stream = capture.int64("kernel", "stream_id")
    call = capture.ids("kernel", "api_call_id")
    launch_start, launch_end = launch_times(capture, call)
    labels = device_labels(capture)
    found = []
    first = np.flatnonzero(np.diff(device, prepend=-1))
    for low, high in zip(first, [*first[1:], len(device)], strict=True):
        rows = order[low:high]
        found.append(
            DeviceWork(
                device_id=int(device[low]),
                label=labels[device[low]],
                window_start_ns=int(start[rows[0]]),
                window_end_ns=int(end[rows].max()),
                row=rows.astype(np.int32),
                start=start[rows],
                end=end[rows],
                kind=kind_of_code[kind_codes[rows]],
                family=family[rows],
                families=tuple(families),
                stream=stream[rows],
                call=call[rows],
                launch_start=launch_start[rows],
                launch_end=launch_end[rows],
            )
        )
    return found


def launch_times(capture: Capture, call: Int32s) -> tuple[Int64s, Int64s]:
    """Start and end of the calls with these rows; NO_LAUNCH where there is none."""
    nothing = np.full(len(call), NO_LAUNCH, np.int64)
    if capture.num_rows("api_call") == 0:
        return nothing, nothing
    at = np.maximum(call, 0)
    known = call != NO_ID
    return (
        np.where(known, capture.int64("api_call", "start_ns")[at], NO_LAUNCH),
        np.where(known, capture.int64("api_call", "end_ns")[at], NO_LAUNCH),
    )


def device_noun(name: str | None) -> str:
    """What a person calls a device of this name."""
    return "TPU" if name is not None and "TPU" in name else "GPU"


def device_labels(capture: Capture) -> list[str]:
    """A short label for every row of `device`, different from each other."""
    ranks = capture["source"]["rank"].to_pylist()
    device = capture["device"]
    sources, indices = capture.ids("device", "source_id"), device["index"].to_pylist()
    nouns = [device_noun(name) for name in device["name"].to_pylist()]
    plain = [f"{noun} {index}" for noun, index in zip(nouns, indices, strict=True)]
    ranked = [
        f"rank {ranks[source]} {label}" if ranks[source] is not None else label
        for source, label in zip(sources, plain, strict=True)
    ]
    labels = plain if len(set(plain)) == len(plain) and len(set(sources)) <= 1 else ranked
    if len(set(labels)) == len(labels):
        return labels
    return [f"{label} of file {source}" for label, source in zip(labels, sources, strict=True)]
