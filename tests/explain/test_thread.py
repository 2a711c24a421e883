"""One request's way: its moments, its steps with their batch mates, what ran inside."""

from __future__ import annotations

from typing import Any

import pytest

from explain.serving import capture_of, run
from tokenpath.capture.capture import Capture, build_table
from tokenpath.core.errors import UsageError
from tokenpath.core.report import Report
from tokenpath.explain.thread import request_ids, thread


def table(report: Report, key: str) -> list[dict[str, Any]]:
    (found,) = (table for table in report.tables if table.key == key)
    names = [column.key for column in found.columns]
    return [dict(zip(names, row, strict=True)) for row in found.rows]


def test_steps_and_batch_mates() -> None:
    engine = run(4)
    capture = capture_of(engine)
    for request in engine.requests:
        report = thread(capture, request.name)
        rows = table(report, "steps_of_request")
        members = [
            (number, {member[0]: member for member in step["members"]})
            for number, step in enumerate(engine.steps)
            if any(member[0] == request.name for member in step["members"])
        ]
        assert [row["step"] for row in rows] == [number for number, _ in members]
        assert [row["num_tokens"] for row in rows] == [m[request.name][2] for _, m in members]
        assert sum(row["num_emitted"] for row in rows) == request.output
        for row, (_, found) in zip(rows, members, strict=True):
            others = [name for name in found if name != request.name]
            assert (row["batch"] == "alone") == (not others)
            assert all(name in row["batch"] for name in others[:3])
        for funnel in report.request_funnels:
            assert funnel.residuals() == {}


def test_moments_are_in_order_and_name_their_observer() -> None:
    engine = run(9)
    request = engine.requests[2]
    rows = table(thread(capture_of(engine), request.name), "moments")
    assert [row["after_ns"] for row in rows] == sorted(row["after_ns"] for row in rows)
    found = {(row["observer"], row["moment"]): row["at_ns"] for row in rows}
    assert found["client", "arrival"] == request.sent_ns
    assert found["engine", "first token"] == request.tokens_ns[0]
    assert found["client", "last token"] == request.client_ns[-1]


def with_kernels(capture: Capture, step: int) -> Capture:
    """A profiler saw that step: two kernels, one of them communication that half runs alone."""
    start = capture["step"]["start_ns"][step].as_py()
    profiled = build_table(
        "step",
        {
            "source_id": [0],
            "name": ["execute_context_1(1)_generation_0(0)"],
            "observer": ["profiler"],
            "start_ns": [start],
            "end_ns": [start + 10],
            "scheduler_step_id": [step],
            "linked_by": ["step number"],
            "confidence": [1.0],
        },
    )
    import pyarrow as pa

    rows = capture.num_rows("step")
    steps = pa.concat_tables([capture["step"], profiled]).unify_dictionaries().combine_chunks()
    kernels = {
        "source_id": [0, 0],
        "device_id": [0, 0],
        "stream_id": [1, 2],
        "start_ns": [start + 100, start + 150],
        "end_ns": [start + 200, start + 400],
        "name": ["gemm_kernel", "ncclDevKernel_AllReduce"],
        "kind": ["compute", "communication"],
        "family": ["gemm", "communication"],
        "step_id": [rows, rows],
    }
    device = {"source_id": [0], "index": [0]}
    return capture.replace(
        {
            "step": steps,
            "kernel": build_table("kernel", kernels),
            "device": build_table("device", device),
        }
    )


def test_what_ran_inside_a_step() -> None:
    engine = run(4)
    name = engine.steps[3]["members"][0][0]
    report = thread(with_kernels(capture_of(engine), 3), name)
    (row,) = (row for row in table(report, "steps_of_request") if row["step"] == 3)
    assert row["num_kernels"] == 2
    assert row["busy_ns"] == 300
    assert row["exposed_communication_ns"] == 200
    assert (row["longest"], row["longest_ns"]) == ("ncclDevKernel_AllReduce", 250)
    assert any("ncclDevKernel_AllReduce in step 3" in sentence for sentence in report.answer)
    (other, *_) = (row for row in table(report, "steps_of_request") if row["step"] != 3)
    assert other["longest"] is None


def test_an_unknown_request_names_the_slowest() -> None:
    capture = capture_of(run(4))
    with pytest.raises(UsageError, match="no request 'nobody'") as error:
        thread(capture, "nobody")
    assert request_ids(capture)[0] in str(error.value)


def test_a_request_without_steps_has_what_is_known() -> None:
    capture = capture_of(run(4))
    kept = {name: capture[name] for name in capture if name not in ("step", "request_step")}
    report = thread(Capture(kept), "r0")
    assert [table.key for table in report.tables] == ["moments"]
    assert report.request_funnels
    with pytest.raises(UsageError, match="name a request log"):
        thread(Capture({}), "r0")
