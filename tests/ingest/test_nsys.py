"""What the reader of Nsight Systems exports makes of each table: inputs and rows side by side."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ingest.compare import lost, reasons, rows
from ingest.nsys_export import (
    EVENT,
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    NVTX,
    RUNTIME,
    SYNC,
    NsysExport,
    serial,
)
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest import read
from tokenpath.stitch import link


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def load(export: NsysExport) -> Capture:
        capture = read([export.write(tmp_path / "t.sqlite")])
        validate(capture)
        return capture

    return load


def test_a_kernel_with_all_its_columns(load: Any) -> None:
    capture = load(NsysExport().call("cudaLaunchKernel_v7000", 1, 2).kernel("void f<int>()", 5, 9))
    (row,) = capture["kernel"].to_pylist()
    assert row["name"] == "void f<int>()"
    assert (row["grid"], row["block"]) == ([4, 2, 1], [128, 1, 1])
    assert (row["registers_per_thread"], row["shared_memory_bytes"]) == (32, 128)
    assert (row["correlation_id"], row["stream_id"]) == (1, 7)
    assert (row["graph_id"], row["graph_node_id"], row["bytes"]) == (None, None, None)


def test_a_schema_with_few_columns(load: Any) -> None:
    """What the file has not is NULL; the only process is that of the calls."""
    export = NsysExport(epoch_ns=None)
    few = {"start": 1, "end": 3, "deviceId": 0, "streamId": 7, "correlationId": 1}
    export.call("cudaLaunchKernel", 0, 1).add(KERNEL, **few, shortName=export.string("gemm"))
    capture = link(load(export))
    assert rows(capture, "source", "clock", "base_time_ns") == [("monotonic", None)]
    (row,) = capture["kernel"].to_pylist()
    assert (row["name"], row["grid"], row["registers_per_thread"]) == ("gemm", None, None)
    assert row["api_call_id"] == 0
    assert rows(capture, "device", "name", "num_sms") == [(None, None)]


def test_two_processes_with_the_same_correlation_ids(load: Any) -> None:
    """Each kernel is linked to the call of its own process, though the ids are equal."""
    export = NsysExport()
    export.call("launch_a", 10, 1, pid=100).call("launch_b", 11, 1, pid=200)
    export.kernel("b", 20, 1, pid=200).kernel("a", 20, 1, pid=100)
    capture = link(load(export))
    assert capture.num_rows("source") == 2
    calls = rows(capture, "api_call", "name")
    linked = rows(capture, "kernel", "name", "api_call_id")
    assert {name: calls[call] for name, call in linked} == {"a": "launch_a", "b": "launch_b"}
    assert rows(capture, "setting", "value")[-1] == "100, 200"


def test_one_device_of_two_processes_is_one_row_with_two_sets_of_streams(load: Any) -> None:
    export = NsysExport().kernel("a", 0, 5, pid=100).kernel("b", 3, 5, pid=200)
    export.kernel("c", 9, 1, pid=100, contextId=2)
    for pid in (100, 200):
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=3, cudaId=0, pid=pid, numMultiprocessors=68)
    capture = load(export)
    assert rows(capture, "device", "index", "num_sms") == [(3, 68)]
    assert len(set(rows(capture, "kernel", "stream_id"))) == 3
    assert rows(capture, "kernel", "stream_id")[0] == 7
    assert capture.num_rows("source_note") == 0


def test_device_numbers_of_a_process_are_looked_up(load: Any) -> None:
    export = NsysExport().kernel("a", 0, 5, pid=100).kernel("b", 3, 5, pid=200)
    for pid, gpu in ((100, 0), (200, 1)):
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=pid)
        export.add("TARGET_INFO_GPU", id=gpu, name=f"GPU {gpu}", smCount=10 + gpu, totalMemory=64)
    capture = load(export)
    expected = [(0, "GPU 0", 10, 64), (1, "GPU 1", 11, 64)]
    assert rows(capture, "device", "index", "name", "num_sms", "memory_bytes") == expected


def test_a_device_number_that_nothing_maps_is_said(load: Any) -> None:
    capture = load(NsysExport().kernel("a", 0, 5, pid=100).kernel("b", 3, 5, pid=200))
    assert rows(capture, "source_note", "code") == ["shared-device-number"]
    assert capture.num_rows("device") == 1


def test_graphs_recorded_whole(load: Any) -> None:
    export = NsysExport().call("cudaGraphLaunch_v10000", 1, 2)
    export.work(GRAPH, 5, 50, graphId=12, graphExecId=14)
    capture = link(load(export))
    named = rows(capture, "kernel", "name", "kind", "family", "graph_id", "api_call_id")
    assert named == [("CUDA graph 12", "compute", "other", 12, 0)]
    (code, sentence) = rows(capture, "source_note", "code", "sentence")[0]
    assert code == "graph-level-trace"
    assert sentence.startswith("1 replays of 1 CUDA graphs")


def test_graph_nodes_know_the_operator_that_was_captured(load: Any) -> None:
    """A replayed node is a clone of one made inside the operator."""
    export = NsysExport().nvtx("aten::mm, op_id = 1", 100, 50).nvtx("outer", 90, 90)
    made = {"globalTid": serial(100, 101)}
    export.add("CUDA_GRAPH_NODE_EVENTS", start=120, graphNodeId=1, **made)
    export.add("CUDA_GRAPH_NODE_EVENTS", start=170, graphNodeId=2, **made)
    for node in (1, 2, 9):
        clone = {"graphNodeId": 10 * node, "originalGraphNodeId": node}
        export.add("CUDA_GRAPH_NODE_EVENTS", start=500, **clone, **made)
    export.call("cudaGraphLaunch", 600, 5)
    for node in (10, 20, 90):
        export.kernel("k", 600 + node, 5, graphId=3, graphNodeId=node)
        export.kernel("k", 800 + node, 5, graphId=3, graphNodeId=node)
    capture = load(export)
    expected = [(3, 10, "aten::mm"), (3, 20, "outer"), (3, 90, None)]
    assert rows(capture, "graph_node", "graph_id", "node", "op_name") == expected


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"copyKind": 2, "srcKind": 2, "dstKind": 1}, "Memcpy DtoH (Device -> Pinned)"),
        ({"copyKind": 10, "srcKind": 2, "dstKind": 2}, "Memcpy PtoP (Device -> Device)"),
        ({"copyKind": 8}, "Memcpy DtoD"),
        ({"copyKind": 99, "srcKind": 2, "dstKind": 99}, "Memcpy"),
    ],
)
def test_copies(load: Any, row: dict[str, int], name: str) -> None:
    capture = load(NsysExport().work(MEMCPY, 1, 2, bytes=5, **row))
    assert rows(capture, "kernel", "name", "kind", "bytes") == [(name, "memcpy", 5)]


def test_fills(load: Any) -> None:
    export = NsysExport().work(MEMSET, 1, 2, bytes=5, memKind=2).work(MEMSET, 4, 2, memKind=77)
    expected = [("Memset (Device)", "memset", 5), ("Memset", "memset", None)]
    assert rows(load(export), "kernel", "name", "kind", "bytes") == expected


def test_annotations(load: Any) -> None:
    """Push/pop, start/end, marks, registered strings and domains; what is never closed is counted."""
    export = NsysExport()
    export.nvtx("plain", 0, 9).nvtx(None, 1, 2, textId=export.string("registered"))
    export.nvtx("NCCL", 0, None, eventType=75, domainId=4).nvtx("ncclSend", 2, 1, domainId=4)
    export.nvtx("across", 3, 9, eventType=60, rangeId=5).nvtx("mark", 5, None, eventType=34)
    export.nvtx("worker 3", 0, None, eventType=39).nvtx("open", 6, None)
    capture = load(export)
    expected = [
        ("plain", 1_000_000, 1_000_009, None),
        ("registered", 1_000_001, 1_000_003, None),
        ("ncclSend", 1_000_002, 1_000_003, "NCCL"),
        ("across", 1_000_003, 1_000_012, None),
        ("mark", 1_000_005, 1_000_005, None),
    ]
    assert rows(capture, "range", "name", "start_ns", "end_ns", "domain") == expected
    assert rows(capture, "thread", "pid", "tid", "name") == [("100", "101", "worker 3")]
    assert lost(capture) == {"missing end": 1}


def test_domains_belong_to_a_process(load: Any) -> None:
    export = NsysExport()
    for pid, name in ((100, "A"), (200, "B")):
        thread = {"globalTid": serial(pid, 1), "domainId": 1}
        export.nvtx(name, 0, None, eventType=75, **thread).nvtx("x", pid, 1, **thread)
    assert rows(load(export), "range", "start_ns", "domain") == [
        (1_000_100, "A"),
        (1_000_200, "B"),
    ]


def test_waits_name_the_recorded_event(load: Any) -> None:
    export = NsysExport().kernel("k", 0, 1).kernel("k", 0, 1, streamId=9)
    export.work(EVENT, 0, 0, streamId=9, correlationId=40, eventId=2, eventSyncId=7)
    export.work(SYNC, 5, 1, correlationId=41, syncType=2, eventId=2, eventSyncId=7)
    export.work(SYNC, 6, 1, correlationId=42, syncType=1, streamId=2**32 - 1, eventId=3)
    export.work(SYNC, 7, 1, correlationId=43, syncType=3).work(SYNC, 8, 1, syncType=4, deviceId=5)
    export.work(SYNC, 9, 1, syncType=0)
    capture = load(export)
    assert rows(
        capture,
        "dependency",
        *("kind", "device_id", "stream_id", "from_stream_id", "from_correlation_id"),
    ) == [
        ("event_wait", 0, 7, 9, 40),
        ("event_sync", 0, None, None, None),
        ("stream_sync", 0, 7, None, None),
        ("context_sync", None, 7, None, None),
    ]
    assert lost(capture) == {"synchronisation of an unknown kind": 1}


def test_an_event_recorded_twice_names_no_wait(load: Any) -> None:
    export = NsysExport().kernel("k", 0, 1)
    for stream in (7, 9):
        export.work(EVENT, 0, 0, streamId=stream, eventId=2)
    capture = load(export.work(SYNC, 5, 1, syncType=2, eventId=2))
    assert rows(capture, "dependency", "from_stream_id") == [None]


def test_calls_repeated_for_their_call_chain_count_once(load: Any) -> None:
    export = NsysExport().call("cudaMalloc_v3020", 1, 9).call("cudaMalloc", 2, 7, eventClass=67)
    capture = load(export)
    assert rows(capture, "api_call", "name") == ["cudaMalloc"]
    assert reasons(capture)["call repeated for its call chain"] == 1
    assert lost(capture) == {}


def test_library_calls_and_overhead_are_ranges(load: Any) -> None:
    export = NsysExport()
    place = {"start": 1, "end": 2, "globalTid": serial(100, 101)}
    export.add("CUBLAS_EVENTS", **place, nameId=export.string("cublasGemmEx"))
    export.add("MPI_COLLECTIVES_EVENTS", **place, textId=export.string("MPI_Bcast"))
    export.add("PROFILER_OVERHEAD", **place, nameId=export.string("Buffer Flush"))
    expected = [
        ("cublasGemmEx", "cuBLAS"),
        ("MPI_Bcast", "MPI"),
        ("overhead: Buffer Flush", None),
    ]
    assert rows(load(export), "range", "name", "domain") == expected


def test_metrics_become_samples(load: Any) -> None:
    export = NsysExport()
    names = ("DRAM Read [Throughput %]", "Clock [MHz]", "Warps")
    for metric, name in enumerate(names):
        export.add("TARGET_INFO_GPU_METRICS", typeId=2**40, metricId=metric, metricName=name)
        export.add("GPU_METRICS", timestamp=metric, typeId=2**40, metricId=metric, value=metric)
    export.add("GPU_METRICS", timestamp=None, typeId=1, metricId=0, value=3)
    capture = load(export)
    expected = [
        (1_000_000, "DRAM Read", "percent", 0.0, '{"gpu": "0"}'),
        (1_000_001, "Clock", "MHz", 1.0, '{"gpu": "0"}'),
        (1_000_002, "Warps", None, 2.0, '{"gpu": "0"}'),
    ]
    assert rows(capture, "counter_sample", "at_ns", "name", "unit", "value", "labels") == expected
    assert lost(capture) == {"sample without time or number": 1}


def test_times_already_normalised_are_not_moved(load: Any) -> None:
    export = NsysExport(epoch_ns=5_000).kernel("k", 7_000, 1)
    export.add("META_DATA_EXPORT", name="EXPORT_PARAM_TIME_NORMALIZE", value="true")
    capture = load(export)
    assert rows(capture, "kernel", "start_ns") == [7_000]
    assert rows(capture, "source", "clock", "base_time_ns", "clock_offset_ns") == [
        ("epoch", 5_000, 0)
    ]


def test_warnings_of_the_profiler_are_a_note(load: Any) -> None:
    export = NsysExport()
    for severity, text in ((1, "hello"), (2, "a warning"), (3, "Not all events were collected")):
        export.add("DIAGNOSTIC_EVENT", severity=severity, text=text)
    notes = rows(load(export), "source_note", "code", "sentence")
    words = "warnings or errors of the profiler: 2, the gravest: Not all events were collected"
    assert notes == [("profiler-warning", words)]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("run.sqlite", "MPI Rank 3", (3, "MPI")),
        ("run.rank5.sqlite", None, (5, "file name")),
        ("run.sqlite", None, (None, None)),
    ],
)
def test_ranks(tmp_path: Path, name: str, text: str | None, expected: tuple[Any, Any]) -> None:
    export = NsysExport().nvtx("x", 0, 1)
    if text:
        export.nvtx(text, 0, None, eventType=39)
    capture = read([export.write(tmp_path / name)])
    assert rows(capture, "source", "rank", "rank_source") == [expected]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_folder_is_the_same_as_the_database(tmp_path: Path, load: Any, suffix: str) -> None:
    export = NsysExport().call("cudaLaunchKernel_v7000", 1, 2).kernel("k", 5, 9)
    export.nvtx("a", 0, 9).nvtx("aten::mm, op_id = 4", 1, 3)
    folder = read([export.write_folder(tmp_path / "export", suffix)])
    one = load(export)
    for table in ("kernel", "api_call", "range", "op", "thread", "device"):
        assert folder[table].to_pylist() == one[table].to_pylist()


def test_broken_rows_are_counted(load: Any) -> None:
    export = NsysExport().kernel("k", 5, 1)
    export.kernel("k", 5, -1).kernel("k", 5, 1, deviceId=None).kernel("k", 6, 1, streamId=None)
    export.kernel("k", 2**62 + 1, 1).kernel("k", 5, 1)
    export.rows[KERNEL][-1]["start"] = None
    export.add(RUNTIME, start=1, end=2, globalTid=serial(100, 1), nameId=99)
    export.add(NVTX, start="early", end=2, eventType=59, text=b"\x00", globalTid="?")
    capture = load(export)
    assert capture.num_rows("kernel") == 2
    assert lost(capture) == {
        "negative duration": 1,
        "missing timestamp": 2,
        "missing device": 1,
        "timestamp out of range": 1,
        "missing stream": 1,
        "name not in the file": 1,
        "value of another type": 3,
    }


def test_a_packed_database(tmp_path: Path) -> None:
    plain = NsysExport().kernel("k", 5, 9).write(tmp_path / "t.sqlite")
    packed = tmp_path / "t.sqlite.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert rows(read([packed]), "kernel", "name") == ["k"]


def test_a_database_cut_short_is_counted_or_refused(tmp_path: Path) -> None:
    export = NsysExport()
    for number in range(2_000):
        export.call("cudaLaunchKernel", number, 1)
    path = export.write(tmp_path / "t.sqlite")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    try:
        capture = read([path])
    except DamagedInput:
        return
    assert capture.num_rows("api_call") < 2_000
    assert lost(capture)


def test_views_and_triggers_are_not_run(tmp_path: Path) -> None:
    path = NsysExport().nvtx("x", 0, 1).write(tmp_path / "t.sqlite")
    connection = sqlite3.connect(path)
    endless = (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n AS start FROM r"
    )
    connection.execute(f"CREATE VIEW {KERNEL} AS {endless}")
    connection.execute(f"CREATE VIEW {RUNTIME} AS {endless}")
    connection.commit()
    connection.close()
    capture = read([path])
    assert capture.num_rows("kernel") == capture.num_rows("api_call") == 0
    assert capture.num_rows("range") == 1


def test_a_log_beside_the_database_is_counted(tmp_path: Path) -> None:
    path = NsysExport().nvtx("x", 0, 1).write(tmp_path / "t.sqlite")
    (tmp_path / "t.sqlite-wal").write_bytes(b"rows that were not yet moved")
    assert lost(read([path])) == {"write-ahead log beside the file": 1}
