"""Huge gaps that the capture made itself: work split away into another file, or a warm-up pause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import Int64s, Intervals, covered, gaps, union
from tokenpath.core.units import format_duration
from tokenpath.explain.causes import CAUSE_NUMBER, CAUSES
from tokenpath.explain.gaps import Gaps
from tokenpath.explain.work import DeviceWork

MIN_GAP_NS = 1_000_000
"""Shorter gaps are not worth the suspicion."""
MIN_SHARE_OF_SPAN = 0.2
"""A gap that leaves the device idle for less of its span is reported, but moves no window."""
MIN_KEPT_BUSY = 0.9
"""The window is cut at a gap only when one side of it holds at least this share of the busy time."""
_ONE_TIME = [CAUSE_NUMBER["host_api"], CAUSE_NUMBER["host_allocator"]]
_UNEXPLAINED = [CAUSE_NUMBER["queued_unexplained"], CAUSE_NUMBER["event_wait"]]


@dataclass(frozen=True)
class Artefact:
    """A gap in which the device was probably, or provably, busy with work that the file lacks."""

    device_id: int
    """Row of `device`."""
    start_ns: int
    """Start of the gap."""
    end_ns: int
    """End of the gap."""
    is_proven: bool
    """True when a sibling file holds the work."""
    is_trimmed: bool
    """True when the window leaves it out."""
    keep_after: bool
    """True when what follows the gap is kept, False when what precedes it is."""
    covered_share: float | None
    """How much of the gap the sibling's work covers; None without a sibling."""
    kernel_row: int | None
    """Row of `kernel` that ends the gap; None for a proven artefact."""
    reason: str
    """Why it is taken for one, in words."""

    @property
    def duration_ns(self) -> int:
        """Length of the gap."""
        return self.end_ns - self.start_ns


def main_segment(own: Intervals, launch_start: Int64s) -> tuple[int, int]:
    """Start and end of the busiest part of some intervals, cut where they lie 1 ms or more apart.

    Only where what follows had been launched before the gap (`launch_start`, one an interval): a gap
    that ends with a late launch is the host's and belongs to the time it interrupts.
    """
    length = own.start[1:] - own.end[:-1]
    was_queued = launch_start[1:] <= own.end[:-1] + length // 10
    far = np.flatnonzero((length >= MIN_GAP_NS) & was_queued) + 1
    first = np.concatenate(([0], far)).astype(np.int64)
    last = np.concatenate((far, [len(own)])).astype(np.int64) - 1
    busy = np.add.reduceat(own.end - own.start, first)
    best = int(busy.argmax())
    return int(own.start[first[best]]), int(own.end[last[best]])


def suspect_gaps(work: DeviceWork, found: Gaps) -> list[Artefact]:
    """Gaps that end with a kernel which had been launched all along, with nothing recorded before it.

    A kernel starts within microseconds on an idle device. One that was queued for milliseconds with no
    recorded work in front of it waited for work that is not in the file: profilers that split a run
    into files at host markers throw away what was still running (SGLang profile-by-stage).
    """
    suspects = []
    length = found.duration_ns
    busy = work.busy()
    threshold = max(MIN_GAP_NS, MIN_SHARE_OF_SPAN * work.span_ns)
    unexplained = np.isin(found.cause, _UNEXPLAINED) & (found.queued_ns >= 0.9 * length)
    for row in np.flatnonzero(unexplained & (length >= threshold)):
        start, end = int(found.start[row]), int(found.end[row])
        before = int(np.minimum(busy.end, start).clip(busy.start).sum() - busy.start.sum())
        after = busy.total - before
        kept = max(before, after) / max(busy.total, 1)
        queued = format_duration(int(found.queued_ns[row]))
        suspects.append(
            Artefact(
                device_id=work.device_id,
                start_ns=start,
                end_ns=end,
                is_proven=False,
                is_trimmed=kept >= MIN_KEPT_BUSY,
                keep_after=after >= before,
                covered_share=None,
                kernel_row=int(work.row[found.kernel[row]]),
                reason=(
                    f"the kernel that ends it had been launched {queued} before and nothing "
                    "recorded stood in front of it, so it waited for work that this file does not hold"
                ),
            )
        )
    return suspects


@dataclass(frozen=True)
class WarmUp:
    """A huge gap in which the host did something that is done once."""

    device_label: str
    """The device that waited."""
    duration_ns: int
    """Length of the gap."""
    kernel_row: int
    """Row of `kernel` that ends the gap."""
    cause: str
    """`host_api` (the launching call itself: lazy module loading) or `host_allocator`."""


def warm_up_gaps(work: DeviceWork, found: Gaps) -> list[WarmUp]:
    """Gaps as large as a split artefact's whose time went into one-time work of the runtime."""
    threshold = max(MIN_GAP_NS, MIN_SHARE_OF_SPAN * work.span_ns)
    huge = np.isin(found.cause, _ONE_TIME) & (found.duration_ns >= threshold)
    return [
        WarmUp(
            work.label,
            int(found.duration_ns[row]),
            int(work.row[found.kernel[row]]),
            CAUSES[found.cause[row]].key,
        )
        for row in np.flatnonzero(huge)
    ]


def proven_gaps(capture: Capture, works: Sequence[DeviceWork]) -> list[Artefact]:
    """Gaps of one file that the work of its sibling file covers, for split captures read as one."""
    proven = []
    source = capture.ids("kernel", "source_id")
    for work in works:
        of_work = source[work.row]
        files = np.unique(of_work)
        if len(files) < 2:
            continue
        for number in files:
            own_rows, other_rows = of_work == number, of_work != number
            own = union(work.start[own_rows], work.end[own_rows])
            other = union(work.start[other_rows], work.end[other_rows])
            if len(own) == 0:
                continue
            hole = gaps(own, int(own.start[0]), int(own.end[-1]))
            filled = covered(hole.start, hole.end, other)
            length = hole.end - hole.start
            for row in np.flatnonzero((length >= MIN_GAP_NS) & (filled > length // 2)):
                share = float(filled[row]) / float(length[row])
                proven.append(
                    Artefact(
                        device_id=work.device_id,
                        start_ns=int(hole.start[row]),
                        end_ns=int(hole.end[row]),
                        is_proven=True,
                        is_trimmed=False,
                        keep_after=True,
                        covered_share=share,
                        kernel_row=None,
                        reason=f"file {number} alone shows it; its sibling covers {share:.3%} of it",
                    )
                )
    return proven
