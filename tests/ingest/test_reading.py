"""Small traces, and the rows they become."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from ingest.compare import difference, lost, reasons, rows
from ingest.traces import Trace
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.ingest import read

BASE = 1_743_521_598_000_000_000


@pytest.fixture(params=["slow", "fast"])
def load(request: pytest.FixtureRequest, tmp_path: Path):
    def load(trace: Trace, style: str = "kineto") -> Capture:
        path = trace.write(tmp_path / "trace.json", style)
        capture = read([path], scanner=request.param)
        validate(capture)
        return capture

    return load


def test_launch_and_kernel(load) -> None:
    trace = Trace(base_time_ns=BASE, rank=3, world_size=8, trace_id="AB12")
    trace.launched(
        "gemm", launch_us=10, start_us=Decimal("20.125"), dur_us=Decimal("5.001"), op="mm"
    )
    capture = load(trace)
    assert rows(capture, "op", "name", "start_ns", "end_ns") == [("mm", BASE + 9000, BASE + 15000)]
    assert rows(capture, "api_call", "name", "start_ns", "correlation_id") == [
        ("cudaLaunchKernel", BASE + 10000, 10001)
    ]
    assert rows(capture, "kernel", "name", "start_ns", "end_ns", "stream_id", "correlation_id") == [
        ("gemm", BASE + 20125, BASE + 25126, 7, 10001)
    ]
    assert rows(capture, "kernel", "grid", "block", "kind") == [([1, 1, 1], [128, 1, 1], "compute")]
    assert rows(capture, "device", "index", "name", "num_sms", "vendor") == [
        (0, "NVIDIA H100 80GB HBM3", 132, "nvidia")
    ]
    columns = ("trace_id", "base_time_ns", "clock", "rank", "world_size", "rank_source")
    assert rows(capture, "source", *columns) == [("AB12", BASE, "epoch", 3, 8, "distributedInfo")]
    assert lost(capture) == {}


@pytest.mark.parametrize("style", ["kineto", "compact", "pretty", "array"])
def test_every_style_gives_the_same_rows(load, style: str, tmp_path: Path) -> None:
    trace = Trace().launched("k", launch_us=0, start_us=5, dur_us=2).frame("f", 0, 9, python_id=1)
    expected = read([trace.write(tmp_path / "expected.json")])
    found = load(trace, style)
    for table in ("kernel", "api_call", "frame", "thread"):
        assert found[table].to_pylist() == expected[table].to_pylist()


def test_times_that_float64_cannot_hold(load) -> None:
    trace = Trace().kernel("a", Decimal("1712195495505582.987"), Decimal("0.001"))
    trace.complete("kernel", "b", "1712195495505582.989", "2", 0, 7, {"device": 0, "stream": 7})
    capture = load(trace)
    first = 1712195495505582987
    assert rows(capture, "kernel", "start_ns", "end_ns") == [
        (first, first + 1),
        (first + 2, first + 2002),
    ]
    assert rows(capture, "source", "clock", "base_time_ns") == [("epoch", None)]


def test_display_unit_does_not_change_times(load) -> None:
    capture = load(Trace(displayTimeUnit="ns").kernel("a", 1, 2))
    assert rows(capture, "kernel", "start_ns", "end_ns") == [(1000, 3000)]
    assert rows(capture, "source", "clock") == ["monotonic"]


def test_graph_kernels_keep_their_node(load) -> None:
    trace = Trace().call("cudaGraphLaunch", 0, 5, correlation=9)
    for node in range(3):
        more = {"graph id": 4, "graph node id": node}
        trace.kernel("k", 10 + node, 1, correlation=9, **more)
    capture = load(trace)
    assert rows(capture, "kernel", "correlation_id", "graph_id", "graph_node_id") == [
        (9, 4, node) for node in range(3)
    ]


def test_occupancy_numbers_are_exact(load) -> None:
    numbers = ["0.030303031206130981", "31.030304", "1e-3", "100"]
    trace = Trace()
    for at, number in enumerate(numbers):
        trace.kernel("k", at, 1, **{"blocks per SM": Decimal(number)})
    assert rows(load(trace), "kernel", "blocks_per_sm") == [float(number) for number in numbers]


def test_copies_and_fills(load) -> None:
    capture = load(Trace().memcpy(0, 5, num_bytes=4096).memset(6, 1, num_bytes=8))
    assert rows(capture, "kernel", "kind", "family", "bytes") == [
        ("memcpy", "memcpy", 4096),
        ("memset", "memset", 8),
    ]


def test_shapes_stay_json(load) -> None:
    capture = load(Trace().op("mm", 0, 1, dims=[[2, 3], []], types=["float", "Scalar"]), "pretty")
    assert rows(capture, "op", "input_shapes", "input_dtypes") == [
        ("[[2,3],[]]", '["float","Scalar"]')
    ]


def test_ranges_on_both_sides(load) -> None:
    capture = load(Trace().range("step", 0, 9, external_id=5).device_range("step", 3, 4, stream=8))
    assert rows(capture, "range", "side", "name", "stream_id", "external_id") == [
        ("host", "step", None, 5),
        ("device", "step", 8, None),
    ]


def test_profiler_overhead_is_a_marked_range(load) -> None:
    capture = load(Trace().complete("overhead", "Buffer Flush", 0, 9, -1, 0, {}))
    assert rows(capture, "range", "name", "side") == [("overhead: Buffer Flush", "host")]
    assert rows(capture, "thread", "pid", "tid") == [("-1", "0")]


def test_synchronisation(load) -> None:
    trace = Trace().sync("Stream Wait Event", 1, 2, stream=24, correlation=9)
    trace.events[-1]["args"] |= {"wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": 5}
    trace.sync("Context Sync", 4, 5, stream=-1, correlation=11)
    columns = ("kind", "stream_id", "from_stream_id", "from_correlation_id", "correlation_id")
    assert rows(load(trace), "dependency", *columns) == [
        ("event_wait", 24, 20, 5, 9),
        ("context_sync", None, None, None, 11),
    ]


def test_allocator_events(load) -> None:
    capture = load(Trace().memory(5, 64).memory(6, -64))
    assert rows(capture, "memory_event", "at_ns", "action", "bytes", "address") == [
        (5000, "alloc", 64, 4096),
        (6000, "free", -64, 4096),
    ]


def test_counters(load) -> None:
    capture = load(Trace().counter("queue", 3, depth=2, limit=7.5))
    assert rows(capture, "counter_sample", "name", "labels", "value", "at_ns") == [
        ("queue", '{"series": "depth"}', 2.0, 3000),
        ("queue", '{"series": "limit"}', 7.5, 3000),
    ]


def test_hardware_counters_of_ranges(load) -> None:
    trace = Trace().complete("cuda_profiler_range", "gemm", 5, 6, 0, 0, {"inst.sum": 12})
    assert rows(load(trace), "kernel_counter", "name", "value", "range_name", "end_ns") == [
        ("inst.sum", 12.0, "gemm", 11000)
    ]


def test_collectives_of_operator_and_kernel(load) -> None:
    attributes = {"Collective name": "_allgather_base", "In msg nelems": 1000, "dtype": "BFloat16"}
    attributes |= {"Group size": 8, "Process Group Name": "1", "Seq": 4}
    trace = Trace().op("record_param_comms", 0, 1, external_id=3, **attributes)
    trace.kernel("ncclKernel", 5, 1, external_id=3, **attributes)
    trace.op("record_param_comms", 8, 1, external_id=4, **attributes)
    capture = load(trace)
    columns = ("op", "payload_bytes", "group_size", "group", "sequence", "kernel_id")
    assert rows(capture, "collective", *columns) == [
        ("allgather", 2000, 8, "1", 4, 0),
        ("allgather", 2000, 8, "1", 4, None),
    ]
    assert '"elements_in": 1000' in rows(capture, "op", "collective")[0]


def test_first_name_of_a_thread_counts(load) -> None:
    trace = Trace().op("a", 0, 1).thread_name("main").thread_name("main").thread_name("other")
    assert rows(load(trace), "thread", "pid", "tid", "name") == [("100", "100", "main")]


def test_arrows_carry_nothing_new(load) -> None:
    trace = Trace().launched("k", launch_us=0, start_us=5, dur_us=1)
    trace.flow("s", 10001, 0, 100, 100).flow("f", 10001, 5, 0, 7).flow("f", 77, 9, 0, 7)
    capture = load(trace)
    assert reasons(capture) == {"flow arrow": 3}
    assert rows(capture, "source", "num_events", "num_skipped") == [(5, 3)]


def test_escaped_and_plain_texts_are_one(load) -> None:
    trace = Trace()
    for name in (r"a\u00e9b", "aéb", r"tab\tslash\/"):
        trace.raw(f'{{"ph":"X","cat":"cpu_op","name":"{name}","pid":1,"tid":1,"ts":1,"dur":1}}')
    capture = load(trace)
    assert rows(capture, "op", "name") == ["aéb", "aéb", "tab\tslash/"]
    assert sorted(capture["op"]["name"].chunk(0).dictionary.to_pylist()) == ["aéb", "tab\tslash/"]


def test_out_of_order_events_keep_their_times(load) -> None:
    capture = load(Trace().op("late", 9, 1).op("early", 1, 1).kernel("k", 3, 1).kernel("j", 2, 1))
    assert rows(capture, "op", "name") == ["late", "early"]
    assert rows(capture, "kernel", "name") == ["k", "j"]


def test_rows_do_not_depend_on_the_scanner(tmp_path: Path) -> None:
    trace = Trace(rank=0).thread_name("x")
    for number in range(3000):
        trace.launched(f"k{number % 7}", launch_us=number, start_us=number, dur_us=1, op="o")
        trace.memory(number, number).memset(number, 1)
    path = trace.write(tmp_path / "t.json")
    assert difference(read([path], scanner="slow"), read([path], scanner="fast")) is None
