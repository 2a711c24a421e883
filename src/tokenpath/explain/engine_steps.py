"""The scheduler's steps as a line without overlaps, each cut into what happened in it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.capture.intervals import difference, union
from tokenpath.core.units import INT64_MIN

Int64s = NDArray[np.int64]
_UNKNOWN = INT64_MIN
_MARKS = ("schedule_end_ns", "execute_start_ns", "execute_end_ns")
_OTHERS = ("start_ns", "end_ns", "num_prefill_tokens", "num_decode_tokens")


@dataclass(frozen=True)
class EngineSteps:
    """Steps of one scheduler in order of time, made disjoint: a step begins when the one before has ended.

    With asynchronous scheduling the next step is scheduled while this one runs; that time is this one's.
    The four parts of a step add up to `end - start`.
    """

    row: Int64s
    """Row of `step`."""
    start: Int64s
    """Start, or the end of the step before if that is later, ns."""
    end: Int64s
    """Outputs processed, ns."""
    schedule_ns: Int64s
    """Until the scheduler had decided; 0 where not recorded."""
    dispatch_ns: Int64s
    """Until a worker began; 0 where not recorded."""
    execute_ns: Int64s
    """Until the worker's call returned; the whole step where nothing is recorded."""
    output_ns: Int64s
    """Until outputs were processed: sampling, update of the requests; 0 where not recorded."""
    communication_ns: Int64s
    """Of `execute_ns`: collectives with no compute beside them, on the device that has most of it; 0 for
    a step that no profiler saw."""
    prefill_tokens: Int64s
    """Tokens computed for requests in prefill, -1 for unknown."""
    decode_tokens: Int64s
    """Tokens computed for requests in decode, -1 for unknown."""

    def __len__(self) -> int:
        return len(self.row)

    @property
    def gap_before_ns(self) -> Int64s:
        """Time between the end of the step before and the start of this one; 0 for the first."""
        return np.concatenate(([0], self.start[1:] - self.end[:-1])) if len(self) else self.start


def engine_steps(capture: Capture) -> list[EngineSteps]:
    """Those of each scheduler of the capture, by source and data-parallel rank."""
    codes, names = capture.codes("step", "observer")
    observer = np.array([*names, ""], object)[codes]
    rows = np.flatnonzero(observer == "scheduler")
    if len(rows) == 0:
        return []
    source, engine = capture.ids("step", "source_id")[rows], capture.ids("step", "engine_id")[rows]
    keys, which = np.unique(np.stack((source, engine)), axis=1, return_inverse=True)
    communication = _exposed_communication(capture)
    columns = {name: capture.int64("step", name, _UNKNOWN) for name in _MARKS}
    columns |= {name: capture.int64("step", name, NO_ID) for name in _OTHERS}
    order = np.argsort(which.reshape(-1), kind="stable")
    ends = np.cumsum(np.bincount(which.reshape(-1), minlength=keys.shape[1]))[:-1]
    return [_of_rows(columns, communication, mine) for mine in np.split(rows[order], ends)]


def _of_rows(columns: dict[str, Int64s], communication: Int64s, rows: Int64s) -> EngineSteps:
    start, end = columns["start_ns"][rows], columns["end_ns"][rows]
    order = np.lexsort((start, end))
    rows, start, end = rows[order], start[order], end[order]
    # In order of their ends, the start of each is pushed behind the end of the one before.
    start = np.maximum(start, np.concatenate(([start[0]], end[:-1])))
    scheduled, began, returned = (columns[name][rows] for name in _MARKS)
    is_known = (scheduled != _UNKNOWN) & (began != _UNKNOWN) & (returned != _UNKNOWN)
    scheduled = np.where(is_known, np.clip(scheduled, start, end), start)
    began = np.where(is_known, np.clip(began, scheduled, end), start)
    returned = np.where(is_known, np.clip(returned, began, end), end)
    return EngineSteps(
        rows,
        start,
        end,
        scheduled - start,
        began - scheduled,
        returned - began,
        end - returned,
        np.minimum(communication[rows], returned - began),
        columns["num_prefill_tokens"][rows],
        columns["num_decode_tokens"][rows],
    )


def _exposed_communication(capture: Capture) -> Int64s:
    """By row of `step`: time in which a device only communicated in the kernels linked to it."""
    result = np.zeros(capture.num_rows("step"), np.int64)
    kinds, names = capture.codes("kernel", "kind")
    step = capture.ids("kernel", "step_id")
    if "communication" not in names or not (step >= 0).any():
        return result
    twin = capture.ids("step", "scheduler_step_id")
    owner = np.where(step >= 0, np.where(twin[step] >= 0, twin[step], step), NO_ID)
    device = capture.ids("kernel", "device_id")
    start, end = capture.int64("kernel", "start_ns"), capture.int64("kernel", "end_ns")
    is_communication = kinds == names.index("communication")
    # Steps without any communication, which are most where there is one device, need no look.
    talks_in = np.zeros(len(result), bool)
    talks_in[owner[is_communication & (owner >= 0)]] = True
    order = np.flatnonzero((owner >= 0) & talks_in[owner])
    order = order[np.lexsort((device[order], owner[order]))]
    if len(order) == 0:
        return result
    keys = np.stack((owner[order], device[order]))
    bounds = np.flatnonzero(
        np.concatenate(([True], (np.diff(keys, axis=1) != 0).any(axis=0), [True]))
    )
    for low, high in itertools.pairwise(bounds.tolist()):
        rows = order[low:high]
        talks = rows[is_communication[rows]]
        if len(talks) == 0:
            continue
        works = rows[~is_communication[rows]]
        alone = difference(union(start[talks], end[talks]), union(start[works], end[works])).total
        result[owner[rows[0]]] = max(int(result[owner[rows[0]]]), alone)
    return result
