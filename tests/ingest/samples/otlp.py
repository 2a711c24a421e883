"""OpenTelemetry traces: JSON lines, one JSON document, protobuf."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ingest.otlp_writer import (
    T0,
    Span,
    lines,
    llm_request,
    request,
    request_protobuf,
    span_json,
    varint,
)
from ingest.samples import Sample

REQUEST = {
    ("request", "request_id", "choice", "observer"): [("r1", 0, "engine")],
    ("request", "arrival_ns", "queued_ns", "scheduled_ns"): [
        (T0, T0 + 25_000_000, T0 + 125_000_000)
    ],
    ("request", "first_token_ns", "last_token_ns", "finished_ns"): [
        (T0 + 375_000_000, T0 + 875_000_000, T0 + 1_000_000_000)
    ],
    ("request", "prompt_tokens", "output_tokens", "cached_tokens"): [(7, 16, None)],
    ("request", "stated_ttft_ns", "stated_queue_ns"): [(375_000_000, 100_000_000)],
    ("span", "name", "service", "scope", "kind", "status"): [
        ("Load model", "vllm", "vllm.tracing.otel", "internal", "error"),
        ("llm_request", "vllm", "vllm.tracing.otel", "server", None),
    ],
    ("span", "trace_id", "span_id", "parent_span_id"): [
        (f"{5:032x}", f"{6:016x}", f"{7:016x}"),
        (f"{1:032x}", f"{1:016x}", None),
    ],
    ("span", "start_ns", "end_ns"): [(T0, T0 + 9), (T0, T0 + 1_000_000_000)],
    ("source_note", "code"): [
        "ttft-includes-queue",
        "prefill-is-wall-time",
        "derived-request-times",
    ],
}
LOAD = Span(
    "Load model", T0, T0 + 9, trace=5, span=6, parent=7, kind="internal", error=True,
    attributes={"gen_ai.prompt": "what the user wrote", "flag": True, "list": ["a", "b"]},
)  # fmt: skip
SKIPPED = {"attribute: prompt or answer text": 1}


def _write(name: str, data: str | bytes) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return build


def _in_base64(span: Span) -> dict[str, Any]:
    """As protobuf's own JSON mapping writes a span."""
    plain = span_json(span)
    for key in ("traceId", "spanId", "parentSpanId"):
        if key in plain:
            plain[key] = base64.b64encode(bytes.fromhex(plain[key])).decode()
    return plain


def planted(folder: Path, secret: str) -> Path:
    keys = {"plain": secret, "host.name": secret, "gen_ai.prompt": secret, "list": [secret]}
    span = Span(secret, attributes={**keys, secret: "x", "db.password": secret})
    request_ = llm_request(**{"gen_ai.request.id": secret, "gen_ai.request.model": secret})
    message = request(span, request_, service=secret, resource={**keys, "service.version": secret})
    message["resourceSpans"][0]["scopeSpans"][0]["scope"]["name"] = secret
    spans = message["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans[0]["status"]["message"] = secret
    return _write("a.jsonl", lines(message))(folder)


def planted_in_protobuf(folder: Path, secret: str) -> Path:
    keys = {"plain": secret, "host.name": secret, "gen_ai.prompt": secret, "list": [secret]}
    span = Span(secret, attributes={**keys, secret: "x", "db.password": secret})
    data = request_protobuf(span, service=secret, resource=keys)
    return _write("a.pb", data)(folder)


def many(folder: Path, num_events: int) -> Path:
    batches = [
        request(*(llm_request(at + number) for number in range(100)))
        for at in range(1, num_events, 100)
    ]
    return _write("a.jsonl", lines(*batches))(folder)


def many_in_protobuf(folder: Path, num_events: int) -> Path:
    """Short spans: fields are read one by one, which tracing of memory makes ten times as slow."""
    messages = [
        request_protobuf(*(Span("x", span=at + n, attributes={"n": n}) for n in range(100)))
        for at in range(1, num_events, 100)
    ]
    return _write("a.pb", b"".join(varint(len(m)) + m for m in messages))(folder)


DELIMITED = b"".join(
    varint(len(message)) + message
    for message in (request_protobuf(LOAD), request_protobuf(llm_request()))
)
SAMPLES = [
    Sample(
        "otlp-lines",
        "otlp",
        _write("a.jsonl", lines(request(LOAD), request(llm_request()))),
        REQUEST,
        SKIPPED,
        planted,
        many,
        # Ten attributes a span, each with its key; decoded in batches of 16 MB.
        4_000,
    ),
    Sample(
        "otlp-document",
        "otlp",
        _write("a.json", json.dumps(request(LOAD, llm_request()), indent=1)),
        REQUEST,
        SKIPPED,
        planted,
    ),
    Sample(
        "otlp-base64",
        "otlp",
        _write("a.json", json.dumps(request(_in_base64(LOAD), _in_base64(llm_request())))),
        REQUEST,
        {**SKIPPED, "id in base64": 5},
        planted,
    ),
    Sample(
        "otlp-protobuf",
        "otlp",
        _write("a.pb", request_protobuf(LOAD, llm_request())),
        REQUEST,
        SKIPPED,
        planted_in_protobuf,
        many_in_protobuf,
        4_000,
    ),
    Sample(
        "otlp-delimited", "otlp", _write("a.pb", DELIMITED), REQUEST, SKIPPED, planted_in_protobuf
    ),
]
