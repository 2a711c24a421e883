"""One small trace for each cause of time without compute, with the exact times it must be given.

Times in the traces are microseconds, expected times nanoseconds. A kernel `first` runs from 10 to 20 us
in most of them, and what ends the gap starts at 120 us.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from explaining import CUSTOM, GEMM, NCCL

from ingest.traces import Trace


@dataclass(frozen=True)
class Case:
    """A trace and the only right answer."""

    trace: Trace
    """What the profiler left."""
    idle: Mapping[str, int] = field(default_factory=dict)
    """Idle time by cause."""
    communication: Mapping[str, int] = field(default_factory=dict)
    """Exposed communication by cause."""
    memcpy: Mapping[str, int] = field(default_factory=dict)
    """Exposed copies by cause."""


def first() -> Trace:
    """A kernel from 10 to 20 us, launched at 0."""
    return Trace().launched(GEMM, launch_us=0, start_us=10, dur_us=10)


def late(trace: Trace) -> Trace:
    """A kernel at 120 us, launched at 110: late for a device that went idle at 20."""
    return trace.launched(GEMM, launch_us=110, start_us=120, dur_us=10)


def host_op() -> Case:
    """An operator runs from before the gap until after the launch."""
    return Case(late(first().op("aten::linear", 15, 100)), {"host_op": 100_000})


def host_api() -> Case:
    """Most of the wait is in an API call that neither waits nor allocates."""
    trace = first().op("aten::linear", 15, 100).call("cudaFuncSetAttribute", 25, 80)
    return Case(late(trace), {"host_api": 100_000})


def host_python() -> Case:
    """Python outside any operator."""
    return Case(late(first().frame("model.py(10): forward", 15, 100)), {"host_python": 100_000})


def host_wait() -> Case:
    """A frame that waits for a queue."""
    trace = first().frame("engine.py(5): loop", 0, 130).frame("queue.py(154): get", 21, 85)
    return Case(late(trace), {"host_wait": 100_000})


def host_allocator() -> Case:
    """cudaMalloc inside an operator."""
    trace = first().op("aten::empty", 15, 100).call("cudaMalloc", 22, 80)
    return Case(late(trace), {"host_allocator": 100_000})


def host_untraced() -> Case:
    """Nothing recorded on the launching thread, and no Python frames that could have been."""
    return Case(late(first()), {"host_untraced": 100_000})


def host_synchronize() -> Case:
    """The host stood in a synchronise when the device ran dry."""
    trace = first().call("cudaStreamSynchronize", 6, 15).op("aten::linear", 30, 85)
    return Case(late(trace), {"host_synchronize": 100_000})


def host_memcpy() -> Case:
    """The host stood in the copy that was the last thing to run."""
    trace = first().call("cudaMemcpyAsync", 5, 40, correlation=3)
    trace.memcpy(20, 10, correlation=3, name="Memcpy DtoH (Device -> Pageable)")
    # From 30 to 120 idle; the copy ran alone from 20 to 30.
    return Case(late(trace), {"host_memcpy": 90_000}, memcpy={"host_memcpy": 10_000})


def launch_latency() -> Case:
    """Launched 12 us before it starts, the device idle for the last 5 of them."""
    trace = first().launched(GEMM, launch_us=13, start_us=25, dur_us=10)
    return Case(trace, {"launch_latency": 5_000})


def stream_dependency() -> Case:
    """Both launched long before; the second follows the first on its stream after 3 us."""
    trace = Trace().launched(GEMM, launch_us=0, start_us=100, dur_us=50)
    trace.launched(GEMM, launch_us=10, start_us=153, dur_us=10)
    return Case(trace, {"stream_dependency": 3_000})


def event_wait() -> Case:
    """Stream 7 was made to wait for an event of stream 20, which computes from 110 to 150."""
    trace = Trace().launched(GEMM, launch_us=0, start_us=100, dur_us=10)
    trace.launched(GEMM, launch_us=10, start_us=110, dur_us=40, stream=20)
    trace.call("cudaEventRecord", 20, 1, correlation=501)
    trace.call("cudaStreamWaitEvent", 22, 1, correlation=502)
    trace.sync(
        "Stream Wait Event", 22, 1, stream=7, correlation=502,
        wait_on_stream=20, wait_on_cuda_event_record_corr_id=501,
    )  # fmt: skip
    trace.launched(GEMM, launch_us=30, start_us=152, dur_us=10)
    return Case(trace, {"event_wait": 2_000})


def wait_of_another_stream() -> Case:
    """Stream 20 waits for stream 8, which ends last; stream 7 waits for nothing but itself."""
    trace = Trace().launched(GEMM, launch_us=0, start_us=100, dur_us=50)
    trace.launched(GEMM, launch_us=5, start_us=100, dur_us=51, stream=8)
    trace.call("cudaStreamWaitEvent", 22, 1, correlation=502)
    trace.sync("Stream Wait Event", 22, 1, stream=20, correlation=502, wait_on_stream=8)
    trace.launched(GEMM, launch_us=30, start_us=152, dur_us=10)
    return Case(trace, {"stream_dependency": 1_000})


def collective_wait() -> Case:
    """The same behind a collective from 105 to 150, which runs alone from 110 on."""
    trace = Trace().launched(GEMM, launch_us=0, start_us=100, dur_us=10)
    trace.launched(NCCL, launch_us=10, start_us=105, dur_us=45, stream=20)
    trace.call("cudaEventRecord", 20, 1, correlation=501)
    trace.call("cudaStreamWaitEvent", 22, 1, correlation=502)
    trace.sync(
        "Stream Wait Event", 22, 1, stream=7, correlation=502,
        wait_on_stream=20, wait_on_cuda_event_record_corr_id=501,
    )  # fmt: skip
    trace.launched(GEMM, launch_us=30, start_us=152, dur_us=10)
    return Case(trace, {"collective_wait": 2_000}, {"communication_order": 40_000})


def graph_internal() -> Case:
    """Three nodes of one graph launch, all under its correlation id, with 1 and 2 us between them."""
    trace = Trace().call("cudaGraphLaunch", 0, 8, correlation=9)
    for start_us in (20, 31, 43):
        trace.kernel(GEMM, start_us, 10, correlation=9)
    return Case(trace, {"graph_internal": 3_000})


def communication_order() -> Case:
    """The next compute was launched long before, on the stream of the collective."""
    trace = Trace().launched(GEMM, launch_us=0, start_us=100, dur_us=10)
    trace.launched(NCCL, launch_us=10, start_us=110, dur_us=40)
    trace.launched(GEMM, launch_us=20, start_us=150, dur_us=10)
    return Case(trace, communication={"communication_order": 40_000})


def custom_communication_order() -> Case:
    """A collective of the engine's own, which no rule for NCCL knows."""
    trace = Trace().launched(GEMM, launch_us=0, start_us=100, dur_us=10)
    trace.launched(CUSTOM, launch_us=10, start_us=110, dur_us=40)
    trace.launched(GEMM, launch_us=20, start_us=150, dur_us=10)
    return Case(trace, communication={"communication_order": 40_000})


def memcpy_order() -> Case:
    """The next compute was launched long before, on the stream of the copy."""
    trace = Trace().launched(GEMM, launch_us=0, start_us=100, dur_us=10)
    trace.call("cudaMemcpyAsync", 10, 2, correlation=3).memcpy(110, 40, correlation=3)
    trace.launched(GEMM, launch_us=20, start_us=150, dur_us=10)
    return Case(trace, memcpy={"memcpy_order": 40_000})


def no_work() -> Case:
    """Frames of the launching thread are recorded, and none of any thread runs in the gap."""
    trace = first().frame("engine.py(5): step", 0, 20).frame("engine.py(5): step", 110, 20)
    return Case(late(trace), {"no_work": 100_000})


def launch_not_in_file() -> Case:
    """The kernel that ends the gap has no launch."""
    return Case(first().kernel(GEMM, 120, 10, correlation=77), {"launch_not_in_file": 100_000})


def launch_without_correlation() -> Case:
    """The kernel that ends the gap has no correlation id at all."""
    return Case(first().kernel(GEMM, 120, 10), {"launch_not_in_file": 100_000})


def queued_unexplained() -> Case:
    """Launched at 5 us, nothing recorded in front of it, and yet it starts at 120."""
    trace = first().launched(GEMM, launch_us=5, start_us=120, dur_us=10)
    return Case(trace, {"queued_unexplained": 100_000})


def exposed_late() -> Case:
    """Communication runs alone from 20 to 120; the next compute was not launched before 110."""
    trace = first().launched(NCCL, launch_us=5, start_us=20, dur_us=100)
    trace.op("aten::linear", 15, 100)
    return Case(late(trace), communication={"host_op": 100_000})


def exposed_at_the_end() -> Case:
    """Nothing follows the collective."""
    trace = first().launched(NCCL, launch_us=5, start_us=20, dur_us=100)
    return Case(trace, communication={"no_work": 100_000})


def exposed_before_an_unlaunched_kernel() -> Case:
    """The compute that follows has no launch in the file."""
    trace = first().launched(NCCL, launch_us=5, start_us=20, dur_us=100)
    trace.kernel(GEMM, 120, 10, correlation=77)
    return Case(trace, communication={"launch_not_in_file": 100_000})


def exposed_without_an_order() -> Case:
    """Launched long before on another stream, no event between them: why it waits is not known."""
    trace = first().launched(NCCL, launch_us=5, start_us=20, dur_us=100, stream=20)
    trace.launched(GEMM, launch_us=14, start_us=120, dur_us=10)
    return Case(trace, communication={"queued_unexplained": 100_000})


def exposed_behind_the_longer_of_two() -> Case:
    """Two collectives run alone; the compute follows the long one, which started first."""
    trace = first().launched(NCCL, launch_us=5, start_us=20, dur_us=100)
    trace.launched(NCCL, launch_us=8, start_us=30, dur_us=10, stream=20)
    trace.launched(GEMM, launch_us=14, start_us=120, dur_us=10)
    return Case(trace, communication={"communication_order": 100_000})


CASES: tuple[Callable[[], Case], ...] = (
    host_op, host_api, host_python, host_wait, host_allocator, host_untraced, host_synchronize,
    host_memcpy, launch_latency, stream_dependency, event_wait, wait_of_another_stream, collective_wait, graph_internal,
    communication_order, custom_communication_order, memcpy_order, no_work, launch_not_in_file,
    launch_without_correlation, queued_unexplained, exposed_late, exposed_at_the_end,
    exposed_before_an_unlaunched_kernel, exposed_without_an_order, exposed_behind_the_longer_of_two,
)  # fmt: skip
