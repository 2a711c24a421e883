"""Chrome trace JSON of any tool: whose it is, nesting, tracks, clocks, damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.compare import reasons, rows
from ingest.samples.chrome import event, write
from ingest.traces import Trace
from tokenpath.api import load
from tokenpath.capture.validate import validate
from tokenpath.export import perfetto
from tokenpath.ingest import read
from tokenpath.ingest.formats import sniff


def test_a_trace_of_the_pytorch_profiler_is_not_ours(tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1}
    for number, (value, expected) in enumerate(
        [
            ({"schemaVersion": 1, "traceEvents": []}, "kineto"),
            ({"traceEvents": [kernel]}, "kineto"),
            ([kernel], "kineto"),
            ({"traceEvents": [event("X", 1, dur=1)]}, "chrome"),
            ([event("X", 1, dur=1)], "chrome"),
            ({"traceEvents": [], "viztracer_metadata": {}}, "chrome"),
        ]
    ):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(value))
        assert sniff(path).name == expected, value


def test_events_out_of_order_nest_by_time(tmp_path: Path) -> None:
    events = [event("E", 9, "a"), event("B", 1, "a"), event("E", 4, "b"), event("B", 2, "b")]
    capture = read([write(tmp_path, events)])
    assert rows(capture, "range", "name", "start_ns", "end_ns") == [
        ("a", 1000, 9000),
        ("b", 2000, 4000),
    ]


def test_threads_of_two_processes_do_not_close_each_others_slices(tmp_path: Path) -> None:
    events = [event("B", 1), {**event("E", 2), "pid": 9}]
    assert reasons(read([write(tmp_path, events)])) == {
        "begin without end": 1,
        "end without begin": 1,
    }


def test_local_ids_are_of_their_process_global_ids_are_not(tmp_path: Path) -> None:
    def both(pid: int, phase: str, ts: int, **more: Any) -> dict[str, Any]:
        return {**event(phase, ts, "r", cat="c", **more), "pid": pid}

    local = [both(1, "b", 1, id2={"local": "1"}), both(2, "e", 2, id2={"local": "1"})]
    shared = [both(1, "b", 3, id2={"global": "1"}), both(2, "e", 4, id2={"global": "1"})]
    capture = read([write(tmp_path, [*local, *shared])])
    assert rows(capture, "range", "start_ns", "end_ns") == [(3000, 4000)]


def test_a_stated_base_puts_the_times_on_the_epoch(tmp_path: Path) -> None:
    base = 1_700_000_000_123_456_789
    capture = read([write(tmp_path, [event("X", "0.001", dur=1)], baseTimeNanoseconds=base)])
    assert rows(capture, "range", "start_ns") == [base + 1]
    columns = ("clock", "base_time_ns", "clock_offset_ns")
    assert rows(capture, "source", *columns) == [("epoch", base, base)]


def test_digits_are_kept_that_a_float_would_lose(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('[{"ph":"X","pid":1,"tid":1,"name":"f","ts":1704161511420306.491,"dur":13.08}]')
    capture = read([path])
    assert rows(capture, "range", "start_ns", "end_ns") == [
        (1_704_161_511_420_306_491, 1_704_161_511_420_319_571)
    ]


@pytest.mark.parametrize("ts", ["1e400", "x", None, True, [1], "9" * 400, 10**17])
def test_times_that_are_none_are_counted(tmp_path: Path, ts: object) -> None:
    capture = read([write(tmp_path, [event("X", ts, dur=1), event("X", 1, dur=1)])])
    assert capture.num_rows("range") == 1
    assert sum(reasons(capture).values()) == 1


def test_what_we_export_for_perfetto_is_read_as_slices(tmp_path: Path) -> None:
    """The export says what runs where for people; it is no profile again."""
    trace = Trace().launched("gemm", launch_us=0, start_us=12, dur_us=5)
    path = trace.write(tmp_path / "a.json")
    out = tmp_path / "out.json.gz"
    perfetto.write(load([path]), [], out)
    again = read([out])
    assert rows(again, "source", "format") == ["chrome"]
    lengths = {
        name: end - start for name, start, end in rows(again, "range", "name", "start_ns", "end_ns")
    }
    assert lengths["gemm"] == 5000


_PHASES = st.sampled_from("XBEiIRbneSTpFCstfMNODPvVc(),Zé")
_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just({"local": 1})
)
_EVENTS = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"ph": _PHASES},
            optional=dict.fromkeys(
                ("ts", "dur", "name", "pid", "tid", "cat", "id", "id2", "args"), _VALUES
            ),
        ),
        _VALUES,
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(_EVENTS)
def test_whatever_the_events_are_each_is_kept_or_counted(
    tmp_path_factory: pytest.TempPathFactory, events: list[object]
) -> None:
    capture = read([write(tmp_path_factory.mktemp("t"), [event("X", 0, dur=0), *events])])
    validate(capture)
    assert rows(capture, "source", "num_events") == [len(events) + 1]
