"""vLLM's metrics as Prometheus scraped them: the answer of a range query (docs/formats/metrics.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpath.lab.serving.observers import Names
from tokenpath.lab.serving.records import NEVER, Run

F64 = NDArray[np.float64]
_EVERY_NS = 1_000_000_000
_BOUNDS: dict[str, tuple[float, ...]] = {
    "time_to_first_token_seconds": (
        0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    ),
    "inter_token_latency_seconds": (
        0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    ),
}  # fmt: skip
"""Bounds of vLLM's histograms (m40 of the recorded server)."""
_REQUEST_BOUNDS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
)  # fmt: skip


@dataclass
class _Series:
    """Collects the series of one answer."""

    at_ns: NDArray[np.int64]
    t0_unix_ns: int
    job: dict[str, str]
    rows: list[dict[str, Any]]

    def add(self, name: str, labels: dict[str, str], values: F64) -> None:
        """A value a scrape."""
        stamps = ((self.at_ns + self.t0_unix_ns) // 1_000_000 / 1000).tolist()
        points = [[at, _text(value)] for at, value in zip(stamps, values.tolist(), strict=True)]
        metric = {"__name__": f"vllm:{name}", **labels, **self.job}
        self.rows.append({"metric": metric, "values": points})

    def count(
        self, name: str, labels: dict[str, str], when_ns: NDArray[np.int64], amount: F64 | float, start: float = 0.0
    ) -> None:  # fmt: skip
        """A counter that grew by `amount` at each time."""
        order = np.argsort(when_ns, kind="stable")
        sums = np.cumsum(np.broadcast_to(np.asarray(amount, np.float64), when_ns.shape)[order])
        place = np.searchsorted(when_ns[order], self.at_ns, side="right")
        self.add(name, labels, np.concatenate([[0.0], sums])[place] + start)

    def observe(
        self, name: str, labels: dict[str, str], when_ns: NDArray[np.int64], seconds: F64, bounds: tuple[float, ...]
    ) -> None:  # fmt: skip
        """A histogram of what was seen at each time."""
        for bound in bounds:
            self.count(
                f"{name}_bucket", labels | {"le": f"{bound}"}, when_ns[seconds <= bound], 1.0
            )
        self.count(f"{name}_bucket", labels | {"le": "+Inf"}, when_ns, 1.0)
        self.count(f"{name}_count", labels, when_ns, 1.0)
        self.count(f"{name}_sum", labels, when_ns, seconds)


def write_metrics(run: Run, names: Names, folder: Path) -> None:
    """All series of the run, one sample a second."""
    end_ns = int(max(run.ended_ns.max(), run.answered_ns.max()))
    at_ns = np.arange(-(names.t0_unix_ns % _EVERY_NS), end_ns + 2 * _EVERY_NS, _EVERY_NS)
    job = {"instance": "vllm-0:8000", "job": "vllm"}
    series = _Series(at_ns.astype(np.int64), names.t0_unix_ns, job, [])
    for index in range(run.plan.num_replicas):
        labels = {"engine": str(index), "model_name": run.plan.model}
        _of_steps(run, series, index, labels)
        _of_requests(run, series, index, labels)
    answer = {
        "status": "success",
        "data": {"resultType": "matrix", "result": series.rows},
    }
    path = folder / "query_range.json"
    path.write_text(json.dumps(answer, separators=(",", ":")), "utf-8")


def _text(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _of_steps(run: Run, series: _Series, index: int, labels: dict[str, str]) -> None:
    steps, engine = run.steps[index], run.plan.engine
    when = np.array([step.updated_ns for step in steps], np.int64)
    place = np.searchsorted(when, series.at_ns, side="right") - 1

    def last(values: list[float]) -> F64:
        # A gauge keeps its last value; an idle engine has nothing running.
        known = np.array([0.0, *values])
        idle = (place < 0) | (series.at_ns > (when[-1] if len(when) else 0))
        return np.where(idle, 0.0, known[np.where(idle, 0, place + 1)])

    usable = engine.num_usable_blocks
    series.add("num_requests_running", labels, last([step.num_running for step in steps]))
    series.add("num_requests_waiting", labels, last([step.num_waiting for step in steps]))
    used = [round(1 - step.num_free_blocks / usable, 6) for step in steps]
    series.add("kv_cache_usage_perc", labels, last(used))
    preempted = np.array([len(step.preempted) for step in steps], np.float64)
    start = float(run.plan.long_lived.get("preemptions", 0))
    series.count("num_preemptions_total", labels, when, preempted, start)
    emitted = np.array([sum(step.emitted) for step in steps], np.float64)
    series.count("generation_tokens_total", labels, when, emitted)
    tokens = np.array([sum(step.tokens) for step in steps], np.float64)
    series.observe(
        "iteration_tokens_total", labels, when, tokens, (1.0, 8.0, 32.0, 128.0, 512.0, 2048.0, 8192.0)
    )  # fmt: skip
    if run.plan.speculation is not None and steps:
        prompt, drafts = run.load.prompt, run.plan.speculation.num_drafts
        decode = [
            sum(b >= prompt[k] for k, b in zip(step.request, step.before, strict=True)) for step in steps
        ]  # fmt: skip
        accepted = [
            sum(e - 1 for e, k, b in zip(step.emitted, step.request, step.before, strict=True) if b >= prompt[k])
            for step in steps
        ]  # fmt: skip
        rows = np.array(decode, np.float64)
        series.count("spec_decode_num_drafts_total", labels, when, rows)
        series.count("spec_decode_num_draft_tokens_total", labels, when, rows * drafts)
        series.count(
            "spec_decode_num_accepted_tokens_total", labels, when, np.array(accepted, np.float64)
        )
    info = {
        "block_size": str(engine.block_size), "num_gpu_blocks": str(engine.num_blocks),
        "enable_prefix_caching": str(engine.enable_prefix_caching), "cache_dtype": "auto",
        "gpu_memory_utilization": "0.9",
    }  # fmt: skip
    series.add(
        "cache_config_info", {"engine": labels["engine"], **info}, np.ones(len(series.at_ns))
    )


def _of_requests(run: Run, series: _Series, index: int, labels: dict[str, str]) -> None:
    own = (run.ended_ns != NEVER) & (run.replica == index)
    done, arrived = run.answered_ns[own], run.arrived_ns[own]
    first, scheduled, last = run.first_ns[own], run.scheduled_ns[own], run.last_ns[own]
    prompt = run.load.prompt[own].astype(np.float64)
    start = float(run.plan.long_lived.get("request_success", 0))
    series.count("prompt_tokens_total", labels, first, prompt)
    if run.plan.engine.enable_prefix_caching:
        series.count("prefix_cache_queries_total", labels, scheduled, prompt)
        hits = run.cached[own].astype(np.float64)
        series.count("prefix_cache_hits_total", labels, scheduled, hits)
    if run.plan.tier is not None:
        tier = run.load.tier_tokens[own].astype(np.float64)
        series.count(
            "external_prefix_cache_queries_total", labels, scheduled, prompt - run.cached[own]
        )
        series.count("external_prefix_cache_hits_total", labels, scheduled, tier)
        added, loaded = run.added_ns[own], run.added_ns[own] + run.loading_ns[own]
        waiting = np.array([np.count_nonzero((added <= at) & (at < loaded)) for at in series.at_ns])
        series.add(
            "num_requests_waiting_by_reason", labels | {"reason": "deferred"}, waiting.astype(np.float64)
        )  # fmt: skip
    series.count("request_success_total", labels | {"finished_reason": "length"}, done, 1.0, start)
    series.count("request_success_total", labels | {"finished_reason": "abort"}, done[:0], 1.0)
    for name, seconds in (
        ("e2e_request_latency_seconds", done - arrived),
        ("request_queue_time_seconds", scheduled - run.added_ns[own]),
        ("request_prefill_time_seconds", first - scheduled),
        ("request_decode_time_seconds", last - first),
        ("request_inference_time_seconds", last - scheduled),
    ):
        series.observe(name, labels, done, seconds / 1e9, _REQUEST_BOUNDS)
    ttft = (run.first_sent_ns[own] - arrived) / 1e9
    bounds = _BOUNDS["time_to_first_token_seconds"]
    series.observe("time_to_first_token_seconds", labels, run.first_sent_ns[own], ttft, bounds)
    times = [np.array(run.tokens_ns[k], np.int64) for k in own.nonzero()[0]]
    if times:
        gaps = np.concatenate([np.diff(each) for each in times]) / 1e9
        when = np.concatenate([each[1:] for each in times])
        bounds = _BOUNDS["inter_token_latency_seconds"]
        series.observe("inter_token_latency_seconds", labels, when, gaps, bounds)
