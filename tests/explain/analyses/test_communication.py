"""Collectives against their link: slow ones, small ones, late ones, ones that slow compute down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from explain.analyses.rank_programs import Rows, report
from tokenpath.api import explain
from tokenpath.core.finding import Finding, Kind
from tokenpath.core.report import Report
from tokenpath.explain.analyses.collective_model import expected, peak_of

H100 = "h100-sxm5-80gb"
CODES = (
    *("slow-link", "small-messages", "late-communication", "communication-contention"),
    *("exposed-communication", "transfer-or-waiting"),
)


def found(report: Report) -> dict[str, Finding]:
    return {finding.code: finding for finding in report.findings if finding.code in CODES}


def healthy_ns(num_bytes: int, ranks: int = 2) -> int:
    """In the middle of what the model expects."""
    peak = peak_of(H100, ranks)
    assert peak is not None
    model = expected("allreduce", num_bytes, ranks, peak.bytes_per_s, peak.has_switch)
    assert model is not None
    assert model.low_ns < model.typical_ns < model.high_ns
    return round(model.typical_ns)


def tensor_parallel(factor: float, sizes: tuple[int, ...], num_ranks: int = 2) -> Rows:
    """Compute and an all-reduce by turns on one stream, the reductions `factor` times as long as usual."""
    rows = Rows()
    at = 0
    for number in range(40):
        size = sizes[number % len(sizes)]
        took = round(factor * healthy_ns(size, num_ranks))
        for rank in range(num_ranks):
            rows.work(rank, at, 100_000, "gemm")
            kernel = rows.work(rank, at + 101_000, took, "communication", name="all_reduce")
            rows.collect(rank, kernel, number, payload_bytes=size, group="tp", group_size=num_ranks)
        at += 102_000 + took
    return rows


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_healthy_reductions_are_no_loss(num_ranks: int) -> None:
    shown = report(tensor_parallel(1.0, (4 << 20, 16 << 20), num_ranks), hardware=H100)
    claims = found(shown)
    assert set(claims) <= {"exposed-communication"}
    exposed = claims["exposed-communication"]
    # Compute needs what they bring, and they are as fast as they can be.
    assert exposed.gain_ns is not None
    assert exposed.share is not None
    assert exposed.gain_ns < 0.01 * (exposed.duration_ns or 0)
    assert exposed.gain_method == "estimated"
    assert exposed.share > 0.1


def test_a_slow_link_is_found_and_measured() -> None:
    claims = found(report(tensor_parallel(4.0, (4 << 20, 16 << 20)), hardware=H100))
    slow = claims["slow-link"]
    lost = 2 * 20 * 3 * (healthy_ns(4 << 20) + healthy_ns(16 << 20))
    assert slow.duration_ns == pytest.approx(lost, rel=0.02)
    assert slow.gain_interval_ns is not None
    low, high = slow.gain_interval_ns
    assert low < lost < high
    assert slow.details["times_expected"] == pytest.approx(4, rel=0.02)
    # What is over the expected time is claimed once.
    assert claims["exposed-communication"].gain_ns == 0


def test_transfers_of_unknown_size_share_a_slow_link() -> None:
    rows = tensor_parallel(4.0, (4 << 20, 16 << 20))
    for row in rows.collective[40:]:
        row["payload_bytes"] = None
    slow = found(report(rows, hardware=H100))["slow-link"]
    all_known = 2 * 20 * 3 * (healthy_ns(4 << 20) + healthy_ns(16 << 20))
    # Of each transfer's fixed part nothing is claimed, so it is a little less.
    assert 0.85 * all_known < (slow.gain_ns or 0) < all_known


def test_small_reductions_say_nothing_about_the_link() -> None:
    assert "slow-link" not in found(report(tensor_parallel(4.0, (8 << 10,)), hardware=H100))


def test_without_a_size_nothing_is_judged() -> None:
    rows = tensor_parallel(6.0, (4 << 20,))
    for row in rows.collective:
        row["payload_bytes"] = None
    claims = found(report(rows, hardware=H100))
    assert "slow-link" not in claims
    assert claims["exposed-communication"].gain_method == "ceiling"


def test_one_rank_alone_cannot_tell_waiting_from_transfer() -> None:
    rows = Rows()
    at = 0
    for number in range(10):
        rows.work(0, at, 100_000, "gemm")
        took = 200_000 + 400_000 * (number % 3)
        kernel = rows.work(0, at + 101_000, took, "communication", name="all_reduce")
        rows.collect(0, kernel, None, payload_bytes=4 << 20, group="dp", group_size=8)
        at += 102_000 + took
    claims = found(report(rows, hardware=H100))
    assert "slow-link" not in claims
    assert claims["transfer-or-waiting"].kind is Kind.ABSTENTION
    assert "all ranks" in claims["transfer-or-waiting"].fix


def messages(count: int, step_bytes: int, between: bool = False) -> Rows:
    """Each step reduces `step_bytes` in `count` messages, back to back or with compute between them."""
    rows = Rows()
    at = 0
    for step in range(6):
        size = step_bytes // count
        took = healthy_ns(size)
        for rank in range(2):
            rows.work(rank, at, 400_000, "gemm")
        at += 401_000
        for number in range(count):
            for rank in range(2):
                kernel = rows.work(rank, at, took, "communication", name="all_reduce")
                rows.collect(
                    rank, kernel, step * count + number,
                    payload_bytes=size, group="dp", group_size=2,
                )  # fmt: skip
                if between:
                    rows.work(rank, at + took + 500, 5_000, "norm")
            at += took + (6_000 if between else 500)
    return rows


def test_many_small_messages_in_a_row() -> None:
    claims = found(report(messages(32, 4 << 20), hardware=H100))
    small = claims["small-messages"]
    saved = 2 * 6 * (32 * healthy_ns((4 << 20) // 32) - healthy_ns(4 << 20))
    assert small.gain_ns == pytest.approx(saved, rel=0.15)


def test_pairs_of_messages_are_no_run() -> None:
    assert "small-messages" not in found(report(messages(2, 256 << 10), hardware=H100))


def test_three_in_a_row_for_one_of_unknown_size() -> None:
    rows = messages(3, 96 << 10)
    for row in rows.collective:
        row["payload_bytes"] = None
    assert "small-messages" in found(report(rows, hardware=H100))


def test_messages_that_compute_separates_cannot_be_merged() -> None:
    assert "small-messages" not in found(report(messages(32, 4 << 20, between=True), hardware=H100))


def test_few_large_messages_are_fine() -> None:
    assert "small-messages" not in found(report(messages(4, 256 << 20), hardware=H100))


def training(late: bool, num_buckets: int = 8) -> Rows:
    """Steps of forward, backward with or without reductions beside it, and an optimiser."""
    rows = Rows()
    at = 0
    for _ in range(5):
        rows.work(0, at, 1_000_000, "gemm")
        backward = at + 1_000_000
        for number in range(num_buckets):
            rows.work(0, backward + number * 250_000, 250_000, "gemm")
        end = backward + num_buckets * 250_000
        for number in range(num_buckets):
            start = end + 1_000 + number * 201_000 if late else backward + (number + 1) * 250_000
            kernel = rows.work(0, start, 200_000, "communication", name="all_reduce", stream=20)
            rows.collect(0, kernel, None, group="dp", op="allreduce")
        at = (start if late else end) + 201_000
        rows.work(0, at, 100_000, "optimizer")
        at += 101_000
    return rows


def test_gradients_reduced_after_the_backward_pass() -> None:
    claims = found(report(training(late=True)))
    late = claims["late-communication"]
    assert late.duration_ns == 5 * 8 * 200_000
    assert late.gain_ns == 5 * 7 * 200_000
    assert "late-communication" not in found(report(training(late=False)))


def beside(factor: float) -> Rows:
    """Kernels alone, then the same beside a collective."""
    rows = Rows()
    at = 0
    for _ in range(10):
        rows.work(0, at, 50_000, "gemm")
        slowed = round(50_000 * factor)
        rows.work(0, at + 50_000, slowed, "gemm")
        rows.work(0, at + 50_000, slowed, "communication", name="all_reduce", stream=20)
        at += 50_000 + slowed
    return rows


def test_compute_that_communication_slows_down() -> None:
    claims = found(report(beside(1.4)))
    slowed = claims["communication-contention"]
    assert slowed.duration_ns == 10 * 20_000
    assert slowed.value == pytest.approx(1.4)
    assert not found(report(beside(1.04)))


REAL: tuple[tuple[str, frozenset[str]], ...] = (
    ("traces/vllm_tracemap", frozenset()),
    ("traces/deepseek", frozenset()),
    ("traces/hta/df_index_resolver/df_index_resolver.json.gz", frozenset()),
    (
        "traces/tracelens/mi300/resnet_act_checkpoint.json.gz",
        frozenset({"transfer-or-waiting"}),
    ),
)


@pytest.mark.parametrize(("path", "codes"), REAL, ids=lambda part: str(part)[-20:])
def test_real_traces_raise_no_false_alarm(
    path: str, codes: frozenset[str], reference_data: Path
) -> None:
    shown: Any = explain([reference_data / path]).report
    claims: set[str] = set(found(shown))
    assert claims - {"exposed-communication"} == codes


@pytest.mark.parametrize(
    ("kib", "measured_us"), [(64, 19), (1024, 28), (4096, 53), (16384, 121), (32768, 195)]
)
def test_the_model_holds_published_measurements(kib: int, measured_us: int) -> None:
    """All-reduces over eight devices with NVLink of 450 GB/s, by nccl-tests; see the model's sources."""
    model = expected("allreduce", kib << 10, 8, 450e9, True)
    assert model is not None
    assert model.low_ns < measured_us * 1000 < model.high_ns
    assert model.typical_ns == pytest.approx(measured_us * 1000, rel=0.35)


def test_reductions_in_line_behind_one_in_time_are_not_late() -> None:
    """The link is the limit: buckets were asked for during the backward pass and queue up."""
    rows = Rows()
    at = 0
    for _ in range(5):
        rows.work(0, at, 1_000_000, "gemm")
        rows.work(0, at + 1_000_000, 2_000_000, "gemm")
        for number in range(8):
            start = at + 1_500_000 + number * 401_000
            kernel = rows.work(0, start, 400_000, "communication", name="all_reduce", stream=20)
            rows.collect(0, kernel, None, group="dp", op="allreduce")
        at = start + 401_000
        rows.work(0, at, 100_000, "optimizer")
        at += 101_000
    assert "late-communication" not in found(report(rows))


def test_links_to_single_peers_are_not_all_used_by_two() -> None:
    whole, pair = peak_of("mi300x", 8), peak_of("mi300x", 2)
    assert whole is not None
    assert pair is not None
    assert whole.bytes_per_s == 7 * pair.bytes_per_s
    assert peak_of(H100, 2) == peak_of(H100, 8)
    assert peak_of("h100-nvl-94gb", 4) is None
    assert peak_of("a100-pcie-80gb", 2) is None


def test_small_reductions_by_a_general_library_are_pointed_out() -> None:
    rows = tensor_parallel(1.5, (16 << 10,), 8)
    (table,) = [t for t in report(rows, hardware=H100).tables if t.key == "collectives"]
    assert "one-shot" in str(table.rows[0][-1])
