"""Records of a stat-logger plug-in to steps, samples and requests.

Names of fields as in vllm/v1/metrics/stats.py (0.15 to 0.32); what a version does not have stays NULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput
from tokenpath.core.request_ids import plain_request_id
from tokenpath.core.units import NS_PER_MS, NS_PER_US
from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.json_lines import records
from tokenpath.ingest.reader import Options, Reader
from tokenpath.ingest.row_batches import RowBatches
from tokenpath.ingest.run_list import place_on_epoch

_REASONS = ("stop", "length", "abort", "error")
"""vllm/v1/engine/__init__.py, FinishReason: written as its number."""
_LATEST_NS = 2**62
_MAX_HELD = 1000
_GAUGES = (
    ("num_running_reqs", "requests.running", "request"),
    ("num_waiting_reqs", "requests.waiting", "request"),
    ("kv_cache_usage", "kv.usage", "ratio"),
)
_WORK = (
    ("num_flops_per_gpu", "work.flops", "flop"),
    ("num_read_bytes_per_gpu", "work.read_bytes", "byte"),
    ("num_write_bytes_per_gpu", "work.write_bytes", "byte"),
)
_DURATIONS = (
    ("stated_e2e_ns", "e2e_latency"),
    ("stated_tpot_ns", "mean_time_per_output_token"),
    ("stated_queue_ns", "queued_time"),
    ("stated_prefill_ns", "prefill_time"),
    ("stated_decode_ns", "decode_time"),
)
_COUNTS = (
    ("prompt_tokens", "num_prompt_tokens"),
    ("cached_tokens", "num_cached_tokens"),
    ("output_tokens", "num_generation_tokens"),
    ("num_preemptions", "num_preemptions"),
)
_STEP = (
    ("number", "iteration_index"),
    ("num_prefill_requests", "num_ctx_requests"),
    ("num_prefill_tokens", "num_ctx_tokens"),
    ("num_decode_requests", "num_generation_requests"),
    ("num_decode_tokens", "num_generation_tokens"),
)
NOTES = {
    "context-is-not-prefill": "Prefill and decode of these steps are vLLM's context and generation, which "
    "count the recompute of a preempted request under generation",
    "prefill-is-wall-time": "Prefill times of these requests are the wall time between scheduling and first "
    "token, with other requests' work under chunked prefill and preemption in it: no GPU time",
}
"""Sentence of each note."""


def read_file(reader: Reader, path: Path, options: Options) -> Capture:
    """The capture of one file. DamagedInput when no record of it can be read."""
    builder = CaptureBuilder(reader, path, options)
    log = _Log(builder, path)
    for offset, record in records(path, options, builder):
        log.take(offset, record)
    log.finish()
    if builder.num_events == builder.losses.num_dropped():
        raise DamagedInput("no record can be read", where=str(path))
    return builder.finish()


class _Log:
    """Rows of one file."""

    def __init__(self, builder: CaptureBuilder, path: Path) -> None:
        self._builder, self._path = builder, path
        self._rows = RowBatches(builder)
        self._totals: dict[tuple[str, int | None], float] = {}
        self._held: list[tuple[int, dict[str, Any], int]] = []
        self._offset_ns: int | None = None

    def take(self, offset: int, record: dict[str, Any]) -> None:
        if record.get("ev") != "stats":
            self._builder.losses.add("unknown event", offset=offset)
            return
        iteration = fields.mapping(record.get("iteration"))
        stated = fields.duration_ns(iteration.get("iteration_timestamp"))
        since = fields.count(record.get("t_us"))
        since_ns = None if since is None or since > _LATEST_NS // NS_PER_US else since * NS_PER_US
        if stated is not None and stated < _LATEST_NS:
            if since_ns is not None and self._offset_ns is None:
                # Records without a time of their own stand by their distance to one that has it.
                self._place(stated - since_ns)
            self._add(stated, record, iteration)
        elif since_ns is None:
            self._builder.losses.add("record without a time", offset=offset)
        elif self._offset_ns is None and len(self._held) < _MAX_HELD:
            self._held.append((since_ns, record, offset))
        else:
            if self._offset_ns is None:
                self._place(place_on_epoch(self._builder, self._path, self._run()))
            self._add(since_ns + (self._offset_ns or 0), record, iteration)

    def finish(self) -> None:
        """Add what is held: no record has a time of its own."""
        if self._held:
            self._place(place_on_epoch(self._builder, self._path, self._run()))
        self._rows.finish()

    def _run(self) -> str:
        return self._path.name.split(".")[0]

    def _place(self, offset_ns: int) -> None:
        self._offset_ns = offset_ns
        for since_ns, record, _ in self._held:
            self._add(since_ns + offset_ns, record, {})
        self._held.clear()

    def _add(self, at_ns: int, record: dict[str, Any], iteration: Mapping[str, Any]) -> None:
        engine = fields.rank(record.get("engine"))
        scheduler = fields.mapping(record.get("scheduler"))
        labels = {} if engine is None else {"engine": str(engine)}
        for field, name, unit in _GAUGES:
            value = fields.real(scheduler.get(field))
            self._rows.sample(at_ns, name, value, unit, source_name=field, labels=labels)
        self._add_totals(at_ns, engine, labels, scheduler, iteration)
        self._add_step(at_ns, engine, scheduler, iteration)
        for field, name in (
            ("time_to_first_tokens_iter", "latency.ttft"),
            ("inter_token_latencies_iter", "latency.itl"),
        ):
            values = iteration.get(field)
            for value in values if isinstance(values, list) else ():
                seconds = fields.real(value)
                self._rows.sample(at_ns, name, seconds, "s", source_name=field, labels=labels)
        evictions = scheduler.get("kv_cache_eviction_events")
        if isinstance(evictions, list):
            self._builder.losses.add(
                "block eviction without a block", len(evictions), dropped=False
            )
        finished = iteration.get("finished_requests")
        for request in finished if isinstance(finished, list) else ():
            self._add_request(at_ns, fields.mapping(request))

    def _add_totals(
        self,
        at_ns: int,
        engine: int | None,
        labels: Mapping[str, str],
        scheduler: Mapping[str, Any],
        iteration: Mapping[str, Any],
    ) -> None:
        """Counts of one record are added up: a sample is the total since the file began."""
        prefix = fields.mapping(scheduler.get("prefix_cache_stats"))
        work = fields.mapping(scheduler.get("perf_stats"))
        prompt = fields.mapping(iteration.get("prompt_token_stats"))
        added = [
            ("prefix.query_tokens", "prefix_cache_stats.queries", prefix.get("queries"), "token"),
            ("prefix.hit_tokens", "prefix_cache_stats.hits", prefix.get("hits"), "token"),
            ("tokens.prompt", "prompt_token_stats.total", prompt.get("total"), "token"),
            *(
                (name, field, iteration.get(field), unit)
                for field, name, unit in (
                    ("num_generation_tokens", "tokens.generated", "token"),
                    ("num_preempted_reqs", "preemptions", "1"),
                )
            ),
            *((name, f"perf_stats.{field}", work.get(field), unit) for field, name, unit in _WORK),
        ]
        for name, source_name, value, unit in added:
            number = fields.count(value)
            key = (name, engine)
            if number is None or (number == 0 and key in self._totals):
                continue
            self._totals[key] = self._totals.get(key, 0) + number
            self._rows.sample(
                at_ns, name, self._totals[key], unit,
                source_name=source_name, kind="counter", labels=labels,
            )  # fmt: skip

    def _add_step(
        self,
        at_ns: int,
        engine: int | None,
        scheduler: Mapping[str, Any],
        iteration: Mapping[str, Any],
    ) -> None:
        details = fields.mapping(scheduler.get("iteration_details"))
        elapsed = fields.duration_ns(details.get("elapsed_ms"), NS_PER_MS)
        if not details or elapsed is None or elapsed > at_ns + _LATEST_NS:
            return
        self._builder.note("context-is-not-prefill", NOTES["context-is-not-prefill"])
        row = {column: fields.count(details.get(field)) for column, field in _STEP}
        context, generation = row["num_prefill_requests"], row["num_decode_requests"]
        phase = "mixed" if context and generation else "prefill" if context else None
        self._rows.add(
            "step",
            {
                "name": "iteration",
                "engine": "vllm",
                "engine_id": engine,
                "observer": "log",
                "phase": "decode" if phase is None and generation else phase,
                "start_ns": at_ns - elapsed,
                "end_ns": at_ns,
                **row,
                "num_running": fields.count(scheduler.get("num_running_reqs")),
                "num_queued": fields.count(scheduler.get("num_waiting_reqs")),
                "num_preempted": fields.count(iteration.get("num_preempted_reqs")),
            },
        )

    def _add_request(self, at_ns: int, request: Mapping[str, Any]) -> None:
        text = fields.text(request.get("request_id"))
        if text is None:
            self._builder.losses.add("request without an id", dropped=False)
            return
        self._builder.note("prefill-is-wall-time", NOTES["prefill-is-wall-time"])
        name, choice = plain_request_id(text)
        reason = request.get("finish_reason")
        number = fields.count(reason)
        known = number is not None and number < len(_REASONS)
        self._rows.add(
            "request",
            {
                "request_id": name,
                "choice": choice,
                "observer": "engine",
                "finished_ns": at_ns,
                "finish_reason": _REASONS[number or 0] if known else fields.text(reason),
                **{column: fields.count(request.get(field)) for column, field in _COUNTS},
                **{column: fields.duration_ns(request.get(field)) for column, field in _DURATIONS},
            },
        )
