"""The figures of a serving run, simulated or measured, from its tables: latency, rate, cache, load.

All definitions are those of docs/glossary.md; a percentile is the smallest value that so large a share of
the requests does not exceed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.core.units import INT64_MIN, NS_PER_S

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

LATENCIES = ("ttft", "tpot", "itl", "e2e")
"""Latencies of a summary, in the order in which they are shown."""
STATISTICS = ("mean", "p50", "p90", "p99")
_UNKNOWN = INT64_MIN


@dataclass(frozen=True, slots=True)
class Slo:
    """Limits that a request must keep to be counted in goodput; None: no limit."""

    ttft_ns: int | None = None
    """Time to first token."""
    tpot_ns: int | None = None
    """Mean time per output token after the first."""
    e2e_ns: int | None = None
    """End-to-end latency."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is limited."""
        return self.ttft_ns is None and self.tpot_ns is None and self.e2e_ns is None


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run amounts to. None: the tables do not say."""

    num_requests: int
    """Requests that were sent."""
    num_finished: int
    """Requests that got all their tokens."""
    duration_ns: int
    """First arrival to the end of the last request."""
    latency_ns: dict[str, dict[str, float]]
    """By latency, then by statistic, ns; only those that some request has."""
    requests_per_s: float
    """Finished requests over the duration."""
    output_tokens_per_s: float
    """Emitted tokens over the duration."""
    input_tokens_per_s: float
    """Prompt tokens of the finished requests over the duration."""
    goodput_per_s: float | None
    """Requests that met every limit, over the duration; None without limits."""
    slo_share: float | None
    """Those requests over all that were sent."""
    mean_kv_share: float | None
    """KV blocks in use over all, averaged over step time."""
    max_kv_share: float | None
    """The largest of these shares."""
    cached_share: float | None
    """Prompt tokens found in the prefix cache over all prompt tokens."""
    num_preemptions: int | None
    """Times that a request lost its blocks."""
    mean_running: float | None
    """Requests in a step, averaged over step time."""
    max_queued: int | None
    """Longest queue after scheduling."""
    utilisation: float | None
    """Time in steps over the duration, averaged over the engines."""

    def flat(self) -> dict[str, float]:
        """Every figure by a name of its own, for comparing runs; unknown ones are left out."""
        found = {
            f"{statistic}_{latency}_ns": value
            for latency, statistics in self.latency_ns.items()
            for statistic, value in statistics.items()
        }
        for name in _PLAIN:
            value = getattr(self, name)
            if value is not None:
                found[name] = float(value)
        return found


@dataclass(frozen=True, slots=True)
class _Load:
    """What the steps say; None: nothing."""

    mean_kv: float | None = None
    max_kv: float | None = None
    mean_running: float | None = None
    max_queued: int | None = None
    utilisation: float | None = None


_PLAIN = (
    "requests_per_s",
    "output_tokens_per_s",
    "input_tokens_per_s",
    "goodput_per_s",
    "slo_share",
    "mean_kv_share",
    "max_kv_share",
    "cached_share",
    "num_preemptions",
    "mean_running",
    "max_queued",
    "utilisation",
)


def summarise(
    capture: Capture,
    slo: Slo | None = None,
    *,
    observer: str = "engine",
    itl_ns: Mapping[str, float] | None = None,
) -> Summary | None:
    """The figures of what `observer` saw; None if it saw no request.

    `itl_ns` are the statistics of the gaps between tokens, where the tables do not hold the tokens or the steps
    of requests; None: from the tables.
    """
    codes, names = capture.codes("request", "observer")
    if observer not in names:
        return None
    rows = np.flatnonzero(codes == names.index(observer))
    if not len(rows):
        return None
    at = {
        name: capture.int64("request", f"{name}_ns", _UNKNOWN)[rows]
        for name in ("arrival", "first_token", "last_token", "finished")
    }
    tokens = capture.int64("request", "output_tokens", NO_ID)[rows]
    prompt = capture.int64("request", "prompt_tokens", NO_ID)[rows]
    is_done = (at["finished"] != _UNKNOWN) & (at["arrival"] != _UNKNOWN)
    latency = _latencies(at, tokens)
    latency["itl"] = np.empty(0) if itl_ns else token_gaps_ns(capture, observer)
    found = {
        name: statistics(values[~np.isnan(values)])
        for name, values in latency.items()
        if not np.isnan(values).all()
    }
    if itl_ns:
        found["itl"] = dict(itl_ns)
    seen = [values[values != _UNKNOWN] for values in at.values()]
    begin = int(seen[0].min()) if len(seen[0]) else 0
    end = max((int(values.max()) for values in seen if len(values)), default=begin)
    load = _load(capture, end - begin)
    # Only the engine knows of its cache and of preemptions.
    is_engine = codes == names.index("engine") if "engine" in names else codes == -1
    inside = np.flatnonzero(is_engine) if is_engine.any() else rows
    seconds = max(end - begin, 1) / NS_PER_S
    is_met = _meets(latency, is_done, slo)
    return Summary(
        num_requests=len(rows),
        num_finished=int(is_done.sum()),
        duration_ns=end - begin,
        latency_ns={name: found[name] for name in LATENCIES if name in found},
        requests_per_s=float(is_done.sum()) / seconds,
        output_tokens_per_s=float(tokens[tokens > 0].sum()) / seconds,
        input_tokens_per_s=float(prompt[is_done & (prompt > 0)].sum()) / seconds,
        goodput_per_s=None if is_met is None else float(is_met.sum()) / seconds,
        slo_share=None if is_met is None else float(is_met.mean()),
        num_preemptions=_sum_known(capture.int64("request", "num_preemptions", NO_ID)[inside]),
        cached_share=_cached_share(capture, inside),
        mean_kv_share=load.mean_kv,
        max_kv_share=load.max_kv,
        mean_running=load.mean_running,
        max_queued=load.max_queued,
        utilisation=load.utilisation,
    )


def statistics(values: Float64s) -> dict[str, float]:
    """Mean and percentiles; a percentile is a value that occurs."""
    ordered = np.sort(values)
    found = {"mean": float(ordered.mean())}
    for name in STATISTICS[1:]:
        rank = int(np.ceil(int(name[1:]) / 100 * len(ordered))) - 1
        found[name] = float(ordered[max(rank, 0)])
    return found


def token_gaps_ns(capture: Capture, observer: str = "engine") -> Float64s:
    """Each gap between two tokens of a request, the first token's own wait excluded.

    From `token` where the capture holds it, else from the ends of the steps that emitted tokens: several
    tokens of one step come together, with gaps of 0 between them.
    """
    if capture.num_rows("token"):
        codes, names = capture.codes("token", "observer")
        if observer in names:
            own = codes == names.index(observer)
            request, _ = capture.codes("token", "request_id")
            return _gaps(request[own], capture.int64("token", "at_ns")[own])
    if not capture.num_rows("request_step"):
        return np.empty(0)
    request, _ = capture.codes("request_step", "request_id")
    emitted = capture.int64("request_step", "num_emitted", 0)
    end = capture.int64("step", "end_ns")[capture.ids("request_step", "step_id")]
    return _gaps(np.repeat(request, emitted), np.repeat(end, emitted))


def _gaps(request: NDArray[np.int32], at: Int64s) -> Float64s:
    order = np.lexsort((at, request))
    same = request[order][1:] == request[order][:-1]
    gaps: Float64s = np.diff(at[order])[same].astype(np.float64)
    return gaps


def _latencies(at: dict[str, Int64s], tokens: Int64s) -> dict[str, Float64s]:
    """NaN where a request has none (inside calculations only)."""
    return {
        "ttft": _between(at["arrival"], at["first_token"]),
        "tpot": np.where(
            tokens > 1,
            _between(at["first_token"], at["last_token"]) / np.maximum(tokens - 1, 1),
            np.nan,
        ),
        "e2e": _between(at["arrival"], at["finished"]),
    }


def _between(begin: Int64s, end: Int64s) -> Float64s:
    known = (begin != _UNKNOWN) & (end != _UNKNOWN)
    return np.where(known, np.where(known, end, 0) - np.where(known, begin, 0), np.nan)


def _meets(
    latency: dict[str, Float64s], is_done: NDArray[np.bool_], slo: Slo | None
) -> NDArray[np.bool_] | None:
    if slo is None or slo.is_empty:
        return None
    met = is_done.copy()
    for name, limit in (("ttft", slo.ttft_ns), ("tpot", slo.tpot_ns), ("e2e", slo.e2e_ns)):
        if limit is not None:
            # A request of one token has no time per further token, and so none that is too long.
            met &= ~(latency[name] > limit)
    return met


def _sum_known(values: Int64s) -> int | None:
    known = values[values >= 0]
    return int(known.sum()) if len(known) else None


def _cached_share(capture: Capture, rows: Int64s) -> float | None:
    prompt = capture.int64("request", "prompt_tokens", NO_ID)[rows]
    cached = capture.int64("request", "cached_tokens", NO_ID)[rows]
    known = (cached >= 0) & (prompt > 0)
    return float(cached[known].sum() / prompt[known].sum()) if known.any() else None


def _load(capture: Capture, duration_ns: int) -> _Load:
    """What the scheduler's steps say of the load."""
    codes, names = capture.codes("step", "observer")
    own = np.flatnonzero(codes == names.index("scheduler")) if "scheduler" in names else codes[:0]
    if not len(own):
        return _Load()
    start, end = (capture.int64("step", f"{edge}_ns")[own] for edge in ("start", "end"))
    length = end - start
    used = capture.int64("step", "kv_used_blocks", NO_ID)[own]
    total = capture.int64("step", "kv_total_blocks", NO_ID)[own]
    running = capture.int64("step", "num_running", NO_ID)[own]
    queued = capture.int64("step", "num_queued", NO_ID)[own]
    has_kv, has_running = (used >= 0) & (total > 0), running >= 0
    share = used[has_kv] / total[has_kv]
    engine = capture.ids("step", "engine_id")[own]
    num_engines, busy_ns = len(np.unique(engine)), _busy_ns(start, end, engine)
    return _Load(
        mean_kv=_weighted(share, length[has_kv]),
        max_kv=float(share.max()) if len(share) else None,
        mean_running=_weighted(running[has_running], length[has_running]),
        max_queued=int(queued.max()) if (queued >= 0).any() else None,
        utilisation=busy_ns / duration_ns / num_engines if duration_ns > 0 else None,
    )


def _busy_ns(start: Int64s, end: Int64s, engine: NDArray[np.generic]) -> int:
    """Time in steps, summed over engines; a step that is decided while another runs overlaps it."""
    order = np.lexsort((end, engine))
    first, last, own = start[order], end[order], engine[order]
    begin = first.copy()
    follows = own[1:] == own[:-1]
    begin[1:] = np.where(follows, np.maximum(first[1:], last[:-1]), first[1:])
    return int((last - begin).sum())


def _weighted(values: NDArray[np.generic], weights: Int64s) -> float | None:
    """The mean over time; None without values."""
    if not len(values):
        return None
    numbers, total = np.asarray(values, np.float64), float(weights.sum())
    return float((numbers * weights).sum() / total) if total else float(numbers.mean())
