"""Parts of collectives across ranks, and the clocks of their hosts, against ground truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpath.capture.capture import Capture, build_table
from tokenpath.capture.validate import validate
from tokenpath.stitch.clocks import host_clocks
from tokenpath.stitch.collectives import match_collectives, op_of_kernel, with_collectives


def sources(hosts: list[str | None]) -> Any:
    size = len(hosts)
    return build_table(
        "source",
        {
            "path": ["f"] * size,
            "format": ["x"] * size,
            "reader_version": [1] * size,
            "num_bytes": [1] * size,
            "clock_offset_ns": [0] * size,
            "clock": ["epoch"] * size,
            "state": ["measured"] * size,
            "num_events": [0] * size,
            "num_skipped": [0] * size,
            "rank": list(range(size)),
            "host": hosts,
        },
    )


def capture_of(rows: list[dict[str, Any]], hosts: list[str | None]) -> Capture:
    columns = ("source_id", "op", "group", "group_size", "sequence", "payload_bytes")
    columns += ("start_ns", "end_ns")
    table = {name: [row.get(name) for row in rows] for name in columns}
    return Capture({"source": sources(hosts), "collective": build_table("collective", table)})


def truth(
    seed: int, ranks: int, num: int, *, sequence: bool, groups: int = 2
) -> tuple[list[dict[str, Any]], list[int]]:
    """Parts of random collectives in a random order, and which collective each belongs to."""
    rng = np.random.default_rng(seed)
    rows, which = [], []
    at = 10**15
    for number in range(num):
        # A group's collectives run one after the other on each rank.
        at += int(rng.integers(2 * 10**5, 10**6))
        group = int(rng.integers(groups))
        op = ("allreduce", "allgather")[int(rng.integers(2))]
        end = at + int(rng.integers(1, 10**5)) + 10**5
        for rank in range(ranks):
            rows.append(
                {
                    "source_id": rank,
                    "op": op,
                    "group": str(group),
                    "group_size": ranks,
                    "sequence": number if sequence else None,
                    "payload_bytes": 4096,
                    "start_ns": at + int(rng.integers(0, 10**5)),
                    "end_ns": end + int(rng.integers(0, 500)),
                }
            )
            which.append(number)
    order = rng.permutation(len(rows))
    return [rows[at] for at in order], [which[at] for at in order]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 12), st.booleans())
def test_matches_are_the_collectives(seed: int, ranks: int, num: int, sequence: bool) -> None:
    rows, which = truth(seed, ranks, num, sequence=sequence)
    matched = match_collectives(capture_of(rows, [None] * ranks))
    validate(matched)
    found: dict[int, set[int]] = {}
    for number, collective in zip(matched["collective"]["match"].to_pylist(), which, strict=True):
        found.setdefault(number, set()).add(collective)
    assert None not in found
    assert all(len(ids) == 1 for ids in found.values())
    assert len(found) == num
    by = set(matched["collective"]["linked_by"].to_pylist())
    assert by == {"sequence" if sequence else "order"}


def test_a_rank_that_lacks_one_is_not_matched_by_order() -> None:
    rows, which = truth(3, 3, 8, sequence=False, groups=1)
    lost = next(at for at, row in enumerate(rows) if row["source_id"] == 1)
    op = rows[lost]["op"]
    kept = [row for at, row in enumerate(rows) if at != lost]
    assert len(which) == len(kept) + 1
    table = match_collectives(capture_of(kept, [None] * 3))["collective"]
    for row_op, number in zip(table["op"].to_pylist(), table["match"].to_pylist(), strict=True):
        assert (number is None) == (row_op == op)


def test_by_sequence_a_lost_part_costs_only_itself() -> None:
    rows, _ = truth(3, 3, 8, sequence=True)
    table = match_collectives(capture_of(rows[1:], [None] * 3))["collective"]
    assert None not in table["match"].to_pylist()


@pytest.mark.parametrize("change", [{"group_size": 2}, {"source_id": 0}])
def test_what_cannot_be_one_collective_is_not_matched(change: dict[str, Any]) -> None:
    """More ranks than the group has; one rank twice."""
    rows = [
        {"source_id": rank, "op": "allreduce", "group": "0", "group_size": 3, "sequence": 5}
        | {"start_ns": 1, "end_ns": 2}
        | change
        for rank in range(3)
    ]
    assert (
        match_collectives(capture_of(rows, [None] * 3))["collective"]["match"].to_pylist()
        == [None] * 3
    )


def test_one_source_has_nothing_to_match() -> None:
    rows, _ = truth(1, 1, 3, sequence=True)
    capture = capture_of(rows, [None])
    assert match_collectives(capture) is capture


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)", "allreduce"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t", "allgather"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "sendrecv"),
        ("ncclDevKernel_ReduceScatter_Sum_f32", "reduce_scatter"),
        ("ncclDevKernel_Reduce_Sum_f32", "reduce"),
        ("void vllm::cross_device_reduce_1stage<bf16, 4>", "allreduce"),
        ("deep_ep::internode::dispatch<false>", "dispatch"),
        ("mystery", "other"),
    ],
)
def test_operations_of_kernel_names(name: str, op: str) -> None:
    assert op_of_kernel(name) == op


def test_communication_kernels_without_a_record_get_one() -> None:
    kernels = {
        "source_id": [0, 1, 0],
        "device_id": [0, 1, 0],
        "stream_id": [1, 1, 1],
        "start_ns": [10, 11, 30],
        "end_ns": [20, 20, 40],
        "name": ["ncclDevKernel_AllReduce", "ncclDevKernel_AllReduce", "gemm"],
        "kind": ["communication", "communication", "compute"],
        "family": ["communication", "communication", "gemm"],
    }
    capture = Capture(
        {
            "source": sources([None, None]),
            "device": build_table("device", {"source_id": [0, 1], "index": [0, 0]}),
            "kernel": build_table("kernel", kernels),
        }
    )
    table = with_collectives(capture)["collective"]
    assert table["op"].to_pylist() == ["allreduce"] * 2
    assert table["kernel_id"].to_pylist() == [0, 1]
    assert table["match"].to_pylist() == [0, 0]
    assert with_collectives(with_collectives(capture))["collective"].equals(table)


def skewed(
    seed: int, offsets: list[int], drifts: list[float], num: int, *, span_ns: int
) -> Capture:
    """Two ranks a host; every collective ends within a microsecond everywhere, on clocks that differ."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(num):
        at = 10**15 + span_ns * number // num
        for rank in range(2 * len(offsets)):
            host = rank // 2
            end = at + int(rng.integers(0, 1000))
            shown = end + offsets[host] + round(drifts[host] * 1e-6 * (end - 10**15))
            rows.append(
                {"source_id": rank, "op": "allreduce", "group": "0", "sequence": number}
                | {"start_ns": shown - int(rng.integers(10**4, 10**7)), "end_ns": shown}
            )
    hosts = [f"host-{rank // 2}" for rank in range(2 * len(offsets))]
    return match_collectives(capture_of(rows, hosts))


def test_offsets_of_hosts_are_found() -> None:
    clocks = host_clocks(skewed(1, [0, 3_000_000, -70_000], [0, 0, 0], 40, span_ns=10**8))
    assert [clock.sources for clock in clocks] == [[0, 1], [2, 3], [4, 5]]
    assert [clock.component for clock in clocks] == [0, 0, 0]
    for clock, offset in zip(clocks, [0, 3_000_000, -70_000], strict=True):
        assert abs(clock.offset_ns - offset) < 500
        assert clock.residual_ns < 1000
        assert clock.drift_ppm is None
        assert clock.num_parts == 80


def test_drift_is_found_and_corrected() -> None:
    drifts = [0.0, 12.0, -30.0]
    capture = skewed(2, [0, 5_000_000, 0], drifts, 400, span_ns=60 * 10**9)
    clocks = host_clocks(capture)
    ends = capture.int64("collective", "end_ns")
    source = capture.ids("collective", "source_id")
    match = capture.int64("collective", "match")
    corrected = ends.copy()
    for clock, drift in zip(clocks, drifts, strict=True):
        assert clock.drift_ppm == pytest.approx(drift, abs=0.2)
        assert clock.residual_ns < 2000
        mine = np.isin(source, clock.sources)
        corrected[mine] = clock.corrected(ends[mine])
    spread = [np.ptp(corrected[match == number]) for number in np.unique(match)]
    assert np.median(spread) < 10_000


def test_hosts_that_never_met_cannot_be_compared() -> None:
    rows = [
        {"source_id": rank, "op": "allreduce", "group": str(rank // 2), "sequence": number}
        | {"start_ns": number, "end_ns": 1000 * number + rank}
        for number in range(30)
        for rank in range(4)
    ]
    clocks = host_clocks(match_collectives(capture_of(rows, ["a", "b", "c", "d"])))
    assert [clock.component for clock in clocks] == [0, 0, 2, 2]


def test_one_host_needs_no_clock() -> None:
    rows, _ = truth(1, 3, 5, sequence=True)
    assert host_clocks(match_collectives(capture_of(rows, ["a"] * 3))) == []
    assert host_clocks(Capture({})) == []
