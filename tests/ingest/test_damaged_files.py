"""Damaged and hostile traces: all that is there is read, the rest is counted, nothing crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.compare import lost, reasons, rows
from ingest.traces import Raw, Trace
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.core.errors import DamagedInput, TokenpathError
from tokenpath.ingest import read

FAR = 1_700_000_000_000_000


@pytest.fixture(params=["slow", "fast"])
def load(request: pytest.FixtureRequest, tmp_path: Path):
    def load(trace: Trace | bytes) -> Capture:
        path = tmp_path / "trace.json"
        path.write_bytes(trace if isinstance(trace, bytes) else trace.bytes())
        capture = read([path], scanner=request.param)
        validate(capture)
        return capture

    return load


def names(capture: Capture) -> list[str]:
    return rows(capture, "kernel", "name")


@pytest.mark.parametrize(
    "text",
    [
        '{"ph": "X", "name": "bad", "ts": }',
        '{"ph": "X" "name": "bad"}',
        '{"ph": "X", "name": "bad", "args": {"a": [1,]}}',
        '{"ph": "X", "name": "bad", "args": {"a": tru}}',
        '{"ph": "X", "name": "bad", "args": {"a": 01}}',
        '{"ph": "X", "name": "bad, "pid": 1}',
        '{"ph": "X", "name": "bad\\q"}',
        '{ph: "X"}',
        "garbage",
    ],
)
def test_a_malformed_event_costs_one_event(load, text: str) -> None:
    trace = Trace(base_time_ns=5).kernel("a", 1, 1).raw(text).kernel("b", 2, 1).kernel("c", 3, 1)
    capture = load(trace)
    assert names(capture) == ["a", "b", "c"]
    assert lost(capture) == {"malformed event": 1}
    assert rows(capture, "source", "base_time_ns") == [5]


def test_a_malformed_last_event_does_not_cost_the_tail(load) -> None:
    capture = load(Trace(base_time_ns=7).kernel("a", 1, 1).raw('{"ph": "X", "name": }'))
    assert names(capture) == ["a"]
    assert rows(capture, "kernel", "start_ns") == [1007]


def test_the_example_names_the_byte(load) -> None:
    trace = Trace().kernel("é", 1, 1).kernel("b", 2, -3)
    data = trace.bytes()
    (example,) = rows(load(data), "skip", "example")
    at = data.index(b"{", data.index(b'"ph"', data.index(b'"ph"') + 4) - 12)
    assert example == f"byte {at}: phase X"


@pytest.mark.parametrize("keep", [0.3, 0.5, 0.9, 0.99])
def test_a_cut_tail(load, keep: float) -> None:
    trace = Trace()
    for number in range(50):
        trace.kernel(f"k{number}", number, 1)
    data = trace.bytes()
    whole, capture = len(data), load(data[: int(len(data) * keep)])
    found = names(capture)
    assert found == [f"k{number}" for number in range(len(found))]
    assert len(found) >= int(50 * keep) - 2
    assert "no end of the file" in lost(capture)
    assert len(data) == whole


def test_times_that_cannot_be(load) -> None:
    trace = Trace().kernel("good", FAR, 1).kernel("negative", FAR, -1).kernel("zero", 0, 1)
    trace.kernel("too late", 2**63, 1).kernel("too long", FAR, 2**63).kernel("edge", 9.3e15, 1)
    trace.complete("kernel", "no ts", None, 1, 0, 7, {"device": 0})
    trace.complete("kernel", "no dur", FAR + 5, None, 0, 7, {"device": 0})
    trace.complete("kernel", "word", "soon", 1, 0, 7, {"device": 0})
    capture = load(trace)
    assert names(capture) == ["good", "no dur"]
    assert lost(capture) == {
        "negative duration": 1,
        "zero timestamp": 1,
        "timestamp out of range": 3,
        "missing timestamp": 2,
        "missing duration": 1,
    }
    assert rows(capture, "source", "num_events", "num_skipped") == [(9, 7)]
    assert rows(capture, "kernel", "end_ns")[1] == rows(capture, "kernel", "start_ns")[1]


def test_zero_is_a_time_among_small_ones(load) -> None:
    assert names(load(Trace().kernel("a", 0, 1).kernel("b", 5, 1))) == ["a", "b"]


def test_the_base_may_push_times_out_of_range(load) -> None:
    trace = Trace(base_time_ns=2**63 - 2_000_000).kernel("in", 1, 1).kernel("out", 1999, 2)
    capture = load(trace)
    assert names(capture) == ["in"]
    assert lost(capture) == {"timestamp out of range": 1}


def test_not_a_number_and_infinity(load) -> None:
    trace = Trace().kernel("a", 1, 1, **{"blocks per SM": Raw("NaN"), "other": Raw("-Infinity")})
    trace.kernel("b", Raw("NaN"), 1)
    capture = load(trace)
    assert rows(capture, "kernel", "name", "blocks_per_sm") == [("a", None)]
    assert lost(capture) == {"missing timestamp": 1}


def test_control_characters_and_bad_utf8(load) -> None:
    data = Trace().kernel("tab\x01end", 1, 1).kernel("MARK", 2, 1).bytes()
    data = data.replace(b"\\u0001", b"\x01").replace(b"MARK", b"\xff\xfeK\xe2\x82")
    assert names(load(data)) == ["tab\x01end", "��K��"]


def test_long_names(load) -> None:
    capture = load(Trace().kernel("x" * 3_000_000, 1, 1).kernel("y" * 5000, 2, 1))
    assert [len(name) for name in names(capture)] == [3_000_000, 5000]


def test_deep_nesting_is_damage(load) -> None:
    trace = Trace().kernel("a", 1, 1)
    trace.kernel("deep", 2, 1, x=Raw("[" * 70 + "]" * 70))
    trace.kernel("deeper", 2, 1, x=Raw("[" * 100_000 + "]" * 100_000))
    trace.kernel("fine", 3, 1, x=Raw("[" * 50 + "]" * 50))
    trace.kernel("brackets in text", 4, 1, x="[" * 200)
    capture = load(trace)
    assert names(capture) == ["a", "fine", "brackets in text"]
    assert lost(capture) == {"nested too deeply": 2}


def test_what_is_no_event(load) -> None:
    trace = Trace().raw("17").raw("null").raw('"text"').raw("[]").raw("{}").raw('{"name": "x"}')
    capture = load(trace.kernel("a", 1, 1))
    assert names(capture) == ["a"]
    assert lost(capture) == {"not an object": 4, "event without phase": 1}
    assert reasons(capture)["empty object"] == 1


def test_a_damaged_header_entry(load) -> None:
    data = Trace(rank=1).kernel("a", 1, 1).bytes()
    data = data.replace(
        b'"traceName"', b'"INFO": ["a" "b" \x00], "baseTimeNanoseconds": 9, "traceName"'
    )
    capture = load(data)
    assert names(capture) == ["a"]
    assert rows(capture, "source", "base_time_ns") == [9]
    assert lost(capture) == {"damaged header": 1}


def test_begin_and_end_events(load) -> None:
    def phase(ph: str, name: str, ts: int, tid: int = 5) -> dict[str, object]:
        return {"ph": ph, "name": name, "pid": 0, "tid": tid, "ts": ts, "attr": {"TS1": "0x1"}}

    trace = Trace()
    events = [("B", "b", 20), ("E", "b", 25), ("B", "a", 1), ("B", "c", 3), ("E", "c", 3)]
    events += [("E", "a", 9), ("E", "lonely", 30), ("B", "open", 40)]
    for event in events:
        trace.event(**phase(*event))
    capture = load(trace)
    assert rows(capture, "kernel", "name", "start_ns", "end_ns", "stream_id") == [
        ("b", 20_000, 25_000, 5),
        ("a", 1000, 9000, 5),
        ("c", 3000, 3000, 5),
    ]
    assert lost(capture) == {"begin without end": 1, "end without begin": 1}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"   \n", "empty"),
        (b"hello", "not JSON"),
        (b'{"a": 1}', "not a trace"),
        (b'{"schemaVersion": 1}', "no list of events"),
        (b'{"schemaVersion": 1, "traceEvents": 5}', "no list of events"),
        (b'{"schemaVersion": 1, "traceEve', "no list of events"),
        (b"\x00\x01\x02", "not JSON"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(TokenpathError, match=words):
        read([path])


def test_an_empty_list_of_events_is_a_capture(load) -> None:
    assert rows(load(Trace()), "source", "num_events") == [0]


def test_damaged_input_is_its_own_error(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b'{"schemaVersion": 1, "traceEvents": null}')
    with pytest.raises(DamagedInput):
        read([path])


def test_many_threads(tmp_path: Path) -> None:
    """Each thread costs a row, not a Python object that stays."""
    event = b'{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":%d,"ts":%d,"dur":1}'
    data = b"[" + b",".join(event % (tid, tid) for tid in range(100_000)) + b"]"
    path = tmp_path / "t.json"
    path.write_bytes(data)
    capture = read([path])
    assert capture.num_rows("thread") == 100_000
    assert rows(capture, "op", "thread_id")[-1] == 99_999
