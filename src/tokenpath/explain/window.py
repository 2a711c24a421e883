"""Which stretch of time is analysed, and why that one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.capture.intervals import Int64s, Intervals, gaps, union
from tokenpath.core.errors import UsageError
from tokenpath.core.report import Window
from tokenpath.core.units import format_duration
from tokenpath.explain.artefacts import Artefact, main_segment
from tokenpath.explain.request import WindowRequest
from tokenpath.explain.work import DeviceWork

MIN_STEPS = 3
"""With fewer steps than this there is no steady state to choose."""
WARM_UP_RATIO = 2.0
"""A leading step this much longer than the median of the rest is warm-up."""
MAX_WARM_UP = 3
"""Leading steps that may be taken for warm-up."""


@dataclass(frozen=True)
class StepSpans:
    """When the steps ran on one device, in order; only steps with work there."""

    step: Int64s
    """Row of `step`."""
    start: Int64s
    """Start of the first kernel of the step's main part."""
    end: Int64s
    """End of its last kernel."""
    num_busy: int
    """How many there are."""
    has_prompt: NDArray[np.bool_]
    """Whether the label of each step names prefill."""


def step_spans(capture: Capture, work: DeviceWork) -> StepSpans:
    """When each step ran on a device, by the launches made within it.

    A step whose own work falls into pieces a millisecond or more apart, though it had been launched all
    along, is taken where most of its work is: SGLang launches the next step's first kernel while the
    current step runs, and a split capture then lacks what ran in between.
    """
    of_kernel = capture.ids("kernel", "step_id")[work.row]
    found: list[tuple[int, int, int]] = []
    order = np.argsort(of_kernel, kind="stable")
    steps = of_kernel[order]
    first = np.flatnonzero(np.diff(steps, prepend=NO_ID - 1))
    for low, high in zip(first, [*first[1:], len(steps)], strict=True):
        rows = order[low:high]
        own = union(work.start[rows], work.end[rows])
        if steps[low] == NO_ID or len(own) == 0:
            continue
        # Rows are sorted by start: the first of each part is the one that ends the gap before it.
        opening = rows[np.searchsorted(work.start[rows], own.start, side="left")]
        begin, end = main_segment(own, work.launch_start[opening])
        found.append((int(steps[low]), begin, end))
    found.sort(key=lambda item: (item[1], item[0]))
    columns = np.array(found, np.int64).reshape(-1, 3)
    phases, names = capture.codes("step", "phase")
    has_prompt = np.array([name in ("prefill", "mixed") for name in names] or [False], np.bool_)
    phase = phases[columns[:, 0]]
    return StepSpans(
        columns[:, 0],
        columns[:, 1],
        columns[:, 2],
        len(found),
        (phase >= 0) & has_prompt[np.maximum(phase, 0)],
    )


def choose_window(
    capture: Capture,
    works: Sequence[DeviceWork],
    spans: Sequence[StepSpans],
    artefacts: Sequence[Artefact],
    request: WindowRequest,
) -> tuple[list[DeviceWork], Window]:
    """The devices with their windows set, and the window's name and reason.

    UsageError when the request names steps or times that the capture does not have.
    """
    if request.first_step is not None or request.end_step is not None:
        return _named_steps(works, spans, request)
    if request.from_ns is not None or request.to_ns is not None:
        return _named_times(works, request)
    if not works:
        start, end = _host_span(capture)
        return [], Window(start, end, "whole capture", "the capture holds no device work")
    trimmed = [_trim(work, artefacts) for work in works]
    steady = _steady_state(trimmed, spans)
    if steady is not None:
        return steady
    cut = [a for a in artefacts if a.is_trimmed]
    if cut:
        longest = max(cut, key=lambda a: a.duration_ns)
        return trimmed, _window(
            trimmed,
            "without the split artefact" if len(works) == 1 else "without split artefacts",
            f"{format_duration(longest.duration_ns)} gap left out: {longest.reason}",
        )
    reason = "from the first to the last device work; no steps are marked in the capture"
    if any(span.num_busy for span in spans):
        count = max(span.num_busy for span in spans)
        reason = f"from the first to the last device work; {count} step{'s' if count > 1 else ''}"
    return list(trimmed), _window(trimmed, "whole capture", reason)


def _window(works: Sequence[DeviceWork], name: str, reason: str) -> Window:
    return Window(
        min(work.window_start_ns for work in works),
        max(work.window_end_ns for work in works),
        name,
        reason,
    )


def _trim(work: DeviceWork, artefacts: Sequence[Artefact]) -> DeviceWork:
    low, high = work.window_start_ns, work.window_end_ns
    for artefact in artefacts:
        if artefact.device_id == work.device_id and artefact.is_trimmed:
            if artefact.keep_after:
                low = max(low, artefact.end_ns)
            else:
                high = min(high, artefact.start_ns)
    return work.within(low, high)


def _steady_state(
    works: Sequence[DeviceWork], spans: Sequence[StepSpans]
) -> tuple[list[DeviceWork], Window] | None:
    if min((span.num_busy for span in spans), default=0) < MIN_STEPS:
        return None
    skip = max(_warm_up_steps(span) for span in spans)
    chosen = []
    for work, span in zip(works, spans, strict=True):
        # Ranks may have run different numbers of steps.
        low = max(work.window_start_ns, int(span.start[min(skip, span.num_busy - 1)]))
        chosen.append(work.within(low, min(work.window_end_ns, int(span.end.max()))))
    count = max(span.num_busy for span in spans)
    if skip:
        return chosen, _window(
            chosen,
            f"steady state: steps {skip}:{count}",
            f"the first {skip} of {count} steps took more than twice the median: warm-up",
        )
    return chosen, _window(
        chosen, f"steps 0:{count}", f"all {count} marked steps; work outside of them is left out"
    )


def _warm_up_steps(span: StepSpans) -> int:
    # From start to start, so that a step's idle tail counts as its own.
    length = np.diff(np.append(span.start, span.end.max()))
    skip = 0
    while (
        skip < MAX_WARM_UP
        and len(length) - skip > MIN_STEPS
        # A prefill is as long as its prompts; that it is long says nothing about warm-up.
        and not span.has_prompt[skip]
        and length[skip] > WARM_UP_RATIO * np.median(length[skip + 1 :])
    ):
        skip += 1
    return skip


def _named_steps(
    works: Sequence[DeviceWork], spans: Sequence[StepSpans], request: WindowRequest
) -> tuple[list[DeviceWork], Window]:
    if not works:
        raise UsageError(
            "a window of steps needs device work, and the capture holds none",
            next_step="leave out --steps",
        )
    count = min((span.num_busy for span in spans), default=0)
    first = request.first_step or 0
    end = count if request.end_step is None else request.end_step
    if not 0 <= first < end <= count:
        raise UsageError(
            f"no steps {first}:{end} in the capture",
            allowed=f"0:{count}, first step included, last one not" if count else "no steps here",
            next_step="use --from and --to" if not count else "see `tokenpath inspect FILE`",
        )
    chosen = []
    for work, span in zip(works, spans, strict=True):
        high = int(span.start[end]) if end < span.num_busy else int(span.end.max())
        chosen.append(work.within(int(span.start[first]), high))
    return chosen, _window(chosen, f"steps {first}:{end}", "asked for")


def _named_times(
    works: Sequence[DeviceWork], request: WindowRequest
) -> tuple[list[DeviceWork], Window]:
    if not works:
        raise UsageError(
            "a time window needs device work, and the capture holds none",
            next_step="leave out --from and --to",
        )
    origin = min(work.window_start_ns for work in works)
    last = max(work.window_end_ns for work in works)
    low = origin + (request.from_ns or 0)
    high = last if request.to_ns is None else origin + request.to_ns
    if not origin <= low < high <= last or low >= last:
        raise UsageError(
            f"no window from {format_duration(low - origin)} to {format_duration(high - origin)}",
            allowed=f"0 .. {format_duration(last - origin)} after the first device work",
            next_step="see `tokenpath inspect FILE`",
        )
    chosen = [work.within(low, high) for work in works]
    name = f"{format_duration(low - origin)} to {format_duration(high - origin)}"
    return chosen, Window(low, high, name, "asked for")


def _host_span(capture: Capture) -> tuple[int, int]:
    bounds = [
        (int(capture.int64(table, "start_ns").min()), int(capture.int64(table, "end_ns").max()))
        for table in ("op", "api_call", "frame", "range")
        if capture.num_rows(table)
    ]
    if not bounds:
        return 0, 0
    return min(low for low, _ in bounds), max(high for _, high in bounds)


def holes(work: DeviceWork) -> Intervals:
    """The idle gaps of a device within its window."""
    return gaps(work.busy(), work.window_start_ns, work.window_end_ns)
