"""Linking a linked capture changes nothing, and ties between schedulers are left open."""

from __future__ import annotations

from typing import Any

import pytest

from stitch.test_step_join import scheduled, source, starts, table
from tokenpath.capture.capture import Capture
from tokenpath.stitch import link


def profiled(
    source_id: int, numbers: list[int] | None = None, **other: Any
) -> list[dict[str, Any]]:
    return [
        {
            "source_id": source_id,
            "name": "x",
            "observer": "profiler",
            "number": None if numbers is None else numbers[at],
            "start_ns": start + 1000,
            "end_ns": start + 2000,
        }
        | other
        for at, start in enumerate(starts())
    ]


def capture_of(num_sources: int, rows: list[dict[str, Any]], clock: str = "epoch") -> Capture:
    keys = dict.fromkeys(key for row in rows for key in row)
    whole = [{key: row.get(key) for key in keys} for row in rows]
    return Capture(
        {"source": table("source", [source(clock)] * num_sources), "step": table("step", whole)}
    )


@pytest.mark.parametrize("confidence", [None, 0.9])
def test_linking_again_changes_nothing(confidence: float | None) -> None:
    stated = {} if confidence is None else {"confidence": confidence, "linked_by": "structure"}
    some = profiled(0, **stated)[1:4]
    some[1]["start_ns"] += 4_000_000
    once = link(capture_of(2, [*some, *scheduled(1)], "monotonic"))
    assert (once.float64("step", "confidence")[:3] < (confidence or 1)).any()
    assert once["step"]["scheduler_step_id"].null_count < once.num_rows("step")
    twice = link(once)
    assert set(twice) == set(once)
    for name in once:
        assert twice[name].to_pylist() == once[name].to_pylist(), name


def test_two_schedulers_that_fit_alike() -> None:
    """Ranks count their steps alike; where shapes do not tell which it was, nothing is guessed."""
    numbers = list(range(100, 106))
    rows = [*profiled(0, numbers), *scheduled(1, engine_id=0), *scheduled(1, engine_id=1)]
    found = link(capture_of(2, rows))
    assert found["step"]["scheduler_step_id"].null_count == found.num_rows("step")
    rows[6]["num_decode_tokens"] += 1
    told = link(
        capture_of(
            2,
            [
                *(
                    row
                    | {
                        "num_prefill_tokens": real["num_prefill_tokens"],
                        "num_decode_tokens": real["num_decode_tokens"],
                    }
                    for row, real in zip(rows[:6], rows[12:], strict=True)
                ),
                *rows[6:],
            ],
        )
    )
    assert told.ids("step", "scheduler_step_id")[:6].tolist() == list(range(12, 18))


@pytest.mark.parametrize("turned", [False, True])
def test_ranks_in_lockstep_are_told_by_shape(turned: bool) -> None:
    """Both logs fit in time, and each step is surely one of either; the shapes are those of one."""
    shapes = [{name: row[name] for name in row if name.startswith("num_")} for row in scheduled()]
    mine = [row | shape for row, shape in zip(profiled(0), shapes, strict=True)]
    one = scheduled(1, engine_id=0)
    other = [row | {"engine_id": 1, "num_decode_tokens": 77} for row in scheduled(1)]
    both = [*other, *one] if turned else [*one, *other]
    found = link(capture_of(2, [*mine, *both]))["step"].to_pylist()
    assert {found[row["scheduler_step_id"]]["engine_id"] for row in found[:6]} == {0}
    alone = link(capture_of(2, [*mine, *other]))
    assert alone["step"]["scheduler_step_id"].null_count == alone.num_rows("step")
