"""Do launches and kernels match: what is missing on either side, at the edges or in between."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import Int64s
from tokenpath.capture.nesting import Int32s
from tokenpath.core.units import INT64_MIN
from tokenpath.explain.work import DeviceWork
from tokenpath.stitch.runs import match, runs_of

_KERNEL_LAUNCH = re.compile(r"launch(?!Host|Hostfunc)", re.IGNORECASE)
_GRAPH_LAUNCH = re.compile(r"graph_?launch", re.IGNORECASE)
_BEGIN_CAPTURE = re.compile(r"stream_?begin_?capture", re.IGNORECASE)
_END_CAPTURE = re.compile(r"stream_?end_?capture", re.IGNORECASE)


@dataclass(frozen=True)
class LaunchCoverage:
    """Launches against device work over the whole capture."""

    num_launches: int
    """Kernel launch calls, graph launches and captured ones left out."""
    num_missing: int
    """Of those, calls between the first and the last one of their file with a kernel, that have none."""
    num_head: int
    """Calls, graph launches too, without kernel before the first call of their file that has one."""
    num_tail: int
    """Calls, graph launches too, without kernel after the last call of their file that has one."""
    num_captured: int
    """Calls without kernel while a stream was captured into a graph: they were recorded, not run."""
    num_replays: int
    """Graph launch calls."""
    num_replays_empty: int
    """Of those, calls without any kernel; head and tail left out, unless no replay has one."""
    num_replays_partial: int
    """Calls with fewer kernels than the fullest replay of the same graph."""
    num_work: int
    """Pieces of device work."""
    num_unlaunched: int
    """Of those, pieces whose launch is not in the file."""
    unlaunched_ns: int
    """Their summed time."""
    num_early: int
    """Pieces that start before their launch: clocks of host and device disagree."""

    @property
    def missing_share(self) -> float:
        """Missing launches over launches."""
        return self.num_missing / self.num_launches if self.num_launches else 0.0


def launch_coverage(capture: Capture, works: Sequence[DeviceWork]) -> LaunchCoverage:
    """Count what is missing; a launch and its kernels are matched by `stitch`."""
    is_graph = _is_named(capture, _GRAPH_LAUNCH)
    is_launch = _is_named(capture, _KERNEL_LAUNCH) & ~is_graph
    start = capture.int64("api_call", "start_ns")
    num_kernels = np.zeros(len(start), np.int64)
    call = capture.ids("kernel", "api_call_id")
    np.add.at(num_kernels, call[call >= 0], 1)
    source = capture.ids("api_call", "source_id")
    has_work = (num_kernels > 0) | _shares_work(capture)
    captured = (is_launch | is_graph) & ~has_work & _is_capturing(capture)
    is_launch &= ~captured
    head, missing, tail = _where_missing(source, start, is_launch, has_work)
    graph_head, replay_missing, graph_tail = _where_missing(
        source, start, is_graph & ~captured, has_work
    )
    first_graph = bool(is_graph.any()) and not (num_kernels[is_graph] > 0).any()
    unlaunched = [work.launch_start == np.iinfo(np.int64).min for work in works]
    return LaunchCoverage(
        num_launches=int(is_launch.sum()),
        num_missing=missing,
        num_head=head + (0 if first_graph else graph_head),
        num_tail=tail + (0 if first_graph else graph_tail),
        num_captured=int(captured.sum()),
        num_replays=int(is_graph.sum()),
        num_replays_empty=int(is_graph.sum()) if first_graph else replay_missing,
        num_replays_partial=_partial_replays(capture, np.flatnonzero(is_graph), num_kernels),
        num_work=sum(len(work.row) for work in works),
        num_unlaunched=sum(int(mask.sum()) for mask in unlaunched),
        unlaunched_ns=sum(
            int((work.end - work.start)[mask].sum())
            for work, mask in zip(works, unlaunched, strict=True)
        ),
        num_early=sum(
            int(((work.start < work.launch_start) & ~mask).sum())
            for work, mask in zip(works, unlaunched, strict=True)
        ),
    )


def _is_named(capture: Capture, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """Which API calls have a name that the pattern finds."""
    codes, names = capture.codes("api_call", "name")
    found = np.array([pattern.search(name) is not None for name in names] or [False], np.bool_)
    result: NDArray[np.bool_] = found[np.maximum(codes, 0)] & (codes >= 0)
    return result


def _shares_work(capture: Capture) -> NDArray[np.bool_]:
    """Calls with the correlation id of device work, though another call is linked to it.

    A runtime call and the driver call inside it can carry the same id.
    """
    row = match(
        runs_of(capture, "kernel"),
        capture.int64("kernel", "correlation_id", INT64_MIN),
        runs_of(capture, "api_call"),
        capture.int64("api_call", "correlation_id", INT64_MIN),
        INT64_MIN,
    )
    result: NDArray[np.bool_] = row >= 0
    return result


def _is_capturing(capture: Capture) -> NDArray[np.bool_]:
    """Which API calls were made while some stream of their process was captured into a graph."""
    source, start = capture.ids("api_call", "source_id"), capture.int64("api_call", "start_ns")
    begins, ends = _is_named(capture, _BEGIN_CAPTURE), _is_named(capture, _END_CAPTURE)
    result = np.zeros(len(start), np.bool_)
    for number in np.unique(source[begins]):
        here = source == number
        begun = np.searchsorted(np.sort(start[here & begins]), start[here], side="right")
        ended = np.searchsorted(np.sort(start[here & ends]), start[here], side="right")
        result[here] = begun > ended
    return result


def _where_missing(
    source: Int32s, start: Int64s, chosen: NDArray[np.bool_], has_work: NDArray[np.bool_]
) -> tuple[int, int, int]:
    """Calls without work: before the first call of their file with work, in between, after the last."""
    head = missing = tail = 0
    for number in np.unique(source):
        here = source == number
        lacking, linked = start[here & chosen & ~has_work], start[here & has_work]
        if len(linked) == 0:
            missing += len(lacking)
            continue
        before = int((lacking < linked.min()).sum())
        after = int((lacking > linked.max()).sum())
        head, tail = head + before, tail + after
        missing += len(lacking) - before - after
    return head, missing, tail


def _partial_replays(capture: Capture, replays: Int64s, num_kernels: Int64s) -> int:
    """Replays with fewer kernels than the fullest replay of their graph, where graphs have ids."""
    graph = capture.int64("kernel", "graph_id", -1)
    call = capture.ids("kernel", "api_call_id")
    known = (graph > 0) & (call >= 0)
    if not known.any():
        return 0
    graph_of_call = np.full(len(num_kernels), -1, np.int64)
    graph_of_call[call[known]] = graph[known]
    replays = replays[graph_of_call[replays] >= 0]
    partial = 0
    for number in np.unique(graph_of_call[replays]):
        counts = num_kernels[replays[graph_of_call[replays] == number]]
        partial += int((counts < counts.max()).sum())
    return partial
