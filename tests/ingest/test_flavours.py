"""The dialects: ROCm, XPU, MTIA, Ascend, Spyre, the schema of 2021, the host alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.compare import lost, reasons, rows
from ingest.traces import Trace
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.ingest import read


@pytest.fixture(params=["slow", "fast"])
def load(request: pytest.FixtureRequest, tmp_path: Path):
    def load(trace: Trace, style: str = "kineto") -> Capture:
        capture = read([trace.write(tmp_path / "t.json", style)], scanner=request.param)
        validate(capture)
        return capture

    return load


def test_schema_of_2021(load) -> None:
    trace = Trace(tid="100")
    trace.complete("Operator", "mm", 1, 9, 100, "100", {"External id": 5, "Call stack": "a;b"})
    launch = {"correlation": 7, "external id": 5}
    trace.complete("Runtime", "cudaLaunchKernel", 2, 3, 100, 100, launch)
    work = {"device": 0, "stream": 7, "correlation": 7, "external id": 5}
    trace.complete("Kernel", "gemm", 6, 2, 0, "stream 7", work)
    trace.complete("Memcpy", "Memcpy DtoH", 9, 2, 0, "stream 7", work | {"bytes": 16})
    trace.complete("Memset", "Memset", 12, 2, 0, "stream 7", work | {"bytes": 8})
    capture = load(trace)
    assert rows(capture, "thread", "pid", "tid") == [("100", "100")]
    assert rows(capture, "op", "external_id", "call_stack") == [(5, "a;b")]
    assert rows(capture, "kernel", "kind", "stream_id", "external_id") == [
        ("compute", 7, 5),
        ("memcpy", 7, 5),
        ("memset", 7, 5),
    ]


def test_rocm(load) -> None:
    """Runtime events that carry kernel arguments and a stream are calls all the same."""
    trace = Trace(device_name="", roctracer_version=4.1)
    arguments = {"kernel": "Cijk", "grid": [1, 1, 1], "block": [64, 1, 1], "stream": 3}
    trace.call("hipLaunchKernel", 0, 3, correlation=5, **arguments)
    trace.kernel("Cijk", 4, 2, device=2, stream=0, correlation=5, kind="Dispatch Kernel")
    capture = load(trace)
    assert capture.num_rows("api_call") == 1
    assert rows(capture, "kernel", "name", "stream_id", "correlation_id") == [("Cijk", 0, 5)]
    assert rows(capture, "device", "index", "name", "vendor") == [(2, None, "amd")]


def test_xpu(load) -> None:
    trace = Trace(device_name=None)
    trace.call("urEnqueueKernelLaunch", 0, 3, correlation=5, category="xpu_runtime")
    trace.complete("kernel", "gemm", 4, 2, 0, 1, {"device": 0, "sycl queue": 1, "correlation": 5})
    capture = load(trace)
    assert rows(capture, "kernel", "stream_id", "correlation_id") == [(1, 5)]
    assert rows(capture, "device", "index", "vendor") == [(0, "intel")]


def test_mtia(load) -> None:
    """The device is the process; a request without a stream is on the stream of its thread id."""
    trace = Trace(device_name=None).process_name("MTIA 9", pid=9)
    trace.complete("mtia_runtime", "runFunction", 0, 3, 100, 100, {"correlation": 5})
    trace.complete("mtia_ccp_events", "add", 4, 2, 9, 4, {"correlation": 5, "stream": 1})
    trace.complete("mtia_ccp_events", "dma_request", 7, 2, 9, 801, {"size": 64})
    capture = load(trace)
    assert rows(capture, "kernel", "name", "kind", "stream_id", "correlation_id", "bytes") == [
        ("add", "compute", 1, 5, None),
        ("dma_request", "memcpy", 801, None, 64),
    ]
    assert rows(capture, "device", "index", "vendor") == [(9, "meta")]


def test_ascend(load) -> None:
    """Quoted times, device rows known by their process, links by arrows only."""
    trace = Trace(device_name=None)
    trace.process_name("Ascend Hardware", pid=800).process_name("CANN", pid=7)
    trace.process_name("Overlap Analysis", pid=9)
    ts = "1704161511422{}.125".format
    trace.complete("cpu_op", "aten::mm", ts("000"), 9, 100, 100, {"Sequence number": -1})
    trace.complete(None, "AscendCL@aclnnMm", ts("010"), 9.25, 7, 5, {"Thread Id": 5})
    trace.complete(None, "aclnnMm_MatMul", ts("030"), 4, 800, 3, {"Stream Id": 3})
    trace.complete(None, "MEMCPY_ASYNC", ts("040"), 1, 800, 3, {"Stream Id": 3})
    trace.complete(None, "EVENT_WAIT", ts("041"), 1, 800, 3, {"Stream Id": 3})
    trace.complete(None, "Computing", ts("030"), 4, 9, 0, {})
    trace.flow("s", 11, ts("012"), 7, 5, cat="HostToDevice")
    trace.flow("f", 11, ts("030"), 800, 3, cat="HostToDevice")
    trace.flow("s", 12, ts("013"), 7, 5, cat="HostToDevice")
    trace.flow("f", 12, ts("040"), 800, 3, cat="HostToDevice")
    trace.flow("s", 77, ts("000"), 100, 100, cat="async_npu")
    trace.flow("f", 77, ts("030"), 800, 3, cat="async_npu")
    trace.flow("f", 99, ts("030"), 800, 3, cat="async_npu")
    capture = load(trace, "array")
    assert rows(capture, "kernel", "name", "kind", "correlation_id", "external_id") == [
        ("aclnnMm_MatMul", "compute", 11, 77),
        ("MEMCPY_ASYNC", "memcpy", 11, None),
    ]
    assert rows(capture, "api_call", "name", "correlation_id") == [("AscendCL@aclnnMm", 11)]
    assert rows(capture, "op", "name", "external_id", "start_ns") == [
        ("aten::mm", 77, 1704161511422000125)
    ]
    assert rows(capture, "dependency", "kind", "stream_id") == [("event_wait", 3)]
    assert rows(capture, "device", "index", "vendor") == [(0, "huawei")]
    assert reasons(capture)["derived by the profiler"] == 1
    assert lost(capture) == {"flow arrow without start": 1}


def test_spyre(load) -> None:
    trace = Trace(device_name=None)
    stamps = {"TS1": "0xc06c", "TS2": "0xc06d"}
    trace.event(attr=stamps, name="add Cmpt Exec", ph="B", pid=0, tid=2**60, ts=1)
    trace.event(attr=stamps, name="add Cmpt Exec", ph="E", pid=0, tid=2**60, ts=5)
    capture = load(trace, "array")
    assert rows(capture, "kernel", "name", "start_ns", "end_ns", "stream_id") == [
        ("add Cmpt Exec", 1000, 5000, 2**60)
    ]
    assert rows(capture, "device", "index", "vendor") == [(0, "ibm")]


def test_the_host_alone(load) -> None:
    capture = load(Trace(device_name=None).op("aten::mm", 0, 5))
    assert capture.num_rows("device") == capture.num_rows("kernel") == 0
    assert lost(capture) == {}


def test_listed_devices_without_work_are_not_devices(load) -> None:
    trace = Trace().kernel("k", 0, 1, device=0)
    trace.head["deviceProperties"] = [{"id": i, "name": "NVIDIA H100"} for i in range(8)]
    assert rows(load(trace), "device", "index") == [0]


def test_device_properties_may_be_missing_or_odd(load) -> None:
    trace = Trace(device_name=None).kernel("k", 0, 1, device=5)
    trace.head["deviceProperties"] = [None, {"id": "x"}, {"name": "?"}, {"id": 5, "numSms": -1}]
    assert rows(load(trace), "device", "index", "name", "num_sms") == [(5, None, None)]


def test_unknown_categories_are_kept_as_ranges(load) -> None:
    trace = Trace().complete("new_thing", "a", 1, 2, 100, 100, {})
    trace.process_name("GPU 0", pid=0)
    trace.event(name="process_labels", ph="M", pid=0, tid=0, ts=0, args={"labels": "GPU 0"})
    trace.complete("new_device_thing", "b", 1, 2, 0, 7, {})
    capture = load(trace)
    assert rows(capture, "range", "name", "side") == [("a", "host"), ("b", "device")]
    assert capture.num_rows("kernel") == 0


def test_processes_and_devices_of_one_file_stay_apart(load) -> None:
    trace = Trace().kernel("a", 0, 1, device=1).kernel("b", 0, 1, device=0).op("x", 0, 1)
    trace.complete("cpu_op", "y", 0, 1, 200, 100, {})
    capture = load(trace)
    assert rows(capture, "device", "index") == [0, 1]
    assert rows(capture, "kernel", "name", "device_id") == [("a", 1), ("b", 0)]
    assert rows(capture, "thread", "pid") == ["100", "200"]
