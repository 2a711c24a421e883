"""Profiled steps are linked to the scheduler's: by number where numbers agree, else by what was seen."""

from __future__ import annotations

from typing import Any

import pytest

from tokenpath.capture.capture import Capture, build_table
from tokenpath.capture.validate import validate
from tokenpath.stitch import link

SHAPES = [(1, 49, 7, 7), (0, 0, 8, 8), (2, 500, 6, 6), (0, 0, 7, 7), (1, 12, 7, 7), (0, 0, 8, 8)]
"""(prefill requests, prefill tokens, decode requests, decode tokens) of each step."""
LENGTH_NS = [30, 12, 90, 11, 20, 13]


def source(clock: str = "epoch") -> dict[str, Any]:
    return {
        "path": "f",
        "format": "x",
        "reader_version": 1,
        "num_bytes": 1,
        "clock_offset_ns": 0,
        "clock": clock,
        "state": "measured",
        "num_events": 0,
        "num_skipped": 0,
    }


def table(name: str, rows: list[dict[str, Any]]) -> Any:
    return build_table(name, {key: [row[key] for row in rows] for key in rows[0]})


def starts() -> list[int]:
    at, found = 10**12, []
    for length in LENGTH_NS:
        found.append(at)
        at += length * 10**6
    return found


def scheduled(source_id: int = 1, first_number: int = 100, **other: Any) -> list[dict[str, Any]]:
    return [
        {
            "source_id": source_id,
            "name": f"step {first_number + at}",
            "observer": "scheduler",
            "number": first_number + at,
            "start_ns": start,
            "end_ns": start + LENGTH_NS[at] * 10**6,
            "num_prefill_requests": shape[0],
            "num_prefill_tokens": shape[1],
            "num_decode_requests": shape[2],
            "num_decode_tokens": shape[3],
        }
        | other
        for at, (start, shape) in enumerate(zip(starts(), SHAPES, strict=True))
    ]


def ranges(
    first: int, end: int, numbered: int | None = 100, shift_ns: int = 0
) -> list[dict[str, Any]]:
    found = []
    for at in range(first, end):
        start = starts()[at] + 20_000 + shift_ns
        p, pt, d, dt = SHAPES[at]
        names = [f"execute_context_{p}({pt})_generation_{d}({dt})"]
        if numbered is not None:
            names.insert(0, f"vllm.step:{numbered + at}")
        for inset, name in enumerate(names):
            found.append(
                {
                    "source_id": 0,
                    "side": "host",
                    "thread_id": 0,
                    "start_ns": start + inset,
                    "end_ns": start + LENGTH_NS[at] * 10**6 - 100_000 - inset,
                    "name": name,
                }
            )
    return found


def capture(
    steps: list[dict[str, Any]], marks: list[dict[str, Any]], clock: str = "epoch"
) -> Capture:
    sources = 1 + max(row["source_id"] for row in steps)
    threads = {"source_id": [0], "pid": ["1"], "tid": ["1"]}
    return Capture(
        {
            "source": table("source", [source(clock), *[source() for _ in range(sources - 1)]]),
            "thread": build_table("thread", threads),
            "range": table("range", marks),
            "step": table("step", steps),
        }
    )


def links(linked: Capture) -> list[tuple[int | None, str | None]]:
    """(number of the scheduler's step, how it was found) of each profiled step."""
    rows = linked["step"].to_pylist()
    return [
        (
            None if row["scheduler_step_id"] is None else rows[row["scheduler_step_id"]]["number"],
            row["linked_by"],
        )
        for row in rows
        if row["observer"] == "profiler"
    ]


def test_by_number() -> None:
    linked = link(capture(scheduled(), ranges(1, 5)))
    validate(linked)
    assert links(linked) == [(number, "step number") for number in (101, 102, 103, 104)]
    assert linked["step"]["confidence"].to_pylist()[:4] == [1.0] * 4


@pytest.mark.parametrize("clock", ["epoch", "monotonic"])
def test_without_numbers(clock: str) -> None:
    marks = ranges(1, 6, numbered=None, shift_ns=0 if clock == "epoch" else -(10**12))
    linked = link(capture(scheduled(), marks, clock))
    assert links(linked) == [(number, "order, shape and time") for number in range(101, 106)]
    assert min(linked["step"]["confidence"].to_pylist()[:5]) >= 0.9


def test_numbers_of_another_run_are_not_believed() -> None:
    """Numbers exist, but lead to other shapes: what was seen decides."""
    linked = link(capture(scheduled(first_number=103), ranges(0, 6)))
    assert links(linked) == [(number, "order, shape and time") for number in range(103, 109)]


def test_the_log_that_fits_is_chosen() -> None:
    other = [row | {"num_decode_requests": 3, "num_decode_tokens": 3} for row in scheduled(2)]
    linked = link(capture([*other, *scheduled(1)], ranges(0, 6, numbered=None)))
    rows = linked["step"].to_pylist()
    assert {rows[row["scheduler_step_id"]]["source_id"] for row in rows[:6]} == {1}


def test_steps_that_cannot_be_told_apart_stay_unlinked() -> None:
    alike = [
        row
        | {"num_prefill_requests": 0, "num_prefill_tokens": 0, "num_decode_requests": 8}
        | {"num_decode_tokens": 8, "start_ns": at * 10**7, "end_ns": at * 10**7 + 1}
        for at, row in enumerate(scheduled())
    ]
    marks = [
        row
        | {"name": "execute_context_0(0)_generation_8(8)", "start_ns": at * 10**7}
        | {"end_ns": at * 10**7 + 1}
        for at, row in enumerate(ranges(0, 3, numbered=None))
    ]
    linked = link(capture(alike, marks, "monotonic"))
    assert links(linked) == [(None, None)] * 3


def test_shares_of_requests_follow_the_scheduler_steps() -> None:
    """Profiled steps are put in front; rows that name the scheduler's steps are moved along."""
    before = capture(scheduled(), ranges(1, 5))
    shares = {
        "source_id": [1],
        "request_id": ["r"],
        "step_id": [2],
        "phase": ["prefill"],
        "num_tokens": [500],
    }
    before = before.replace({"request_step": build_table("request_step", shares)})
    linked = link(before)
    validate(linked)
    (step,) = linked["request_step"]["step_id"].to_pylist()
    assert linked["step"]["number"][step].as_py() == 102
    assert link(linked)["step"].equals(linked["step"])
