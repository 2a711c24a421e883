"""Who is waited for, and why: host, device or load; not the victims, and nobody without need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from explain.analyses.rank_programs import Rows, program, report
from tokenpath.api import explain
from tokenpath.core.finding import Finding
from tokenpath.core.report import Report

CODES = ("straggler", "slow-device", "rank-imbalance")


def found(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.code in CODES]


def only(rows: Rows, ranks: Sequence[int] | None = None) -> Finding:
    (finding,) = found(report(rows, ranks=ranks))
    return finding


def late(slow: int) -> Callable[[int, int], int]:
    return lambda rank, step: 60_000 if rank == slow else 0


@pytest.mark.parametrize("num_ranks", [2, 3, 8])
def test_a_late_host_is_a_straggler(num_ranks: int) -> None:
    finding = only(program(num_ranks, host_ns=late(1)))
    assert finding.code == "straggler"
    assert finding.place["rank"] == "1"
    # Eleven collectives count: before the first nothing is known. Every device loses the delay.
    lost = 60_000 * 11 * num_ranks
    assert finding.gain_ns == pytest.approx(lost, rel=0.1)
    assert finding.part_of_ns["exposed-communication"] == pytest.approx(
        lost * (num_ranks - 1) / num_ranks, rel=0.1
    )
    assert finding.effort == "code"
    # Its own idle time, claimed by its cause, is this claim's too.
    assert finding.part_of_ns["launch-unknown"] == pytest.approx(lost / num_ranks, rel=0.1)


def test_clocks_that_differ_change_nothing() -> None:
    plain = only(program(host_ns=late(1)))
    skewed = only(program(host_ns=late(1), clock_ns=lambda rank: rank * 5_000_000))
    assert skewed.code == plain.code
    assert skewed.place == plain.place


def test_equal_work_that_takes_longer_is_a_slow_device() -> None:
    finding = only(program(speed=lambda rank, family: 1.3 if rank == 3 else 1.0))
    assert finding.code == "slow-device"
    assert finding.place["rank"] == "3"
    assert finding.details["equal_work_slowdown"] == pytest.approx(1.3, abs=0.02)
    assert finding.gain_ns == pytest.approx(4 * 11 * 4 * 0.3 * 40_000, rel=0.1)


def test_names_need_not_agree() -> None:
    rows = program(
        speed=lambda rank, family: 1.3 if rank == 3 else 1.0,
        name=lambda rank, family: f"{family}_of_rank_{rank}",
    )
    assert only(rows).code == "slow-device"


@pytest.mark.parametrize(
    "rows",
    [
        # Experts: the same grid, one family longer.
        program(speed=lambda rank, family: 2.0 if (rank, family) == (0, "moe") else 1.0),
        # Tokens: everything larger.
        program(
            speed=lambda rank, family: 1.5 if rank == 0 else 1.0,
            grid=lambda rank, family: 150 if rank == 0 else 100,
        ),
    ],
    ids=["experts", "tokens"],
)
def test_more_work_is_an_imbalance(rows: Rows) -> None:
    finding = only(rows)
    assert finding.code == "rank-imbalance"
    # Spread over the four ranks, a quarter of what was too much stays on each.
    assert finding.gain_ns is not None
    assert finding.duration_ns is not None
    assert finding.gain_ns <= 0.8 * finding.duration_ns
    assert finding.place["rank"] == "0"


def test_the_family_with_more_work_is_named() -> None:
    rows = program(speed=lambda rank, family: 2.0 if (rank, family) == (0, "moe") else 1.0)
    assert only(rows).place["family"] == "moe"


def test_grids_need_not_be_known() -> None:
    rows = program(speed=lambda rank, family: 1.3 if rank == 3 else 1.0)
    for row in rows.kernel[::3]:
        row["grid"] = None
    assert only(rows).place["rank"] == "3"


def test_ranks_may_be_permuted() -> None:
    rows = program(host_ns=late(1))
    finding = only(rows, ranks=[2, 3, 0, 1])
    assert finding.place["rank"] == "3"
    assert finding.gain_ns == only(rows).gain_ns


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_ranks_whose_collectives_do_not_match(num_ranks: int) -> None:
    rows = program(num_ranks, transfer_ns=60_000)
    for row in rows.collective:
        row["match"] = None
    shown = {finding.code for finding in report(rows).findings}
    assert ("unmatched-collectives" in shown) is (num_ranks > 1)


@pytest.mark.parametrize("num_ranks", [2, 8])
def test_noise_alone_names_nobody(num_ranks: int) -> None:
    delay = np.random.default_rng(1).exponential(10_000, (num_ranks, 40)).astype(int)
    jitter = program(num_ranks, 40, host_ns=lambda rank, step: int(delay[rank, step]))
    assert not found(report(jitter))


def test_a_victim_is_not_blamed() -> None:
    """Rank 1 waits for rank 0 in a group of two; rank 2 then waits for rank 1, and rank 0 is why."""
    rows = Rows()
    at = 0
    for step in range(10):
        late_ns = 100_000 if step else 0
        for rank, begin in ((0, at + late_ns), (1, at), (2, at)):
            rows.work(rank, begin + 1_000, 50_000, "gemm")
        first_end = at + late_ns + 61_000
        for rank, start in ((0, at + late_ns + 51_000), (1, at + 51_000)):
            row = rows.work(rank, start, first_end - start, "communication")
            rows.collect(rank, row, 2 * step)
        end = first_end + 10_000
        for rank, start in ((1, first_end + 500), (2, at + 52_000)):
            row = rows.work(rank, start, end - start, "communication")
            rows.collect(rank, row, 2 * step + 1)
        at = end
    finding = only(rows)
    assert finding.code == "straggler"
    assert finding.place["rank"] == "0"


def test_waiting_beside_compute_is_no_loss() -> None:
    rows = program(host_ns=late(1))
    for row in [*rows.kernel]:
        if row["family"] == "communication":
            length = row["end_ns"] - row["start_ns"]
            rows.work(row["source_id"], row["start_ns"], length, "gemm", stream=9)
    assert not found(report(rows))


def test_real_ranks_of_one_step(reference_data: Path, tmp_path: Path) -> None:
    """DLRM on eight V100s: the recordings begin 7 ms apart, which is nobody's fault."""
    import tarfile

    with tarfile.open(reference_data / "traces/param/dlrm_kineto_8ranks.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    report = explain([tmp_path / "dlrm_kineto"]).report
    assert not found(report), "eight collectives are too few to tell one rank from chance"
    (table,) = [table for table in report.tables if table.key == "arrivals"]
    assert table.rows[0][0] == "rank 7"


def test_some_kernels_of_a_family_longer_is_no_slow_device() -> None:
    """Experts as plain products: of the products only some have more to do."""
    rows = program(2, 30)
    for row in rows.kernel:
        if row["family"] in ("moe", "elementwise"):
            row["family"] = "gemm"
    slow = program(2, 30, speed=lambda rank, family: 2.0 if (rank, family) == (0, "moe") else 1.0)
    for row in slow.kernel:
        if row["family"] in ("moe", "elementwise"):
            row["family"] = "gemm"
    assert not found(report(rows))
    assert only(slow).code == "rank-imbalance"


def overlapped(slow: float = 1.0, host_ns: int = 0, num_ranks: int = 4) -> Rows:
    """Data parallel: eight buckets are reduced on a stream of their own while the backward pass goes on."""
    random = np.random.default_rng(3)
    rows, free = Rows(), 0
    for step in range(12):
        ready = np.zeros((num_ranks, 8), np.int64)
        for rank in range(num_ranks):
            at = free + 5_000 + (host_ns if rank == 2 and step else 0)
            for number in range(16):
                length = round(100_000 * random.normal(1, 0.005) * (slow if rank == 2 else 1.0))
                rows.work(rank, at, length, "gemm" if number % 2 else "norm")
                at += length
                if number >= 8:
                    ready[rank, number - 8] = at
        done = np.zeros(num_ranks, np.int64)
        for bucket in range(8):
            begin = np.maximum(ready[:, bucket], done)
            end = int(begin.max()) + 60_000
            for rank in range(num_ranks):
                start = int(begin[rank])
                row = rows.work(rank, start, end - start, "communication", stream=20)
                rows.collect(rank, row, 8 * step + bucket)
            done[:] = end
        free = int(done.max())
        for rank in range(num_ranks):
            rows.work(rank, free, 50_000, "optimizer")
        free += 50_000
    return rows


def test_a_late_host_behind_overlapped_reductions() -> None:
    """The waiting shows in the last buckets, beside which the late rank computes: still its host is why."""
    finding = only(overlapped(host_ns=300_000))
    assert (finding.code, finding.place["rank"]) == ("straggler", "2")
    assert finding.gain_ns == pytest.approx(4 * 11 * 300_000, rel=0.1)


def test_a_slow_device_behind_overlapped_reductions() -> None:
    finding = only(overlapped(slow=1.2))
    assert (finding.code, finding.place["rank"]) == ("slow-device", "2")
    assert finding.gain_ns == pytest.approx(4 * 12 * 16 * 20_000, rel=0.1)


def test_healthy_overlapped_reductions() -> None:
    assert not found(report(overlapped()))
