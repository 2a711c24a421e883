"""Iteration stats of TensorRT-LLM (`IterationStats` as JSON) to steps and samples.

Names as in tensorrt_llm/executor (`iteration_stats`) and cpp/tensorrt_llm/executor/jsonSerialization.cpp.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tokenpath.core.units import NS_PER_MS, NS_PER_US
from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.row_batches import RowBatches

_FORMATS = (
    "%m-%d-%Y %H:%M:%S.%f",
    "%m-%d-%Y %H:%M:%S",
    "%Y-%m-%d %H:%M:%S.%f",
    "%Y-%m-%d %H:%M:%S",
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_STEP_NS = 10**15
_BATCH = (
    ("num_prefill_requests", "numContextRequests"),
    ("num_prefill_tokens", "numCtxTokens"),
    ("sum_prefill_kv_tokens", "numCtxKvTokens"),
    ("num_decode_requests", "numGenRequests"),
    ("sum_decode_kv_tokens", "numGenKvTokens"),
)
_SAMPLES = (
    ("requests.running", "numActiveRequests", "request"),
    ("requests.waiting", "numQueuedRequests", "request"),
    ("gpuMemUsage", "gpuMemUsage", "byte"),
    ("cpuMemUsage", "cpuMemUsage", "byte"),
    ("pinnedMemUsage", "pinnedMemUsage", "byte"),
)


class Iterations:
    """Iterations of one file, which all have a time or none."""

    def __init__(self, builder: CaptureBuilder, rows: RowBatches) -> None:
        self._builder, self._rows = builder, rows
        self._has_times: bool | None = None
        self._ends: dict[int | None, int] = {}
        self._dropped: dict[int | None, int] = {}

    def take(self, offset: int, record: dict[str, Any]) -> None:
        """One iteration."""
        length = fields.duration_ns(record.get("iterLatencyMS"), NS_PER_MS)
        if length is None or length > _MAX_STEP_NS:
            self._builder.losses.add("damaged record", offset=offset)
            return
        rank = fields.rank(record.get("attentionDpRank", record.get("rank")))
        placed = self._place(rank, length, record.get("timestamp"))
        if placed is None:
            self._builder.losses.add("record without a time", offset=offset)
            return
        start, end = placed
        batch = fields.mapping(record.get("inflightBatchingStats"))
        blocks = fields.mapping(record.get("kvCacheStats"))
        used, total = (fields.count(blocks.get(key)) for key in ("usedNumBlocks", "maxNumBlocks"))
        counts = {column: fields.count(batch.get(field)) for column, field in _BATCH}
        self._rows.add(
            "step",
            {
                "name": "iteration",
                "engine": "trtllm",
                "engine_id": rank,
                "observer": "log",
                "number": fields.count(record.get("iter")),
                "phase": _phase(counts["num_prefill_requests"], counts["num_decode_requests"]),
                "start_ns": start,
                "end_ns": end,
                **counts,
                "num_running": fields.count(record.get("numActiveRequests")),
                "num_queued": fields.count(record.get("numQueuedRequests")),
                "kv_used_blocks": used,
                "kv_total_blocks": total,
            },
        )
        labels = {} if rank is None else {"rank": str(rank)}
        for name, field, unit in _SAMPLES:
            value = fields.real(record.get(field))
            source = None if name == field else field
            self._rows.sample(end, name, value, unit, source_name=source, labels=labels)
        if used is not None and total:
            field = "usedNumBlocks / maxNumBlocks"
            self._rows.sample(
                end, "kv.usage", used / total, "ratio", source_name=field, labels=labels
            )
        rate = fields.real(blocks.get("cacheHitRate"))
        field = "cacheHitRate"
        self._rows.sample(end, "prefix.hit_rate", rate, "ratio", source_name=field, labels=labels)
        self._count_dropped(rank, record, offset)

    def _place(self, rank: int | None, length: int, text: object) -> tuple[int, int] | None:
        at = _stamp_ns(text)
        if self._has_times is None:
            self._has_times = at is not None
            self._builder.origin.clock = "monotonic"
            if self._has_times:
                self._builder.note(
                    "clock-unknown",
                    "Time stamps of TensorRT-LLM's iterations are local times without a zone: they are "
                    "counted as if they were UTC, and cannot be placed beside other sources",
                )
            else:
                self._builder.note(
                    "step-times-unknown",
                    "The records hold how long each iteration took, not when: the iterations of a rank "
                    "are laid end to end, without the gaps between them",
                )
        if self._has_times:
            return None if at is None else (at - length, at)
        start = self._ends.get(rank, 0)
        self._ends[rank] = start + length
        return start, start + length

    def _count_dropped(self, rank: int | None, record: dict[str, Any], offset: int) -> None:
        """The executor says how many records it has dropped so far."""
        dropped = fields.count(record.get("statsDroppedFrames"))
        if dropped is None:
            return
        missing = dropped - self._dropped.get(rank, 0)
        self._dropped[rank] = dropped
        self._builder.losses.add("dropped by the engine", missing, offset=offset, dropped=False)


def _stamp_ns(text: object) -> int | None:
    if not isinstance(text, str) or len(text) > 40:
        return None
    for form in _FORMATS:
        try:
            at = datetime.strptime(text, form).replace(tzinfo=UTC) - _EPOCH
        except ValueError:
            continue
        return (at.days * 86_400_000_000 + at.seconds * 1_000_000 + at.microseconds) * NS_PER_US
    return None


def _phase(num_prefill: int | None, num_decode: int | None) -> str | None:
    if num_prefill:
        return "mixed" if num_decode else "prefill"
    return "decode" if num_decode else None
