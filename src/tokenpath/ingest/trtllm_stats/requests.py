"""Request times of TensorRT-LLM (`return_perf_metrics`, /perf_metrics) to rows of `request`.

Times are seconds of a steady clock, or since 1970 where the server has added its offset
(tensorrt_llm/serve); a value after 2014 is taken for the latter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder

_TIMES = (
    ("arrival_ns", "arrival_time"),
    ("scheduled_ns", "first_scheduled_time"),
    ("first_token_ns", "first_token_time"),
    ("last_token_ns", "last_token_time"),
)
_GATEWAY = (
    ("arrival_ns", "disagg_server_arrival_time"),
    ("first_token_ns", "disagg_server_first_token_time"),
)
_EPOCH_FROM_NS = 1_400_000_000 * 10**9
_LATEST_NS = 2**62


def is_request(record: Mapping[str, Any]) -> bool:
    """Whether a record is that of a request, on one server or on two."""
    keys = ("perf_metrics", "timing_metrics", "ctx_perf_metrics", "gen_perf_metrics")
    return any(isinstance(record.get(key), dict) for key in keys)


def request_rows(builder: CaptureBuilder, record: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of one record: of the engine, and with prefill and decode apart of each and the gateway."""
    parts = [
        fields.mapping(record.get(key))
        for key in ("ctx_perf_metrics", "gen_perf_metrics")
        if isinstance(record.get(key), dict)
    ]
    if not parts:
        return _of_engine(builder, record, fields.text(record.get("request_id")))
    name = next((n for part in reversed(parts) if (n := fields.text(part.get("request_id")))), None)
    rows = [row for part in parts for row in _of_engine(builder, part, name)]
    gateway = _times(builder, record, _GATEWAY)
    if name is not None and any(at is not None for at in gateway.values()):
        rows.append({"request_id": name, "observer": "gateway", **gateway})
    builder.note(
        "prefill-instance-ttft",
        "Prefill and decode ran on different instances: the prefill instance's time to first token is not "
        "the user's",
    )
    return rows


def _of_engine(
    builder: CaptureBuilder, record: Mapping[str, Any], name: str | None
) -> list[dict[str, Any]]:
    metrics = fields.mapping(record.get("perf_metrics")) or record
    times = _times(builder, fields.mapping(metrics.get("timing_metrics")), _TIMES)
    if name is None or all(at is None for at in times.values()):
        return []
    return [{"request_id": name, "observer": "engine", **times}]


def _times(
    builder: CaptureBuilder, values: Mapping[str, Any], names: tuple[tuple[str, str], ...]
) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for column, field in names:
        at = fields.duration_ns(values.get(field))
        # 0 stands for a time that was not taken.
        found[column] = at if at is not None and 0 < at < _LATEST_NS else None
    known = [at for at in found.values() if at is not None]
    if known and min(known) < _EPOCH_FROM_NS and builder.origin.clock == "epoch":
        builder.origin.clock = "monotonic"
        builder.note(
            "clock-unknown",
            "Times are seconds of the server's steady clock, whose origin the file does not name",
        )
    return found
