"""Perf Analyzer's profile export: for each request the time of each response, in nanoseconds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.load_json import ANY, BEGIN, Members, read_text
from tokenpath.ingest.load_metrics import Figures, write_runs
from tokenpath.ingest.load_notes import note_common
from tokenpath.ingest.load_settings import keep
from tokenpath.ingest.load_tables import RequestRows
from tokenpath.ingest.reader import Options

_EXPERIMENT = ("experiments", ANY)
_REQUESTS = (*_EXPERIMENT, "requests")
_USAGE = re.compile(r'"completion_tokens"\s*:\s*(\d{1,12})')
_NO_CONTENT = re.compile(r'"choices"\s*:\s*\[\s*\]')
_KEPT = ("version", "service_kind")


def read_perf_analyzer(builder: CaptureBuilder, path: Path, options: Options) -> None:
    """Add a request for each one of all experiments."""
    import numpy as np

    losses = builder.losses
    rows = RequestRows(builder)
    runs: list[Figures] = []
    header = Figures()
    failed = number = 0
    concurrency: object = None
    descend = ((), ("experiments",), _EXPERIMENT, _REQUESTS)
    for where, value in Members(read_text(path, options, losses), descend, losses):
        if where == _EXPERIMENT and value is BEGIN:
            runs.append(Figures())
            number = 0
        elif value is BEGIN:
            continue
        elif where == (*_REQUESTS, ANY) and isinstance(value, dict):
            name = f"#{number}" if len(runs) == 1 else f"#{len(runs) - 1}.{number}"
            number += 1
            chunks = _add(builder, rows, name, value)
            failed += not chunks
            if chunks and len(chunks) > 1:
                rows.add_tokens(name, np.array(chunks, np.int64))
        elif where == (*_EXPERIMENT, "experiment"):
            keep(runs[-1], losses, "experiment", value)
            if fields.mapping(value).get("mode") == "concurrency":
                concurrency = fields.mapping(value).get("value")
        elif len(where) == 1 and where[0] in _KEPT:
            keep(header, losses, where[0], value)
        elif len(where) == 1:
            losses.add("private setting", lost=False)
        else:
            losses.add("part of the export that is not read")
    rows.finish()
    header.write(builder, None)
    write_runs(builder, runs)
    note_common(
        builder,
        num_failed=failed,
        concurrency=concurrency,
        num_requests=rows.num_requests,
        has_ids=False,
    )


def _add(
    builder: CaptureBuilder, rows: RequestRows, name: str, request: dict[str, Any]
) -> list[int]:
    """Add a request; the times of its tokens where each response is one, else of its first answer."""
    losses = builder.losses
    stamps = request.get("response_timestamps")
    stamps = stamps if isinstance(stamps, list) else []
    times = [one for one in map(fields.integer, stamps) if one is not None]
    losses.add("response without a time", len(stamps) - len(times))
    answers = [_text(one) for one in request.get("response_outputs") or [] if one is not None]
    losses.add("prompt or generated text", 1 + len(answers), lost=False, dropped=False)
    content = times
    if len(answers) == len(times):
        content = [time for time, text in zip(times, answers, strict=True) if _has_content(text)]
    stated = [int(match[1]) for text in answers[-2:] for match in _USAGE.finditer(text)]
    output = stated[-1] if stated else None
    rows.add(
        name,
        {
            "arrival_ns": fields.nanoseconds(request.get("timestamp"), 1),
            "first_token_ns": content[0] if content else None,
            "last_token_ns": content[-1] if content else None,
            "finished_ns": times[-1] if times else None,
            "output_tokens": output,
        },
        finish_reason=None if content else "error",
    )
    if content and len(content) != output:
        losses.add("stream chunk that is no single token", len(content))
        return content[:1]
    return content


def _text(answer: object) -> str:
    value = fields.mapping(answer).get("response", answer)
    return value if isinstance(value, str) else json.dumps(value)[: fields.MAX_TEXT]


def _has_content(text: str) -> bool:
    """Whether a response is more than an end mark or a report of usage."""
    body = text.strip().removeprefix("data:").strip()
    return bool(body) and body != "[DONE]" and _NO_CONTENT.search(body) is None
