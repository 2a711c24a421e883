"""OTLP: the compiled scanners give what the slow ways give, or decline; over random input and damage."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.compare import difference
from ingest.otlp_writer import (
    T0,
    Span,
    lines,
    llm_request,
    request,
    request_protobuf,
    span_json,
)
from tokenpath.capture.capture import Capture
from tokenpath.core.errors import TokenpathError
from tokenpath.ingest import read
from tokenpath.ingest.otlp import json_columns, scan, scan_json, scan_protobuf

LIMITS = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
FULL = {
    "a": "",
    "b": 'quote " and \\',
    "c": "line\nbreak",
    "d": "日本",
    "e": True,
    "f": 0.1,
    "g": 1e300,
    "h": -5,
    "i": 2**62,
    "j": 1.0,
    "k": 5e-324,
    "l": ["x", 1, [False]],
    "m": "é" * 5000,
    "gen_ai.prompt": "Dear diary",
    "host.name": "worker-seven",
    "db.password": "hunter2-hunter2",
    "n": "/home/jane/x and /home/bob/y",
    "process.owner": "jane",
}


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Switches between the ways; counts what the compiled scanners took and what they declined."""
    counts = {"taken": 0, "declined": 0}
    for module in (scan_json, scan_protobuf):

        def counted(*args: Any, real: Any = module.decode) -> Any:
            batch = real(*args)
            counts["declined" if batch is None else "taken"] += 1
            return batch

        monkeypatch.setattr(module, "decode", counted)
    monkeypatch.setattr(scan, "FROM_BYTES", 0)
    monkeypatch.setattr(scan, "WARM_FROM_BYTES", 0)
    monkeypatch.setattr(json_columns, "decode", lambda lines: None)
    return counts


def both(path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """What the compiled and the slow way give: a capture, or what the error says."""
    path.write_bytes(data)
    found: list[Any] = []
    for limit in (0, 2**60):
        monkeypatch.setattr(scan, "FROM_BYTES", limit)
        monkeypatch.setattr(scan, "WARM_FROM_BYTES", limit)
        try:
            found.append(read([path]))
        except TokenpathError as error:
            found.append(str(error))
    return found[0], found[1]


def assert_same(fast: Any, slow: Any) -> None:
    if isinstance(fast, Capture) and isinstance(slow, Capture):
        assert difference(fast, slow) is None
    else:
        assert fast == slow


def test_every_kind_of_value(
    tmp_path: Path, ways: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = [
        Span("x", attributes=FULL, parent=5, error=True),
        llm_request(3),
        Span("", attributes={"a": "", "l": []}),
        Span("call worker-seven", attributes={"n": "/home/bob/y", "k": "/home/jane/"}),
    ]
    data = lines(request(*spans), {"resourceSpans": []}, request(llm_request(4), service=""))
    for name, content in (("a.jsonl", data.encode()), ("a.pb", request_protobuf(*spans))):
        ways.update(taken=0, declined=0)
        assert_same(*both(tmp_path / name, content, monkeypatch))
        assert (ways["taken"], ways["declined"]) == (1, 0), name


CHANGES: list[dict[str, Any]] = [
    {"kind": "SPAN_KIND_SERVER"},
    {"kind": 9},
    {"kind": None},
    {"startTimeUnixNano": T0, "endTimeUnixNano": T0 + 9},
    {"startTimeUnixNano": "9223372036854775808"},
    {"endTimeUnixNano": "007"},
    {"traceId": f"{0xAB:032X}"},
    {"traceId": "q83vAAAAAAAAAAAAAAAAAQ=="},
    {"traceId": "xyz"},
    {"spanId": ""},
    {"parentSpanId": "0" * 16},
    {"parentSpanId": "zz"},
    {"name": "quote \" \u2028"},
    {"status": {"code": "STATUS_CODE_ERROR", "message": "out of memory"}},
    {"status": {"message": ""}},
    {"status": None},
    {"events": [{"name": "x"}, {}], "links": [{"spanId": "1"}]},
    {"traceState": "a=b", "flags": 256, "novel": {"deep": [[1, {"a": None}]]}},
    {"attributes": []},
    {"attributes": [{"key": "i", "value": {"intValue": 5}}]},
    {"attributes": [{"value": {"intValue": "-0"}, "key": "i"}]},
    {"attributes": [{"key": "i", "value": {"intValue": " 5"}}]},
    {"attributes": [{"key": "i", "value": {"intValue": "99999999999999999999"}}]},
    {"attributes": [{"key": "i", "value": {"doubleValue": "NaN"}}]},
    {"attributes": [{"key": "i", "value": {"doubleValue": 3}}]},
    {"attributes": [{"key": "i", "value": {"doubleValue": -0.0}}]},
    {"attributes": [{"key": "i", "value": {"bytesValue": "AAE="}}]},
    {"attributes": [{"key": "i", "value": {}}]},
    {"attributes": [{"key": "i", "value": {"stringValue": "a", "intValue": 5}}]},
    {"attributes": [{"key": "i", "value": {"string_value": "a"}}]},
    {"attributes": [{"key": "quo\"te", "value": {"stringValue": "\ud83d\ude00 \\u0041"}}]},
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CHANGES)))
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_spellings_of_json(
    tmp_path: Path,
    ways: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    separators: tuple[str, str],
) -> None:
    changed = {**span_json(llm_request(2)), **CHANGES[number]}
    message = request(llm_request(), changed, llm_request(3))
    data = json.dumps(message, separators=separators).encode() + b"\n"
    assert_same(*both(tmp_path / "a.jsonl", data * 2, monkeypatch))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"spanId":', '"spanId":"00","spanId":'),
        ('"key":', '"key":"x","key":'),
        ("}]}]}]}", "}]}]}]} x"),
        ("}]}]}]}", "}]}]}]"),
        ('"name":"llm', '"name":"a\tllm'),
        ('"name":"llm', '"name":"\\ud800llm'),
        ('"name":"llm', '"name":"\\xllm'),
        ('"name":"llm', '"n\\u0061me":"llm'),
        ("0.375", "1e999"),
        ("0.375", "NaN"),
        ("0.375", "-0"),
        ("0.375", "0.37500000000000000000000001"),
        ("0.375", "123456789012345678901234567890"),
        ("0.375", "00.5"),
        ('"resourceSpans"', '"resourceSpanz"'),
        ('"scopeSpans"', '"scopeSpaXX"'),
        ('"attributes":[{"key":"gen', '"attributXX":[{"key":"gen'),
        ('"spans":', '"spans":[],"spans":'),
    ],
)
def test_odd_texts_of_json(
    tmp_path: Path,
    ways: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    old: str,
    new: str,
) -> None:
    text = lines(request(llm_request()), request(llm_request(2)))
    assert old in text
    data = text.replace(old, new, 1) + lines(request(llm_request(3)))
    assert_same(*both(tmp_path / "a.jsonl", data.encode(), monkeypatch))


TEXTS = st.sampled_from([*(v for v in FULL.values() if isinstance(v, str)), "m", "x"]) | st.text(
    max_size=12
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    TEXTS
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
SPANS = st.builds(
    Span,
    name=TEXTS,
    start_ns=st.just(T0) | st.integers(0, 2**63 - 1),
    end_ns=st.just(T0 + 5) | st.integers(0, 2**63 - 1),
    trace=st.integers(0, 2**128 - 1),
    span=st.integers(0, 5),
    parent=st.none() | st.integers(0, 5),
    kind=st.sampled_from(["internal", "server", "client"]),
    attributes=st.dictionaries(
        st.sampled_from([*FULL, "/home/jane/", "cmpl-a"]), VALUES, max_size=5
    ),
    error=st.booleans(),
)
REQUESTS = st.lists(st.lists(SPANS, max_size=3), min_size=1, max_size=2)


def damaged(data: bytes, rng: random.Random, times: int) -> bytes:
    """Bytes changed, dropped, doubled or cut."""
    out = bytearray(data)
    for _ in range(times):
        if not out:
            break
        at = rng.randrange(len(out))
        size = rng.choice((1, 1, 2, 9))
        what = rng.randrange(5)
        if what == 0:
            out[at] = rng.randrange(256)
        elif what == 1:
            del out[at : at + size]
        elif what == 2:
            out[at:at] = out[at : at + size]
        elif what == 3:
            out[at] = rng.choice(b'{}[]",:\\ \n0-e_\xff\x80')
        elif rng.random() < 0.2:
            del out[at:]
    return bytes(out)


@LIMITS
@given(REQUESTS, st.randoms(use_true_random=False), st.integers(0, 3))
def test_random_lines(
    tmp_path: Path,
    ways: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    requests: list[list[Span]],
    rng: random.Random,
    num_damages: int,
) -> None:
    text = "".join(
        json.dumps(
            request(*spans, resource={"host.name": "worker-seven"}), ensure_ascii=rng.random() < 0.5
        )
        + "\n"
        for spans in requests
    )
    data = text.encode("utf-8", "surrogatepass")
    ways.update(taken=0, declined=0)
    assert_same(
        *both(
            tmp_path / "a.jsonl",
            b'{"resourceSpans":[]}\n' + damaged(data, rng, num_damages),
            monkeypatch,
        )
    )
    if num_damages == 0:
        assert ways["declined"] == 0


@LIMITS
@given(REQUESTS, st.randoms(use_true_random=False), st.integers(0, 3))
def test_random_messages(
    tmp_path: Path,
    ways: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    requests: list[list[Span]],
    rng: random.Random,
    num_damages: int,
) -> None:
    head = request_protobuf(llm_request())
    data = b"".join(
        request_protobuf(*spans, resource={"host.name": "worker-seven"}) for spans in requests
    )
    ways.update(taken=0, declined=0)
    assert_same(*both(tmp_path / "a.pb", head + damaged(data, rng, num_damages), monkeypatch))
    if num_damages == 0:
        assert ways["declined"] == 0
