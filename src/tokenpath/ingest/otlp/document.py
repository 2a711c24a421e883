"""Files of OTLP to captures: JSON lines in blocks, one JSON document, or protobuf; damage counted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from tokenpath.capture.capture import Capture
from tokenpath.capture.combine import combine
from tokenpath.core.errors import DamagedInput, LimitExceeded
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.json_lines import MAX_DOCUMENT_BYTES, Block, blocks, parse
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.otlp.assemble import add_batch, concat
from tokenpath.ingest.otlp.batch import SpanBatch, SpanRows
from tokenpath.ingest.otlp.json_rows import add_request, add_span
from tokenpath.ingest.otlp.requests import add_requests
from tokenpath.ingest.otlp.scan import is_worth_it
from tokenpath.ingest.packed import Unpacked, open_unpacked
from tokenpath.ingest.reader import Options, Reader, options_by_file

_BATCH_BYTES = 2**24
_MAX_HELD = 200_000
"""Attributes held as Python objects before they become columns."""
_MAX_FAILURES = 100
"""Starts of spans in a damaged record that lead to none; then the rest of it is given up."""
_SPAN_START = re.compile(r'\{\s*"(?:traceId|trace_id)"')
_JSON_ERRORS = (ValueError, RecursionError)


def read_files(reader: Reader, paths: Sequence[Path], options: Options) -> Capture:
    """Each file its own source of one capture."""
    options = replace(options, redactor=options.masks())
    return combine(
        [
            read_file(reader, path, own)
            for path, own in zip(paths, options_by_file(paths, options), strict=True)
        ]
    )


def read_file(reader: Reader, path: Path, options: Options) -> Capture:
    """One file. DamagedInput when there is no span in it to read."""
    builder = CaptureBuilder(reader, path, options)
    redactor = options.masks()
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    parts = [add_batch(builder, redactor, batch) for batch in _batches(unpacked, builder, path)]
    if not builder.num_events and builder.losses.rows():
        raise DamagedInput(
            "no span can be read",
            where=str(path),
            allowed="ExportTraceServiceRequest as JSON, JSON lines or protobuf",
            next_step="export the traces again",
        )
    if parts:
        add_requests(builder, concat(parts))
    return builder.finish()


def _batches(unpacked: Unpacked, builder: CaptureBuilder, path: Path) -> Iterator[SpanBatch]:
    stream = blocks(unpacked, builder.losses)
    first = next(stream, None)
    if first is None:
        return
    if first.data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] not in (b"{", b"["):
        held = _held([first.data], (block.data for block in stream), path)
        yield from _protobuf(b"".join(held), builder)
        return
    head = first.data.removeprefix(b"\xef\xbb\xbf")
    if _is_document(head):
        held = _held([head], (block.data for block in stream), path)
        yield from _document(b"".join(held).decode("utf-8", "replace"), builder)
        return
    for offset, pieces in _gathered(chain([replace(first, data=head)], stream)):
        yield from _lines(pieces, offset, builder)


def _gathered(stream: Iterator[Block]) -> Iterator[tuple[int, list[bytes]]]:
    """Blocks of lines put together to a size at which the costs of a batch no longer matter."""
    held: list[bytes] = []
    offset = size = 0
    for block in stream:
        if not held:
            offset = block.offset
        held.append(block.data)
        size += len(block.data)
        if size >= _BATCH_BYTES:
            yield offset, held
            held, size = [], 0
    if held:
        yield offset, held


def _is_document(head: bytes) -> bool:
    """Whether the first line that is not blank is no JSON by itself, so that lines are no records."""
    first = next((line for line in head.split(b"\n") if line.strip()), b"")
    return parse(first) is None and b"\n" in head.strip()


def _held(held: list[bytes], rest: Iterator[bytes], path: Path) -> list[bytes]:
    """The whole file, within a bound."""
    size = len(held[0])
    for data in rest:
        size += len(data)
        if size > MAX_DOCUMENT_BYTES:
            raise LimitExceeded(
                f"one message of more than {MAX_DOCUMENT_BYTES} bytes",
                where=str(path),
                allowed=f"{MAX_DOCUMENT_BYTES} bytes, or any number of JSON requests, one on each line",
                next_step="export one request a line (the file exporter of the collector does)",
            )
        held.append(data)
    return held


def _lines(pieces: list[bytes], offset: int, builder: CaptureBuilder) -> Iterator[SpanBatch]:
    """Blocks of lines: as columns if they are as exporters write them, else line by line."""
    from tokenpath.ingest.otlp import json_columns, scan_json

    batch = scan_json.decode(pieces) if is_worth_it(sum(map(len, pieces))) else None
    data = b""
    if batch is None:
        data = b"".join(pieces)
        batch = json_columns.decode(data)
    if batch is not None:
        builder.num_events += len(batch)
        if len(batch) or batch.resource:
            yield batch
        return
    rows = SpanRows()
    at = offset
    for line in data.split(b"\n"):
        if line.strip():
            value = parse(line)
            if value is None:
                _salvage(line.decode("utf-8", "replace"), rows, builder, at)
            else:
                builder.num_events += add_request(value, rows, builder.losses, at)
        at += len(line) + 1
        if len(rows.keys) + len(rows) > _MAX_HELD:
            yield rows.finish()
            rows = SpanRows()
    if len(rows) or rows.resource:
        yield rows.finish()


def _document(text: str, builder: CaptureBuilder) -> Iterator[SpanBatch]:
    """JSON values one after the other, spread over lines."""
    decoder = json.JSONDecoder()
    at = 0
    rows = SpanRows()
    while (at := _next(text, at)) < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
        except _JSON_ERRORS:
            _salvage(text[at:], rows, builder, at)
            break
        builder.num_events += add_request(value, rows, builder.losses, at)
        at = end
        if len(rows.keys) > _MAX_HELD:
            yield rows.finish()
            rows = SpanRows()
    if len(rows) or rows.resource:
        yield rows.finish()


def _next(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def _salvage(text: str, rows: SpanRows, builder: CaptureBuilder, offset: int) -> None:
    """The spans of a damaged record that are whole; their resource and scope are not known."""
    losses: Losses = builder.losses
    losses.add("damaged record", offset=offset)
    builder.num_events += 1
    decoder = json.JSONDecoder()
    at = num_failures = 0
    while num_failures < _MAX_FAILURES and (found := _SPAN_START.search(text, at)) is not None:
        at = found.end()
        try:
            value: Any
            value, end = decoder.raw_decode(text, found.start())
        except _JSON_ERRORS:
            num_failures += 1
            continue
        # A link begins as a span does, but has no times.
        if isinstance(value, dict) and ("startTimeUnixNano" in value or "name" in value):
            add_span(value, None, None, rows, losses, offset)
            builder.num_events += 1
            at = end


def _protobuf(data: bytes, builder: CaptureBuilder) -> Iterator[SpanBatch]:
    from tokenpath.ingest.otlp.protobuf import resource_spans

    parts: list[slice] = []
    size = 0
    for part in resource_spans(data, builder.losses):
        parts.append(part)
        size += part.stop - part.start
        if size >= _BATCH_BYTES:
            yield from _parts(data, parts, size, builder)
            parts, size = [], 0
    yield from _parts(data, parts, size, builder)


def _parts(
    data: bytes, parts: list[slice], size: int, builder: CaptureBuilder
) -> Iterator[SpanBatch]:
    """ResourceSpans messages: as columns if they are as exporters write them, else one by one."""
    from tokenpath.ingest.otlp.protobuf import add_resource

    if is_worth_it(size):
        from tokenpath.ingest.otlp.scan_protobuf import decode

        batch = decode(data, parts)
        if batch is not None:
            builder.num_events += len(batch)
            if len(batch) or batch.resource:
                yield batch
            return
    rows = SpanRows()
    for part in parts:
        builder.num_events += add_resource(data, part, rows, builder.losses)
        if len(rows.keys) + len(rows) > _MAX_HELD:
            yield rows.finish()
            rows = SpanRows()
    if len(rows) or rows.resource:
        yield rows.finish()
