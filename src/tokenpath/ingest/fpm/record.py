"""One message of forward-pass metrics, from a map or a positional array.

The fields and their order are those of the public structs (dynamo/common/forward_pass_metrics.py;
sglang/srt/observability/forward_pass_metrics.py, whose first release has neither `version` nor
`counter_id`). The structs are not declared positional, so msgspec writes maps; comments in both projects say
positional, so both are read.
"""

from __future__ import annotations

from typing import Any

VERSION = 1
"""The version that is understood."""
FIELDS = (
    *("version", "worker_id", "dp_rank", "counter_id", "wall_time"),
    *("scheduled_requests", "queued_requests"),
)
"""Fields of a positional message."""
SHORT_FIELDS = ("worker_id", "dp_rank", "wall_time", "scheduled_requests", "queued_requests")
"""The same in SGLang's first release."""
SCHEDULED = (
    *("num_prefill_requests", "sum_prefill_tokens", "var_prefill_length", "sum_prefill_kv_tokens"),
    *("num_decode_requests", "sum_decode_kv_tokens", "var_decode_kv_tokens"),
)
"""Of the requests that the step computes."""
QUEUED = (
    *("num_prefill_requests", "sum_prefill_tokens", "var_prefill_length"),
    *("num_decode_requests", "sum_decode_kv_tokens", "var_decode_kv_tokens"),
)
"""Of those that wait."""


def is_metrics(value: object) -> bool:
    """Whether a decoded payload is a message of forward-pass metrics."""
    known = as_map(value)
    return known is not None and "scheduled_requests" in known and "wall_time" in known


def as_map(value: object) -> dict[str, Any] | None:
    """A message as a map, its parts too; None for what is no message."""
    if isinstance(value, list):
        names = {len(FIELDS): FIELDS, len(SHORT_FIELDS): SHORT_FIELDS}.get(len(value))
        if names is None or not isinstance(value[names.index("worker_id")], str):
            return None
        value = dict(zip(names, value, strict=True))
    if not isinstance(value, dict):
        return None
    scheduled = _part(value.get("scheduled_requests"), SCHEDULED)
    if scheduled is None:
        return None
    queued = _part(value.get("queued_requests"), QUEUED)
    return {**value, "scheduled_requests": scheduled, "queued_requests": queued or {}}


def _part(value: object, names: tuple[str, ...]) -> dict[str, Any] | None:
    if isinstance(value, list):
        return dict(zip(names, value, strict=False))
    return value if isinstance(value, dict) else None
