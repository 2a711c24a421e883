"""Links: kernel to launch, launch to operator, within one run and never across runs."""

from __future__ import annotations

from pathlib import Path

from ingest.traces import Trace
from tokenpath.api import load
from tokenpath.capture.capture import Capture

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
BASE = 1_700_000_000_000_000_000


def launch_of(capture: Capture) -> list[tuple[str, int] | None]:
    """(name, start in us after the first launch) of each kernel's launch, by start of the kernel."""
    calls = capture["api_call"].select(["name", "start_ns"]).to_pylist()
    origin = min(call["start_ns"] for call in calls)
    rows = capture["kernel"].select(["start_ns", "api_call_id"]).to_pylist()
    found: list[tuple[str, int] | None] = []
    for row in sorted(rows, key=lambda row: row["start_ns"]):
        call = None if row["api_call_id"] is None else calls[row["api_call_id"]]
        found.append(call and (call["name"], (call["start_ns"] - origin) // 1000))
    return found


def op_of(capture: Capture) -> list[str | None]:
    """The operator of each kernel, by start of the kernel."""
    names = capture["op"]["name"].to_pylist()
    rows = capture["kernel"].select(["start_ns", "op_id"]).to_pylist()
    ordered = sorted(rows, key=lambda row: row["start_ns"])
    return [None if row["op_id"] is None else names[row["op_id"]] for row in ordered]


def linked(trace: Trace, tmp_path: Path) -> Capture:
    """The trace, read and linked."""
    return load([trace.write(tmp_path / "trace.json")])


def test_kernels_find_their_launches_out_of_order(tmp_path: Path) -> None:
    trace = Trace().kernel(GEMM, 100, 5, correlation=2).kernel(GEMM, 110, 5, correlation=1)
    trace.launch(0, 4, correlation=1).launch(10, 4, correlation=2).launch(20, 4, correlation=3)
    assert launch_of(linked(trace, tmp_path)) == [
        ("cudaLaunchKernel", 10),
        ("cudaLaunchKernel", 0),
    ]


def test_copies_and_fills_have_launches_too(tmp_path: Path) -> None:
    trace = Trace().call("cudaMemcpyAsync", 0, 4, correlation=1).memcpy(20, 5, correlation=1)
    trace.call("cudaMemsetAsync", 5, 4, correlation=2).memset(30, 5, correlation=2)
    assert launch_of(linked(trace, tmp_path)) == [("cudaMemcpyAsync", 0), ("cudaMemsetAsync", 5)]


def test_no_correlation_and_an_unknown_one_link_to_nothing(tmp_path: Path) -> None:
    trace = Trace().launch(0, 4).launch(5, 4, correlation=1)
    trace.kernel(GEMM, 20, 5).kernel(GEMM, 30, 5, correlation=99)
    assert launch_of(linked(trace, tmp_path)) == [None, None]


def test_every_node_of_a_graph_has_the_launch_of_the_graph(tmp_path: Path) -> None:
    trace = Trace().call("cudaGraphLaunch", 0, 8, correlation=1)
    for start_us in (20, 30, 40):
        trace.kernel(GEMM, start_us, 8, correlation=1)
    assert launch_of(linked(trace, tmp_path)) == [("cudaGraphLaunch", 0)] * 3


def test_equal_correlations_of_two_ranks_are_two_launches(tmp_path: Path) -> None:
    ranks = [Trace(rank=rank, base_time_ns=BASE) for rank in (0, 1)]
    for rank, trace in enumerate(ranks):
        trace.launch(10 * rank, 4, correlation=7).kernel(GEMM, 100 + rank, 5, correlation=7)
    files = [trace.write(tmp_path / f"rank{rank}.json") for rank, trace in enumerate(ranks)]
    assert launch_of(load(files)) == [("cudaLaunchKernel", 0), ("cudaLaunchKernel", 10)]


def test_a_launch_of_another_rank_is_not_mine(tmp_path: Path) -> None:
    one = Trace(rank=0, base_time_ns=BASE).launch(0, 4, correlation=7)
    other = Trace(rank=1, base_time_ns=BASE).kernel(GEMM, 100, 5, correlation=7)
    files = [one.write(tmp_path / "rank0.json"), other.write(tmp_path / "rank1.json")]
    assert launch_of(load(files)) == [None]


def test_ranks_that_share_a_trace_id_are_still_two_runs(tmp_path: Path) -> None:
    one = Trace(rank=0, base_time_ns=BASE, trace_id="job").launch(0, 4, correlation=7)
    other = Trace(rank=1, base_time_ns=BASE, trace_id="job").kernel(GEMM, 100, 5, correlation=7)
    files = [one.write(tmp_path / "rank0.json"), other.write(tmp_path / "rank1.json")]
    assert launch_of(load(files)) == [None]


def test_the_operator_is_the_innermost_around_the_launch(tmp_path: Path) -> None:
    trace = Trace().op("aten::linear", 0, 50).op("aten::addmm", 5, 20).op("aten::add", 60, 20)
    trace.launch(10, 4, correlation=1).kernel(GEMM, 100, 5, correlation=1)
    trace.launch(30, 4, correlation=2).kernel(GEMM, 110, 5, correlation=2)
    trace.launch(90, 4, correlation=3).kernel(GEMM, 120, 5, correlation=3)
    capture = linked(trace, tmp_path)
    assert op_of(capture) == ["aten::addmm", "aten::linear", None]
    parents = dict(
        zip(
            capture["op"]["name"].to_pylist(),
            capture["op"]["parent_op_id"].to_pylist(),
            strict=True,
        )
    )
    assert parents["aten::linear"] is None
    assert capture["op"]["name"].to_pylist()[parents["aten::addmm"]] == "aten::linear"


def test_operators_of_another_thread_are_not_around_the_launch(tmp_path: Path) -> None:
    trace = Trace().op("aten::linear", 0, 50, tid=200)
    trace.launch(10, 4, correlation=1).kernel(GEMM, 100, 5, correlation=1)
    assert op_of(linked(trace, tmp_path)) == [None]


def test_without_a_launch_the_external_id_names_the_operator(tmp_path: Path) -> None:
    trace = Trace().op("aten::linear", 0, 50, external_id=5)
    trace.kernel(GEMM, 100, 5, external_id=5)
    assert op_of(linked(trace, tmp_path)) == ["aten::linear"]


def test_the_device_is_looked_up_in_the_catalogue(tmp_path: Path) -> None:
    found = linked(Trace().kernel(GEMM, 0, 1), tmp_path)["device"].to_pylist()
    assert [row["hardware"] for row in found] == ["h100-sxm5-80gb"]
    unknown = linked(Trace(device_name="No Such Chip 9000").kernel(GEMM, 0, 1), tmp_path)
    assert unknown["device"]["hardware"].to_pylist() == [None]
