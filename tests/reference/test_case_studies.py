"""What docs/case-studies.md quotes is what `explain` and `compare` say of the same captures.

Measured times are held to a thousandth, what a replay or a model estimates to a fifth: a better replay may
say something else, and the page is to be read again when it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from captures import facts, funnel_row, idle_percent

from tokenpath.api import compare, explain
from tokenpath.core.finding import Finding
from tokenpath.core.report import Report

MEASURED = 1e-3
"""Relative tolerance of what was measured."""
ESTIMATED = 0.2
"""Relative tolerance of what a replay or a model estimates."""

SGLANG = (
    "sglang_decode/sglang_Qwen3-8B_decode",
    "sglang_prefilldecode/sglang_Qwen3-8B_prefilldecode",
)


def report_of(*files: Path) -> Report:
    """The report of these files together."""
    return explain(list(files)).report


def ms(report: Report, key: str) -> float:
    """A row of the funnel, in milliseconds."""
    return funnel_row(report, key).duration_ns / 1e6


def finding_of(report: Report, code: str) -> Finding:
    """The only finding of this code."""
    (found,) = [finding for finding in report.findings if finding.code == code]
    return found


def gain_ms(report: Report, code: str) -> float:
    """What a finding's fix brings, in milliseconds."""
    gain_ns = finding_of(report, code).gain_ns
    assert gain_ns is not None
    return gain_ns / 1e6


def test_piecewise_graphs(traces: Path) -> None:
    report = report_of(traces / "vllm_tracemap/1_h100_1000isl_10osl_32con.pt.trace.json.gz")
    assert ms(report, "gemm") == pytest.approx(177.20, rel=MEASURED)
    assert ms(report, "idle") == pytest.approx(28.49, rel=MEASURED)
    assert idle_percent(report) == pytest.approx(10.877, rel=MEASURED)
    assert gain_ms(report, "launch-bound") == pytest.approx(12.83, rel=ESTIMATED)


def test_a_capture_that_lies(traces: Path) -> None:
    decode, extend = (traces / f"tracelens/inference/{name}.json.gz" for name in SGLANG)
    alone = report_of(decode)
    assert idle_percent(alone) == pytest.approx(6.52, rel=MEASURED)
    assert facts(alone)["whole_file"]["span_ns"] == pytest.approx(473.75e6, rel=MEASURED)
    both = report_of(decode, extend)
    (proof,) = [note.sentence for note in both.notes if "proven" in note.sentence]
    assert "463.30 ms" in proof
    assert "99.996%" in proof


def test_a_known_fix(traces: Path) -> None:
    none, four = (
        next((traces / f"kineto/resnet50_num_workers_{count}").glob("*.json.gz"))
        for count in (0, 4)
    )
    assert gain_ms(report_of(none), "data-starved") == pytest.approx(284.41, rel=MEASURED)
    answer = compare([none], [four]).report.answer
    assert "194.93 ms less" in " ".join(answer)


def test_the_idle_rank_is_late(dlrm: Sequence[Path]) -> None:
    report = report_of(*dlrm)
    assert ms(report, "idle") == pytest.approx(61.41, rel=MEASURED)
    assert ms(report, "compute") == pytest.approx(8.87, rel=MEASURED)
    (arrivals,) = [table for table in report.tables if table.key == "arrivals"]
    keys = [column.key for column in arrivals.columns]
    first = dict(zip(keys, arrivals.rows[0], strict=True))
    assert first["rank"] == "rank 7"
    assert first["caused_ns"] == pytest.approx(8.98e6, rel=MEASURED)


def test_overload_that_is_a_setting(reference_data: Path) -> None:
    load = reference_data / "engine" / "vllm-cpu" / "load"
    report = report_of(load / "p40.steps.jsonl.gz", load / "p40.requests.csv")
    overload: Any = finding_of(report, "overload").details
    assert overload["load"] == pytest.approx(1.51, rel=ESTIMATED)
    assert overload["load_without_limits"] == pytest.approx(0.96, rel=ESTIMATED)
    assert overload["waited_ns_by_limit"]["kv"] == pytest.approx(4.44e9, rel=ESTIMATED)
    storm = finding_of(report, "preemption-storm").details
    assert (storm["num_preempted"], storm["recomputed_tokens"]) == (69, 6867)


def test_out_of_memory_in_the_loss(traces: Path) -> None:
    report = report_of(traces / "memory/rank0_memory_snapshot.pickle")
    details: Any = finding_of(report, "out-of-memory").details
    assert details["requested_bytes"] == 8192 * 128_256 * 4
    assert details["bytes_by_use"]["free"] == pytest.approx(0.79 * 2**30, rel=0.01)
