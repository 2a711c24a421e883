"""The graph of a run, timed again as measured, is the run."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.runs import Call, Kernel, run
from tokenpath.capture.capture import Capture
from tokenpath.replay.edges import EdgeKind
from tokenpath.replay.graph import Graph, build_graph
from tokenpath.replay.loops import retime


def timed_again(graph: Graph) -> np.ndarray:
    time = np.empty_like(graph.time)
    retime(len(time))(
        graph.order, graph.first, graph.source, graph.weight, graph.base, graph.delay, time
    )
    return time


def binding(graph: Graph, point: int) -> EdgeKind:
    """The kind of edge that holds a point."""
    edges = np.arange(graph.first[point], graph.first[point + 1])
    at = graph.time[graph.source[edges]] + graph.weight[edges]
    return EdgeKind(int(graph.kind[edges[np.argmax(at)]]))


def test_each_kernel_is_held_by_what_it_waited_for() -> None:
    capture = run(
        [
            (0, "cudaLaunchKernel", 0, 5),
            (0, "cudaLaunchKernel", 6, 11),
            (0, "cudaLaunchKernel", 900, 905),
        ],
        [(0, 7, "compute", 4, 300), (1, 7, "compute", 301, 500), (2, 7, "compute", 905, 950)],
    )
    graph = build_graph(capture)
    held = [binding(graph, int(point)) for point in graph.work_start]
    assert held == [EdgeKind.LAUNCH, EdgeKind.STREAM, EdgeKind.LAUNCH]
    assert (timed_again(graph) == graph.time).all()
    assert not graph.delay.any()


def test_a_synchronise_returns_after_the_work_it_waited_for() -> None:
    capture = run(
        [(0, "cudaLaunchKernel", 0, 5), (0, "cudaDeviceSynchronize", 6, 320)],
        [(0, 7, "compute", 4, 300)],
    )
    graph = build_graph(capture)
    assert binding(graph, int(graph.call_end[1])) is EdgeKind.RETURN


def test_a_synchronise_that_found_nothing_to_wait_for_is_host_time() -> None:
    capture = run(
        [(0, "cudaLaunchKernel", 0, 5), (0, "cudaDeviceSynchronize", 400, 420)],
        [(0, 7, "compute", 4, 300)],
    )
    graph = build_graph(capture)
    assert binding(graph, int(graph.call_end[1])) is EdgeKind.HOST
    assert graph.own_ns[1] == -1


def test_a_collective_ends_when_the_last_rank_has_arrived_and_the_data_has_moved() -> None:
    capture = run(
        [(0, "cudaLaunchKernel", 0, 5), (1, "cudaLaunchKernel", 200, 205)],
        [(0, 7, "communication", 10, 260), (1, 7, "communication", 210, 261)],
        rank_of_thread=[0, 1],
        rank_of_kernel=[0, 1],
        collective={
            "source_id": [0, 1],
            "op": ["allreduce"] * 2,
            "kernel_id": [0, 1],
            "match": [0, 0],
        },
    )
    graph = build_graph(capture)
    assert graph.collectives.transfer.tolist() == [51_000]
    assert [binding(graph, int(point)) for point in graph.work_end] == [EdgeKind.TRANSFER] * 2
    assert (timed_again(graph) == graph.time).all()


def test_a_recorded_event_holds_the_next_kernel_of_the_waiting_stream() -> None:
    calls: list[Call] = [
        (0, "cudaLaunchKernel", 0, 5),
        (0, "cudaEventRecord", 6, 7),
        (0, "cudaStreamWaitEvent", 8, 9),
        (0, "cudaLaunchKernel", 10, 15),
    ]
    wait = {
        "source_id": [0],
        "kind": ["event_wait"],
        "start_ns": [8_000],
        "end_ns": [9_000],
        "device_id": [0],
        "stream_id": [20],
        "from_stream_id": [7],
        "from_correlation_id": [1],
    }
    kernels: list[Kernel] = [(0, 7, "compute", 5, 305), (3, 20, "compute", 320, 400)]
    graph = build_graph(run(calls, kernels, dependency=wait))
    assert binding(graph, int(graph.work_start[1])) is EdgeKind.EVENT
    # Without the record it starts too late after the other to have waited for it, or nobody can tell.
    graph = build_graph(run(calls, kernels))
    assert binding(graph, int(graph.work_start[1])) is not EdgeKind.EVENT


def test_a_thread_that_stands_still_waits_for_the_one_at_work() -> None:
    backward = [(1, "cudaLaunchKernel", 100 + 10 * k, 105 + 10 * k) for k in range(30)]
    calls: list[Call] = [
        (0, "cudaLaunchKernel", 0, 5),
        *backward,
        (0, "cudaLaunchKernel", 410, 415),
    ]
    kernels: list[Kernel] = [
        (k, 7, "compute", call[3], call[3] + 2) for k, call in enumerate(calls)
    ]
    graph = build_graph(run(calls, kernels, rank_of_thread=[0, 0]))
    row = graph.measured.calls.row.tolist()
    assert binding(graph, int(graph.call_start[row.index(31)])) is EdgeKind.THREAD
    assert binding(graph, int(graph.call_start[row.index(1)])) is EdgeKind.THREAD


def test_a_thread_waits_for_the_one_that_waited_for_data() -> None:
    backward = [
        (1, "cudaLaunchKernel", at + 10 * k, at + 10 * k + 5)
        for at in (100, 900_100)
        for k in range(30)
    ]
    calls: list[Call] = [
        (0, "cudaLaunchKernel", 0, 5),
        (0, "cudaLaunchKernel", 410, 415),
        *((0, "cudaLaunchKernel", 900_000 + 8 * k, 900_005 + 8 * k) for k in range(12)),
        *backward,
    ]  # fmt: skip
    kernels: list[Kernel] = [
        (k, 7, "compute", call[3], call[3] + 2) for k, call in enumerate(calls)
    ]
    graph = build_graph(run(calls, kernels, rank_of_thread=[0, 0]))
    row = graph.measured.calls.row.tolist()
    # Most of the stretch is silent on both: the second backward pass waits for the forward pass before it ...
    assert binding(graph, int(graph.call_start[row.index(14 + 30)])) is EdgeKind.THREAD
    # ... and that for nothing recorded.
    assert binding(graph, int(graph.call_start[row.index(2)])) is EdgeKind.HOST


def test_overlap_of_neighbours_on_a_stream_is_kept() -> None:
    capture = run(
        [(0, "cudaLaunchKernel", 0, 5), (0, "cudaLaunchKernel", 6, 9)],
        [(0, 7, "compute", 4, 300), (1, 7, "compute", 297, 500)],
    )
    graph = build_graph(capture)
    assert binding(graph, int(graph.work_start[1])) is EdgeKind.OVERLAP
    assert (timed_again(graph) == graph.time).all()


def test_a_full_queue_makes_launches_wait_for_earlier_work() -> None:
    # The host launches every 5 us, the device takes 20 us a kernel; only 1,000 launches may be under way.
    ends = [10 + 20 * (k + 1) for k in range(1_500)]
    calls: list[Call] = []
    now = 0
    for k in range(1_500):
        until = now + 3 if k < 1_000 else max(now + 3, ends[k - 1_000] + 1)
        calls.append((0, "cudaLaunchKernel", now, until))
        now = until + 2
    capture = run(calls, [(k, 7, "compute", end - 20, end) for k, end in enumerate(ends)])
    graph = build_graph(capture)
    held = [binding(graph, int(point)) for point in graph.call_end]
    assert EdgeKind.QUEUE not in held[:1_000]
    # The first to wait shows up when the host has caught up with the limit.
    assert held.count(EdgeKind.QUEUE) > 150
    assert (timed_again(graph) == graph.time).all()


def random_run(seed: int) -> Capture:
    """Any times at all, sensible or not: overlapping calls, kernels before their launch, ties."""
    rng = np.random.default_rng(seed)
    names = [
        "cudaLaunchKernel",
        "cudaDeviceSynchronize",
        "cudaMemcpy",
        "cudaFree",
        "cudaGraphLaunch",
    ]
    calls: list[Call] = []
    for _ in range(40):
        start = int(rng.integers(0, 400))
        calls.append(
            (
                int(rng.integers(2)),
                names[int(rng.integers(5))],
                start,
                start + int(rng.integers(30)),
            )
        )
    kernels: list[Kernel] = []
    for _ in range(60):
        start = int(rng.integers(0, 500))
        call = int(rng.integers(-10, 40))
        kind = ("compute", "memcpy", "communication")[int(rng.integers(3))]
        kernels.append(
            (
                None if call < 0 else call,
                int(rng.integers(3)),
                kind,
                start,
                start + int(rng.integers(40)),
            )
        )
    return run(
        calls,
        kernels,
        rank_of_thread=[0, 1],
        rank_of_kernel=[int(r) for r in rng.integers(0, 2, 60)],
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_timed_again_as_measured_every_point_is_where_it_was(seed: int) -> None:
    graph = build_graph(random_run(seed))
    assert (timed_again(graph) == graph.time).all()
    assert (graph.delay >= 0).all()
    # Each point stands behind all that it waits for.
    place = np.empty(graph.num_points, np.int64)
    place[graph.order] = np.arange(graph.num_points)
    counted = graph.weight > -(2**60)
    assert (place[graph.source[counted]] < place[graph.target[counted]]).all()


def test_an_empty_capture_has_an_empty_graph() -> None:
    assert build_graph(Capture({})).num_points == 0
