"""Spans from decoded JSON, one by one: the way that reads every spelling of OTLP/JSON."""

from __future__ import annotations

import json
import math
from typing import Any

from tokenpath.ingest.losses import Losses
from tokenpath.ingest.otlp.batch import SpanRows, kind_of, status_of, time_of

MAX_TEXT = 4096
"""Longer values of attributes are cut: they hold what people wrote, not what an engine measured."""
MAX_VALUE_DEPTH = 16
"""Arrays and key-value lists within values; deeper ones are counted."""

_MESSAGE_LISTS = ("resourceSpans", "resource_spans", "batches")
_SCOPE_LISTS = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")


def add_request(value: object, rows: SpanRows, losses: Losses, offset: int) -> int:
    """Add the spans of an ExportTraceServiceRequest (or a list of them, or TracesData) to the rows.

    The number of spans seen, damaged ones included. What has the wrong type is counted.
    """
    if isinstance(value, list):
        return sum(add_request(item, rows, losses, offset) for item in value)
    if not isinstance(value, dict):
        losses.add("damaged record", offset=offset)
        return 1
    inner = value.get("trace")
    message: dict[str, Any] = inner if isinstance(inner, dict) else value
    lists = [message[name] for name in _MESSAGE_LISTS if isinstance(message.get(name), list)]
    if not lists:
        # A collector may write empty requests; anything else is no trace.
        losses.add("record without spans", offset=offset, lost=bool(message))
        return 1
    return sum(_add_resource(item, rows, losses, offset) for items in lists for item in items)


def _add_resource(value: object, rows: SpanRows, losses: Losses, offset: int) -> int:
    if not isinstance(value, dict):
        losses.add("damaged record", offset=offset)
        return 1
    service = None
    resource = value.get("resource")
    attributes = resource.get("attributes") if isinstance(resource, dict) else None
    for key, text, number in attributes_of(attributes, losses, offset):
        if text is None and number is not None:
            text = repr(number)
        if text is not None:
            rows.resource.add((key, text))
        if key == "service.name":
            service = text
    seen = 0
    for name in _SCOPE_LISTS:
        scopes = value.get(name)
        for scope_spans in scopes if isinstance(scopes, list) else ():
            seen += _add_scope(scope_spans, service, rows, losses, offset)
    return seen


def _add_scope(
    value: object, service: str | None, rows: SpanRows, losses: Losses, offset: int
) -> int:
    spans = value.get("spans") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(spans, list):
        if value != {}:
            losses.add("damaged record", offset=offset)
        return 1
    scope = value.get("scope", value.get("instrumentationLibrary"))
    name = text_of(scope.get("name")) if isinstance(scope, dict) else None
    for span in spans:
        if isinstance(span, dict):
            add_span(span, service, name, rows, losses, offset)
        else:
            losses.add("damaged record", offset=offset)
    return len(spans)


def add_span(
    span: dict[str, Any],
    service: str | None,
    scope: str | None,
    rows: SpanRows,
    losses: Losses,
    offset: int,
) -> None:
    """Add one span; ids and times are judged later, with all others."""
    rows.trace_id.append(text_of(span.get("traceId", span.get("trace_id"))))
    rows.span_id.append(text_of(span.get("spanId", span.get("span_id"))))
    rows.parent_id.append(text_of(span.get("parentSpanId", span.get("parent_span_id"))))
    rows.name.append(text_of(span.get("name")))
    rows.kind.append(kind_of(span.get("kind")))
    status = span.get("status")
    rows.status.append(status_of(status.get("code")) if isinstance(status, dict) else None)
    rows.service.append(service)
    rows.scope.append(scope)
    rows.start_ns.append(time_of(span.get("startTimeUnixNano", span.get("start_time_unix_nano"))))
    rows.end_ns.append(time_of(span.get("endTimeUnixNano", span.get("end_time_unix_nano"))))
    for key, text, number in attributes_of(span.get("attributes"), losses, offset):
        rows.add_attribute(key, text, number)
    if isinstance(status, dict) and (message := text_of(status.get("message"))):
        rows.add_attribute("status.message", message, None)
    rows.end_span()
    events, links = span.get("events"), span.get("links")
    rows.num_events += len(events) if isinstance(events, list) else 0
    rows.num_links += len(links) if isinstance(links, list) else 0


def attributes_of(
    values: object, losses: Losses, offset: int
) -> list[tuple[str, str | None, float | None]]:
    """Key, text and number of each attribute; text is None where the number says it all."""
    found = []
    for item in values if isinstance(values, list) else ():
        value = item.get("value") if isinstance(item, dict) else None
        key = text_of(item.get("key")) if isinstance(item, dict) else None
        if key is None or not isinstance(value, dict):
            losses.add("damaged attribute", offset=offset, dropped=False)
            continue
        text, number = value_of(value, losses, offset)
        found.append((key, text, number))
    return found


def value_of(value: dict[str, Any], losses: Losses, offset: int) -> tuple[str | None, float | None]:
    """An AnyValue: text and number. 64-bit integers may be text; NaN and Infinity always are."""
    if isinstance(text := value.get("stringValue", value.get("string_value")), str):
        return text, None
    whole: object = value.get("intValue", value.get("int_value"))
    if whole is not None:
        if isinstance(whole, str) and len(whole) <= 20:
            try:
                whole = int(whole)
            except ValueError:
                return None, None
        return _whole(whole)
    if (real := value.get("doubleValue", value.get("double_value"))) is not None:
        return _double(real)
    if isinstance(flag := value.get("boolValue", value.get("bool_value")), bool):
        return ("true" if flag else "false"), None
    if not value:
        return None, None
    try:
        plain = _plain(value, MAX_VALUE_DEPTH)
    except ValueError:
        losses.add("damaged attribute", offset=offset, dropped=False)
        return None, None
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False, sort_keys=True), None


def _double(real: object) -> tuple[str | None, float | None]:
    try:
        number = float(real) if isinstance(real, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return None, None
    return (None, number) if math.isfinite(number) else (str(real), None)


def _plain(value: object, depth: int) -> Any:
    """A value as plain JSON; ValueError for what is none, or nested too deep."""
    if not isinstance(value, dict) or depth == 0:
        raise ValueError("no value, or too deep")
    for name in ("stringValue", "boolValue", "doubleValue"):
        if name in value:
            return value[name]
    if "intValue" in value:
        whole = value["intValue"]
        return int(whole) if isinstance(whole, str) and whole.lstrip("-").isdigit() else whole
    for name in ("arrayValue", "kvlistValue"):
        inner = value.get(name)
        items = inner.get("values", []) if isinstance(inner, dict) else None
        if not isinstance(items, list):
            continue
        if name == "arrayValue":
            return [_plain(item, depth - 1) for item in items]
        return {
            str(item.get("key")): _plain(item.get("value"), depth - 1)
            for item in items
            if isinstance(item, dict)
        }
    if "bytesValue" in value:
        # Of no use as text.
        return "bytes"
    if value:
        raise ValueError("no value that the protocol knows")
    return None


def _whole(value: object) -> tuple[str | None, float | None]:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        return None, None
    return str(value), float(value)


def text_of(value: object) -> str | None:
    """A text that is not empty."""
    return value if isinstance(value, str) and value else None
