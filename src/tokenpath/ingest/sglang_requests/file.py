"""Request metrics of SGLang to rows of `request`.

A line holds `request_parameters` (the prompt or its token ids: never looked into) and the answer's
meta_info. Its times are seconds since 1970 as doubles, exact to about 200 ns
(sglang/srt/observability/request_metrics_exporter.py and req_time_stats.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput
from tokenpath.core.units import NS_PER_S
from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.json_lines import records
from tokenpath.ingest.reader import Options, Reader
from tokenpath.ingest.row_batches import RowBatches

_TIMES = (
    ("arrival_ns", ("request_received_ts",)),
    ("queued_ns", ("api_server_dispatch_finish_ts",)),
    ("scheduled_ns", ("forward_entry_time",)),
    ("first_token_ns", ("prefill_finished_time", "prefill_finished_ts")),
    ("last_token_ns", ("decode_finished_ts",)),
    ("finished_ns", ("request_finished_ts",)),
)
_COUNTS = (
    ("prompt_tokens", "prompt_tokens"),
    ("cached_tokens", "cached_tokens"),
    ("output_tokens", "completion_tokens"),
    ("num_preemptions", "total_retractions"),
)
_DURATIONS = (("stated_e2e_ns", "e2e_latency"), ("stated_queue_ns", "queue_time"))
_LATEST_NS = 2**62


def read_file(reader: Reader, path: Path, options: Options) -> Capture:
    """The capture of one file. DamagedInput when no request of it can be read."""
    builder = CaptureBuilder(reader, path, options)
    rows = RowBatches(builder)
    for offset, record in records(path, options, builder):
        name = fields.text(record.get("id"))
        if name is None:
            builder.losses.add("request without an id", offset=offset)
            continue
        if "request_parameters" in record:
            builder.losses.add("prompt and parameters", lost=False, dropped=False, offset=offset)
        rows.add("request", _request(builder, name, record))
    rows.finish()
    if not builder.num_rows("request"):
        raise DamagedInput("no request can be read", where=str(path))
    return builder.finish()


def _request(builder: CaptureBuilder, name: str, record: dict[str, Any]) -> dict[str, Any]:
    reason = record.get("finish_reason")
    why = reason.get("type") if isinstance(reason, dict) else reason
    row: dict[str, Any] = {
        "request_id": name,
        "observer": "engine",
        "finish_reason": fields.text(why),
        **{column: fields.count(record.get(field)) for column, field in _COUNTS},
        **{column: fields.duration_ns(record.get(field)) for column, field in _DURATIONS},
    }
    for column, names in _TIMES:
        found = next((record[field] for field in names if record.get(field)), None)
        at = fields.duration_ns(found)
        row[column] = at if at is not None and 0 < at < _LATEST_NS else None
    rate = fields.real(record.get("decode_throughput"))
    if rate is not None and rate > 1e-6:
        # (tokens - 1) / (end - first token): its inverse is the mean time per output token.
        row["stated_tpot_ns"] = round(NS_PER_S / rate)
    if row["first_token_ns"] is not None:
        builder.note(
            "first-token-at-scheduler",
            "The first token's time is when the scheduler had finished the prefill; the text left the "
            "server later, after detokenisation",
        )
    return row
