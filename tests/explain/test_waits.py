"""Why a queued kernel had to wait, and when a synchronise is to blame."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.traces import Trace
from tokenpath.api.explain import explain
from tokenpath.explain.causes import CAUSES

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def causes(trace: Trace, tmp_path: Path) -> list[tuple[float, str]]:
    """(length in us, cause) of every idle gap, in order."""
    gaps = explain([trace.write(tmp_path / "a.json")]).analysis.devices[0].gaps
    return [
        (int(length) / 1000, CAUSES[cause].key)
        for length, cause in zip(gaps.duration_ns, gaps.cause, strict=True)
    ]


def ordered(awaited: str, awaited_dur_us: int, start_us: int) -> Trace:
    """`awaited` on stream 20; a kernel on stream 7 waits for its event, both launched long before.

    The profiler gives the record of the wait the time of the host's call (libkineto, CUPTI), which lies
    before all of the device work here.
    """
    trace = Trace()
    trace.launched("gemm", launch_us=0, start_us=100, dur_us=10)
    trace.launched(awaited, launch_us=10, start_us=110, dur_us=awaited_dur_us, stream=20)
    trace.call("cudaEventRecord", 20, 1, correlation=501)
    trace.call("cudaStreamWaitEvent", 22, 1, correlation=502)
    trace.sync(
        "Stream Wait Event",
        22,
        1,
        stream=7,
        correlation=502,
        wait_on_stream=20,
        wait_on_cuda_event_record_corr_id=501,
    )
    return trace.launched("gemm", launch_us=30, start_us=start_us, dur_us=10)


def test_a_wait_is_found_by_the_time_of_its_call(tmp_path: Path) -> None:
    assert causes(ordered(NCCL, 40, 152), tmp_path) == [(2.0, "collective_wait")]
    assert causes(ordered("gemm", 40, 152), tmp_path) == [(2.0, "event_wait")]


def test_a_wait_that_was_over_before_the_stream_was_free_is_not_to_blame(tmp_path: Path) -> None:
    trace = Trace()
    trace.launched(NCCL, launch_us=0, start_us=100, dur_us=5, stream=20)
    trace.launched("gemm", launch_us=10, start_us=100, dur_us=50)
    trace.call("cudaEventRecord", 20, 1, correlation=501)
    trace.sync(
        "Stream Wait Event",
        22,
        1,
        stream=7,
        correlation=502,
        wait_on_stream=20,
        wait_on_cuda_event_record_corr_id=501,
    )
    trace.call("cudaStreamWaitEvent", 22, 1, correlation=502)
    trace.launched("gemm", launch_us=30, start_us=152, dur_us=10)
    assert causes(trace, tmp_path) == [(2.0, "stream_dependency")]


def test_an_event_long_after_the_awaited_collective_is_no_collective_wait(tmp_path: Path) -> None:
    """A host callback runs on stream 20 behind the collective; no profiler records it."""
    assert causes(ordered(NCCL, 40, 450), tmp_path) == [(300.0, "event_wait")]


@pytest.mark.parametrize("other_stream", [20, 24])
def test_a_wait_of_another_stream_is_not_to_blame(tmp_path: Path, other_stream: int) -> None:
    trace = Trace()
    trace.launched("gemm", launch_us=0, start_us=100, dur_us=50)
    trace.call("cudaStreamWaitEvent", 22, 1, correlation=502)
    trace.sync("Stream Wait Event", 22, 1, stream=other_stream, correlation=502, wait_on_stream=7)
    trace.launched("gemm", launch_us=30, start_us=152, dur_us=10)
    assert causes(trace, tmp_path) == [(2.0, "stream_dependency")]


def test_without_records_a_wait_call_before_the_launch_is_the_evidence(tmp_path: Path) -> None:
    trace = Trace()
    trace.launched("gemm", launch_us=0, start_us=100, dur_us=50)
    trace.call("cudaStreamWaitEvent", 22, 1, correlation=502)
    trace.launched("gemm", launch_us=30, start_us=152, dur_us=10)
    assert causes(trace, tmp_path) == [(2.0, "event_wait")]


def test_waiting_for_requests_after_a_synchronise_is_waiting(tmp_path: Path) -> None:
    """An engine fetches its last tokens, then has nothing to do: the synchronise costs nothing."""
    trace = Trace()
    trace.launched("gemm", launch_us=0, start_us=10, dur_us=90)
    trace.call("cudaEventSynchronize", 20, 85, correlation=7)
    trace.frame("queue.py(154): get", 110, 2000)
    trace.launched("gemm", launch_us=2120, start_us=2126, dur_us=10)
    assert causes(trace, tmp_path) == [(2026.0, "host_wait")]


def test_work_after_a_synchronise_is_the_cost_of_the_synchronise(tmp_path: Path) -> None:
    trace = Trace()
    trace.launched("gemm", launch_us=0, start_us=10, dur_us=90)
    trace.call("cudaEventSynchronize", 20, 85, correlation=7)
    trace.frame("scheduler.py(183): schedule", 110, 2000)
    trace.launched("gemm", launch_us=2120, start_us=2126, dur_us=10)
    assert causes(trace, tmp_path) == [(2026.0, "host_synchronize")]
