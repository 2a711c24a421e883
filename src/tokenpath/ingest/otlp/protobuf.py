"""Spans from OTLP protobuf: one ExportTraceServiceRequest, or a run of them each behind its length.

Field numbers: opentelemetry/proto/collector/trace/v1/trace_service.proto, trace/v1/trace.proto,
common/v1/common.proto and resource/v1/resource.proto of opentelemetry-proto 1.5.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from tokenpath.core.errors import LimitExceeded
from tokenpath.core.units import INT64_MAX
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.otlp.batch import KINDS, NO_TIME, STATUSES, SpanRows
from tokenpath.ingest.otlp.protobuf_sniff import is_delimited
from tokenpath.ingest.wire import (
    BYTES,
    FIXED64,
    VARINT,
    WireError,
    check_depth,
    fields,
    read_varint,
    signed,
    text,
    to_double,
)

_ATTRIBUTES = 9
_EVENTS, _LINKS = 11, 13


def resource_spans(data: bytes, losses: Losses) -> Iterator[slice]:
    """Where each ResourceSpans message lies; ends, counted, at the first byte that is no message."""
    try:
        if is_delimited(data):
            yield from _of_delimited(data)
        else:
            yield from _of_message(data, slice(0, len(data)))
    except WireError as error:
        losses.add("no end of the file", offset=error.offset, what=error.what, dropped=False)


def _of_delimited(data: bytes) -> Iterator[slice]:
    at = 0
    while at < len(data):
        length, begin = read_varint(data, at, len(data))
        end = min(begin + length, len(data))
        yield from _of_message(data, slice(begin, end))
        if begin + length > len(data):
            raise WireError(f"a message of {length} bytes is cut", at)
        at = end


def _of_message(data: bytes, within: slice) -> Iterator[slice]:
    for number, kind, value in fields(data, within):
        if number == 1 and kind == BYTES and isinstance(value, slice):
            yield value


def add_resource(data: bytes, within: slice, rows: SpanRows, losses: Losses) -> int:
    """Add the spans of one ResourceSpans; the number of spans seen. Damage ends it, counted."""
    service = None
    scopes: list[slice] = []
    try:
        for number, kind, value in fields(data, within):
            if kind != BYTES or not isinstance(value, slice):
                continue
            if number == 1:
                for key, found, real in attributes_of(data, value, 1, losses):
                    known = found if found is not None else None if real is None else repr(real)
                    if known is not None:
                        rows.resource.add((key, known))
                    if key == "service.name":
                        service = known
            elif number == 2:
                scopes.append(value)
    except WireError as error:
        losses.add("damaged record", offset=error.offset, what=error.what, dropped=False)
    return sum(_add_scope(data, scope, service, rows, losses) for scope in scopes)


def _add_scope(
    data: bytes, within: slice, service: str | None, rows: SpanRows, losses: Losses
) -> int:
    scope = None
    spans: list[slice] = []
    try:
        for number, kind, value in fields(data, within):
            if kind != BYTES or not isinstance(value, slice):
                continue
            if number == 1:
                for name in scope_names(data, value):
                    scope = name
            elif number == 2:
                spans.append(value)
    except WireError as error:
        losses.add("damaged record", offset=error.offset, what=error.what, dropped=False)
    for span in spans:
        _add_span(data, span, service, scope, rows, losses)
    return len(spans)


def scope_names(data: bytes, within: slice) -> Iterator[str | None]:
    """The names of an InstrumentationScope, of which the last one counts."""
    for number, kind, name in fields(data, within):
        if number == 1 and kind == BYTES and isinstance(name, slice):
            yield text(data, name) or None


def _add_span(
    data: bytes,
    within: slice,
    service: str | None,
    scope: str | None,
    rows: SpanRows,
    losses: Losses,
) -> None:
    trace_id = span_id = parent_id = name = kind = status = None
    start = end = NO_TIME
    attributes: list[slice] = []
    message = ""
    try:
        for number, wire_type, value in fields(data, within):
            if isinstance(value, slice):
                if number == _ATTRIBUTES:
                    attributes.append(value)
                elif number == 1:
                    trace_id = data[value].hex()
                elif number == 2:
                    span_id = data[value].hex()
                elif number == 4:
                    parent_id = data[value].hex()
                elif number == 5:
                    name = text(data, value)
                elif number == _EVENTS:
                    rows.num_events += 1
                elif number == _LINKS:
                    rows.num_links += 1
                elif number == 15:
                    status, message = status_of(data, value)
            elif number == 7 and wire_type == FIXED64:
                start = value if 0 < value <= INT64_MAX else NO_TIME
            elif number == 8 and wire_type == FIXED64:
                end = value if 0 < value <= INT64_MAX else NO_TIME
            elif number == 6 and wire_type == VARINT:
                kind = KINDS.get(value)
    except WireError as error:
        losses.add("damaged record", offset=error.offset, what=error.what, dropped=False)
    for column, item in (
        (rows.trace_id, trace_id),
        (rows.span_id, span_id),
        (rows.parent_id, parent_id),
        (rows.name, name),
        (rows.kind, kind),
        (rows.status, status),
        (rows.service, service),
        (rows.scope, scope),
    ):
        column.append(item or None)
    rows.start_ns.append(start)
    rows.end_ns.append(end)
    for attribute in attributes:
        found = _key_value(data, attribute, losses)
        if found is not None:
            rows.add_attribute(*found)
    if message:
        rows.add_attribute("status.message", message, None)
    rows.end_span()


def status_of(data: bytes, within: slice) -> tuple[str | None, str]:
    """Status and message of a Status."""
    code, message = None, ""
    for number, kind, value in fields(data, within):
        if number == 3 and kind == VARINT and isinstance(value, int):
            code = STATUSES.get(value)
        elif number == 2 and isinstance(value, slice):
            message = text(data, value)
    return code, message


def attributes_of(
    data: bytes, within: slice, field: int, losses: Losses
) -> Iterator[tuple[str, str | None, float | None]]:
    """Key, text and number of the attributes under a field of a message."""
    for number, _, value in fields(data, within):
        if number == field and isinstance(value, slice):
            found = _key_value(data, value, losses)
            if found is not None:
                yield found


def _key_value(
    data: bytes, within: slice, losses: Losses
) -> tuple[str, str | None, float | None] | None:
    key, value = "", None
    try:
        for number, _, part in fields(data, within):
            if isinstance(part, slice):
                if number == 1:
                    key = text(data, part)
                elif number == 2:
                    value = part
        if key and value is not None:
            return key, *value_of(data, value)
    except (WireError, LimitExceeded):
        pass
    losses.add("damaged attribute", offset=within.start, dropped=False)
    return None


def value_of(data: bytes, within: slice) -> tuple[str | None, float | None]:
    """An AnyValue: text and number; text is None where the number says it all."""
    found: tuple[str | None, float | None] = None, None
    for number, kind, value in fields(data, within):
        if number == 1 and isinstance(value, slice):
            found = text(data, value), None
        elif number == 4 and kind == FIXED64 and isinstance(value, int):
            real = to_double(value)
            found = (None, real) if math.isfinite(real) else (str(real), None)
        elif number == 3 and kind == VARINT and isinstance(value, int):
            whole = signed(value)
            found = str(whole), float(whole)
        elif number == 2 and kind == VARINT:
            found = ("true" if value else "false"), None
        elif number in (5, 6, 7):
            plain = _plain(data, within, 0)
            found = (
                json.dumps(plain, separators=(",", ":"), ensure_ascii=False, sort_keys=True),
                None,
            )
    return found


def _plain(data: bytes, within: slice, depth: int) -> Any:
    """An AnyValue as plain JSON."""
    check_depth(depth, within.start)
    for number, _, value in fields(data, within):
        if isinstance(value, slice):
            if number == 1:
                return text(data, value)
            if number == 5:
                inner = (part for field, _, part in fields(data, value) if field == 1)
                return [_plain(data, p, depth + 1) for p in inner if isinstance(p, slice)]
            if number == 6:
                return dict(_pairs(data, value, depth))
            if number == 7:
                return "bytes"
        elif number == 2:
            return bool(value)
        elif number == 3:
            return signed(value)
        elif number == 4:
            real = to_double(value)
            return real if math.isfinite(real) else str(real)
    return None


def _pairs(data: bytes, within: slice, depth: int) -> Iterator[tuple[str, Any]]:
    for number, _, pair in fields(data, within):
        if number != 1 or not isinstance(pair, slice):
            continue
        key, value = "", None
        for field, _, part in fields(data, pair):
            if field == 1 and isinstance(part, slice):
                key = text(data, part)
            elif field == 2 and isinstance(part, slice):
                value = _plain(data, part, depth + 1)
        yield key, value
