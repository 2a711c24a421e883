"""OTLP: bad ids and times, events, cut lines, hostile input in JSON and protobuf."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ingest.compare import lost, reasons, rows
from ingest.otlp_writer import (
    T0,
    Span,
    lines,
    llm_request,
    part,
    request,
    request_protobuf,
    span_json,
    varint,
)
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.core.errors import TokenpathError, UnknownFormat
from tokenpath.ingest import read
from tokenpath.ingest.otlp.ids import SPAN_BYTES, TRACE_BYTES, hexadecimal
from tokenpath.ingest.otlp.protobuf_sniff import looks_like_traces


def read_text(folder: Path, text: str) -> Capture:
    path = folder / "a.json"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    capture = read([path])
    validate(capture)
    return capture


def read_bytes(folder: Path, data: bytes) -> Capture:
    path = folder / "a.pb"
    path.write_bytes(data)
    capture = read([path])
    validate(capture)
    return capture


def read_span(folder: Path, **changed: Any) -> Capture:
    changed_span = {**span_json(llm_request(2)), **changed}
    return read_text(folder, lines(request(llm_request(), changed_span)))


@pytest.mark.parametrize(
    ("changed", "reason", "num_kept"),
    [
        ({"traceId": "xyz"}, "damaged id", 1),
        ({"spanId": ""}, "damaged id", 1),
        ({"traceId": "0" * 32}, "damaged id", 1),
        ({"parentSpanId": "xyz"}, "damaged parent id", 2),
        ({"startTimeUnixNano": "0"}, "missing timestamp", 1),
        ({"startTimeUnixNano": "99999999999999999999"}, "missing timestamp", 1),
        ({"startTimeUnixNano": "soon"}, "missing timestamp", 1),
        ({"endTimeUnixNano": "0"}, "missing duration", 2),
        ({"endTimeUnixNano": "5"}, "negative duration", 1),
        ({"events": [{"name": "x", "timeUnixNano": "5"}]}, "span event", 2),
        ({"links": [{"traceId": "1" * 32, "spanId": "2" * 16}]}, "span link", 2),
        ({"attributes": [{"key": "a"}]}, "damaged attribute", 2),
        ({"attributes": [{"key": "a", "value": {}}]}, "attribute without a value", 2),
    ],
)
def test_what_is_wrong_is_counted(
    tmp_path: Path, changed: dict[str, Any], reason: str, num_kept: int
) -> None:
    capture = read_span(tmp_path, **changed)
    assert lost(capture) == {reason: 1}
    assert capture.num_rows("span") == num_kept
    assert rows(capture, "source", "num_skipped") == [2 - num_kept]


@pytest.mark.parametrize("value", [None, 5, "x", [], {}, [[]], [5], {"a": 1}])
@pytest.mark.parametrize(
    "field", ["attributes", "name", "kind", "status", "events", "parentSpanId"]
)
def test_wrong_types_end_in_rows_or_counts(tmp_path: Path, field: str, value: Any) -> None:
    assert read_span(tmp_path, **{field: value}).num_rows("span") >= 1


@pytest.mark.parametrize("value", [None, 5, "x", [], {}, [5], [None]])
@pytest.mark.parametrize("field", ["resourceSpans", "scopeSpans", "spans", "resource", "scope"])
def test_wrong_types_above_the_spans(tmp_path: Path, field: str, value: Any) -> None:
    message = request(llm_request(2))
    text = json.dumps(message)
    (resource,) = message["resourceSpans"]
    holder = {
        "resourceSpans": message,
        "scopeSpans": resource,
        "resource": resource,
        "spans": resource["scopeSpans"][0],
        "scope": resource["scopeSpans"][0],
    }[field]
    holder[field] = value
    capture = read_text(tmp_path, text + "\n" + json.dumps(message) + "\n")
    assert capture.num_rows("span") >= 1


def test_a_cut_line_gives_its_whole_spans(tmp_path: Path) -> None:
    text = lines(request(llm_request())) + lines(request(llm_request(2), llm_request(3)))
    capture = read_text(tmp_path, text[:-200])
    assert rows(capture, "request", "request_id") == ["r1", "r2"]
    assert reasons(capture) == {"damaged record": 1}


def test_a_cut_document_gives_its_whole_spans(tmp_path: Path) -> None:
    text = json.dumps(request(llm_request(), llm_request(2), llm_request(3)), indent=2)
    capture = read_text(tmp_path, text[: len(text) * 3 // 4])
    assert rows(capture, "request", "request_id") == ["r1", "r2"]


def test_lone_surrogates_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    text = lines(request(Span("x", attributes={"a": "SURROGATE"})))
    capture = read_text(tmp_path, text.replace("SURROGATE", "\\ud800"))
    assert capture.num_rows("span") == 1
    path = tmp_path / "b.json"
    path.write_bytes(text.encode().replace(b"SURROGATE", b"\xff\xfe"))
    assert rows(read([path]), "span", "attributes") == [[("a", "\ufffd\ufffd")]]


@pytest.mark.parametrize("depth", [200, 100_000])
def test_deep_nesting(tmp_path: Path, depth: int) -> None:
    nested = '{"arrayValue":{"values":[' * depth + "]}}" * depth
    bad = lines(request(Span("x", attributes={"a": "NESTED"}))).replace(
        '{"stringValue":"NESTED"}', nested
    )
    capture = read_text(tmp_path, lines(request(llm_request())) + bad)
    assert rows(capture, "request", "request_id") == ["r1"]
    assert lost(capture)


def test_many_starts_of_spans_that_lead_nowhere(tmp_path: Path) -> None:
    text = lines(request(llm_request())) + '{"traceId" ' * 300_000 + "\n"
    assert reasons(read_text(tmp_path, text)) == {"damaged record": 1}


def test_no_spans_at_all(tmp_path: Path) -> None:
    capture = read_text(tmp_path, '{"resourceSpans":[]}\n')
    assert capture.num_rows("span") == 0


@pytest.mark.parametrize("num_bytes", [TRACE_BYTES, SPAN_BYTES])
def test_ids(num_bytes: int) -> None:
    import base64

    import pyarrow as pa

    raw = bytes(range(1, num_bytes + 1))
    encoded = base64.b64encode(raw).decode()
    texts = [raw.hex(), raw.hex().upper(), encoded, encoded.rstrip("="), "", "0" * 2 * num_bytes]
    found = hexadecimal(pa.array([*texts, "no id", None]), num_bytes)
    assert found.values.to_pylist() == [raw.hex()] * 4 + [None] * 4
    assert (found.num_base64, found.num_damaged) == (2, 1)


def test_a_short_trace_id_is_padded() -> None:
    import pyarrow as pa

    found = hexadecimal(pa.array(["ab" * 8]), TRACE_BYTES)
    assert found.values.to_pylist() == ["0" * 16 + "ab" * 8]


@pytest.mark.parametrize("delimited", [False, True])
def test_protobuf_cut_anywhere(tmp_path: Path, delimited: bool) -> None:
    messages = [request_protobuf(llm_request(n)) for n in (1, 2, 3)]
    data = b"".join((varint(len(m)) if delimited else b"") + m for m in messages)
    whole = read_bytes(tmp_path, data)
    assert rows(whole, "request", "request_id") == ["r1", "r2", "r3"]
    for size in range(0, len(data), 7):
        try:
            capture = read_bytes(tmp_path, data[:size])
        except TokenpathError:
            continue
        assert capture.num_rows("request") <= 3


def test_protobuf_values_of_all_kinds(tmp_path: Path) -> None:
    attributes = {"a": "x", "b": True, "c": -5, "d": 0.25, "e": ["x", 1, [True]]}
    capture = read_bytes(tmp_path, request_protobuf(Span("s", attributes=attributes)))
    assert rows(capture, "span", "attributes") == [
        [("a", "x"), ("b", "true"), ("c", "-5"), ("d", "0.25"), ("e", '["x",1,[true]]')]
    ]


def test_protobuf_nested_too_deep(tmp_path: Path) -> None:
    value = part(1, b"x")
    for _ in range(500):
        value = part(5, part(1, value))
    data = request_protobuf(llm_request())
    span = part(1, b"\1" * 16) + part(2, b"\2" * 8) + part(9, part(1, b"k") + part(2, value))
    data += part(1, part(2, part(2, span)))
    assert reasons(read_bytes(tmp_path, data)) == {"damaged attribute": 1, "missing timestamp": 1}


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\n\x05hello", b"\n" * 1000, bytes(range(256)) * 10, b"\x08\x01" * 99]
)
def test_other_bytes_are_not_taken_for_traces(tmp_path: Path, data: bytes) -> None:
    assert not looks_like_traces(data)
    path = tmp_path / "a.bin"
    path.write_bytes(data)
    with pytest.raises(UnknownFormat):
        read([path])


def test_a_bound_on_the_size(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(lines(request(llm_request())), encoding="utf-8")
    with pytest.raises(TokenpathError, match="more than 100 bytes"):
        read([path], max_bytes=100)


def test_times_are_exact(tmp_path: Path) -> None:
    span = Span("x", T0 + 1, T0 + 2**53 + 1)
    assert rows(read_text(tmp_path, lines(request(span))), "span", "start_ns", "end_ns") == [
        (T0 + 1, T0 + 2**53 + 1)
    ]
