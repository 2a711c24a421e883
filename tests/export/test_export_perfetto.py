from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import sample
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpath.capture.capture import Capture, build_table
from tokenpath.core.errors import UsageError
from tokenpath.export import perfetto_text
from tokenpath.export.perfetto import Annotation, write
from tokenpath.export.perfetto_events import lanes

BASE = 1_700_000_000_123_456_789


def source(**changed) -> dict:
    row = {
        "path": "rank0.json.gz", "format": "kineto", "reader_version": 1, "num_bytes": 1, "rank": None,
        "clock_offset_ns": 0, "clock": "epoch", "state": "measured", "num_events": 0, "num_skipped": 0,
    }  # fmt: skip
    return {key: [value] for key, value in (row | changed).items()}


def make(kernels: list[dict], **tables: dict) -> Capture:
    """A capture of one source, one device, one thread and these kernels."""
    base = {
        "source_id": 0,
        "device_id": 0,
        "stream_id": 7,
        "name": "k",
        "kind": "compute",
        "family": "gemm",
    }
    rows = [base | kernel for kernel in kernels]
    built = {
        "source": build_table("source", source()),
        "device": build_table("device", {"source_id": [0], "index": [0], "name": ["NVIDIA H100"]}),
        "thread": build_table(
            "thread", {"source_id": [0], "pid": ["99"], "tid": ["100"], "name": ["python"]}
        ),
    }
    if rows:
        built["kernel"] = build_table(
            "kernel", {key: [r.get(key) for r in rows] for key in sorted(set().union(*rows))}
        )
    built |= {name: build_table(name, columns) for name, columns in tables.items()}
    return Capture(built)


def written(capture: Capture, annotations: list[Annotation], folder: Path) -> dict:
    path = folder / "out.json.gz"
    write(capture, annotations, path)
    return json.loads(
        gzip.decompress(path.read_bytes()), parse_float=Decimal, parse_constant=pytest.fail
    )


def slices(trace: dict) -> list[dict]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def track_names(trace: dict) -> dict[tuple[int, int], str]:
    processes = {
        e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"
    }
    return {
        (e["pid"], e["tid"]): f"{processes[e['pid']]} / {e['args']['name']}"
        for e in trace["traceEvents"]
        if e["name"] == "thread_name"
    }


def full_capture() -> Capture:
    host = {"source_id": [0, 0], "thread_id": [0, 0]}
    return make(
        [
            {"start_ns": BASE + 1_000, "end_ns": BASE + 2_001, "grid": [1, 2, 3], "api_call_id": 1,
             "op_id": 1, "correlation_id": 5},
            {"start_ns": BASE + 2_001, "end_ns": BASE + 2_002, "family": "memcpy", "kind": "memcpy",
             "bytes": 2**40, "name": "Memcpy DtoH"},
        ],
        op=host | {"start_ns": [BASE, BASE + 1], "end_ns": [BASE + 900, BASE + 500], "name": ["aten::linear", "aten::mm"]},
        api_call=host | {"start_ns": [BASE + 10, BASE + 100], "end_ns": [BASE + 11, BASE + 110],
                         "name": ["cudaStreamSynchronize", "cudaLaunchKernel"], "correlation_id": [4, 5]},
        range={"source_id": [0, 0], "side": ["host", "device"], "thread_id": [0, None], "device_id": [None, 0],
               "stream_id": [None, 7], "start_ns": [BASE, BASE + 1_000], "end_ns": [BASE + 990, BASE + 3_000],
               "name": ["step 1", "step 1"]},
    )  # fmt: skip


def test_what_happened_is_on_its_track_with_exact_times(tmp_path) -> None:
    idle = Annotation(
        "GPU 0 idle causes", BASE + 2_002, BASE + 9_003, "host not ready", {"num_gaps": 1}
    )
    trace = written(full_capture(), [idle], tmp_path)
    assert trace["baseTimeNanoseconds"] == BASE
    assert trace["displayTimeUnit"] == "ns"
    names = track_names(trace)
    shown = [
        (names[e["pid"], e["tid"]], e["name"], e["cat"], str(e["ts"]), str(e["dur"]))
        for e in slices(trace)
    ]
    device, host = "device 0 NVIDIA H100 / stream 7", "process 99 / thread 100 python"
    assert shown == [
        (device, "k", "gemm", "1.000", "1.001"),
        (device, "Memcpy DtoH", "memcpy", "2.001", "0.001"),
        (f"{device} annotations", "step 1", "range", "1.000", "2.000"),
        (host, "step 1", "range", "0.000", "0.990"),
        (host, "aten::linear", "op", "0.000", "0.900"),
        (host, "aten::mm", "op", "0.001", "0.499"),
        (host, "cudaStreamSynchronize", "api_call", "0.010", "0.001"),
        (host, "cudaLaunchKernel", "api_call", "0.100", "0.010"),
        ("tokenpath / GPU 0 idle causes", "host not ready", "tokenpath", "2.002", "7.001"),
    ]


def test_arguments_point_back_to_the_tables(tmp_path) -> None:
    events = slices(written(full_capture(), [], tmp_path))
    assert events[0]["args"] == {
        "row": 0,
        "stream": 7,
        "op": "aten::mm",
        "grid": [1, 2, 3],
        "correlation_id": 5,
    }
    assert events[1]["args"] == {"row": 1, "stream": 7, "bytes": 2**40}
    assert events[2]["args"] == {"row": 1}
    assert events[3]["args"] == {"row": 0}


def test_an_arrow_leads_from_the_launch_to_the_kernel(tmp_path) -> None:
    events = slices(written(full_capture(), [], tmp_path))
    assert [(e["name"], e["bind_id"]) for e in events if "flow_out" in e] == [
        ("cudaLaunchKernel", 1)
    ]
    assert [(e["name"], e["bind_id"]) for e in events if "flow_in" in e] == [("k", 1)]


def test_kernels_that_overlap_stand_on_lines_of_their_own(tmp_path) -> None:
    spans = [(0, 10), (9, 20), (19, 30), (19, 21), (30, 40)]
    kernels = [{"start_ns": a, "end_ns": b} for a, b in spans]
    kernels.append({"start_ns": 0, "end_ns": 50, "stream_id": 8})
    trace = written(make(kernels), [], tmp_path)
    names = track_names(trace)
    lines: dict[str, list] = {}
    for event in slices(trace):
        lines.setdefault(names[event["pid"], event["tid"]].split(" / ")[1], []).append(
            event["args"]["row"]
        )
    assert lines == {
        "stream 7": [0, 2, 4],
        "stream 7 (2)": [1],
        "stream 7 (3)": [3],
        "stream 8": [5],
    }


TIMES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=12)


@settings(max_examples=20)
@given(TIMES, TIMES, TIMES, st.integers(1, 9))
def test_slices_of_a_line_nest_and_come_outer_first(
    tmp_path_factory, ranges, ops, calls, chunk
) -> None:
    def host(spans, **more) -> dict:
        columns = {"source_id": 0, "thread_id": 0, "name": "x"} | more
        built = {key: [value] * len(spans) for key, value in columns.items()}
        return built | {"start_ns": [a for a, _ in spans], "end_ns": [a + b for a, b in spans]}

    capture = make([], range=host(ranges, side="host"), op=host(ops), api_call=host(calls))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(perfetto_text, "ROWS_PER_WRITE", chunk)
        trace = written(capture, [], tmp_path_factory.mktemp("trace"))
    events = slices(trace)
    assert len(events) == len(ranges) + len(ops) + len(calls)
    for spans, kind in ((ranges, "range"), (ops, "op"), (calls, "api_call")):
        base = trace["baseTimeNanoseconds"]
        found = {
            e["args"]["row"]: (e["ts"] * 1000 + base, e["dur"] * 1000)
            for e in events
            if e["cat"] == kind
        }
        assert found == dict(enumerate(spans))
    open_until: dict[tuple[int, int], list[Decimal]] = {}
    last: dict[tuple[int, int], Decimal] = {}
    for event in events:
        line = (event["pid"], event["tid"])
        start, end = event["ts"], event["ts"] + event["dur"]
        assert start >= last.get(line, start)
        last[line] = start
        ends = open_until.setdefault(line, [])
        while ends and ends[-1] <= start:
            ends.pop()
        assert not ends or end <= ends[-1]
        ends.append(end)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=40), st.booleans())
def test_no_two_of_a_lane_clash(pairs, nests) -> None:
    pairs = sorted(((a, a + length) for a, length in pairs), key=lambda p: (p[0], -p[1]))
    start = np.array([a for a, _ in pairs], np.int64)
    end = np.array([b for _, b in pairs], np.int64)
    lane = lanes(start, end, nests)
    for i, (a, b) in enumerate(pairs):
        for j, (c, d) in enumerate(pairs[:i]):
            if lane[i] == lane[j]:
                assert a >= d or (nests and b <= d and a >= c)
    assert set(lane.tolist()) == set(range(len(set(lane.tolist()))))


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1)),
        min_size=1,
        max_size=9,
    )
)
def test_times_are_exact_on_all_of_int64(tmp_path_factory, spans) -> None:
    capture = make([{"start_ns": a, "end_ns": b} for a, b in spans])
    trace = written(capture, [], tmp_path_factory.mktemp("trace"))
    base = trace["baseTimeNanoseconds"]
    assert base == min(a for a, _ in spans)
    found = {e["args"]["row"]: (base + e["ts"] * 1000, e["dur"] * 1000) for e in slices(trace)}
    assert found == {row: (a, max(0, b - a)) for row, (a, b) in enumerate(spans)}
    assert trace["otherData"]["num_events_that_end_before_they_start"] == sum(
        b < a for a, b in spans
    )


def test_hostile_names_come_back_exactly(tmp_path) -> None:
    names = [name for name in sample.HOSTILE if name.isascii() or "\ud800" not in name]
    kernels = [
        {"start_ns": i, "end_ns": i + 1, "name": name, "family": name}
        for i, name in enumerate(names)
    ]
    annotations = [Annotation(name, 5, 6, name, {name: name}) for name in sample.HOSTILE]
    events = slices(written(make(kernels), annotations, tmp_path))
    assert [e["name"] for e in events[: len(names)]] == names
    assert [e["cat"] for e in events[: len(names)]] == names
    assert sorted(e["name"] for e in events[len(names) :]) == sorted(sample.HOSTILE)
    assert all(e["args"] == {e["name"]: e["name"]} for e in events[len(names) :])


def test_arguments_that_are_equal_and_not_the_same_keep_their_types(tmp_path) -> None:
    values = [True, 1, 1.0, [1], float("nan"), np.int64(7)]
    annotations = [Annotation("t", i, i + 1, "n", {"v": value}) for i, value in enumerate(values)]
    events = slices(written(make([]), annotations, tmp_path))
    assert [json.dumps(e["args"]["v"], default=float) for e in events] == [
        "true",
        "1",
        "1.0",
        "[1]",
        "null",
        "7",
    ]


def test_annotations_nest(tmp_path) -> None:
    annotations = [
        Annotation("t", 2, 4, "inner"),
        Annotation("t", 0, 9, "outer"),
        Annotation("t", 0, 4, "mid"),
    ]
    assert [e["name"] for e in slices(written(make([]), annotations, tmp_path))] == [
        "outer",
        "mid",
        "inner",
    ]


def test_chunks_make_no_difference(tmp_path, monkeypatch) -> None:
    kernels = [{"start_ns": 3 * i, "end_ns": 3 * i + 2, "name": f"k{i % 5}"} for i in range(100)]
    write(make(kernels), [], tmp_path / "one.json")
    monkeypatch.setattr(perfetto_text, "ROWS_PER_WRITE", 7)
    write(make(kernels), [], tmp_path / "many.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "many.json").read_bytes()
    assert len(slices(json.loads((tmp_path / "many.json").read_bytes()))) == 100


def test_nothing_to_show_is_a_valid_trace(tmp_path) -> None:
    trace = written(Capture({}), [], tmp_path)
    assert slices(trace) == []
    assert trace["baseTimeNanoseconds"] == 0


def test_a_synthetic_capture_says_so(tmp_path) -> None:
    capture = make([]).replace({"source": build_table("source", source(state="synthetic", rank=3))})
    other = written(capture, [], tmp_path)["otherData"]
    assert other["states"] == ["synthetic"]
    assert other["sources"] == ["rank0.json.gz"]


def test_equal_captures_give_equal_bytes(tmp_path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        write(full_capture(), [], tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(TypeError, match="no JSON form"):
        write(full_capture(), [Annotation("t", 0, 1, "n", {"v": object()})], path)
    assert path.read_text(encoding="utf-8") == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


def test_a_missing_folder_is_a_clear_error(tmp_path) -> None:
    with pytest.raises(UsageError, match="cannot be written: No such file or directory"):
        write(make([]), [], tmp_path / "absent" / "out.json.gz")
