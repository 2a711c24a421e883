"""Clocks of hosts against each other, from collectives that several of them took part in.

The last rank to arrive releases all others, so the parts of a collective end together. Of each host the
offset that makes them do so is estimated, and how it drifts. Work grows with the number of parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.core.units import INT64_MIN

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
_UNKNOWN = INT64_MIN
_MAX_ROUNDS = 200
_SETTLED_NS = 0.5
_NUM_BINS = 16
MIN_DRIFT_SPAN_NS = 10**9
"""Over a shorter time no drift is estimated: 20 ppm of a second are lost in the noise."""
MIN_DRIFT_PARTS = 4 * _NUM_BINS
"""With fewer parts no drift is estimated."""


@dataclass(frozen=True)
class HostClock:
    """The clock of one host against that of the first host of its component."""

    sources: Sequence[int]
    """Rows of `source` that this clock stamped."""
    component: int
    """Hosts that share no collective, not even through others, cannot be compared."""
    offset_ns: int
    """What its clock shows too much at `origin_ns`."""
    drift_ppm: float | None
    """How many microseconds a second it gains; None when the parts cannot tell."""
    origin_ns: int
    """Time on the first host's clock to which `offset_ns` belongs."""
    residual_ns: int
    """Median distance of its parts' ends from the collective's end after the correction."""
    num_parts: int
    """Parts of collectives that this rests on."""

    def corrected(self, at_ns: Int64s) -> Int64s:
        """Times of this clock as the first host's would show them."""
        drift = (self.drift_ppm or 0.0) * 1e-6
        result: Int64s = (
            at_ns - self.offset_ns - np.round(drift * (at_ns - self.origin_ns)).astype(np.int64)
        )
        return result


def clock_of_rows(capture: Capture, table: str) -> Int64s:
    """A number for the clock of each row's times: only times of equal numbers may be subtracted.

    0 for those that count from 1970; a file whose times have an unknown origin has a number of its own.
    """
    ids = capture.ids(table, "source_id")
    if capture.num_rows("source") == 0:
        return np.zeros(len(ids), np.int64)
    result: Int64s = _clock_of_source(capture)[ids]
    return result


def _clock_of_source(capture: Capture) -> Int64s:
    source = capture["source"]
    numbers: dict[object, int] = {}
    clocks = [
        0
        if clock == "epoch"
        else 1 + numbers.setdefault(row if sha256 is None else sha256, len(numbers))
        for row, (clock, sha256) in enumerate(
            zip(source["clock"].to_pylist(), source["sha256"].to_pylist(), strict=True)
        )
    ]
    return np.array(clocks, np.int64)


def host_clocks(capture: Capture) -> list[HostClock]:
    """The clocks of all hosts that took part in matched collectives, by host; empty for one host.

    Sources of the same host share a clock, unless their times count from unknown origins; a source of
    unknown host has one of its own.
    """
    match = capture.int64("collective", "match", -1)
    end = ends_of_collectives(capture)
    rows = np.flatnonzero((match >= 0) & (end != _UNKNOWN))
    hosts_of_sources = host_of_source(capture)
    host = hosts_of_sources[capture.ids("collective", "source_id")[rows]] if len(rows) else rows
    if len(np.unique(host)) < 2:
        return []
    hosts, host = np.unique(host, return_inverse=True)
    _, which = np.unique(match[rows], return_inverse=True)
    component = _components(host, which, len(hosts))
    origin = int(end[rows].min())
    seen = (end[rows] - origin).astype(np.float64)
    offset = _offsets(seen, host, which, component, len(hosts))
    drift, offset, seen_residual = _drifts(seen, host, which, component, offset)
    found = []
    residual = _medians(np.abs(seen_residual), host, len(hosts))
    num_parts = np.bincount(host, minlength=len(hosts))
    for number, name in enumerate(hosts.tolist()):
        found.append(
            HostClock(
                np.flatnonzero(hosts_of_sources == name).tolist(),
                int(component[number]),
                round(float(offset[number])),
                None if np.isnan(drift[number]) else float(drift[number] * 1e6),
                origin,
                round(float(residual[number])),
                int(num_parts[number]),
            )
        )
    return found


def ends_of_collectives(capture: Capture) -> Int64s:
    """When each part of a collective ended, of its kernel where there is one; INT64_MIN for unknown."""
    end = capture.int64("collective", "end_ns", _UNKNOWN)
    kernel = capture.ids("collective", "kernel_id")
    if capture.num_rows("kernel"):
        of_kernel = capture.int64("kernel", "end_ns")[np.maximum(kernel, 0)]
        end = np.where(kernel >= 0, of_kernel, end)
    return end


def host_of_source(capture: Capture) -> Int64s:
    """A number for each source, the same for sources of one host whose times count from one origin."""
    numbers: dict[object, int] = {}
    names = capture["source"]["host"].to_pylist()
    clocks = _clock_of_source(capture).tolist()
    return np.array(
        [
            numbers.setdefault(("source", row) if name is None else (name, clock), len(numbers))
            for row, (name, clock) in enumerate(zip(names, clocks, strict=True))
        ],
        np.int64,
    )


def _components(host: Int64s, which: Int64s, num_hosts: int) -> Int64s:
    """The smallest host that each host can be compared with, through any number of collectives."""
    label = np.arange(num_hosts)
    while True:
        lowest = np.full(int(which.max()) + 1, num_hosts, np.int64)
        np.minimum.at(lowest, which, label[host])
        lower = label.copy()
        np.minimum.at(lower, host, lowest[which])
        if (lower == label).all():
            return label
        label = lower


def _medians(values: Float64s, group: Int64s, num_groups: int) -> Float64s:
    """The median of each group; NaN for an empty one."""
    order = np.lexsort((values, group))
    ordered = values[order]
    count = np.bincount(group, minlength=num_groups)
    first = np.cumsum(count) - count
    result = np.full(num_groups, np.nan)
    some = count > 0
    low, high = first[some] + (count[some] - 1) // 2, first[some] + count[some] // 2
    result[some] = (ordered[low] + ordered[high]) / 2
    return result


def _offsets(
    seen: Float64s, host: Int64s, which: Int64s, component: Int64s, num_hosts: int
) -> Float64s:
    """Offsets by turns: the end of each collective from the clocks, the clocks from the ends; medians."""
    offset = np.zeros(num_hosts)
    for _ in range(_MAX_ROUNDS):
        end = _medians(seen - offset[host], which, int(which.max()) + 1)
        better = _medians(seen - end[which], host, num_hosts)
        # The first host of each component is the reference.
        better -= better[component]
        if np.abs(better - offset).max() <= _SETTLED_NS:
            return better
        offset = better
    return offset


def _drifts(
    seen: Float64s, host: Int64s, which: Int64s, component: Int64s, offset: Float64s
) -> tuple[Float64s, Float64s, Float64s]:
    """(drift by host, offsets at time 0, residual of each part)."""
    end = _medians(seen - offset[host], which, int(which.max()) + 1)
    drift = np.full(len(offset), np.nan)
    start_offset = offset.copy()
    residual = seen - end[which] - offset[host]
    order = np.argsort(host, kind="stable")
    parts = np.split(order, np.searchsorted(host[order], np.arange(1, len(offset))))
    for number, mine in enumerate(parts):
        at, away = end[which[mine]], residual[mine]
        if len(mine) < MIN_DRIFT_PARTS or np.ptp(at) < MIN_DRIFT_SPAN_NS:
            continue
        edges = np.quantile(at, np.linspace(0, 1, _NUM_BINS + 1)[1:-1])
        bins = np.searchsorted(edges, at)
        centre, middle = _medians(at, bins, _NUM_BINS), _medians(away, bins, _NUM_BINS)
        known = ~np.isnan(centre)
        slope, intercept = np.polyfit(centre[known], middle[known], 1)
        drift[number] = slope
        start_offset[number] += intercept
    reference = np.nan_to_num(drift[component])
    start_offset -= start_offset[component]
    drift = drift - reference
    line = start_offset[host] + np.nan_to_num(drift[host]) * end[which]
    return drift, start_offset, seen - end[which] - line
