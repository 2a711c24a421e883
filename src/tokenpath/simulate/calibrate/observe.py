"""What a capture saw of steps: what each computed, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import InputError
from tokenpath.simulate.step_model import Float64s

Int64s = NDArray[np.int64]

_UNKNOWN = -1
_OBSERVERS = ("scheduler", "log", "profiler")
"""Whose steps are taken: the first one that has any. A profiler's ranges end before the device does."""
_PAUSE_FACTOR = 10.0
"""A gap before a step that is longer than so many usual ones is waiting for work, not cost."""
_COUNTS = (
    "num_prefill_requests",
    "num_prefill_tokens",
    "sum_prefill_kv_tokens",
    "num_decode_requests",
    "num_decode_tokens",
    "sum_decode_kv_tokens",
)


@dataclass(frozen=True, slots=True)
class StepObservations:
    """Steps with work, in order of time within each engine; arrays have one entry a step."""

    features: Float64s
    """[num_steps, NUM_FEATURES], in the order of `FEATURES`."""
    cost_ns: Float64s
    """From the end of the step before, or the start where the engine had waited, to the end."""
    end_ns: Int64s
    """When each ended."""
    usual_gap_ns: float
    """Median time between steps that follow each other at once; part of `cost_ns`."""
    observer: str
    """`scheduler`, `log` or `profiler`."""
    num_without_work: int
    """Steps without a scheduled token: left out."""
    num_unknown: int
    """Steps whose requests or tokens, or whose length, are not known: left out."""
    notes: tuple[str, ...]
    """What had to be estimated, in words."""

    @property
    def num_steps(self) -> int:
        """Steps observed."""
        return len(self.cost_ns)

    @property
    def has_prefill(self) -> NDArray[np.bool_]:
        """Whether a step computes prompt tokens."""
        return self.features[:, 0] > 0


def observe(capture: Capture) -> StepObservations:
    """The steps of a capture and their costs.

    InputError for a capture without steps whose requests, tokens and times are known.
    """
    rows, observer = _rows(capture)
    values = {name: capture.int64("step", name, _UNKNOWN)[rows] for name in _COUNTS}
    pairs = _from_shares(capture, rows, values)
    start = capture.int64("step", "start_ns")[rows]
    end = capture.int64("step", "end_ns")[rows]
    tokens = values["num_prefill_tokens"] + values["num_decode_tokens"]
    known = np.all([values[name] >= 0 for name in _COUNTS if not name.startswith("sum_")], axis=0)
    series = _series(capture, rows)
    cost, gap = _cost(start, end, series, observer)
    notes = _estimate_sums(values, known)
    features, is_guessed = _features(values, pairs)
    if is_guessed[known].any():
        notes.append(
            "query-key pairs of steps with several prefills: their tokens were split evenly"
        )
    is_used = known & (tokens > 0) & np.isfinite(cost) & (cost > 0)
    if not is_used.any():
        raise InputError(
            "no step with known requests, tokens and length",
            allowed="scheduler steps (recorded, or forward-pass metrics), iteration logs, or a "
            "profiler trace with execute_context_... annotations",
            next_step="record steps, or calibrate a physics model from a load generator's results",
        )
    if observer == "log":
        notes.append("a log states the length of a step: time between steps is not in its cost")
    if observer == "profiler":
        notes.append("steps were timed under a profiler, which slows the host")
    order = np.lexsort((end, series))
    order = order[is_used[order]]
    return StepObservations(
        features=features[order],
        cost_ns=cost[order],
        end_ns=end[order],
        usual_gap_ns=gap,
        observer=observer,
        num_without_work=int((known & (tokens == 0)).sum()),
        num_unknown=int((~known | (known & (tokens > 0) & ~is_used)).sum()),
        notes=tuple(notes),
    )


def _rows(capture: Capture) -> tuple[Int64s, str]:
    """Rows of `step` of the best observer that has counts; step rows of a profiled step of known numbers."""
    codes, names = capture.codes("step", "observer")
    for observer in _OBSERVERS:
        if observer in names:
            rows = np.flatnonzero(codes == names.index(observer))
            tokens = capture.int64("step", "num_decode_tokens", _UNKNOWN)[rows]
            if (tokens != _UNKNOWN).any():
                return rows, observer
    return np.empty(0, np.int64), _OBSERVERS[0]


def _series(capture: Capture, rows: Int64s) -> Int64s:
    """A number for each engine, in order of source."""
    source = capture.ids("step", "source_id")[rows].astype(np.int64)
    engine = capture.ids("step", "engine_id")[rows].astype(np.int64)
    number = np.unique(np.stack((source, engine)), axis=1, return_inverse=True)[1]
    return number.reshape(-1).astype(np.int64)


def _from_shares(capture: Capture, rows: Int64s, values: dict[str, Int64s]) -> Float64s:
    """Query-key pairs by step from the shares of requests, NaN where they are not all known.

    Where they are, the other counts are taken from them too: they say exactly what was computed before.
    """
    pairs = np.full(len(rows), np.nan)
    if capture.num_rows("request_step") == 0:
        return pairs
    place = np.full(capture.num_rows("step"), -1, np.int64)
    place[rows] = np.arange(len(rows))
    step = place[capture.ids("request_step", "step_id")]
    before = capture.int64("request_step", "num_computed_before", _UNKNOWN)
    num = capture.int64("request_step", "num_tokens")
    codes, names = capture.codes("request_step", "phase")
    is_prefill = (
        (codes == names.index("prefill")) if "prefill" in names else np.zeros(len(num), np.bool_)
    )
    is_ours = step >= 0

    def sums(weights: Float64s, mask: NDArray[np.bool_]) -> Float64s:
        use = mask & is_ours
        return np.bincount(step[use], weights[use], minlength=len(rows)).astype(np.float64)

    ones, everyone = np.ones(len(num)), np.ones(len(num), np.bool_)
    total = values["num_prefill_tokens"] + values["num_decode_tokens"]
    is_whole = (sums(num.astype(float), everyone) == total) & (sums(ones, before == _UNKNOWN) == 0)
    exact = {
        "num_prefill_requests": sums(ones, is_prefill),
        "num_prefill_tokens": sums(num.astype(float), is_prefill),
        "sum_prefill_kv_tokens": sums(before.astype(float), is_prefill),
        "num_decode_requests": sums(ones, ~is_prefill),
        "num_decode_tokens": sums(num.astype(float), ~is_prefill),
        "sum_decode_kv_tokens": sums((before + num).astype(float), ~is_prefill),
    }
    for name, counted in exact.items():
        values[name] = np.where(is_whole, counted.astype(np.int64), values[name])
    pairs[is_whole] = sums(num * (before + (num + 1) / 2.0), is_prefill)[is_whole]
    return pairs


def _estimate_sums(values: dict[str, Int64s], known: NDArray[np.bool_]) -> list[str]:
    """Fill context lengths that nobody recorded with 0, and say so."""
    notes = []
    for name, requests, what in (
        ("sum_decode_kv_tokens", "num_decode_requests", "context lengths of decode requests"),
        ("sum_prefill_kv_tokens", "num_prefill_requests", "tokens that prefills had before"),
    ):
        is_missing = (values[name] < 0) & (values[requests] > 0)
        values[name] = np.maximum(values[name], 0)
        if is_missing[known].any():
            notes.append(f"{what} are unknown: no cost was found for them")
    return notes


def _features(values: Mapping[str, Int64s], pairs: Float64s) -> tuple[Float64s, NDArray[np.bool_]]:
    """Features, and where the pairs are a guess."""
    requests = np.maximum(values["num_prefill_requests"], 1)
    num, before = values["num_prefill_tokens"], values["sum_prefill_kv_tokens"]
    even = num / requests * (before + (num + requests) / 2.0)
    is_guessed = np.isnan(pairs) & (values["num_prefill_requests"] > 1)
    features = np.stack(
        (
            values["num_prefill_requests"],
            num,
            before,
            np.where(np.isnan(pairs), even, pairs),
            values["num_decode_requests"],
            values["num_decode_tokens"],
            values["sum_decode_kv_tokens"],
        ),
        axis=1,
    ).astype(np.float64)
    return features, is_guessed


def _cost(start: Int64s, end: Int64s, series: Int64s, observer: str) -> tuple[Float64s, float]:
    """Cost of each step, NaN where it cannot be told, and the usual gap.

    Scheduler: the end of a step is when its tokens were out, so steps that follow each other at once cost
    the time between their ends; that also holds where one is scheduled while another runs. Profiler: the
    range of the worker's call starts a step, and the device may go on after it: from start to start. Log: its
    lines are stamped by the second, and only the lengths that they state are exact.
    """
    if observer == "log":
        return (end - start).astype(np.float64), 0.0
    order = np.lexsort((end, series))
    first, last, engine = start[order], end[order], series[order]
    follows = np.zeros(len(order), np.bool_)
    follows[1:] = engine[1:] == engine[:-1]
    gap = np.full(len(order), np.nan)
    gap[1:] = np.where(follows[1:], (first[1:] - last[:-1]).astype(np.float64), np.nan)
    waits = gap[follows]
    usual = max(float(np.median(waits)), 0.0) if len(waits) else 0.0
    # A recorder's clock may tick in microseconds: a usual gap of nothing is no scale.
    is_pause = ~(gap <= _PAUSE_FACTOR * max(usual, 1e4))
    cost = np.empty(len(order))
    if observer == "profiler":
        period = np.full(len(order), np.nan)
        period[:-1] = np.where(~is_pause[1:], (first[1:] - first[:-1]).astype(np.float64), np.nan)
        cost[order] = period
        return cost, usual
    # Lengths first: times of today as floats would be off by a hundred nanoseconds.
    cost[order] = (last - first) + np.where(is_pause, usual, np.nan_to_num(gap))
    return cost, usual
