"""Writes OTLP as exporters do: JSON with hexadecimal ids, or protobuf."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

KIND = {"internal": 1, "server": 2, "client": 3}
T0 = 1_796_049_211_000_000_000
"""Start of most spans here, epoch nanoseconds."""


@dataclass
class Span:
    name: str
    start_ns: int = T0
    end_ns: int = T0 + 1_000_000_000
    trace: int = 0xABC
    span: int = 1
    parent: int | None = None
    kind: str = "server"
    attributes: dict[str, Any] = field(default_factory=dict)
    error: bool = False

    @property
    def ids(self) -> tuple[str, str, str]:
        parent = "" if self.parent is None else f"{self.parent:016x}"
        return f"{self.trace:032x}", f"{self.span:016x}", parent


def value(of: Any) -> dict[str, Any]:
    if isinstance(of, bool):
        return {"boolValue": of}
    if isinstance(of, int):
        return {"intValue": str(of)}
    if isinstance(of, float):
        return {"doubleValue": of}
    if isinstance(of, list):
        return {"arrayValue": {"values": [value(item) for item in of]}}
    return {"stringValue": of}


def attributes(of: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value(item)} for key, item in of.items()]


def span_json(span: Span) -> dict[str, Any]:
    trace_id, span_id, parent = span.ids
    return {
        "traceId": trace_id,
        "spanId": span_id,
        **({"parentSpanId": parent} if parent else {}),
        "name": span.name,
        "kind": KIND[span.kind],
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": attributes(span.attributes),
        "status": {"code": 2} if span.error else {},
    }


def request(
    *spans: Span | dict[str, Any], service: str = "vllm", resource: dict[str, Any] | None = None
) -> dict[str, Any]:
    """An ExportTraceServiceRequest."""
    return {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": attributes({"service.name": service, **(resource or {})})
                },
                "scopeSpans": [
                    {
                        "scope": {"name": "vllm.tracing.otel"},
                        "spans": [s if isinstance(s, dict) else span_json(s) for s in spans],
                    }
                ],
            }
        ]
    }


def lines(*requests: Any) -> str:
    return "".join(json.dumps(item, separators=(",", ":")) + "\n" for item in requests)


def varint(number: int) -> bytes:
    number %= 2**64
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def part(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def _value(of: Any) -> bytes:
    if isinstance(of, bool):
        return varint(2 << 3) + varint(of)
    if isinstance(of, int):
        return varint(3 << 3) + varint(of)
    if isinstance(of, float):
        return varint(4 << 3 | 1) + struct.pack("<d", of)
    if isinstance(of, list):
        return part(5, b"".join(part(1, _value(item)) for item in of))
    return part(1, of.encode())


def _attributes(number: int, of: dict[str, Any]) -> bytes:
    return b"".join(
        part(number, part(1, key.encode()) + part(2, _value(item))) for key, item in of.items()
    )


def span_protobuf(span: Span) -> bytes:
    trace_id, span_id, parent = (bytes.fromhex(text) for text in span.ids)
    return (
        part(1, trace_id)
        + part(2, span_id)
        + (part(4, parent) if parent else b"")
        + part(5, span.name.encode())
        + varint(6 << 3)
        + varint(KIND[span.kind])
        + varint(7 << 3 | 1)
        + struct.pack("<Q", span.start_ns)
        + varint(8 << 3 | 1)
        + struct.pack("<Q", span.end_ns)
        + _attributes(9, span.attributes)
        + part(15, varint(3 << 3) + varint(2) if span.error else b"")
    )


def request_protobuf(
    *spans: Span, service: str = "vllm", resource: dict[str, Any] | None = None
) -> bytes:
    scope = part(1, part(1, b"vllm.tracing.otel"))
    scope += b"".join(part(2, span_protobuf(span)) for span in spans)
    of_resource = _attributes(1, {"service.name": service, **(resource or {})})
    return part(1, part(1, of_resource) + part(2, scope))


def llm_request(number: int = 1, **changed: Any) -> Span:
    """A request as vLLM writes it: queued 0.1 s, prefill 0.25 s, first token after 0.375 s."""
    of = {
        "gen_ai.latency.time_to_first_token": 0.375,
        "gen_ai.latency.e2e": 1.0,
        "gen_ai.latency.time_in_queue": 0.1,
        "gen_ai.usage.prompt_tokens": 7,
        "gen_ai.usage.completion_tokens": 16,
        "gen_ai.latency.time_in_model_prefill": 0.25,
        "gen_ai.latency.time_in_model_decode": 0.5,
        "gen_ai.latency.time_in_model_inference": 0.75,
        "gen_ai.request.id": f"cmpl-r{number}-0",
        "gen_ai.request.max_tokens": 16,
    }
    return Span("llm_request", span=number, trace=number, attributes={**of, **changed})
