"""Captures split into files at host markers: a gap that is suspected, and proven by the other file."""

from __future__ import annotations

from pathlib import Path

import pytest
from explaining import GEMM, NCCL, codes, device, notes, report_of, rows_of, window_of

from ingest.traces import Trace
from tokenpath.api import explain
from tokenpath.core.report import Severity, Trust

BASE = 1_700_000_000_000_000_000


def decode(trace_id: str | None = "run") -> Trace:
    """A stray kernel, 10 ms of nothing, then the decode step; all of it launched within 50 us."""
    trace = Trace(trace_id=trace_id, base_time_ns=BASE)
    trace.launched(GEMM, launch_us=0, start_us=10, dur_us=5)
    for number in range(20):
        trace.launched(GEMM, launch_us=20 + number, start_us=10_015 + 10 * number, dur_us=9)
    return trace


def prefill(dur_us: int = 9_900, trace_id: str | None = "run") -> Trace:
    """The kernels that ran meanwhile, cut away because their launches lie before the marker."""
    trace = Trace(trace_id=trace_id, base_time_ns=BASE)
    return trace.launched(GEMM, launch_us=-500, start_us=50, dur_us=dur_us)


def test_the_gap_is_suspected_and_left_out(tmp_path: Path) -> None:
    report = report_of(decode(), tmp_path)
    (note,) = notes(report, "split-artefact")
    assert note.severity is Severity.WARNING
    assert note.details["duration_ns"] == 10_000_000
    assert (note.details["is_proven"], note.details["is_left_out"]) == (False, True)
    assert report.window is not None
    assert report.window.name == "without the split artefact"
    # 20 kernels of 9 us with 1 us between them.
    assert (window_of(report)["span_ns"], window_of(report)["busy_ns"]) == (199_000, 180_000)
    assert device(report)["whole_file"]["span_ns"] == 10_204_000
    assert rows_of(report)["idle"] == 19_000


def test_the_sibling_file_proves_it(tmp_path: Path) -> None:
    files = [
        decode().write(tmp_path / "TP-0-DECODE.json"),
        prefill().write(tmp_path / "TP-0-EXTEND.json"),
    ]
    for order in (files, files[::-1]):
        report = explain(order).report
        (note,) = notes(report, "split-artefact")
        assert note.severity is Severity.INFO
        assert note.details["is_proven"] is True
        assert note.details["duration_ns"] == 10_000_000
        assert note.details["covered_share"] == 0.99
        assert "99.000%" in note.sentence
        assert report.trust is not Trust.UNUSABLE
        # One device, nothing left out: 10..10214 us, of which 15..50, 9950..10015 and 19 us idle.
        assert window_of(report)["span_ns"] == 10_204_000
        assert rows_of(report)["idle"] == (35 + 65 + 19) * 1000


def test_a_sibling_that_covers_little_proves_nothing(tmp_path: Path) -> None:
    files = [decode().write(tmp_path / "a.json"), prefill(4_000).write(tmp_path / "b.json")]
    assert not [
        note for note in notes(explain(files).report, "split-artefact") if note.details["is_proven"]
    ]


@pytest.mark.parametrize("trace_ids", [("run", "other"), (None, None)])
def test_a_file_of_another_run_proves_nothing(
    trace_ids: tuple[str | None, str | None], tmp_path: Path
) -> None:
    files = [
        decode(trace_ids[0]).write(tmp_path / "a.json"),
        prefill(trace_id=trace_ids[1]).write(tmp_path / "b.json"),
    ]
    report = explain(files).report
    assert not [note for note in notes(report, "split-artefact") if note.details["is_proven"]]
    assert len(report.device_funnels) == 2


def test_events_that_both_parts_hold_count_once(tmp_path: Path) -> None:
    files = [decode().write(tmp_path / name) for name in ("a.json", "b.json")]
    one, both = explain(files[:1]).report, explain(files).report
    assert both.funnel == one.funnel
    assert device(both)["whole_file"] == device(one)["whole_file"]


def test_a_launch_in_one_part_and_its_kernel_in_the_other(tmp_path: Path) -> None:
    launches = Trace(trace_id="run", base_time_ns=BASE)
    launches.range("ProfilerStep#0", 0, 90)
    kernels = Trace(trace_id="run", base_time_ns=BASE)
    for number in range(3):
        launches.launch(10 * number, 4, correlation=number)
        kernels.kernel(GEMM, 100 + 10 * number, 8, correlation=number)
    files = [kernels.write(tmp_path / "a.json"), launches.write(tmp_path / "b.json")]
    result = explain(files)
    assert "launch-not-in-file" not in codes(result.report)
    assert "kernel-not-in-file" not in codes(result.report)
    assert result.capture["kernel"]["api_call_id"].null_count == 0
    assert result.capture["kernel"]["step_id"].to_pylist() == [0, 0, 0]


def test_a_long_gap_that_the_host_explains_is_real(tmp_path: Path) -> None:
    trace = Trace().launched(GEMM, launch_us=0, start_us=10, dur_us=5)
    trace.launched(GEMM, launch_us=10_000, start_us=10_015, dur_us=100)
    report = report_of(trace, tmp_path)
    assert "split-artefact" not in codes(report)
    assert rows_of(report)["host_untraced"] == 10_000_000


def test_a_long_gap_behind_a_long_collective_is_no_gap(tmp_path: Path) -> None:
    trace = Trace().launched(GEMM, launch_us=0, start_us=10, dur_us=5)
    trace.launched(NCCL, launch_us=5, start_us=15, dur_us=10_000, stream=20)
    trace.launched(GEMM, launch_us=8, start_us=10_020, dur_us=100)
    assert "split-artefact" not in codes(report_of(trace, tmp_path))


def test_a_gap_in_the_middle_of_the_work_is_named_and_stays_in(tmp_path: Path) -> None:
    trace = decode()
    trace.launched(GEMM, launch_us=1, start_us=15, dur_us=200)
    report = report_of(trace, tmp_path)
    (note,) = notes(report, "split-artefact")
    assert note.details["is_left_out"] is False
    assert report.window is not None
    assert report.window.name == "whole capture"
    assert window_of(report)["span_ns"] == 10_204_000
