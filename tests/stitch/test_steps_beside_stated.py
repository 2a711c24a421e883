"""A source that states its steps beside one whose steps must be found: both have them, and row numbers hold."""

from __future__ import annotations

import pytest

from explain.serving import SOURCE
from stitch.test_step_join import ranges, scheduled, table
from tokenpath.capture.capture import Capture, build_table
from tokenpath.capture.combine import combine
from tokenpath.capture.validate import validate
from tokenpath.explain.report import explain
from tokenpath.stitch import link

AT = 10**12


def stating() -> Capture:
    """A profiler's file that says of each kernel to which step it belongs."""
    step = {
        "source_id": [0, 0],
        "name": ["train 0", "train 1"],
        "observer": ["profiler"] * 2,
        "start_ns": [AT, AT + 1000],
        "end_ns": [AT + 1000, AT + 2000],
    }
    kernel = {
        "source_id": [0, 0],
        "device_id": [0, 0],
        "stream_id": [1, 1],
        "start_ns": [AT + 100, AT + 1100],
        "end_ns": [AT + 200, AT + 1300],
        "name": ["gemm_kernel"] * 2,
        "kind": ["compute"] * 2,
        "family": ["gemm"] * 2,
        "step_id": [0, 1],
    }
    return Capture(
        {
            "source": table("source", [SOURCE]),
            "device": build_table("device", {"source_id": [0], "index": [0]}),
            "step": build_table("step", step),
            "kernel": build_table("kernel", kernel),
        }
    )


def annotated() -> Capture:
    threads = {"source_id": [0], "pid": ["1"], "tid": ["1"]}
    return Capture(
        {
            "source": table("source", [SOURCE]),
            "thread": build_table("thread", threads),
            "range": table("range", ranges(0, 6, numbered=None)),
        }
    )


def logged() -> Capture:
    return Capture({"source": table("source", [SOURCE]), "step": table("step", scheduled(0))})


def names_of_kernels(capture: Capture) -> list[str]:
    names = capture["step"]["name"].to_pylist()
    return [names[row] for row in capture.ids("kernel", "step_id").tolist()]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
def test_both_have_their_steps(order: tuple[int, ...]) -> None:
    parts = (stating(), annotated(), logged())
    linked = link(combine([parts[at] for at in order]))
    validate(linked)
    assert names_of_kernels(linked) == ["train 0", "train 1"]
    rows = linked["step"].to_pylist()
    found = [row for row in rows if row["name"].startswith("execute_")]
    assert len(found) == 6
    for row in found:
        assert rows[row["scheduler_step_id"]]["start_ns"] <= row["start_ns"] < row["end_ns"]
    again = link(linked)
    for name in linked:
        assert again[name].to_pylist() == linked[name].to_pylist(), name


@pytest.mark.parametrize("order", [(0, 2), (2, 0)])
def test_the_report_does_not_depend_on_the_order_of_files(order: tuple[int, ...]) -> None:
    parts = (stating(), annotated(), logged())
    report, analysis = explain(link(combine([parts[at] for at in order])))
    assert analysis.capture["step"]["name"].to_pylist() == ["train 0", "train 1"]
    assert names_of_kernels(analysis.capture) == ["train 0", "train 1"]
    assert "2 steps" in report.headline or report.step_funnels
