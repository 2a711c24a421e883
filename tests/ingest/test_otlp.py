"""OTLP: requests of each program, spellings of JSON, what is kept of attributes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.compare import difference, reasons, rows
from ingest.otlp_writer import T0, Span, lines, llm_request, request, span_json
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.core.request_ids import plain_request_id
from tokenpath.explain import pages
from tokenpath.ingest import read
from tokenpath.ingest.otlp import json_columns
from tokenpath.ingest.otlp.requests import plain_request_ids
from tokenpath.ingest.otlp.usual_ids import USUAL_ID, take_apart

MS = 1_000_000


def read_spans(folder: Path, *spans: Span | dict[str, Any], **options: Any) -> Capture:
    path = folder / "a.jsonl"
    path.write_text(lines(request(*spans)), encoding="utf-8")
    capture = read([path], **options)
    validate(capture)
    return capture


def read_value(folder: Path, value: Any) -> Capture:
    path = folder / "a.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return read([path])


def notes(capture: Capture) -> dict[str, str]:
    return dict(rows(capture, "source_note", "code", "sentence"))


def test_new_names_win_over_old_ones(tmp_path: Path) -> None:
    new = {"gen_ai.usage.input_tokens": 70, "gen_ai.usage.output_tokens": 160}
    capture = read_spans(tmp_path, llm_request(**new), llm_request(2))
    assert rows(capture, "request", "prompt_tokens", "output_tokens") == [(70, 160), (7, 16)]


def test_a_request_without_durations_has_its_ends_only(tmp_path: Path) -> None:
    span = Span("llm_request", attributes={"gen_ai.request.id": "chatcmpl-r1"})
    capture = read_spans(tmp_path, span)
    assert rows(
        capture, "request", "request_id", "arrival_ns", "first_token_ns", "finished_ns"
    ) == [("r1", T0, None, T0 + 1_000_000_000)]
    assert notes(capture) == {}


def test_durations_are_rounded_to_whole_nanoseconds(tmp_path: Path) -> None:
    span = llm_request(**{"gen_ai.latency.time_to_first_token": 0.252011299133301})
    assert rows(read_spans(tmp_path, span), "request", "stated_ttft_ns") == [252_011_299]


@pytest.mark.parametrize("value", [-1.0, 1e12, "soon", 375_000_000_000])
def test_durations_that_are_none(tmp_path: Path, value: Any) -> None:
    """RTP-LLM writes nanoseconds under the key that others write seconds under."""
    span = llm_request(**{"gen_ai.latency.time_to_first_token": value})
    capture = read_spans(tmp_path, span)
    assert rows(capture, "request", "stated_ttft_ns", "first_token_ns", "scheduled_ns") == [
        (None, None, None)
    ]


def test_lifecycle_spans_of_vllm(tmp_path: Path) -> None:
    """Recorded times take the place of derived ones; a resumption changes none of the first ones."""
    stages = [("vllm_queue", 1, 3), ("vllm_prefill", 3, 40), ("vllm_decode", 41, 90)]
    stages += [("vllm_queue", 90, 95), ("vllm_prefill", 95, 120), ("vllm_decode", 121, 900)]
    spans = [
        Span(name, T0 + a * MS, T0 + b * MS, trace=1, span=10 + n, parent=1, kind="internal")
        for n, (name, a, b) in enumerate(stages)
    ]
    capture = read_spans(tmp_path, *spans, llm_request())
    assert rows(capture, "request", "queued_ns", "scheduled_ns") == [(T0 + MS, T0 + 3 * MS)]
    assert rows(capture, "request", "first_token_ns", "last_token_ns") == [
        (T0 + 41 * MS, T0 + 900 * MS)
    ]
    assert capture.num_rows("span") == 7


def test_the_tree_of_sglang(tmp_path: Path) -> None:
    root = Span(" Req 0a1b2c3d", trace=1, span=1, attributes={"rid": "0a1b2c3d4e5f"})
    thread = Span("scheduler [TP 0] (host:deadbeef | pid:7)", trace=1, span=2, parent=1,
                  attributes={"host_id": "deadbeefcafe", "tp_rank": 0})  # fmt: skip
    stages = [("prefill_waiting", 2, 9), ("chunked_prefill", 9, 20), ("prefill_forward", 20, 30)]
    stages += [("decode_loop", 30, 31), ("decode_forward", 31, 80)]
    leaves = [
        Span(name, T0 + a * MS, T0 + b * MS, trace=1, span=10 + n, parent=2)
        for n, (name, a, b) in enumerate(stages)
    ]
    capture = read_spans(tmp_path, root, thread, *leaves)
    assert rows(capture, "request", "request_id", "observer") == [("0a1b2c3d4e5f", "engine")]
    assert rows(capture, "request", "queued_ns", "scheduled_ns", "first_token_ns") == [
        (T0 + 2 * MS, T0 + 9 * MS, T0 + 30 * MS)
    ]
    assert rows(capture, "request", "last_token_ns") == [T0 + 80 * MS]
    assert "deadbeef" not in str(capture["span"].to_pylist())
    assert reasons(capture) == {"attribute: machine or person": 1}


def test_a_role_stands_before_the_id(tmp_path: Path) -> None:
    spans = [Span(name, span=n) for n, name in enumerate(["decode Req ab", "Req", "My Req x y"], 1)]
    assert rows(read_spans(tmp_path, *spans), "request", "span_id") == [f"{1:016x}"]


def test_the_gateway_of_llm_d(tmp_path: Path) -> None:
    """Decode hangs under prefill; the sidecar's figures go to the way in, and a note says what they are."""
    spans = [
        Span("gateway.request", span=1),
        Span("llm_d.pd_proxy.request", span=2, parent=1),
        Span("llm_d.pd_proxy.prefill", span=3, parent=2,
             attributes={"llm_d.pd_proxy.prefill.duration_ms": 30.0}),
        Span("llm_d.pd_proxy.decode", span=4, parent=3,
             attributes={"llm_d.pd_proxy.true_ttft_ms": 55.0}),
        Span("llm_request", span=5, parent=4, attributes={"gen_ai.request.id": "cmpl-R-0"}),
    ]  # fmt: skip
    capture = read_spans(tmp_path, *spans)
    assert rows(capture, "request", "request_id", "observer", "stated_ttft_ns") == [
        ("R", "gateway", 55 * MS),
        ("R", "engine", None),
    ]
    assert rows(capture, "request", "stated_prefill_ns") == [30 * MS, None]
    assert "prefill-instance-ttft" in notes(capture)


def test_the_sidecar_alone_is_the_way_in(tmp_path: Path) -> None:
    span = Span("llm_d.pd_proxy.request", attributes={"llm_d.pd_proxy.true_ttft_ms": 5.0})
    capture = read_spans(tmp_path, span)
    assert rows(capture, "request", "request_id", "observer", "stated_ttft_ns") == [
        (f"{0xABC:032x}", "gateway", 5 * MS)
    ]


def test_a_client_of_the_conventions(tmp_path: Path) -> None:
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.id": "chatcmpl-R",
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 2,
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.response.time_to_first_chunk": 0.5,
    }
    capture = read_spans(tmp_path, Span("chat m", kind="client", attributes=attributes))
    columns = ("request_id", "observer", "model", "prompt_tokens", "cached_tokens", "finish_reason")
    assert rows(capture, "request", *columns) == [("R", "client", "m", 3, 2, "length")]
    assert rows(capture, "request", "first_token_ns") == [T0 + 500 * MS]
    assert rows(read_spans(tmp_path, Span("GET /", kind="client")), "request", "span_id") == []


def test_an_error_is_a_finish_reason(tmp_path: Path) -> None:
    span = llm_request()
    span.error = True
    assert rows(read_spans(tmp_path, span), "request", "finish_reason") == ["error"]


@pytest.mark.parametrize(
    "key",
    ["gen_ai.prompt", "gen_ai.prompt.0.content", "gen_ai.input.messages", "llm.prompts",
     "output.value", "gen_ai.tool.call.arguments", "http.request.body", "prompt_token_ids"],
)  # fmt: skip
def test_what_people_wrote_is_not_kept(tmp_path: Path, key: str) -> None:
    capture = read_spans(tmp_path, Span("x", attributes={key: "Dear diary", "kept": 1}))
    assert rows(capture, "span", "attributes") == [[("kept", "1")]]
    assert reasons(capture) == {"attribute: prompt or answer text": 1}
    assert rows(capture, "skip", "lost") == [False]


@pytest.mark.parametrize(
    "key", ["gen_ai.usage.prompt_tokens", "gen_ai.request.max_tokens", "n.output"]
)
def test_counts_are_kept(tmp_path: Path, key: str) -> None:
    assert rows(read_spans(tmp_path, Span("x", attributes={key: 5})), "span", "attributes") == [
        [(key, "5")]
    ]


def test_hosts_are_pseudonyms_and_the_same_everywhere(tmp_path: Path) -> None:
    span = Span("call worker-seven", attributes={"server.address": "worker-seven:8000"})
    path = tmp_path / "a.jsonl"
    path.write_text(lines(request(span, resource={"host.name": "worker-seven"})), encoding="utf-8")
    capture = read([path])
    assert rows(capture, "span", "name", "attributes") == [
        ("call host-0", [("server.address", "host-0:8000")])
    ]
    assert rows(capture, "source", "host") == ["host-0"]
    assert rows(read([path], keep_hosts=True), "span", "name") == ["call worker-seven"]


def test_long_texts_are_cut(tmp_path: Path) -> None:
    capture = read_spans(tmp_path, Span("x", attributes={"a": "é" * 5000}))
    assert rows(capture, "span", "attributes") == [[("a", "é" * 4096)]]
    assert reasons(capture) == {"attribute text cut": 1}


SPELLINGS: dict[str, dict[str, Any]] = {
    "kind as a word": {"kind": "SPAN_KIND_SERVER"},
    "times as numbers": {"startTimeUnixNano": T0, "endTimeUnixNano": T0 + 1_000_000_000},
    "an id in capitals": {"traceId": f"{1:032X}".replace("0", "0")},
    "status as a word": {"status": {"code": "STATUS_CODE_UNSET"}},
    "fields of later versions": {"traceState": "a=b", "flags": 256, "novel": {"deep": [[1]]}},
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_of_the_same(tmp_path: Path, spelling: str) -> None:
    plain = read_spans(tmp_path, llm_request())
    other = read_spans(tmp_path, {**span_json(llm_request()), **SPELLINGS[spelling]})
    for name in ("span", "request"):
        assert plain[name].equals(other[name]), name


def test_names_of_protobuf_and_of_old_collectors(tmp_path: Path) -> None:
    plain = read_spans(tmp_path, llm_request())
    message = request(llm_request())
    (resource,) = message["resourceSpans"]
    (scope,) = resource.pop("scopeSpans")
    scope["instrumentationLibrary"] = scope.pop("scope")
    old = read_value(
        tmp_path, {"resourceSpans": [{**resource, "instrumentationLibrarySpans": [scope]}]}
    )
    tempo = read_value(tmp_path, {"batches": request(llm_request())["resourceSpans"]})
    for capture in (old, tempo):
        assert plain["span"].equals(capture["span"])


def test_both_ways_of_decoding_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"a": "", "b": 'quote " and \\', "c": "line\nbreak", "e": "日本", "f": True}
    numbers = {"g": 0.1, "h": 1e300, "i": -5, "j": 2**62, "k": 1.0, "m": 5e-324}
    span = Span("", attributes={**texts, **numbers, "l": ["x", "y"], "n": ["one"]})
    bare = {"traceId": "1" * 32, "spanId": "2" * 16, "startTimeUnixNano": "5"}
    message = lines(request(span, llm_request(3)), {"resourceSpans": []}, request(bare))
    path = tmp_path / "a.jsonl"
    path.write_text(message, encoding="utf-8")
    assert json_columns.decode(message.encode()) is not None
    fast = read([path])
    monkeypatch.setattr(json_columns, "decode", lambda lines: None)
    slow = read([path])
    assert fast.num_rows("span") == 3
    assert difference(fast, slow) in (None, "skip: 1 and 2 rows")
    assert fast["span"].equals(slow["span"])
    assert fast["request"].equals(slow["request"])


def test_every_note_has_its_page(tmp_path: Path) -> None:
    found = notes(read_spans(tmp_path, llm_request()))
    assert set(found) == {"ttft-includes-queue", "prefill-is-wall-time", "derived-request-times"}
    for code, sentence in found.items():
        assert pages.about(code)
        assert "[masked]" not in sentence


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.from_regex(r"\A(?:(?:chat)?cmpl-|embd-|)[0-9a-fR_]{0,9}(?:-[0-9a-f]{0,9}){0,3}\Z")
        | st.uuids().map(lambda u: f"cmpl-{u}-0")
        | st.text(max_size=8),
        max_size=8,
    )
)
def test_ids_all_at_once_are_those_one_by_one(texts: list[str]) -> None:
    ids, choices = plain_request_ids(pa.array([*texts, None], pa.string()))
    one_by_one = [plain_request_id(text) for text in texts]
    assert list(zip(ids.to_pylist(), choices.to_pylist(), strict=True)) == [
        *one_by_one,
        (None, None),
    ]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.from_regex(USUAL_ID, fullmatch=True)
        | st.from_regex(r"\A(?:chat)?cmpl-[0-9aZ_-]{0,14}\Z")
        | st.from_regex(r"\A(?:chat)?cmpl-[0-9aZ_]{0,3}-[0-9]{0,6}-[0-9]{0,5}\Z")
        | st.text(st.sampled_from("chatmpl-09a"), max_size=14),
        max_size=8,
    )
)
def test_the_loop_takes_ids_apart_as_the_pattern_does(texts: list[str]) -> None:
    data = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, data)]).astype(np.int32)
    ids = np.zeros(max(1, int(ends[-1])), np.uint8)
    new_ends, choices = np.zeros(len(texts) + 1, np.int32), np.zeros(len(texts), np.int32)
    take_apart(0)(np.frombuffer(b"".join(data) or b"0", np.uint8), ends, ids, new_ends, choices)
    for row, text in enumerate(texts):
        match = re.fullmatch(USUAL_ID[1:-1], text, re.ASCII)
        own = ids[new_ends[row] : new_ends[row + 1]].tobytes().decode()
        assert (own, choices[row]) == ((match["id"], int(match["choice"])) if match else ("", -1))
