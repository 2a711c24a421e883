"""Responses of llama.cpp's server, and its slots, to rows of `request`.

`timings` counts prompt tokens without the cached ones (`prompt_n`, `cache_n`); `predicted_ms` runs from the
first token to the last (tools/server/README.md and server-context.cpp of llama.cpp). Neither has a time of
day that is finer than a second, so the rows hold durations only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput
from tokenpath.core.request_ids import plain_request_id
from tokenpath.core.units import NS_PER_MS
from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.json_lines import records
from tokenpath.ingest.reader import Options, Reader
from tokenpath.ingest.row_batches import RowBatches


def read_file(reader: Reader, path: Path, options: Options) -> Capture:
    """The capture of one file. DamagedInput when it holds neither timings nor a slot with a task."""
    builder = CaptureBuilder(reader, path, options)
    rows = RowBatches(builder)
    num_idle = 0
    for offset, record in records(path, options, builder):
        if isinstance(record.get("timings"), dict):
            rows.add("request", _of_response(record, builder.num_events))
            builder.losses.add("prompt or answer", lost=False, dropped=False, offset=offset)
        elif fields.integer(record.get("id_task")) is not None:
            row = _of_slot(record)
            if row is None:
                num_idle += 1
                builder.losses.add("slot without a task", lost=False, offset=offset)
            else:
                rows.add("request", row)
        else:
            builder.losses.add("record without timings", offset=offset)
    rows.finish()
    if not builder.num_rows("request") and not num_idle:
        raise DamagedInput(
            "no timings and no slot",
            where=str(path),
            allowed="responses of llama-server, or its /slots",
            next_step="ask for the response again and save it whole",
        )
    return builder.finish()


def _of_response(record: dict[str, Any], number: int) -> dict[str, Any]:
    timings, usage = record["timings"], fields.mapping(record.get("usage"))
    text = fields.text(record.get("id"))
    name, choice = plain_request_id(text) if text is not None else (f"response-{number}", None)
    cached, computed = (fields.count(timings.get(key)) for key in ("cache_n", "prompt_n"))
    details = fields.mapping(usage.get("prompt_tokens_details"))
    prompt = fields.count(usage.get("prompt_tokens"))
    if prompt is None and cached is not None and computed is not None:
        prompt = cached + computed
    return {
        "request_id": name,
        "choice": choice,
        "observer": "engine",
        "prompt_tokens": prompt,
        "cached_tokens": fields.count(details.get("cached_tokens")) if cached is None else cached,
        "output_tokens": fields.count(timings.get("predicted_n")),
        "finish_reason": _reason(record),
        "model": fields.text(record.get("model")),
        "stated_prefill_ns": fields.duration_ns(timings.get("prompt_ms"), NS_PER_MS),
        "stated_decode_ns": fields.duration_ns(timings.get("predicted_ms"), NS_PER_MS),
    }


def _reason(record: dict[str, Any]) -> str | None:
    choices = record.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    reason = fields.text(fields.mapping(first).get("finish_reason"))
    if reason is not None:
        return reason
    # The server's own endpoint: `limit` is what others call `length`.
    stop = fields.text(record.get("stop_type"))
    return {"eos": "stop", "word": "stop", "limit": "length", "none": None}.get(
        stop or "none", stop
    )


def _of_slot(record: dict[str, Any]) -> dict[str, Any] | None:
    task = fields.count(record.get("id_task"))
    if task is None:
        return None
    following = record.get("next_token")
    if isinstance(following, list):
        following = following[0] if following else None
    return {
        "request_id": f"task-{task}",
        "observer": "engine",
        "prompt_tokens": fields.count(record.get("n_prompt_tokens")),
        "cached_tokens": fields.count(record.get("n_prompt_tokens_cache")),
        "output_tokens": fields.count(fields.mapping(following).get("n_decoded")),
    }
