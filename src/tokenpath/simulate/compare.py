"""Two runs side by side, measured or simulated: what differs by more than chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.core.errors import UsageError
from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit
from tokenpath.core.stats_bootstrap import Interval, bootstrap_interval
from tokenpath.core.units import INT64_MIN, format_duration
from tokenpath.simulate.summary import STATISTICS

Float64s = NDArray[np.float64]
_OBSERVERS = ("client", "gateway", "engine")
_NAMES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "e2e": "end to end",
}
Draws = Sequence[Mapping[str, float]]
LEVEL = 0.95
NUM_RESAMPLES = 600
PAIRED_SHARE = 0.9
"""Runs whose requests are the other's too by less than this are compared as they are."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of two runs."""

    latency: str
    """`ttft`, `tpot` or `e2e`."""
    statistic: str
    """`mean`, `p50`, `p90` or `p99`."""
    first: float
    """Of the first run, ns."""
    second: float
    """Of the second, ns."""
    interval: Interval
    """second - first, ns: what both resampled requests and, where there are any, paired draws allow."""

    @property
    def is_shown(self) -> bool:
        """Whether chance alone does not explain it."""
        return not self.interval.holds(0.0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two runs have in common to be compared by, and what differs."""

    observer: str
    """Who saw the latencies of both."""
    is_paired: bool
    """Whether both ran the same requests, which are then resampled together."""
    num_draws: int
    """Paired draws of step model and noise that the intervals hold as well; 0: none."""
    num_requests: tuple[int, int]
    """Finished requests of each that were compared."""
    differences: tuple[Difference, ...]
    """By latency and statistic."""


def compare(
    first: Capture,
    second: Capture,
    *,
    draws: tuple[Draws, Draws] = ((), ()),
    seed: int = 0,
) -> Comparison:
    """Latencies of two runs; UsageError if no observer saw requests of both.

    Requests are paired by id where nearly all of both runs are in the other; those that are not are left out
    then. `draws`: figures (`Summary.flat`) of more runs of each, the same step model and noise in the same place.
    """
    observer = next((o for o in _OBSERVERS if _has(first, o) and _has(second, o)), None)
    if observer is None:
        raise UsageError(
            "the runs have no observer in common",
            allowed="captures that hold requests as a client, gateway or engine saw them",
            next_step="tokenpath inspect FILE shows what each holds",
        )
    a, b = _requests(first, observer), _requests(second, observer)
    shared = sorted(a.keys() & b.keys())
    is_paired = len(shared) >= max(2, PAIRED_SHARE * max(len(a), len(b)))
    num_draws = min(map(len, draws))
    random = np.random.default_rng(seed)
    found = []
    for at, latency in enumerate(_NAMES):
        if is_paired:
            both = np.array([(a[name][at], b[name][at]) for name in shared])
            both = both[~np.isnan(both).any(axis=1)]
            ours, theirs = both[:, 0], both[:, 1]
        else:
            ours, theirs = (_known(rows, at) for rows in (a, b))
        if len(ours) < 2 or len(theirs) < 2:
            continue
        for statistic in STATISTICS:
            interval = _difference(ours, theirs, statistic, is_paired, random)
            interval = _with_draws(interval, f"{statistic}_{latency}_ns", draws)
            found.append(
                Difference(
                    latency, statistic, _read(ours, statistic), _read(theirs, statistic), interval
                )
            )
    counts = (len(shared), len(shared)) if is_paired else (len(a), len(b))
    return Comparison(observer, is_paired, num_draws, counts, tuple(found))


def comparison_table(comparison: Comparison) -> ShownTable:
    """The differences for people, the verdict last."""
    columns = [
        TableColumn("latency", "latency", Unit.TEXT),
        TableColumn("statistic", "of", Unit.TEXT),
        TableColumn("first_ns", "A", Unit.NS),
        TableColumn("second_ns", "B", Unit.NS),
        TableColumn("low_ns", "B-A from", Unit.NS),
        TableColumn("high_ns", "to", Unit.NS),
        TableColumn("verdict", "verdict", Unit.TEXT),
    ]
    rows: list[list[Cell]] = []
    for d in comparison.differences:
        change = d.second / d.first - 1 if d.first else 0.0
        verdict = f"B {abs(change):.1%} {'higher' if change > 0 else 'lower'}"
        rows.append(
            [
                d.latency,
                d.statistic,
                d.first,
                d.second,
                d.interval.low,
                d.interval.high,
                verdict if d.is_shown else "no difference",
            ]
        )
    how = "the same requests, resampled together" if comparison.is_paired else "requests resampled"
    if comparison.num_draws:
        how += f"; and {comparison.num_draws} paired draws of step model and noise"
    return ShownTable(
        "comparison",
        f"latencies as the {comparison.observer} saw them",
        columns,
        rows,
        len(rows),
        f"{LEVEL:.0%} intervals by bootstrap ({how}).",
        is_lead=True,
    )


def comparison_answer(comparison: Comparison) -> tuple[str, ...]:
    """The verdict in a sentence."""
    shown = [d for d in comparison.differences if d.is_shown]
    if not shown:
        return ("No difference between A and B that chance alone does not explain.",)
    parts = []
    for latency, name in _NAMES.items():
        own = [d for d in shown if d.latency == latency]
        if own:
            d = next((d for d in own if d.statistic == "p99"), own[0])
            word = "longer" if d.second > d.first else "shorter"
            parts.append(
                f"{name} is {word} ({d.statistic} {format_duration(d.first)} -> {format_duration(d.second)})"
            )
    return (f"With B, {'; '.join(parts)}.",)


def _with_draws(interval: Interval, name: str, draws: tuple[Draws, Draws]) -> Interval:
    """An interval that holds what the same draws of both runs differ by, too."""
    pairs = zip(*draws, strict=False)
    found = [b[name] - a[name] for a, b in pairs if name in a and name in b]
    if len(found) < 2:
        return interval
    # Of n draws and the run at hand each order is as likely: one rank further out than plain quantiles.
    ordered = np.sort(found)
    rank = (len(ordered) + 1) * (1 - LEVEL) / 2 - 1
    places = np.arange(len(ordered))
    low, high = np.interp([rank, len(ordered) - 1 - rank], places, ordered).tolist()
    low, high = min(low, interval.low), max(high, interval.high)
    return Interval(interval.point, low, high, interval.level)


def _has(capture: Capture, observer: str) -> bool:
    return observer in capture.codes("request", "observer")[1]


def _requests(capture: Capture, observer: str) -> dict[str, tuple[float, float, float]]:
    """Latencies of each finished request, NaN for one that it has not (inside calculations only)."""
    codes, names = capture.codes("request", "observer")
    rows = np.flatnonzero(codes == names.index(observer))
    ids, texts = capture.codes("request", "request_id")
    at = {
        name: capture.int64("request", f"{name}_ns", INT64_MIN)[rows].astype(np.float64)
        for name in ("arrival", "first_token", "last_token", "finished")
    }
    for values in at.values():
        values[values == float(INT64_MIN)] = np.nan
    tokens = capture.int64("request", "output_tokens", NO_ID)[rows]
    # Clients of some load generators do not state the end: it is the last token's.
    end = np.where(np.isnan(at["finished"]), at["last_token"], at["finished"])
    ttft, e2e = at["first_token"] - at["arrival"], end - at["arrival"]
    tpot = np.where(
        tokens > 1, (at["last_token"] - at["first_token"]) / np.maximum(tokens - 1, 1), np.nan
    )
    columns = zip(ids[rows].tolist(), ttft.tolist(), tpot.tolist(), e2e.tolist(), strict=True)
    return {texts[code]: (a, b, c) for code, a, b, c in columns if not np.isnan(c)}


def _known(rows: dict[str, tuple[float, float, float]], at: int) -> Float64s:
    values = np.array([row[at] for row in rows.values()])
    result: Float64s = values[~np.isnan(values)]
    return result


def _read(values: Float64s, statistic: str) -> float:
    if statistic == "mean":
        return float(values.mean())
    # The smallest value that so large a share does not exceed, as everywhere.
    rank = max(int(np.ceil(int(statistic[1:]) / 100 * len(values))) - 1, 0)
    return float(np.partition(values, rank)[rank])


def _difference(
    ours: Float64s, theirs: Float64s, statistic: str, is_paired: bool, random: np.random.Generator
) -> Interval:
    seed = int(random.integers(2**31))
    point = _read(theirs, statistic) - _read(ours, statistic)
    if is_paired:
        both = np.stack((ours, theirs), axis=-1)
        return bootstrap_interval(
            both,
            lambda rows: _read(rows[:, 1], statistic) - _read(rows[:, 0], statistic),
            level=LEVEL,
            num_resamples=NUM_RESAMPLES,
            seed=seed,
            method="percentile",
        )
    draws = [
        _read(theirs[random.integers(0, len(theirs), len(theirs))], statistic)
        - _read(ours[random.integers(0, len(ours), len(ours))], statistic)
        for _ in range(NUM_RESAMPLES)
    ]
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(point, float(low), float(high), LEVEL)
