"""Who has the device when several streams run at once: compute, then memset, communication, copies."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from explaining import CUSTOM, DEEPEP, GEMM, NCCL, absent, device, report_of, rows_of, window_of

from ingest.traces import Trace


def four_streams() -> Trace:
    """0..100 compute, 50..150 communication, 140..160 memset, 90..180 copy."""
    trace = Trace().launched(GEMM, launch_us=0, start_us=10, dur_us=100)
    trace.launched(NCCL, launch_us=1, start_us=60, dur_us=100, stream=20)
    trace.memset(150, 20).memcpy(100, 90, stream=30)
    return trace


def test_every_nanosecond_has_one_owner(tmp_path: Path) -> None:
    report = report_of(four_streams(), tmp_path)
    found = window_of(report)
    assert found["span_ns"] == found["busy_ns"] == 180_000
    assert found["compute_ns"] == 100_000
    assert found["memset_ns"] == 20_000
    assert (found["communication_ns"], found["exposed_communication_ns"]) == (100_000, 40_000)
    assert (found["memcpy_ns"], found["exposed_memcpy_ns"]) == (90_000, 20_000)
    rows = rows_of(report)
    parts = ("compute", "exposed_communication", "exposed_memcpy", "memset")
    assert sum(rows[part] for part in parts) == rows["busy"] == 180_000
    assert rows["idle"] == 0


@pytest.mark.parametrize(
    ("start_us", "exposed_ns"),
    [(20, 0), (0, 10_000), (115, 25_000), (110, 20_000), (300, 30_000)],
    ids=["inside", "before", "after", "touching", "far away"],
)
def test_communication_is_exposed_where_no_compute_runs(
    start_us: int, exposed_ns: int, tmp_path: Path
) -> None:
    dur_us = {20: 30, 0: 40, 115: 25, 110: 20, 300: 30}[start_us]
    trace = Trace().kernel(GEMM, 10, 100).kernel(NCCL, start_us, dur_us, stream=20)
    found = window_of(report_of(trace, tmp_path))
    assert found["communication_ns"] == dur_us * 1000
    assert found["exposed_communication_ns"] == exposed_ns


@pytest.mark.parametrize("name", [NCCL, CUSTOM, DEEPEP])
def test_communication_is_known_by_more_than_one_name(name: str, tmp_path: Path) -> None:
    trace = Trace().kernel(GEMM, 0, 100).kernel(name, 50, 100, stream=20)
    found = window_of(report_of(trace, tmp_path))
    assert (found["communication_ns"], found["exposed_communication_ns"]) == (100_000, 50_000)
    assert found["compute_ns"] == 100_000


def test_the_dispatcher_is_not_called_network(tmp_path: Path) -> None:
    trace = Trace().kernel(GEMM, 0, 100).kernel(DEEPEP, 50, 100, stream=20)
    report = report_of(trace, tmp_path)
    (finding,) = [f for f in report.findings if f.code == "dispatcher-communication"]
    assert finding.duration_ns == 100_000
    assert finding.gain_ns is None
    nccl = report_of(Trace().kernel(GEMM, 0, 100).kernel(NCCL, 50, 100), tmp_path)
    assert not [f for f in nccl.findings if f.code == "dispatcher-communication"]


def test_compute_of_two_families_at_once_counts_once(tmp_path: Path) -> None:
    softmax = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float>()"
    trace = Trace().kernel(GEMM, 0, 100).kernel(softmax, 50, 90, stream=8)
    report = report_of(trace, tmp_path)
    families = window_of(report)["compute_ns_by_family"]
    # The family with more time in all has the nanoseconds that both run in.
    assert families == {"gemm": 100_000, "softmax": 40_000}
    assert window_of(report)["compute_ns"] == 140_000


def test_the_same_stream_twice_at_once_is_busy_once(tmp_path: Path) -> None:
    trace = Trace().kernel(GEMM, 0, 100).kernel(GEMM, 0, 100).kernel(GEMM, 20, 30)
    found = window_of(report_of(trace, tmp_path))
    assert found["busy_ns"] == found["span_ns"] == 100_000


def test_nanoseconds_survive(tmp_path: Path) -> None:
    """Absolute epoch microseconds with three decimals: a float64 holds only quarters of them."""
    at = Decimal("1712209971234567.891")
    trace = Trace().kernel(GEMM, at, Decimal("1.001")).kernel(GEMM, at + 2, Decimal("0.333"))
    found = window_of(report_of(trace, tmp_path))
    assert found["span_ns"] == 2_333
    assert found["busy_ns"] == 1_001 + 333


def test_a_base_time_moves_nothing(tmp_path: Path) -> None:
    def build(**more: int) -> Trace:
        return Trace(**more).kernel(GEMM, Decimal("7.123"), 5).kernel(GEMM, 20, Decimal("0.5"))

    plain = window_of(report_of(build(), tmp_path))
    based = window_of(report_of(build(base_time_ns=1_767_189_312_000_000_000), tmp_path))
    assert based["start_ns"] == plain["start_ns"] + 1_767_189_312_000_000_000
    assert {k: v for k, v in based.items() if k != "start_ns"} == {
        k: v for k, v in plain.items() if k != "start_ns"
    }


def test_work_without_length_neither_fills_nor_ends_a_gap(tmp_path: Path) -> None:
    trace = Trace().kernel(GEMM, 0, 10).kernel(GEMM, 50, 0).kernel(GEMM, 110, 10)
    report = report_of(trace, tmp_path)
    assert window_of(report)["busy_ns"] == 20_000
    assert sum(absent(report, "idle").values()) == 100_000
    (row,) = [row for row in rows_of(report).items() if row[0] == "launch_not_in_file"]
    assert row[1] == 100_000
    assert device(report)["whole_file"]["num_kernels"] == 3


def test_only_work_without_length(tmp_path: Path) -> None:
    for name in (GEMM, NCCL, DEEPEP):
        report = report_of(Trace().kernel(name, 50, 0), tmp_path)
        assert window_of(report)["span_ns"] == 0
        assert report.answer == ("The device work has no length: nothing to explain.",)


def test_several_devices_in_one_file_are_never_mixed(tmp_path: Path) -> None:
    trace = Trace().kernel(GEMM, 0, 10).kernel(GEMM, 90, 10)
    trace.kernel(NCCL, 10, 80, device=1).kernel(GEMM, 100, 20, device=1)
    report = report_of(trace, tmp_path)
    zero, one = window_of(report, 0), window_of(report, 1)
    assert (zero["span_ns"], zero["busy_ns"], zero["communication_ns"]) == (100_000, 20_000, 0)
    assert (one["span_ns"], one["busy_ns"], one["communication_ns"]) == (110_000, 100_000, 80_000)
    rows = rows_of(report)
    assert (rows["wall"], rows["busy"], rows["idle"]) == (210_000, 120_000, 90_000)
    assert [funnel.title for funnel in report.device_funnels] == ["GPU 0", "GPU 1"]
    assert [funnel.wall_ns for funnel in report.device_funnels] == [100_000, 110_000]
    assert all(funnel.residuals() == {} for funnel in report.device_funnels)
    assert report.answer[0].startswith("The 2 GPUs waited 42.9 % of the time")
