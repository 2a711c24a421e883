"""The steps that a profiler saw are steps of the scheduler's own log: which ones.

A step's number on both sides decides, if shapes agree; else order, shape and time (`stitch.alignment`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture, nullable
from tokenpath.stitch.alignment import Series, align

Int64s = NDArray[np.int64]
_UNKNOWN = -1
BY_NUMBER = "step number"
BY_ORDER = "order, shape and time"
_MIN_AGREEMENT = 0.9
"""Numbers that lead to steps of another shape more often than this allows are not the same numbers."""
_SAME_SHARE = 0.01
"""Schedulers whose joins differ by less than this share of the steps fit alike."""
_Join = tuple[Int64s, NDArray[np.float64], str]
"""(row of the scheduler's step for each profiled one, its probability, how it was found)."""
_MAX_SKEW_NS = 60 * 10**9
"""Epoch clocks of two hosts differ by less; equal numbers farther apart are of two runs."""
MIN_PROBABILITY = 0.9
"""A step that is less sure is not linked."""


def join_steps(capture: Capture) -> Capture:
    """The capture with `scheduler_step_id`, `linked_by` and `confidence` of profiled steps filled in.

    A profiled step is only linked where the probability of the link is at least MIN_PROBABILITY. Each
    profiled source is joined to the one scheduler whose steps agree best in shape; to none where two fit
    alike, or where most shapes differ. A source whose steps have been joined before stays as it is.
    """
    step = capture["step"]
    if step.num_rows == 0:
        return capture
    codes, names = capture.codes("step", "observer")
    observer = np.array([*names, ""], object)[codes]
    profiled = np.flatnonzero(observer == "profiler")
    scheduled = np.flatnonzero((observer == "scheduler") | (observer == "log"))
    if len(profiled) == 0 or len(scheduled) == 0:
        return capture
    source, engine = capture.ids("step", "source_id"), capture.ids("step", "engine_id")
    found = capture.ids("step", "scheduler_step_id").copy()
    profiled = profiled[~np.isin(source[profiled], source[found != NO_ID])]
    probability = np.full(step.num_rows, np.nan)
    how = np.full(step.num_rows, None, object)
    steps = _Steps(capture)
    schedulers = np.unique(np.stack((source[scheduled], engine[scheduled])), axis=1).T
    for one in np.unique(source[profiled]):
        mine = profiled[source[profiled] == one]
        joins = [
            _join_one(
                steps,
                mine,
                scheduled[(source[scheduled] == key[0]) & (engine[scheduled] == key[1])],
            )
            for key in schedulers
        ]
        chosen = _best(steps, mine, joins)
        if chosen is not None:
            rows, sure, by = chosen
            linked = (rows >= 0) & (sure >= MIN_PROBABILITY)
            found[mine[linked]] = rows[linked]
            probability[mine[linked]] = sure[linked]
            how[mine[linked]] = by
    return _with_links(capture, found, probability, how)


def _best(steps: _Steps, mine: Int64s, joins: Sequence[_Join]) -> _Join | None:
    """The join whose steps agree most; None where that is none, or where two schedulers fit alike.

    How sure a join is says where in one log a step lies, not which log it is of.
    """
    ranked = []
    for join in joins:
        linked = join[1] >= MIN_PROBABILITY
        same, different = steps.agreement(mine[linked], join[0][linked])
        if different <= same:
            ranked.append((same - different, float(join[1].sum()), join))
    ranked.sort(key=lambda one: one[:2], reverse=True)
    if len(ranked) > 1:
        (one, sure, _), (other, other_sure, _) = ranked[:2]
        if one == other and sure - other_sure <= _SAME_SHARE * len(mine):
            return None
    return ranked[0][2] if ranked else None


class _Steps:
    """Columns of the step table that a join looks at."""

    def __init__(self, capture: Capture) -> None:
        self.start = capture.int64("step", "start_ns")
        # The worker's own call is what a profiler sees, where the scheduler's log has it.
        called = capture.int64("step", "execute_start_ns", _UNKNOWN)
        self.start = np.where(called == _UNKNOWN, self.start, called)
        self.number = capture.int64("step", "number", _UNKNOWN)
        self.requests = self._sum(capture, "num_prefill_requests", "num_decode_requests")
        self.tokens = self._sum(capture, "num_prefill_tokens", "num_decode_tokens")
        clocks = capture["source"]["clock"].to_pylist()
        self.is_epoch = np.array([clock == "epoch" for clock in clocks], bool)
        self.source = capture.ids("step", "source_id")

    @staticmethod
    def _sum(capture: Capture, one: str, two: str) -> Int64s:
        first, second = (capture.int64("step", name, _UNKNOWN) for name in (one, two))
        result: Int64s = np.where((first >= 0) & (second >= 0), first + second, _UNKNOWN)
        return result

    def agreement(self, mine: Int64s, theirs: Int64s) -> tuple[int, int]:
        """(pairs of equal shape, pairs of different shape), where both sides know one."""
        known, same = np.zeros(len(mine), bool), np.ones(len(mine), bool)
        for values in (self.requests, self.tokens):
            both = (values[mine] >= 0) & (values[theirs] >= 0)
            known |= both
            same &= ~both | (values[mine] == values[theirs])
        return int((known & same).sum()), int((known & ~same).sum())

    def series(self, rows: Int64s) -> Series:
        """These rows for an alignment."""
        return Series(
            self.start[rows],
            self.requests[rows],
            self.tokens[rows],
            bool(self.is_epoch[self.source[rows[0]]]),
        )


def _join_one(steps: _Steps, mine: Int64s, theirs: Int64s) -> _Join:
    mine_in_order = np.argsort(steps.start[mine], kind="stable")
    theirs = theirs[np.argsort(steps.start[theirs], kind="stable")]
    by_number = _by_number(steps, mine, theirs)
    if by_number is not None:
        return by_number, np.where(by_number >= 0, 1.0, 0.0), BY_NUMBER
    # Steps without tokens never reach a worker.
    theirs = theirs[steps.tokens[theirs] != 0]
    if len(theirs) == 0:
        return np.full(len(mine), NO_ID), np.zeros(len(mine)), BY_ORDER
    aligned = align(steps.series(mine[mine_in_order]), steps.series(theirs))
    rows, sure = np.full(len(mine), NO_ID, np.int64), np.zeros(len(mine))
    known = aligned.row >= 0
    rows[mine_in_order[known]] = theirs[aligned.row[known]]
    sure[mine_in_order] = aligned.probability
    return rows, sure, BY_ORDER


def _by_number(steps: _Steps, mine: Int64s, theirs: Int64s) -> Int64s | None:
    """By the engine's numbers; None where there are none, or where they are of another run."""
    has_number = steps.number[mine] != _UNKNOWN
    known = steps.number[theirs]
    theirs, known = theirs[known != _UNKNOWN], known[known != _UNKNOWN]
    if not has_number.any() or len(known) == 0:
        return None
    order = np.argsort(known, kind="stable")
    theirs, known = theirs[order], known[order]
    if (np.diff(known) == 0).any():
        return None
    wanted = steps.number[mine]
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    hit = has_number & (known[place] == wanted)
    if steps.is_epoch[steps.source[mine[0]]] and steps.is_epoch[steps.source[theirs[0]]]:
        away = steps.start[mine] - steps.start[theirs[place]]
        hit &= (away > -_MAX_SKEW_NS) & (away < _MAX_SKEW_NS)
    rows = np.where(hit, theirs[place], NO_ID)
    same = np.ones(len(mine), bool)
    for values in (steps.requests, steps.tokens):
        both = hit & (values[mine] >= 0) & (values[np.maximum(rows, 0)] >= 0)
        same &= ~both | (values[mine] == values[np.maximum(rows, 0)])
    if not hit.any() or (same & hit).sum() < _MIN_AGREEMENT * hit.sum():
        return None
    return np.where(same, rows, NO_ID)


def _with_links(
    capture: Capture,
    found: NDArray[np.int32],
    probability: NDArray[np.float64],
    how: NDArray[np.object_],
) -> Capture:
    step = capture["step"]
    # What is sure of a step found by its structure stays where it is not linked.
    stated = capture.float64("step", "confidence")
    before = step["linked_by"].to_pylist()
    how = np.array([new or old for new, old in zip(how, before, strict=True)], object)
    sure = np.where(
        np.isnan(probability), stated, probability * np.where(np.isnan(stated), 1, stated)
    )
    columns: dict[str, pa.Array] = {
        "scheduler_step_id": nullable(found, NO_ID),
        "confidence": pa.array(sure, mask=np.isnan(sure)),
        "linked_by": pa.array(how.tolist(), pa.string()).dictionary_encode(),
    }
    for name, values in columns.items():
        at = step.schema.get_field_index(name)
        step = step.set_column(at, step.schema.field(name), values)
    return capture.replace({"step": step})
