"""How long requests took as the server's own telemetry says, beside what the client saw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from tokenpath.capture.capture import Capture
from tokenpath.core.units import INT64_MIN


def server_latency_ns(capture: Capture, request_ids: Sequence[str]) -> float | None:
    """Mean latency of these requests in the API server; None where nothing there states it for half of them.

    From spans or request logs of the server, else from the sum and count of its latency
    histogram, which is of all requests. The moments of
    a scheduler's step log are not the server's: tokens still have to be detokenised.
    """
    from_requests = _of_requests(capture, request_ids)
    return _of_metrics(capture) if from_requests is None else from_requests


def _of_requests(capture: Capture, request_ids: Sequence[str]) -> float | None:
    codes, names = capture.codes("request", "observer")
    stated = capture.int64("request", "stated_e2e_ns", INT64_MIN)
    begin = capture.int64("request", "arrival_ns", INT64_MIN)
    end = capture.int64("request", "finished_ns", INT64_MIN)
    steps = np.unique(capture.ids("request_step", "source_id"))
    source = capture.ids("request", "source_id")
    is_server = np.isin(codes, [at for at, name in enumerate(names) if name == "engine"])
    is_server &= ~np.isin(source, steps)
    between = np.where((begin != INT64_MIN) & (end != INT64_MIN), end - begin, INT64_MIN)
    latency = np.where(stated != INT64_MIN, stated, between)
    ids, texts = capture.codes("request", "request_id")
    asked = set(request_ids)
    wanted = np.array([text in asked for text in texts] or [False])[ids]
    known = is_server & wanted & (latency != INT64_MIN)
    if 2 * len(np.unique(ids[known])) < len(asked) or not known.any():
        return None
    return float(latency[known].mean())


def _of_metrics(capture: Capture) -> float | None:
    codes, names = capture.codes("counter_sample", "name")
    if "latency.e2e" not in names:
        return None
    rows = np.flatnonzero(codes == names.index("latency.e2e"))
    kinds, kind_names = capture.codes("counter_sample", "kind")
    label = capture.codes("counter_sample", "labels")[0]
    value = capture.float64("counter_sample", "value")
    at = capture.int64("counter_sample", "at_ns")
    total: dict[str, float] = defaultdict(float)
    for kind in ("sum", "count"):
        if kind not in kind_names:
            return None
        mine = rows[kinds[rows] == kind_names.index(kind)]
        for one in np.unique(label[mine]):
            series = mine[label[mine] == one]
            series = series[np.argsort(at[series], kind="stable")]
            # Counters of a server that ran before start at what they were.
            total[kind] += value[series[-1]] - (value[series[0]] if len(series) > 1 else 0.0)
    return 1e9 * total["sum"] / total["count"] if total["count"] > 0 else None
