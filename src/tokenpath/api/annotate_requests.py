"""Requests on a trace: their way through queue and steps, with arrows to what ran for them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.core.units import INT64_MAX, INT64_MIN
from tokenpath.explain.thread import request_ids
from tokenpath.export.perfetto import Annotation, Arrow
from tokenpath.stitch.clocks import clock_of_rows

Int64s = NDArray[np.int64]
_UNKNOWN = INT64_MIN
MAX_SHARES = 50_000
"""Shares of requests in steps that are drawn; of more, those of the slowest requests."""


@dataclass
class Drawn:
    """What is drawn beside the trace."""

    annotations: list[Annotation] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)


def annotate_requests(capture: Capture) -> Drawn:
    """A track of scheduler steps, one of each device's part in them, and one a request.

    Arrows lead from a request's share of a step to the step, and from the step to the device's part.
    """
    drawn = Drawn()
    steps = _draw_steps(capture, drawn)
    _draw_requests(capture, drawn, steps)
    return drawn


def _draw_steps(capture: Capture, drawn: Drawn) -> dict[int, tuple[str, int, int]]:
    """(track, start, end) of each scheduler step, drawn one after the other."""
    codes, names = capture.codes("step", "observer")
    start, end = capture.int64("step", "start_ns"), capture.int64("step", "end_ns")
    source, engine = capture.ids("step", "source_id"), capture.ids("step", "engine_id")
    number = capture.int64("step", "number", NO_ID)
    scheduled = np.flatnonzero(np.array([*names, ""], object)[codes] == "scheduler")
    scheduled = scheduled[np.argsort(end[scheduled], kind="stable")]
    drawn_until: dict[str, int] = {}
    found: dict[int, tuple[str, int, int]] = {}
    for row in scheduled.tolist():
        rank = "" if engine[row] == NO_ID else f" rank {engine[row]}"
        track = f"scheduler {source[row]}{rank}"
        # Steps scheduled ahead overlap; slices of a track may not.
        begin = max(int(start[row]), drawn_until.get(track, int(start[row])))
        close = max(int(end[row]), begin)
        drawn_until[track] = close
        label = f"step {number[row]}" if number[row] != NO_ID else f"step (row {row})"
        found[row] = track, begin, close
        drawn.annotations.append(Annotation(track, begin, close, label, {"row": row}))
    _draw_device_parts(capture, drawn, found)
    return found


def _draw_device_parts(
    capture: Capture, drawn: Drawn, steps: dict[int, tuple[str, int, int]]
) -> None:
    """From the first kernel of a step to the last, by device; an arrow from the scheduler's step."""
    step = capture.ids("kernel", "step_id")
    known = np.flatnonzero(step != NO_ID)
    if len(known) == 0 or not steps:
        return
    device = capture.ids("kernel", "device_id")[known]
    twin, clock = capture.ids("step", "scheduler_step_id"), clock_of_rows(capture, "step")
    start, end = (capture.int64("kernel", name)[known] for name in ("start_ns", "end_ns"))
    # One number a pair: unique over pairs takes ten times as long.
    pair = (device.astype(np.int64) << 32) + step[known]
    keys, which = np.unique(pair, return_inverse=True)
    first, last = np.full(len(keys), INT64_MAX), np.full(len(keys), INT64_MIN)
    np.minimum.at(first, which, start)
    np.maximum.at(last, which, end)
    order = np.argsort(first, kind="stable")
    until: dict[str, int] = {}
    for at in order.tolist():
        device_id, row = int(keys[at] >> 32), int(keys[at] & (2**32 - 1))
        owner = int(twin[row])
        if owner not in steps:
            continue
        track = f"device {device_id} steps"
        begin = max(int(first[at]), until.get(track, int(first[at])))
        close = max(int(last[at]), begin)
        until[track] = close
        drawn.annotations.append(
            Annotation(track, begin, close, "device part of step", {"row": owner})
        )
        if clock[owner] != clock[row]:
            continue
        from_track, step_start, step_end = steps[owner]
        moment = min(max(step_start, min(step_end - 1, begin)), begin)
        if step_start <= moment:
            drawn.arrows.append(Arrow("ran on", from_track, moment, track, begin))


def _draw_requests(capture: Capture, drawn: Drawn, steps: dict[int, tuple[str, int, int]]) -> None:
    codes, names = capture.codes("request_step", "request_id")
    step = capture.ids("request_step", "step_id")
    tokens = capture.int64("request_step", "num_tokens")
    phases, phase_names = capture.codes("request_step", "phase")
    queued, clock = _moments(capture, "queued_ns"), clock_of_rows(capture, "step")
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(names) + 1))
    number_of = {name: number for number, name in enumerate(names)}
    left = MAX_SHARES
    for name in request_ids(capture):
        if name not in number_of or left <= 0:
            continue
        number = number_of[name]
        # Several answers to one prompt have a share each of the same step.
        shares: dict[int, list[int]] = {}
        for row in order[bounds[number] : bounds[number + 1]].tolist():
            if int(step[row]) in steps:
                shares.setdefault(int(step[row]), []).append(row)
        mine = sorted(shares, key=lambda owner: steps[owner][1])
        left -= len(mine)
        track = f"request {name}"
        entered = queued.get((name, int(clock[mine[0]]))) if mine else None
        if entered is not None and entered < steps[mine[0]][1]:
            drawn.annotations.append(Annotation(track, entered, steps[mine[0]][1], "queue"))
        for at in mine:
            owner, begin, close = steps[at]
            first = shares[at][0]
            phase = phase_names[phases[first]] if phases[first] >= 0 else "step"
            num_tokens = sum(int(tokens[row]) for row in shares[at])
            drawn.annotations.append(
                Annotation(track, begin, close, phase, {"num_tokens": num_tokens})
            )
            drawn.arrows.append(Arrow("served by", track, begin, owner, begin))


def _moments(capture: Capture, column: str) -> dict[tuple[str, int], int]:
    """The first known moment of each request, by its name and the clock."""
    codes, names = capture.codes("request", "request_id")
    values, clock = capture.int64("request", column, _UNKNOWN), clock_of_rows(capture, "request")
    found: dict[tuple[str, int], int] = {}
    for row in np.flatnonzero(values != _UNKNOWN).tolist():
        found.setdefault((names[codes[row]], int(clock[row])), int(values[row]))
    return found
